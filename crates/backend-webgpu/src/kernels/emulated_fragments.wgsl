// Functions of shaders/lib/fragment_elements.wgsl for devices without cooperative matrices: fragments are the elements that
// invocations have of them, and meet in workgroup memory. For workgroups of one subgroup of 32, whose flow is uniform.

alias Sums = Elements;

var<private> lane_of_fragments: u32;

// 16 rows of the left operand, then 16 columns of the right one, and what invocations add up.
var<workgroup> sh_operands: array<f32, 512>;
var<workgroup> sh_pairs: array<vec2<f32>, 32>;

fn elements(sums: Sums) -> Elements {
  return sums;
}

fn left_operand_of(numbers: Halves) -> Halves {
  return numbers;
}

fn right_operand_of(numbers: Halves) -> Halves {
  return numbers;
}

// Writes an invocation's elements of a row of the left operand, or of a column of the right one.
fn put_row(row: u32, numbers: vec4<f16>) {
  let at = 16u * row + 2u * (lane_of_fragments % 4u);
  sh_operands[at] = f32(numbers.x);
  sh_operands[at + 1u] = f32(numbers.y);
  sh_operands[at + 8u] = f32(numbers.z);
  sh_operands[at + 9u] = f32(numbers.w);
}

// Elements of a column k of the left operand's two rows times those of four columns of the right one.
fn products_of(k: u32) -> Elements {
  let left = 16u * (lane_of_fragments / 4u) + k;
  let at = 256u + 32u * (lane_of_fragments % 4u) + k;
  let right = vec4<f32>(sh_operands[at], sh_operands[at + 16u], sh_operands[at + 128u], sh_operands[at + 144u]);
  return Elements(sh_operands[left] * right, sh_operands[left + 128u] * right);
}

fn multiply_add(left: Halves, right: Halves, sums: Sums) -> Sums {
  let line = lane_of_fragments / 4u;
  workgroupBarrier();
  put_row(line, left.low);
  put_row(line + 8u, left.high);
  put_row(line + 16u, right.low);
  put_row(line + 24u, right.high);
  workgroupBarrier();
  var all = sums;
  // An end that compilers don't know, which would write out each product's every term.
  let end = 16u + lane_of_fragments / 32u;
  for (var k = 0u; k < end; k++) {
    let some = products_of(k);
    all = Sums(all.low + some.low, all.high + some.high);
  }
  return all;
}

fn sum_of_rows(own: vec2<f32>) -> vec2<f32> {
  workgroupBarrier();
  sh_pairs[lane_of_fragments] = own;
  workgroupBarrier();
  let first = lane_of_fragments / 4u * 4u;
  return sh_pairs[first] + sh_pairs[first + 1u] + sh_pairs[first + 2u] + sh_pairs[first + 3u];
}
