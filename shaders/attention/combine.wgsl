// O from the parts that attention/split made of it, each a maximum, a sum and a vector. An invocation makes one number.
//
// needs: T, lib/attention

@group(0) @binding(0) var<storage, read> parts: array<f32>;
@group(0) @binding(1) var<storage, read> mask: array<T>;
@group(0) @binding(2) var<storage, read> lengths: array<u32>;
@group(0) @binding(3) var<storage, read_write> lse: array<f32>;
@group(0) @binding(4) var<storage, read_write> o: array<T>;

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let flat = flat_group(group, groups) * 128u + index;
  let row = flat / params.head_dim;
  let d = flat % params.head_dim;
  // `tiles` counts rows here.
  if row >= params.tiles {
    return;
  }
  let splits = params.options >> 8u;
  let length = params.head_dim + 2u;
  let first = row * splits * length;
  var peak = FLOOR;
  for (var s = 0u; s < splits; s++) {
    peak = max(peak, parts[first + s * length]);
  }
  var total = 0.0;
  var sum = 0.0;
  for (var s = 0u; s < splits; s++) {
    let at = first + s * length;
    let rescale = weight(parts[at] - peak);
    total += parts[at + 1u] * rescale;
    sum += parts[at + 2u + d] * rescale;
  }
  let query = row % params.seq_q;
  let head = row / params.seq_q % params.heads;
  let batch = row / (params.seq_q * params.heads);
  o[params.o.x + batch * params.o.y + head * params.o.z + query * params.o.w + d] =
    T(select(sum / total, 0.0, total == 0.0));
  if has(HAS_LSE) && d == 0u {
    lse[params.lse_offset + row] = log_sum(peak, total);
  }
}
