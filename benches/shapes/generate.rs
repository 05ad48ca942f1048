//! Seeded random shapes: sizes are log-uniform from 1 to 8192, half of them multiples of 16, as models have.

use backend_api::{DType, DeviceKind};

use super::family::Family;
use super::shape::Shape;

/// What one shape may cost on a device.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    largest: usize,
    elements: usize,
    multiplications: u64,
}

impl Budget {
    /// Some milliseconds' worth of work on a kind of device.
    pub const fn of(kind: DeviceKind) -> Self {
        match kind {
            DeviceKind::Cpu | DeviceKind::SoftwareAdapter => {
                Self { largest: 256, elements: 1 << 16, multiplications: 1 << 22 }
            }
            _ => Self { largest: 8192, elements: 1 << 26, multiplications: 1 << 37 },
        }
    }

    fn allows(&self, shape: &Shape) -> bool {
        shape.cost().is_ok_and(|(elements, multiplications)| {
            elements.into_iter().all(|each| (1..=self.elements).contains(&each.max(1)))
                && multiplications <= self.multiplications
        })
    }
}

/// A generator of pseudorandom numbers: SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.next() % of.len() as u64) as usize]
    }

    /// A size whose logarithm is uniform, rounded up to a multiple of 16 half of the time.
    fn size(&mut self, low: usize, high: usize) -> usize {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        let size = (low as f64 * ((high + 1) as f64 / low as f64).powf(uniform)) as usize;
        let even = self.next() & 1 == 0;
        let size = size.clamp(low, high);
        if even && size > 8 { size.next_multiple_of(16).min(high) } else { size }
    }
}

/// `count` shapes of a family, equal for equal seeds and budgets.
pub fn random(family: Family, dtype: DType, seed: u64, count: usize, budget: &Budget) -> Vec<Shape> {
    // The two types get the shapes of one seed, so that they can be compared.
    let mut rng =
        Rng(seed.wrapping_mul(1_000_003) ^ family.name().bytes().fold(0, |sum, b| sum * 31 + u64::from(b)));
    let mut shapes = Vec::with_capacity(count);
    while shapes.len() < count {
        let variant = rng.pick(family.variants());
        let sizes = sizes(family, &mut rng, budget.largest);
        let shape = Shape { family, dtype, variant, sizes };
        if budget.allows(&shape) {
            shapes.push(shape);
        }
    }
    shapes
}

fn sizes(family: Family, rng: &mut Rng, largest: usize) -> Vec<usize> {
    match family {
        Family::Gemm => vec![rng.size(1, largest), rng.size(1, largest), rng.size(1, largest)],
        Family::Batched => {
            let side = largest.min(1024);
            vec![rng.size(2, 128), rng.size(1, side), rng.size(1, side), rng.size(1, side)]
        }
        Family::FewRows => vec![rng.size(1, 256), rng.size(1, largest), rng.size(1, largest)],
        Family::Conv => {
            let window = rng.pick(&[1, 1, 3, 3, 3, 5, 7]);
            let (stride, padding) = (rng.pick(&[1, 1, 2]), rng.pick(&[0, window / 2, window / 2]));
            let side = rng.size(window.max(4), 224);
            let channels = rng.size(1, largest.min(1024));
            let is_depthwise = rng.next().is_multiple_of(6);
            let filters = if is_depthwise { channels } else { rng.size(1, largest.min(1024)) };
            let groups = if is_depthwise { channels } else { 1 };
            vec![rng.size(1, 16), channels, side, side, filters, window, stride, padding, groups]
        }
        Family::Attention | Family::Decode => {
            let kv_heads = rng.pick(&[1, 2, 4, 8, 16, 32]);
            let heads = (kv_heads * rng.pick(&[1, 1, 1, 2, 4, 8])).min(64);
            let head = rng.pick(&[32, 64, 64, 64, 80, 96, 128, 128, 256]);
            let keys = rng.size(1, largest);
            let queries = if family == Family::Decode { 1 } else { keys };
            vec![rng.size(1, 16), heads, kv_heads, queries, keys, head]
        }
        Family::Rows | Family::Reduce | Family::Elementwise => {
            vec![rng.size(1, largest), rng.size(1, largest)]
        }
    }
}
