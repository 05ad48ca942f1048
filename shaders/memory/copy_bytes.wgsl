// dst[0..bytes] = src[0..bytes], at any byte offset. Each invocation writes one aligned word of dst; the
// first and the last keep the bytes around the range.

// The four bytes of src from `byte` on. A word that lies wholly past the range is not read.
fn load(byte: u32, last: u32) -> u32 {
  let word = byte / 4u;
  let shift = (byte % 4u) * 8u;
  let low = src[word];
  if shift == 0u || word == last {
    return low >> shift;
  }
  return (low >> shift) | (src[word + 1u] << (32u - shift));
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let first_word = params.dst_byte / 4u;
  let word = first_word + flat_group(workgroup.id, workgroup.count) * 256u + lane;
  let end = params.dst_byte + params.bytes;
  if word * 4u >= end {
    return;
  }
  // The range of bytes of this word that are copied.
  let low = max(word * 4u, params.dst_byte);
  let high = min(word * 4u + 4u, end);
  let last = (params.src_byte + params.bytes - 1u) / 4u;
  let lead = (low - word * 4u) * 8u;
  let bits = (high - low) * 8u;
  let value = load(params.src_byte + (low - params.dst_byte), last) << lead;
  if bits == 32u {
    dst[word] = value;
  } else {
    let mask = ((1u << bits) - 1u) << lead;
    dst[word] = (dst[word] & ~mask) | (value & mask);
  }
}
