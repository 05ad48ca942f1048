// Counts the iterations that the device's compiler lets a loop make: fewer than asked for where it has a
// limit.

@compute @workgroup_size(1)
fn main() {
  var count = 0u;
  for (var i = 0u; i < params.iterations; i++) {
    count++;
  }
  counted[params.output] = count;
}
