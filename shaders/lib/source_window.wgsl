// The source of a convolution whose taps lie at whole positions, channel by channel: which taps of a result
// lie in the image is known as bits, and where they are is a sum of two offsets, one of the result and one
// of the tap. Channels are planes, in the filters also where they are adjacent in the source.
//
// needs: lib/conv, lib/quotient, lib/input_origin, lib/source_vec4s, Tile

const A_ALONG_K: u32 = 0u;

// Of each of four neighbouring results: where its first tap would be, and the rows and columns of the filter that
// lie in the image.
var<private> held_first: vec4<u32>;
var<private> held_rows: vec4<u32>;
var<private> held_columns: vec4<u32>;

fn hold(tile: Tile, row: u32) {
  let base = params.input_offset + tile.batch * params.channels * channel_step();
  let a = input_origin_of(row);
  let b = input_origin_of(row + 1u);
  let c = input_origin_of(row + 2u);
  let d = input_origin_of(row + 3u);
  held = row;
  held_first = base + vec4<u32>(a.at, b.at, c.at, d.at);
  held_rows = vec4<u32>(a.rows, b.rows, c.rows, d.rows);
  held_columns = vec4<u32>(a.columns, b.columns, c.columns, d.columns);
}

struct Tap {
  channel: u32,
  r: u32,
  s: u32,
}

alias Summand = Tap;

fn summand_of(k: u32) -> Tap {
  let outer = small_quotient_rest(k, params.filter_height * params.filter_width, params.per_outer);
  let inner = small_quotient_rest(outer.y, params.filter_width, params.per_filter_row);
  return Tap(outer.x, inner.x, inner.y);
}

fn after(tap: Tap) -> Tap {
  var next = Tap(tap.channel, tap.r, tap.s + 1u);
  if next.s == params.filter_width {
    next = Tap(tap.channel, tap.r + 1u, 0u);
    if next.r == params.filter_height {
      next = Tap(tap.channel + 1u, 0u, 0u);
    }
  }
  return next;
}

// What four results have under a tap, or 0.
fn under(tap: Tap, wanted: bool) -> vec4<f32> {
  let pixel = i32(tap.r) * params.tap_y * i32(params.width) + i32(tap.s) * params.tap_x;
  let at = held_first + tap.channel * channel_step() + u32(pixel) * column_step();
  let row = vec4<u32>(1u << tap.r);
  let column = vec4<u32>(1u << tap.s);
  let inside = ((held_rows & row) != vec4<u32>()) & ((held_columns & column) != vec4<u32>());
  if wanted && tap.channel < params.channels {
    return input_four(at, inside);
  }
  return vec4<f32>();
}
