// Where the keys and values of a sequence lie: a stride apart, or PAGED, in blocks of a pool.
//
// With a block table there is no mask: its binding holds the table, and its parameters where that begins, the entries of
// a sequence, the binary logarithm of the positions in a block, and the blocks of the pool. Strides by batch and token
// are those by block and position.
//
// needs: lib/attention, PAGED, the binding `mask`

// The offset of a key whose block isn't in the pool.
const OUTSIDE: u32 = 0xffffffffu;

// Where a sequence begins.
fn sequence_start(batch: u32, strides: vec4<u32>) -> u32 {
  return select(batch * strides.y, 0u, PAGED == 1u);
}

// Where a key's vector begins, from the start of its head and sequence on, or OUTSIDE.
fn key_offset(batch: u32, key: u32, strides: vec4<u32>) -> u32 {
  if PAGED == 0u {
    return key * strides.w;
  }
  let block = u32(mask[params.mask.x + batch * params.mask.y + (key >> params.mask.z)]);
  let position = key & ((1u << params.mask.z) - 1u);
  return select(OUTSIDE, block * strides.y + position * strides.w, block < params.mask.w);
}
