// C = activation(alpha · sum + beta · C + bias), with the sum of partial products that lie one after another
// as packed m × n matrices. They are added in order, so that the result is always the same.
//
// If SCALED, the operands were scaled by powers of two, 2^(14 − exponent) for each row of A and column of B,
// which is undone here.
//
// needs: TC, ACTIVATION, SCALED, lib/matmul

// x · 2^e in two steps of about the same size, each of which is a normal number for every sum of two
// exponents.
fn scaled(x: f32, e: i32) -> f32 {
  let half = e / 2;
  return x * power(half) * power(e - half);
}

fn power(e: i32) -> f32 {
  return bitcast<f32>(u32(clamp(e, -126, 127) + 127) << 23u);
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let i = flat_group(workgroup.id, workgroup.count) * 256u + lane;
  let count = params.m * params.n;
  if i >= count {
    return;
  }
  var sum = 0.0;
  for (var piece = 0u; piece < params.batch; piece++) {
    sum += partial[piece * count + i];
  }
  let row = i / params.n;
  let column = i % params.n;
  if SCALED == 1u {
    sum = scaled(sum, row_exponents[row] + column_exponents[column] - 28);
  }
  let at = params.c_offset + row * params.c_ld + column;
  c[at] = finish(sum, row, column, at);
}
