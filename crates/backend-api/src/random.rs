//! The random numbers of [`ComputeBackend::random`](crate::ComputeBackend::random), defined to the last bit.
//!
//! They come from Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
//! 3", 2011): block `b` of the stream is the counter `(b mod 2³², b / 2³², 0, 0)` enciphered with the seed as
//! key. What is made of its four words here uses only sums and products of f32, each rounded to the nearest,
//! and operations on bits, so that every device can give the same numbers.

/// The four words of a block of the stream.
#[must_use]
pub const fn philox_block(seed: u64, block: u64) -> [u32; 4] {
    let [mut x0, mut x1, mut x2, mut x3] = [block as u32, (block >> 32) as u32, 0, 0];
    let [mut k0, mut k1] = [seed as u32, (seed >> 32) as u32];
    let mut round = 0;
    while round < 10 {
        let first = 0xD251_1F53u64 * x0 as u64;
        let second = 0xCD9E_8D57u64 * x2 as u64;
        [x0, x1, x2, x3] =
            [(second >> 32) as u32 ^ x1 ^ k0, second as u32, (first >> 32) as u32 ^ x3 ^ k1, first as u32];
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
        round += 1;
    }
    [x0, x1, x2, x3]
}

/// The numbers of a block, uniform in [0, 1): the upper 24 bits of each word.
#[must_use]
pub fn uniforms(words: [u32; 4]) -> [f32; 4] {
    words.map(|word| (word >> 8) as f32 * (1.0 / 16_777_216.0))
}

/// The numbers of a block with the normal distribution of mean 0 and standard deviation 1: two pairs by the
/// method of Box and Muller, r·cos θ and r·sin θ. They differ from the mathematical ones by a few units in
/// the last place.
#[must_use]
pub fn normals(words: [u32; 4]) -> [f32; 4] {
    let [a, b] = pair(words[0], words[1]);
    let [c, d] = pair(words[2], words[3]);
    [a, b, c, d]
}

fn pair(first: u32, second: u32) -> [f32; 2] {
    let r = root(minus_two_log(first));
    let [sine, cosine] = sine_and_cosine(second);
    [r * cosine, r * sine]
}

/// −2·ln(u), u being the word as a fraction, truncated to 24 significant bits.
fn minus_two_log(word: u32) -> f32 {
    let word = word.max(1);
    let zeros = word.leading_zeros();
    // u = m · 2^(−zeros − 1) with m in [1, 2), then with m in [√½, √2).
    let mut m = f32::from_bits(0x3f80_0000 | (((word << zeros) >> 8) & 0x7f_ffff));
    let mut e = zeros as f32 + 1.0;
    if m > std::f32::consts::SQRT_2 {
        m *= 0.5;
        e -= 1.0;
    }
    // S. L. Moshier, Cephes Mathematical Library, logf.c.
    let x = m - 1.0;
    let z = x * x;
    let mut p = 7.037_683_6e-2;
    for coefficient in [
        -1.151_461e-1,
        1.167_699_84e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_7e-1,
        2.000_071_4e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ] {
        p = p * x + coefficient;
    }
    let log = x + (p * x * z - 0.5 * z);
    2.0 * (e * 0.693_359_4 - (e * 2.121_944_4e-4 + log))
}

/// √x for x from 1e-7 to 50: the reciprocal root by Newton's method, from a guess by its bits.
fn root(x: f32) -> f32 {
    let mut y = f32::from_bits(0x5f37_59df - (x.to_bits() >> 1));
    for _ in 0..4 {
        y *= 1.5 - 0.5 * x * (y * y);
    }
    x * y
}

