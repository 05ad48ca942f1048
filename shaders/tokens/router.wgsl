// The router of a mixture of experts for few rows: a root-mean-square norm as of norm/normalize, a product with a row of B for each
// expert, and the experts with the largest products, as reduce/top_k finds them.
//
// A workgroup has a row and EACH experts, for each of which LANES invocations hold the row. Each normalises what it holds, so that
// nothing of it passes through workgroup memory, and the first workgroup of a row writes it. The last one finds the experts.
//
// needs: T, LANES, BLOCK (vectors that an invocation holds), SOFTMAX, lib/grid, lib/workgroup, lib/last_workgroup,
// lib/row_top_k, lib/sort_key

@group(0) @binding(8) var<storage, read_write> fixup: array<atomic<u32>>;

const EACH: u32 = THREADS / LANES;

// The products of a row with all experts.
var<workgroup> sh_products: array<f32, MOST>;

fn number_at(row: u32, column: u32) -> f32 {
  return sh_products[column];
}

fn write_found(row: u32, place: u32, column: u32) {
  let at = row * params.k + place;
  indices[params.indices + at] = column;
  let number = sh_products[column];
  if SOFTMAX > 0u {
    values[params.values + at] = probability(number);
  } else {
    values[params.values + at] = number;
  }
}

// The products of a row, normalised, with the experts from `first` on, each for its invocations; beyond the last one, of the last.
fn product_of_row(row: u32, first: u32, writes_row: bool, index: u32) -> f32 {
  let lane = index % LANES;
  let expert = min(first + index / LANES, params.columns - 1u);
  var held: array<vec4<f32>, BLOCK>;
  var scales: array<vec4<f32>, BLOCK>;
  var weights: array<vec4<f32>, BLOCK>;
  var squares = 0.0;
  for (var i = 0u; i < BLOCK; i++) {
    // The last vector stands for those beyond it, which are zeros.
    let vector = min(lane + i * LANES, params.vectors - 1u);
    let is_inside = lane + i * LANES < params.vectors;
    held[i] = select(vec4<f32>(), x[params.x + row * params.vectors + vector], is_inside);
    scales[i] = select(vec4<f32>(), scale[params.scale + vector], is_inside);
    weights[i] = select(vec4<f32>(), vec4<f32>(b[params.b + expert * params.b_ld + vector]), is_inside);
    squares += dot(held[i], held[i]);
  }
  let mean = row_group_reduce(SUM, index, LANES, 1u, squares) / f32(4u * params.vectors);
  let factor = inverseSqrt(mean + params.eps);
  var sum = 0.0;
  for (var i = 0u; i < BLOCK; i++) {
    let normalised = vec4<T>(held[i] * factor * scales[i]);
    sum += dot(vec4<f32>(normalised), weights[i]);
    let vector = lane + i * LANES;
    if writes_row && vector < params.vectors {
      normed[params.normed + row * params.vectors + vector] = normalised;
    }
  }
  return row_group_reduce(SUM, index, LANES, 1u, sum);
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) index: u32) {
  let row = workgroup.id.y;
  let first = workgroup.id.x * EACH;
  let sum = product_of_row(row, first, workgroup.id.x == 0u && index < LANES, index);
  let expert = first + index / LANES;
  if index % LANES == 0u && expert < params.columns {
    var product = sum;
    if params.has_bias == 1u {
      product += bias[params.bias + expert];
    }
    c[params.c + row * params.columns + expert] = product;
    atomicStore(&fixup[COUNTERS + row * params.columns + expert], bitcast<u32>(product));
  }
  if !is_last_workgroup(row, workgroup.count.x, index) {
    return;
  }
  for (var column = index; column < params.columns; column += THREADS) {
    let product = bitcast<f32>(atomicLoad(&fixup[COUNTERS + row * params.columns + column]));
    sh_products[column] = product;
    keys[column] = key_of_f32(product) ^ params.flip;
  }
  workgroupBarrier();
  find(row, index);
}
