// Integers as f16, two at a time and without conversions: those up to 1023 in the lowest bits of 1024 are added
// to it.
//
// needs: params with the planes

// Nibbles 0 and 4 of a word, and 1 and 5.
const EVEN: u32 = 0x000f000fu;
const ODD: u32 = 0x00f000f0u;

// 1024 as f16, twice.
const KILO: u32 = 0x64006400u;

// KILO as a sum that compilers can't work out, so that a mask and KILO are one instruction for a word. Of two constants,
// NVIDIA's driver makes two. A row has fewer than 2³¹ vectors of quants.
fn kilo() -> u32 {
  return KILO + (params.quants_row >> 31u);
}

// The whole numbers in the halves of `even`, and a 16th of those in the halves of `odd`, each less `by`.
fn less(even: u32, odd: u32, by: f16) -> vec4<f16> {
  return kilo_less(even | kilo(), odd | kilo(), by);
}

// Of words that KILO is part of already: where two masks are joined, it takes no instruction more if it comes with one of them.
fn kilo_less(even: u32, odd: u32, by: f16) -> vec4<f16> {
  let x = vec2<f16>(unpack2x16float(even)) - vec2<f16>(1024.0h + by);
  let y = fma(vec2<f16>(unpack2x16float(odd)), vec2<f16>(0.0625h), vec2<f16>(-64.0h - by));
  return vec4<f16>(x, y);
}
