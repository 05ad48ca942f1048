// The rows v = input + residual of a normalisation, in vectors.
//
// INPUT and RESIDUAL say where these are: ABSENT, BOUND, or exactly the OUTPUT or the SUM_OUTPUT.
//
// needs: T, INPUT, RESIDUAL, the vec of a vector

struct Params {
  rows: u32,
  // Vectors of a row.
  columns: u32,
  row_group: u32,
  // Workgroups that share a row.
  parts: u32,
  eps: f32,
  // Bit 0: there is a weight; bit 1: there is a bias.
  scaled: u32,
  // Vectors of a channel, channels of a row, and rows that have channels of their own.
  spatial: u32,
  channels: u32,
  groups: u32,
  x_offset: u32,
  residual_offset: u32,
  weight_offset: u32,
  bias_offset: u32,
  y_offset: u32,
  sum_offset: u32,
  // Elements of a row.
  length: u32,
  // Of rows that share words.
  turns: u32,
  rows_before: u32,
}

alias A = f32;

const ABSENT = 0u;
const BOUND = 1u;
const OUTPUT = 2u;
const SUM_OUTPUT = 3u;

// What is read of a vector: the input and the residual.
struct Pair {
  input: V,
  residual: V,
}

fn sum_of(pair: Pair) -> array<A, WIDTH> {
  var numbers = unpack(pair.input);
  if RESIDUAL != ABSENT {
    var others = unpack(pair.residual);
    for (var l = 0u; l < WIDTH; l++) {
      numbers[l] += others[l];
    }
  }
  return numbers;
}
