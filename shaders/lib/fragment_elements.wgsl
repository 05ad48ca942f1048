// The elements of fragments of 16 × 16 that an invocation has.
//
// WGSL can't name them, but SPIR-V can: in what is made of these functions, the elements of the array become
// those of the fragment (src/kernels/spirv.rs). Without that change, they give zeros.
//
// How a fragment is spread over a subgroup is the device's choice. It is as here on NVIDIA's, for sums and
// left operands alike, and with rows and columns exchanged for right operands; the self-test of a kernel that
// uses this file finds out whether it holds.
//
// needs: lib/halves

alias Sums = coop_mat16x16<f32, C>;

// Elements of the row `lane / 4` and of the row eight below, of the columns `2 * (lane % 4)` + 0, 1, 8 and 9.
struct Elements {
  low: vec4<f32>,
  high: vec4<f32>,
}

// Elements of an operand, which lie as Elements do.
struct Halves {
  low: vec4<f16>,
  high: vec4<f16>,
}

// Elements from their bits.
fn elements_of(low: vec2<u32>, high: vec2<u32>) -> Halves {
  return Halves(halves(low), halves(high));
}

// Numbers rounded to f16.
fn to_halves(numbers: Elements) -> Halves {
  return Halves(vec4<f16>(numbers.low), vec4<f16>(numbers.high));
}

fn elements(sums: Sums) -> Elements {
  var fragment = sums;
  var x: array<f32, 8>;
  return Elements(vec4<f32>(x[0], x[1], x[2], x[3]), vec4<f32>(x[4], x[5], x[6], x[7]));
}

fn sums_of(numbers: Elements) -> Sums {
  var fragment: Sums;
  var x: array<f32, 8>;
  x[0] = numbers.low.x;
  x[1] = numbers.low.y;
  x[2] = numbers.low.z;
  x[3] = numbers.low.w;
  x[4] = numbers.high.x;
  x[5] = numbers.high.y;
  x[6] = numbers.high.z;
  x[7] = numbers.high.w;
  return fragment;
}

fn halves_of(numbers: Elements) -> coop_mat16x16<f16, C> {
  var fragment: coop_mat16x16<f16, C>;
  var x: array<f16, 8>;
  let low = vec4<f16>(numbers.low);
  let high = vec4<f16>(numbers.high);
  x[0] = low.x;
  x[1] = low.y;
  x[2] = low.z;
  x[3] = low.w;
  x[4] = high.x;
  x[5] = high.y;
  x[6] = high.z;
  x[7] = high.w;
  return fragment;
}

fn left_operand_of(numbers: Halves) -> coop_mat16x16<f16, A> {
  var fragment: coop_mat16x16<f16, A>;
  var x: array<f16, 8>;
  x[0] = numbers.low.x;
  x[1] = numbers.low.y;
  x[2] = numbers.low.z;
  x[3] = numbers.low.w;
  x[4] = numbers.high.x;
  x[5] = numbers.high.y;
  x[6] = numbers.high.z;
  x[7] = numbers.high.w;
  return fragment;
}

// `low` and `high` are of columns here.
fn right_operand_of(numbers: Halves) -> coop_mat16x16<f16, B> {
  var fragment: coop_mat16x16<f16, B>;
  var x: array<f16, 8>;
  x[0] = numbers.low.x;
  x[1] = numbers.low.y;
  x[2] = numbers.low.z;
  x[3] = numbers.low.w;
  x[4] = numbers.high.x;
  x[5] = numbers.high.y;
  x[6] = numbers.high.z;
  x[7] = numbers.high.w;
  return fragment;
}

// Elements of the two rows, each with a factor of its row.
fn times_rows(numbers: Elements, scales: vec2<f32>) -> Elements {
  return Elements(numbers.low * scales.x, numbers.high * scales.y);
}

// The largest and the sum of what an invocation has of each row.
fn largest(numbers: Elements) -> vec2<f32> {
  let pairs = max(vec4<f32>(numbers.low.xy, numbers.high.xy), vec4<f32>(numbers.low.zw, numbers.high.zw));
  return max(pairs.xz, pairs.yw);
}

fn sum(numbers: Elements) -> vec2<f32> {
  let pairs = vec4<f32>(numbers.low.xy, numbers.high.xy) + vec4<f32>(numbers.low.zw, numbers.high.zw);
  return pairs.xz + pairs.yw;
}

// The largest and the sum of each row over the four invocations that share it.
fn largest_of_rows(own: vec2<f32>) -> vec2<f32> {
  let both = max(own, subgroupShuffleXor(own, 1u));
  return max(both, subgroupShuffleXor(both, 2u));
}

fn sum_of_rows(own: vec2<f32>) -> vec2<f32> {
  let both = own + subgroupShuffleXor(own, 1u);
  return both + subgroupShuffleXor(both, 2u);
}

// Of four neighbours that have a word of each of four vectors, each gets one vector.
fn exchanged(lane: u32, words: vec4<u32>) -> vec4<u32> {
  let odd = lane % 2u == 1u;
  let near = subgroupShuffleXor(select(words.yw, words.xz, odd), 1u);
  let first = select(vec2<u32>(words.x, near.x), vec2<u32>(near.x, words.y), odd);
  let second = select(vec2<u32>(words.z, near.y), vec2<u32>(near.y, words.w), odd);
  let far = lane % 4u >= 2u;
  let other = subgroupShuffleXor(select(second, first, far), 2u);
  return select(vec4<u32>(first, other), vec4<u32>(other, second), far);
}
