// Queries of attention that are read number by number, four at a time, and 0 where a vector has no more. Written
// out, as drivers may count the iterations of loops.
//
// needs: HALF_Q, the binding `q`

alias Words = u32;

const UNIT_Q: u32 = 1u;

// The elements from element `at` on, of which the vector has `left`.
fn load_q(at: u32, left: u32) -> array<vec4<f32>, UNIT_Q> {
  var x = vec4<f32>();
  if left > 0u {
    x.x = number(q[word(at, HALF_Q)], at, HALF_Q);
  }
  if left > 1u {
    x.y = number(q[word(at + 1u, HALF_Q)], at + 1u, HALF_Q);
  }
  if left > 2u {
    x.z = number(q[word(at + 2u, HALF_Q)], at + 2u, HALF_Q);
  }
  if left > 3u {
    x.w = number(q[word(at + 3u, HALF_Q)], at + 3u, HALF_Q);
  }
  return array<vec4<f32>, UNIT_Q>(x);
}

// Where an element lies in words.
fn word(at: u32, half: u32) -> u32 {
  return at >> half;
}

fn number(bits: u32, at: u32, half: u32) -> f32 {
  let pair = unpack2x16float(bits);
  return select(bitcast<f32>(bits), select(pair.x, pair.y, at % 2u == 1u), half == 1u);
}

// Four elements from element `at` on, for what isn't read in a hurry.
fn four_q(at: u32, left: u32) -> vec4<f32> {
  return load_q(at, left)[0];
}
