// output[i, :] = table[indices[i], :]; a row of zeros for an index outside the table, to which a negative one belongs
// because it counts as a large unsigned number.
//
// needs: T

struct Params {
  rows: u32,
  columns: u32,
  elements: u32,
  table_offset: u32,
  indices_offset: u32,
  output_offset: u32,
}

@group(0) @binding(0) var<storage, read> table: array<T>;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = flat_group(group, groups) * 256u + lane;
  if i >= params.elements {
    return;
  }
  let row = indices[params.indices_offset + i / params.columns];
  var value = T();
  if row < params.rows {
    value = table[params.table_offset + row * params.columns + i % params.columns];
  }
  output[params.output_offset + i] = value;
}
