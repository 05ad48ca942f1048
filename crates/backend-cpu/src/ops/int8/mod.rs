//! Products of activations that are rounded to 8 bits with quantised weights.

mod few;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "tiles are worth it with AVX-512 alone"))]
mod many;
#[cfg(test)]
mod tests;

use backend_api::MathMode;
use backend_api::desc::QuantMatmulDesc;
use backend_api::quant::{QuantFormat, QuantLanes, QuantLayout, UNIT};
use bytemuck::Zeroable;
use pulp::{Arch, Scalar, Simd, WithSimd};

use self::few::Few;
use self::many::{Tile, Weights};
use crate::parallel::Cores;
use crate::room::{NoRoom, zeros};

/// Activations that share a scale.
const BLOCK: usize = 32;
const BLOCKS: usize = UNIT / BLOCK;

/// Units of activations in the share of one thread.
const GRAIN: usize = 128;

/// Blocks with smaller activations count as zeros: their scales would be subnormal.
const SMALLEST: f32 = f32::from_bits((127 - 119) << 23);

/// Whether a product has activations and they are rounded.
pub(super) fn rounds(desc: &QuantMatmulDesc) -> bool {
    desc.math == MathMode::Int8 && desc.b.format.takes_int8() && desc.k() > 0
}

/// The 128 quants of a unit, in the order of [`QuantLanes`].
type Quants = [[i8; 32]; 4];

/// 128 activations of a row of A, as [`QuantLanes`] has the weights.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(align(64))]
struct Unit {
    quants: Quants,
    /// The scale of each lane.
    scales: [f32; 8],
    /// The sum of the rounded activations of each half block, in their order.
    sums: [f32; 8],
}

/// Rounds up to 128 activations, behind which there are zeros.
struct Round<'a> {
    activations: &'a [f32],
    order: &'a [u8; UNIT],
    unit: &'a mut Unit,
}

impl WithSimd for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { activations, order, unit } = self;
        let mut room = [0.0; UNIT];
        room[..activations.len()].copy_from_slice(activations);
        let (mut quants, mut scales) = ([0; UNIT], [0.0; BLOCKS]);
        for (block, scale) in scales.iter_mut().enumerate() {
            let (from, to) = (block * BLOCK, (block + 1) * BLOCK);
            *scale = round(&room[from..to], &mut quants[from..to]);
            for half in 2 * block..2 * block + 2 {
                let mut sum = 0;
                for &quant in &quants[16 * half..16 * half + 16] {
                    sum += i32::from(quant);
                }
                unit.sums[half] = *scale * sum as f32;
            }
        }
        for (i, &place) in order.iter().enumerate() {
            unit.quants[i / 32][i % 32] = quants[usize::from(place)];
        }
        for (lane, scale) in unit.scales.iter_mut().enumerate() {
            *scale = scales[usize::from(order[4 * lane]) / BLOCK];
        }
    }
}

/// Rounds a block to multiples of its scale, which is returned: NaN if not all of it is finite.
#[inline(always)]
fn round(block: &[f32], quants: &mut [i8]) -> f32 {
    /// What has the integers as its last bits: a sum with it is rounded to one, ties to even.
    const INTEGERS: f32 = 1.5 * (1 << 23) as f32;
    // Of numbers without their signs, the bits are in the numbers' order.
    let mut largest = 0;
    for x in block {
        largest = largest.max(x.to_bits() & 0x7FFF_FFFF);
    }
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        return f32::NAN;
    }
    if largest < SMALLEST {
        return 0.0;
    }
    let scale = largest / 127.0;
    for (quant, x) in quants.iter_mut().zip(block) {
        *quant = (x / scale + INTEGERS).to_bits() as i8;
    }
    scale
}

/// The rows of A, rounded.
#[derive(Debug)]
pub(super) struct Rounded {
    /// The first units of all rows, then the second ones.
    units: Vec<Unit>,
    /// Units of many rows once more.
    tiled: Option<Tiled>,
    /// Where the weights' format has the activations of a unit.
    order: [u8; UNIT],
    m: usize,
    k: usize,
}

/// Units of many rows side by side.
#[derive(Debug)]
struct Tiled {
    /// The tiles of all rows' first units, then of the second ones.
    tiles: Vec<Tile>,
    weights: Weights,
}

