// What the kernels of C = activation(alpha · op(A) · op(B) + beta · C + bias) share: their parameters, the
// order in which tiles are worked on, and what becomes of a sum.
//
// needs: TC, ACTIVATION, bias, c, lib/c_elements or lib/c_vectors, activate (lib/activate or lib/activate_half)

// Tiles of a column that are worked on together, so that what they share of B is still in the cache.
const RASTER: u32 = 8u;

// The tile of a workgroup as (row of tiles, column of tiles, matrix of the batch): RASTER rows of tiles are
// iterated over column by column.
fn tile_place(flat: u32) -> vec3<u32> {
  let per_matrix = params.tiles_m * params.tiles_n;
  let t = flat % per_matrix;
  let band = t / (RASTER * params.tiles_n);
  let rows = min(RASTER, params.tiles_m - band * RASTER);
  let inner = t % (RASTER * params.tiles_n);
  return vec3<u32>(band * RASTER + inner % rows, inner / rows, flat / per_matrix);
}

// k of a matrix of the batch.
fn depth(matrix: u32) -> u32 {
  return select(params.k, params.k_last, matrix + 1u == params.batch);
}

// The element of C at `i`, which is at (row, column), made of the sum there.
fn finish(sum: f32, row: u32, column: u32, i: u32) -> TC {
  var v = params.alpha * sum;
  if params.accumulate == 1u {
    v += params.beta * c_element(i);
  }
  if params.bias == 1u {
    v += f32(bias[params.bias_offset + column]);
  } else if params.bias == 2u {
    v += f32(bias[params.bias_offset + row]);
  }
  return TC(activate(ACTIVATION, v));
}

// Four elements of C from `i` on, of which `count` exist (at least one), made of the sums there.
fn finish_four(sums: vec4<f32>, row: u32, column: u32, i: u32, count: u32) -> vec4<f32> {
  return finish_apart(sums, row, column, i, count, 1u);
}

// Four elements of a row of C that are `step` apart, likewise.
fn finish_apart(sums: vec4<f32>, row: u32, column: u32, i: u32, count: u32, step: u32) -> vec4<f32> {
  let next = min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u)) * step;
  var v = params.alpha * sums;
  if params.accumulate == 1u {
    v += params.beta * c_four(i + next);
  }
  if params.bias == 1u {
    let at = params.bias_offset + column + next;
    v += vec4<f32>(f32(bias[at.x]), f32(bias[at.y]), f32(bias[at.z]), f32(bias[at.w]));
  } else if params.bias == 2u {
    v += f32(bias[params.bias_offset + row]);
  }
  return vec4<f32>(
    activate(ACTIVATION, v.x),
    activate(ACTIVATION, v.y),
    activate(ACTIVATION, v.z),
    activate(ACTIVATION, v.w),
  );
}

// Writes four results of a row, as far as C has them.
fn write_four(matrix: u32, row: u32, column: u32, sums: vec4<f32>) {
  write_apart(matrix, row, column, sums, 1u);
}

// Writes four results of a row whose columns are `step` apart, as far as C has them.
fn write_apart(matrix: u32, row: u32, column: u32, sums: vec4<f32>, step: u32) {
  if row >= params.m || column >= params.n {
    return;
  }
  let count = min((params.n - 1u - column) / step + 1u, 4u);
  let at = params.c_offset + matrix * params.c_batch + row * params.c_ld + column;
  write_c(at, step, count, finish_apart(sums, row, column, at, count, step));
}