/// Sine and cosine of an angle of `word` / 2³² turns, less an eighth of a turn, in 2²⁶ steps.
fn sine_and_cosine(word: u32) -> [f32; 2] {
    let rest = ((word >> 6) & 0xff_ffff).cast_signed() - 0x80_0000;
    let x = rest as f32 * 9.362_675e-8; // π/2 · 2⁻²⁴
    let z = x * x;
    // S. L. Moshier, Cephes Mathematical Library, sinf.c.
    let sine = ((-1.951_529_6e-4 * z + 8.332_161e-3) * z - 1.666_665_5e-1) * z * x + x;
    let p = (2.443_315_7e-5 * z - 1.388_731_6e-3) * z + 4.166_664_6e-2;
    let cosine = p * z * z + (1.0 - 0.5 * z);
    match word >> 30 {
        0 => [sine, cosine],
        1 => [cosine, -sine],
        2 => [-sine, -cosine],
        _ => [-cosine, sine],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_its_authors_numbers() {
        // Random123's known answers are for the whole counter; this one has its upper words 0.
        assert_eq!(philox_block(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }

    /// The paper's rounds: two products of 64 bits, their upper halves mixed with the other words and the
    /// key.
    fn enciphered(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
        for _ in 0..10 {
            let product = |factor: u32, word: u32| u64::from(factor) * u64::from(word);
            let (a, b) = (product(0xD251_1F53, counter[0]), product(0xCD9E_8D57, counter[2]));
            let high = |product: u64| (product / (1 << 32)) as u32;
            counter = [high(b) ^ counter[1] ^ key[0], b as u32, high(a) ^ counter[3] ^ key[1], a as u32];
            key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
        }
        counter
    }

    #[test]
    fn seed_and_block_are_key_and_counter() {
        // The known answer of Random123 for a counter and a key of other numbers holds the judge to account.
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let answer = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(enciphered(counter, [0xa409_3822, 0x299f_31d0]), answer);
        for (seed, block) in
            [(0, 0), (7, 1), (1 << 40, 5), (u64::MAX, u64::MAX), (0x1234_5678_9abc_def0, 3 << 31)]
        {
            let halves = |x: u64| [(x % (1 << 32)) as u32, (x / (1 << 32)) as u32];
            let [low, high] = halves(block);
            assert_eq!(philox_block(seed, block), enciphered([low, high, 0, 0], halves(seed)));
        }
        assert_eq!(uniforms([0, 255, 256, u32::MAX]), [0.0, 0.0, 2f32.powi(-24), 1.0 - 2f32.powi(-24)]);
    }

    #[test]
    fn normals_are_those_of_box_and_muller() {
        let mut worst = 0f64;
        let edges = [0, 1, 2, 255, 256, 0x7fff_ffff, 0x8000_0000, 0xb504_f333, u32::MAX];
        let blocks = (0..20_000).map(|b| philox_block(7, b));
        for words in blocks.chain(edges.iter().flat_map(|&a| edges.map(|b| [a, b, b, a]))) {
            let got = normals(words);
            for i in [0, 2] {
                let first = words[i].max(1);
                let u = f64::from(
                    first >> (8 - first.leading_zeros().min(8)) << (8 - first.leading_zeros().min(8)),
                ) / 2f64.powi(32);
                let turns = (f64::from(words[i + 1] >> 6) - f64::from(1 << 23)) / 2f64.powi(26);
                let (r, angle) = ((-2.0 * u.ln()).sqrt(), turns * std::f64::consts::TAU);
                for (got, want) in [(got[i], r * angle.cos()), (got[i + 1], r * angle.sin())] {
                    worst = worst.max((f64::from(got) - want).abs() / r);
                }
            }
        }
        // An f32 has 6e-8; the pair is a product of two functions with a few roundings each.
        assert!(worst < 1e-6, "{worst:e}");
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let blocks = 1 << 16;
        let moments = |of: fn([u32; 4]) -> [f32; 4]| {
            let mut sums = [0f64; 4];
            for x in (0..blocks).flat_map(|b| of(philox_block(42, b))) {
                (1..=4).for_each(|k| sums[k - 1] += f64::from(x).powi(k as i32));
            }
            sums.map(|sum| sum / (4 * blocks) as f64)
        };
        // Five standard errors of the mean of 2¹⁸ numbers.
        let close = |got: f64, want: f64, deviation: f64| (got - want).abs() < 5.0 * deviation / 512.0;
        let [mean, square, cube, fourth] = moments(normals);
        assert!(close(mean, 0.0, 1.0) && close(square, 1.0, 1.42), "{mean} {square}");
        assert!(close(cube, 0.0, 3.88) && close(fourth, 3.0, 9.8), "{cube} {fourth}");
        let [mean, square, ..] = moments(uniforms);
        assert!(close(mean, 0.5, 0.289) && close(square, 1.0 / 3.0, 0.299), "{mean} {square}");
    }
}
