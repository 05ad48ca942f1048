// The rows v = input + residual of a normalisation, in vectors.
//
// INPUT and RESIDUAL say where these are: ABSENT, BOUND, or exactly the OUTPUT or the SUM_OUTPUT.
//
// needs: T, INPUT, RESIDUAL, the vec of a vector

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
