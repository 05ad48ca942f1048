// Quants of eight bits as bytes.
//
// needs: lib/quant_eight

const HAS_OFFSET = false;

fn bytes_of(q: Quants) -> Bytes {
  return Bytes(vec4<u32>(q.first.xz, q.last.xz), vec4<u32>(q.first.yw, q.last.yw));
}
