// Four rows of a convolution's source that an invocation asks for again and again, by four of what is summed over.
//
// needs: input, Tile, Summand (a place in a sum), summand_of, after (the next one), hold (what the rows have in common),
// under (four rows of the source at a summand)

// The first of the rows that are held.
var<private> held: u32 = 0xffffffffu;

// Four elements of the source, or 0 for those that aren't there. Written out: a compiler that doesn't unroll a loop over
// them would put them into memory.
fn input_four(at: vec4<u32>, inside: vec4<bool>) -> vec4<f32> {
  var v = vec4<f32>();
  if inside.x { v.x = f32(input[at.x]); }
  if inside.y { v.y = f32(input[at.y]); }
  if inside.z { v.z = f32(input[at.z]); }
  if inside.w { v.w = f32(input[at.w]); }
  return v;
}

// Four rows by four summands, of which `count` are to be had.
fn block_a(tile: Tile, origin: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = origin + lane;
  if held != place.x {
    hold(tile, place.x);
  }
  let a = summand_of(place.y);
  let b = after(a);
  let c = after(b);
  let d = after(c);
  return mat4x4<f32>(under(a, count > 0u), under(b, count > 1u), under(c, count > 2u), under(d, count > 3u));
}
