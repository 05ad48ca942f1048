// Keys or values in blocks of a pool as packed ones, `[sequences, heads, tokens, dim]`, in units of a type: elements,
// words of Q8_0, or 16 bytes. A block outside the pool gives zeros.
//
// Tokens behind a sequence's last are left as they are, but for those that a tile may take with it: these are 0, since
// kernels sum up again what comes to no number by values that nobody sees.
//
// needs: T, A = T, lib/invocation_outputs, lib/vec_1 or lib/vec_4

// The most keys of a tile of attention.
const TILE: u32 = 256u;

fn make_output(unit: u32) {
  let row = unit / params.dim;
  let token = row % params.tokens;
  let head = row / params.tokens % params.heads;
  let sequence = row / params.tokens / params.heads;
  var real = params.tokens;
  if params.has_lengths == 1u {
    real = min(real, lengths[params.lengths + sequence]);
  }
  if token >= real + TILE {
    return;
  }
  var result = V();
  if token < real {
    let block = blocks[params.table + sequence * params.max_blocks + (token >> params.block_bits)];
    if block < params.pool_blocks {
      let position = token & ((1u << params.block_bits) - 1u);
      let vector = params.pool + block * params.by_block + head * params.by_head + position * params.by_token;
      result = pool[vector + unit % params.dim];
    }
  }
  packed[params.packed + unit] = result;
}
