// Rows of a normalisation that share no vectors with others.
//
// needs: the rows of vectors

fn edge_sum(pair: Pair, side: u32) -> f32 {
  return 0.0;
}

fn edge_normal(number: f32, mean: f32, scale: f32, side: u32) -> f32 {
  return number;
}
