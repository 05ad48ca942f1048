// The source of a convolution whose taps lie at whole positions, channel by channel: which taps of a result
// lie in the image is known as bits, and where they are is a sum of two offsets, one of the result and one
// of the tap. Channels are planes, in the filters also where they are adjacent in the source.
//
// Fours are written out: a compiler that doesn't unroll a loop over them would put them into memory.
//
// needs: lib/conv, lib/quotient, lib/input_origin, Tile

const A_ALONG_K: u32 = 0u;

// The first of four neighbouring results, and for each of them: where its first tap would be, and the rows
// and columns of the filter that lie in the image. An invocation asks for the same results again and again.
var<private> held: u32 = 0xffffffffu;
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

fn tap_of(k: u32) -> Tap {
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
  var v = vec4<f32>();
  if wanted && tap.channel < params.channels {
    if inside.x { v.x = f32(input[at.x]); }
    if inside.y { v.y = f32(input[at.y]); }
    if inside.z { v.z = f32(input[at.z]); }
    if inside.w { v.w = f32(input[at.w]); }
  }
  return v;
}

// Four results by four taps, of which `count` are to be had.
fn block_a(tile: Tile, corner: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = corner + lane;
  if held != place.x {
    hold(tile, place.x);
  }
  let a = tap_of(place.y);
  let b = after(a);
  let c = after(b);
  let d = after(c);
  return mat4x4<f32>(under(a, count > 0u), under(b, count > 1u), under(c, count > 2u), under(d, count > 3u));
}
