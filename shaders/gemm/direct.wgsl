// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, straight from memory: the kernel for
// devices whose workgroup memory is memory like any other, such as processors that pose as a GPU.
//
// Each invocation makes 4 × 4 results. With VEC, the starts, leading dimensions, batch strides and extents along memory
// of A and B are multiples of 4, and both are read as vectors; without, element by element.
//
// needs: TA, TB, TC, VEC, TRANS_A, TRANS_B, ACTIVATION, lib/matmul, lib/factor_blocks

const SIDE: u32 = 8u;
const TILE: u32 = 4u * SIDE;

@group(0) @binding(0) var<storage, read> a: array<TA>;
@group(0) @binding(1) var<storage, read> a4: array<vec4<TA>>;
@group(0) @binding(2) var<storage, read> b: array<TB>;
@group(0) @binding(3) var<storage, read> b4: array<vec4<TB>>;
@group(0) @binding(4) var<storage, read> bias: array<TC>;
@group(0) @binding(5) var<storage, read_write> c: array<TC>;

// Which matrix of the batch is worked on.
struct Tile {
  batch: u32,
}

// Four vectors of a factor that lie `ld` vectors apart.
fn vectors_a(i: u32, ld: u32) -> mat4x4<f32> {
  return mat4x4<f32>(
    vec4<f32>(a4[i]),
    vec4<f32>(a4[i + ld]),
    vec4<f32>(a4[i + 2u * ld]),
    vec4<f32>(a4[i + 3u * ld]),
  );
}

fn vectors_b(i: u32, ld: u32) -> mat4x4<f32> {
  return mat4x4<f32>(
    vec4<f32>(b4[i]),
    vec4<f32>(b4[i + ld]),
    vec4<f32>(b4[i + 2u * ld]),
    vec4<f32>(b4[i + 3u * ld]),
  );
}

@compute @workgroup_size(SIDE * SIDE)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let flat = flat_group(group, groups);
  if flat >= params.tiles {
    return;
  }
  let place = tile_place(flat);
  let row = place.x * TILE + index / SIDE * 4u;
  let column = place.y * TILE + index % SIDE * 4u;
  let tile = Tile(place.z);
  let end = depth(tile.batch);
  let whole = select(0u, end - end % 4u, VEC == 1u && row + 4u <= params.m && column + 4u <= params.n);
  // Four vectors with names: in an array, software drivers keep them in memory.
  var c0 = vec4<f32>();
  var c1 = vec4<f32>();
  var c2 = vec4<f32>();
  var c3 = vec4<f32>();
  // A block of A by rows times one of B, of which each column is a row of the matrix: sums of B's rows.
  let a_ld = params.a_ld / 4u;
  let b_ld = params.b_ld / 4u;
  let a_step = select(1u, 4u * a_ld, TRANS_A == 1u);
  let b_step = select(4u * b_ld, 1u, TRANS_B == 1u);
  var i = (params.a_offset + tile.batch * params.a_batch) / 4u + select(row * a_ld, row / 4u, TRANS_A == 1u);
  var j = (params.b_offset + tile.batch * params.b_batch) / 4u + select(column / 4u, column * b_ld, TRANS_B == 1u);
  for (var k = 0u; k < whole; k += 4u) {
    var x = vectors_a(i, a_ld);
    if TRANS_A == 1u {
      x = transpose(x);
    }
    var y = vectors_b(j, b_ld);
    if TRANS_B == 1u {
      y = transpose(y);
    }
    c0 += y * x[0];
    c1 += y * x[1];
    c2 += y * x[2];
    c3 += y * x[3];
    i += a_step;
    j += b_step;
  }
  for (var k = whole; k < end; k += 4u) {
    let x = transpose(block_a(tile, vec2<u32>(0u, k), vec2<u32>(row, 0u), end - k));
    let y = block_b(tile, vec2<u32>(0u, k), vec2<u32>(column, 0u), end - k);
    c0 += y * x[0];
    c1 += y * x[1];
    c2 += y * x[2];
    c3 += y * x[3];
  }
  write_four(tile.batch, row, column, c0);
  write_four(tile.batch, row + 1u, column, c1);
  write_four(tile.batch, row + 2u, column, c2);
  write_four(tile.batch, row + 3u, column, c3);
}
