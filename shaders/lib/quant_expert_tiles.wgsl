// Tiles of rows that share an expert, as quant/expert_order has put them into `plan`.
//
// needs: GATED, lib/quant_experts, plan, bias

struct ExpertTile {
  // The expert among those that are bound.
  expert: u32,
  // Whether the rows' indices are no expert's.
  is_none: bool,
  // Where the tile's indices begin in `plan`, and how many they are: 0 if another launch makes the tile.
  first: u32,
  rows: u32,
}

// The tile `number` of all.
fn expert_tile(number: u32) -> ExpertTile {
  let entry = params.entries + 4u * number;
  let chosen = plan[entry];
  let expert = chosen - params.first;
  let is_none = params.first == 0u && chosen == params.experts_of_all;
  let rows = select(0u, plan[entry + 2u], is_none || expert < params.experts);
  return ExpertTile(expert, is_none, params.order + plan[entry + 1u], rows);
}

// The place among all indices of a row of a tile that has at least one; of those beyond, the last one's.
fn pair_of(tile: ExpertTile, row: u32) -> u32 {
  return plan[tile.first + min(row, tile.rows - 1u)];
}

fn row_of_a(tile: ExpertTile, row: u32) -> u32 {
  return pair_of(tile, row) / params.sharing;
}

// The first row of B of the expert's matrix.
fn matrix_of(tile: ExpertTile) -> u32 {
  return tile.expert * (params.n << GATED);
}

// What is added to the product with a row of the expert's matrix, if there is such an expert.
fn bias_of(tile: ExpertTile, line: u32) -> f32 {
  if (params.terms & HAS_BIAS) == 0u || tile.is_none {
    return 0.0;
  }
  return bias[params.bias + matrix_of(tile) + line];
}
