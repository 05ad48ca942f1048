// C = residual + activation(alpha · A · Bᵀ + bias) like quant/decode, for devices whose subgroups have SUBGROUP
// invocations.
//
// A workgroup makes ROWS rows and COLUMNS columns of C. A subgroup shares SPAN rows of B, and adds its parts
// without workgroup memory.
//
// needs: TA, TC, ROWS, SPAN, SUBGROUP, ACTIVATION, lib/quant_product, lib/quant_sums, a format, a reader of A

const SUBGROUPS: u32 = 4u;
const LANES: u32 = SUBGROUP;
const COLUMNS: u32 = SUBGROUPS * SPAN;

@compute @workgroup_size(SUBGROUPS * SUBGROUP)
fn main(workgroup: Workgroup, @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32) {
  let tile = flat_group(workgroup.id, workgroup.count);
  if tile >= params.tiles {
    return;
  }
  let first_row = tile / params.tiles_n * ROWS;
  let column = tile % params.tiles_n * COLUMNS + subgroup * SPAN;
  var sums = sums_of_lane(first_row, lines_from(column), lane);
  for (var i = 0u; i < ROWS * SPAN; i++) {
    sums[i] = subgroupAdd(sums[i]);
  }
  // The lanes take turns at writing.
  for (var i = 0u; i < ROWS * SPAN; i++) {
    let row = first_row + i / SPAN;
    if i % SUBGROUP == lane && row < params.m && column + i % SPAN < params.n {
      finish(sums[i], row, column + i % SPAN);
    }
  }
}
