// The upper half of the product a · b.
fn multiply_high(a: u32, b: u32) -> u32 {
  let a_low = a & 0xffffu;
  let a_high = a >> 16u;
  let b_low = b & 0xffffu;
  let b_high = b >> 16u;
  let first = a_high * b_low + ((a_low * b_low) >> 16u);
  let second = a_low * b_high + (first & 0xffffu);
  return a_high * b_high + (first >> 16u) + (second >> 16u);
}
