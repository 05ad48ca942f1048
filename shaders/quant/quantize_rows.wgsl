// Rounds rows of A to 8 bits for lib/quant_sums_int8: each block of 32 numbers to whole multiples of its scale, a
// 127th of the largest magnitude. An invocation rounds eight numbers, four neighbours a block.
//
// A unit of 128 numbers takes ten vectors of 16 bytes: two for each word j, of which component b has the first and the
// last four integers of the word j of block b; the scales of the four blocks; and a quarter of the sum of the integers
// of each, which is what each of four words has to take into account.
//
// needs: TA, NIBBLES, a reader of A

const THREADS: u32 = 64u;
const UNIT_WORDS: u32 = 40u;
const SCALES_AT: u32 = 32u;
const QUARTERS_AT: u32 = 36u;

// Bits of 2⁻¹¹⁹, of whose 127th the reciprocal is finite, and of infinity.
const SMALLEST: u32 = 0x04000000u;
const INFINITE: u32 = 0x7f800000u;
const NOT_A_NUMBER: u32 = 0x7fc00000u;

var<workgroup> sh_largest: array<u32, THREADS>;
var<workgroup> sh_sums: array<i32, THREADS>;

// Magnitudes as bits, which are ordered alike, and NaN above all of them.
fn magnitudes(x: vec4<f32>) -> vec4<u32> {
  return bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
}

fn integers(x: vec4<f32>, scale: f32) -> vec4<i32> {
  return clamp(vec4<i32>(round(x / scale)), vec4<i32>(-127), vec4<i32>(127));
}

fn sum_of(x: vec4<i32>) -> i32 {
  return x.x + x.y + x.z + x.w;
}

fn packed(x: vec4<i32>) -> u32 {
  let bytes = bitcast<vec4<u32>>(x & vec4<i32>(255)) << vec4<u32>(0u, 8u, 16u, 24u);
  return bytes.x | bytes.y | bytes.z | bytes.w;
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) index: u32) {
  let i = flat_group(workgroup.id, workgroup.count) * THREADS + index;
  let row = i / (16u * params.units);
  let word = i % (16u * params.units);
  let lo = load_a(min(row, params.m - 1u), 8u * word);
  let hi = load_a(min(row, params.m - 1u), 8u * word + 4u);
  let sizes = max(magnitudes(lo), magnitudes(hi));
  sh_largest[index] = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
  workgroupBarrier();

  let first = index / 4u * 4u;
  let pairs = max(
    vec2<u32>(sh_largest[first], sh_largest[first + 1u]),
    vec2<u32>(sh_largest[first + 2u], sh_largest[first + 3u]),
  );
  let largest = max(pairs.x, pairs.y);
  let is_usual = largest >= SMALLEST && largest < INFINITE;
  let scale = select(1.0, bitcast<f32>(largest) / 127.0, is_usual);
  let q_lo = select(vec4<i32>(), integers(lo, scale), is_usual);
  let q_hi = select(vec4<i32>(), integers(hi, scale), is_usual);
  sh_sums[index] = sum_of(q_lo) + sum_of(q_hi);
  workgroupBarrier();

  if row >= params.m {
    return;
  }
  let block = word / 4u % 4u;
  let j = word % 4u;
  let at = params.rounded + (row * params.units + word / 16u) * UNIT_WORDS;
  // The order of the nibbles of a word: 0, 2, 4, 6, 1, 3, 5, 7.
  let evens = vec4<i32>(q_lo.x, q_hi.x, q_lo.y, q_hi.y);
  let odds = vec4<i32>(q_lo.z, q_hi.z, q_lo.w, q_hi.w);
  rounded[at + 8u * j + block] = packed(select(q_lo, evens, NIBBLES == 1u));
  rounded[at + 8u * j + 4u + block] = packed(select(q_hi, odds, NIBBLES == 1u));
  if j == 0u {
    let sum = sh_sums[first] + sh_sums[first + 1u] + sh_sums[first + 2u] + sh_sums[first + 3u];
    // A NaN reaches all results of the row; what isn't a number may be made by no arithmetic.
    let bits = select(0u, NOT_A_NUMBER, largest >= INFINITE);
    rounded[at + SCALES_AT + block] = select(bits, bitcast<u32>(scale), is_usual);
    rounded[at + QUARTERS_AT + block] = bitcast<u32>(0.25 * f32(sum));
  }
}
