// Random numbers to the last bit as crates/backend-api/src/random.rs defines them: Philox4x32-10 (Salmon,
// Moraes, Dror and Shaw, 2011), and the method of Box and Muller.

fn philox(low: u32, high: u32, seed: vec2<u32>) -> vec4<u32> {
  var x = vec4<u32>(low, high, 0u, 0u);
  var key = seed;
  for (var round = 0u; round < 10u; round++) {
    x = vec4<u32>(
      multiply_high(0xcd9e8d57u, x.z) ^ x.y ^ key.x,
      0xcd9e8d57u * x.z,
      multiply_high(0xd2511f53u, x.x) ^ x.w ^ key.y,
      0xd2511f53u * x.x,
    );
    key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return x;
}

// The product, rounded. A compiler may fuse a product with a sum, which rounds only once; it can't see that
// the parameter is 0 and must finish the product first.
fn rounded(product: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(product) ^ params.zero);
}

// a · b + c with both rounded.
fn step(a: f32, b: f32, c: f32) -> f32 {
  return rounded(a * b) + c;
}

fn uniforms(words: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(words >> vec4<u32>(8u)) * 5.9604645e-8;
}

// −2·ln(u), u being the word as a fraction.
fn minus_two_log(word: u32) -> f32 {
  let nonzero = max(word, 1u);
  let zeros = countLeadingZeros(nonzero);
  var m = bitcast<f32>(0x3f800000u | (((nonzero << zeros) >> 8u) & 0x7fffffu));
  var e = f32(zeros) + 1.0;
  if m > 1.4142135 {
    m *= 0.5;
    e -= 1.0;
  }
  // S. L. Moshier, Cephes Mathematical Library, logf.c.
  let x = m - 1.0;
  let z = rounded(x * x);
  var p = 7.0376836e-2;
  p = step(p, x, -1.151461e-1);
  p = step(p, x, 1.16769984e-1);
  p = step(p, x, -1.2420141e-1);
  p = step(p, x, 1.4249323e-1);
  p = step(p, x, -1.6668057e-1);
  p = step(p, x, 2.0000714e-1);
  p = step(p, x, -2.4999994e-1);
  p = step(p, x, 3.333333e-1);
  let log = x + (rounded(rounded(p * x) * z) - 0.5 * z);
  return 2.0 * (rounded(e * 0.6933594) - (rounded(e * 2.1219444e-4) + log));
}

// √x by Newton's method.
fn root(x: f32) -> f32 {
  var y = bitcast<f32>(0x5f3759dfu - (bitcast<u32>(x) >> 1u));
  for (var i = 0u; i < 4u; i++) {
    let square = rounded(y * y);
    y = rounded(y * (1.5 - rounded(0.5 * x * square)));
  }
  return rounded(x * y);
}

// Sine and cosine of the word's angle.
fn sine_and_cosine(word: u32) -> vec2<f32> {
  let x = rounded(f32(i32((word >> 6u) & 0xffffffu) - 0x800000) * 9.362675e-8);
  let z = rounded(x * x);
  // S. L. Moshier, Cephes Mathematical Library, sinf.c.
  let inner = step(step(-1.9515296e-4, z, 8.332161e-3), z, -1.6666655e-1);
  let sine = step(rounded(inner * z), x, x);
  let p = step(step(2.4433157e-5, z, -1.3887316e-3), z, 4.1666646e-2);
  let cosine = rounded(rounded(p * z) * z) + (1.0 - 0.5 * z);
  switch word >> 30u {
    case 0u: { return vec2<f32>(sine, cosine); }
    case 1u: { return vec2<f32>(cosine, -sine); }
    case 2u: { return vec2<f32>(-sine, -cosine); }
    default: { return vec2<f32>(-cosine, sine); }
  }
}

fn normal_pair(first: u32, second: u32) -> vec2<f32> {
  let r = root(minus_two_log(first));
  let angle = sine_and_cosine(second);
  return vec2<f32>(rounded(r * angle.y), rounded(r * angle.x));
}

fn normals(words: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(normal_pair(words.x, words.y), normal_pair(words.z, words.w));
}
