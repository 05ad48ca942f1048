// The quants of Q8_0 as bytes.
//
// needs: lib/quant_q8_0

const HAS_OFFSET = false;

fn bytes_of(q: Quants) -> Bytes {
  return Bytes(vec4<u32>(q.first.xz, q.last.xz), vec4<u32>(q.first.yw, q.last.yw));
}
