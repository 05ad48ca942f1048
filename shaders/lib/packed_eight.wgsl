// Eight numbers as f16 in 16 bytes.

fn packed(numbers: array<f32, 8>) -> vec4<u32> {
  return vec4<u32>(
    pack2x16float(vec2<f32>(numbers[0], numbers[1])),
    pack2x16float(vec2<f32>(numbers[2], numbers[3])),
    pack2x16float(vec2<f32>(numbers[4], numbers[5])),
    pack2x16float(vec2<f32>(numbers[6], numbers[7])),
  );
}
