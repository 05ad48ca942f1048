// The gradient of a pooling of maxima over planes, by tiles of the input: a workgroup finds the maxima of all
// windows that cover a part of its tile, and then gives each element what the windows with their maximum there
// have. Windows that reach into several tiles are searched once for each.
//
// needs: T, OP (0), lib/pool_input

const TILE_WIDTH = 64u;
const MOST_WINDOWS = 1536u;

// Of each window, the position y * width + x of its maximum, 0xffffffff if it has none, and its gradient.
var<workgroup> sh_positions: array<u32, MOST_WINDOWS>;
var<workgroup> sh_gradients: array<f32, MOST_WINDOWS>;

// The windows that cover a row, of the input.
fn rows_at(y: u32) -> vec2<u32> {
  let span = (params.size_y - 1u) * params.dilation_y;
  return windows_at(y + params.before_y, params.step_y, params.per_step_y, span, params.out_height);
}

// The windows that cover a column.
fn columns_at(x: u32) -> vec2<u32> {
  let span = (params.size_x - 1u) * params.dilation_x;
  return windows_at(x + params.before_x, params.step_x, params.per_step_x, span, params.out_width);
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let number = min(params.first + flat_group(workgroup.id, workgroup.count), params.total - 1u);
  let row_of_tiles = number / params.tiles_x;
  let image = row_of_tiles / params.tiles_y;
  let left = number % params.tiles_x * TILE_WIDTH;
  let top = row_of_tiles % params.tiles_y * params.tile_height;
  let right = min(left + TILE_WIDTH, params.width);
  let bottom = min(top + params.tile_height, params.height);

  // Behind the last window, there is none.
  let rows = vec2<u32>(rows_at(top).x, rows_at(bottom - 1u).y);
  let columns = vec2<u32>(columns_at(left).x, columns_at(right - 1u).y);
  let height = max(rows.y, rows.x) - rows.x;
  let width = max(columns.y, columns.x) - columns.x;
  for (var w = lane; w < min(height * width, MOST_WINDOWS); w += 256u) {
    let y = rows.x + w / width;
    let x = columns.x + w % width;
    let best = largest(Place(image, y, x, 0u));
    sh_positions[w] = select(best.y * params.width + best.x, 0xffffffffu, best.y == 0xffffffffu);
    let window = (image * params.out_height + y) * params.out_width + x;
    sh_gradients[w] = f32(gradient[params.gradient_offset + window]);
  }
  workgroupBarrier();

  let x = left + lane % TILE_WIDTH;
  if x >= right {
    return;
  }
  let across = columns_at(x);
  for (var y = top + lane / TILE_WIDTH; y < bottom; y += 256u / TILE_WIDTH) {
    let down = rows_at(y);
    let position = y * params.width + x;
    var sum = 0.0;
    for (var v = down.x; v < down.y; v++) {
      for (var u = across.x; u < across.y; u++) {
        let w = (v - rows.x) * width + u - columns.x;
        if sh_positions[w] == position {
          sum += sh_gradients[w];
        }
      }
    }
    output[params.output_offset + image * params.height * params.width + position] = T(sum);
  }
}