impl Rounded {
    /// `m` rows of `k` activations, the first of each `lda` after that of the one before.
    pub(super) fn new(
        cores: Cores,
        format: QuantFormat,
        a: &[f32],
        [m, k, lda]: [usize; 3],
    ) -> Result<Self, NoRoom> {
        let order = format.lane_order();
        let mut units: Vec<Unit> = zeros(m * k.div_ceil(UNIT))?;
        cores.chunks(&mut units, 1, GRAIN, &|first, units| {
            for (i, unit) in (first..).zip(units) {
                let row = &a[i % m * lda..][..k];
                let start = i / m * UNIT;
                let activations = &row[start..k.min(start + UNIT)];
                Arch::new().dispatch(Round { activations, order: &order, unit });
            }
        });
        let mut rounded = Self { units, tiled: None, order, m, k };
        if many::is_worth_it(m) {
            rounded.tiled = rounded.interleaved(cores, format)?;
        }
        Ok(rounded)
    }

    /// The units as tiles, if the weights' format has such products.
    fn interleaved(&self, cores: Cores, format: QuantFormat) -> Result<Option<Tiled>, NoRoom> {
        let Some(weights) = Weights::of(format) else { return Ok(None) };
        let across = self.m.div_ceil(many::ROWS);
        let mut tiles: Vec<Tile> = zeros(across * self.k.div_ceil(UNIT))?;
        cores.chunks(&mut tiles, 1, GRAIN / many::ROWS, &|first, tiles| {
            for (i, tile) in (first..).zip(tiles) {
                let (unit, row) = (i / across * self.m, i % across * many::ROWS);
                tile.fill(&self.order, &self.units[unit + row..unit + self.m.min(row + many::ROWS)]);
            }
        });
        Ok(Some(Tiled { tiles, weights }))
    }

    /// The products of rows of B from the row `first` on with all rows of A.
    pub(super) fn multiply(&self, layout: &QuantLayout, planes: &[u8], first: usize, sums: &mut [f32]) {
        let product = Product { a: self, layout, planes, first, sums };
        #[cfg(target_arch = "x86_64")]
        match (Arch::new(), &self.tiled) {
            (Arch::V4(simd), Some(Tiled { tiles, weights })) => {
                let many = many::Many { dot: simd, weights: *weights, tiles, product };
                return Simd::vectorize(simd, many);
            }
            (Arch::V4(simd), None) => return Simd::vectorize(simd, Few(simd.avx2, product)),
            (Arch::V3(simd), _) => return Simd::vectorize(simd, Few(simd.avx2, product)),
            _ => {}
        }
        portably(Few(Portable, product));
    }

    /// Clears the weights of half blocks behind the row's end.
    #[inline(always)]
    fn cut(&self, number: usize, weights: &mut QuantLanes) {
        cut(&self.order, self.k - number * UNIT, weights);
    }
}

/// Clears the scales of half blocks behind the first `len` weights of a unit, where they may have any value.
#[inline(always)]
pub(super) fn cut(order: &[u8; UNIT], len: usize, weights: &mut QuantLanes) {
    if len >= UNIT {
        return;
    }
    for (i, quants) in order.as_chunks::<4>().0.iter().enumerate() {
        let half_block = usize::from(quants[0]) / 16;
        if 16 * half_block >= len {
            weights.scales[i / 16][i % 8] = 0.0;
            weights.offsets[half_block] = 0.0;
        }
    }
}

/// Products of rows of a quantised B with the rows of A, as `A` has them.
pub(super) struct Product<'a, A = Rounded> {
    pub(super) a: &'a A,
    pub(super) layout: &'a QuantLayout,
    pub(super) planes: &'a [u8],
    /// The row of B that the first sums are of.
    pub(super) first: usize,
    pub(super) sums: &'a mut [f32],
}

/// Loops that compilers make what vectors they can of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portable;

/// Runs loops that name no vector instructions. On x86, only CPUs without AVX2 come here, so that the loops are compiled once
/// there, and not for wider vectors.
pub(super) fn portably(work: impl WithSimd<Output = ()>) {
    if cfg!(target_arch = "x86_64") {
        work.with_simd(Scalar::new());
    } else {
        Arch::new().dispatch(work);
    }
}
