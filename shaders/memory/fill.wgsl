// dst[0..n] = value, where value holds the bits of one element (of 4 bytes) or of the same element twice (of
// 2 bytes). Each invocation writes one aligned word; the first and the last keep the bytes around the range.

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let word = params.dst_byte / 4u + flat_group(workgroup.id, workgroup.count) * 256u + lane;
  let end = params.dst_byte + params.bytes;
  if word * 4u >= end {
    return;
  }
  let low = max(word * 4u, params.dst_byte) - word * 4u;
  let high = min(word * 4u + 4u, end) - word * 4u;
  if high - low == 4u {
    dst[word] = params.value;
  } else {
    let mask = ((1u << ((high - low) * 8u)) - 1u) << (low * 8u);
    dst[word] = (dst[word] & ~mask) | (params.value & mask);
  }
}
