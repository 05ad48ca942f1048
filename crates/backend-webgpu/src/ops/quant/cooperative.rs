//! quant/cooperative: products of many rows of f16 on tensor cores, which dequantise B while staging it.

use backend_api::desc::{MatmulDesc, Matrix, QuantMatmulDesc};
use backend_api::quant::{QuantFormat, ScaleKind};
use backend_api::{Activation, BackendResult, BackendTranspose, DType};

use super::dense;
use super::formats::{fits_half, has_half_scales, tile_libs};
use super::operands::{Operands, ProductOperands, strides_of_a};
use super::planes::{Planes, WeightParams};
use super::self_test::check_product;
use crate::device::h200;
use crate::kernels::{KernelSource, Variant, constants, kernel, native, params};
use crate::ops::matmul::{ResultParams, SizeParams, cooperative_time, factor, quant_product};
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::ops::shared::cooperative_tile::{CooperativeConstants, CooperativeTile};
use crate::ops::shared::self_test::OP;
use crate::ops::shared::vec_width::VecWidth;

constants! { struct Constants { tile: CooperativeConstants, in_registers: bool, half_scales: bool } }

static COOPERATIVE: KernelSource = KernelSource {
    unrolled: native(quant_product),
    cooperative: true,
    subgroups: true,
    ..kernel!(
        native "quant/cooperative", libs: [WORKGROUP_TILES, MATMUL, C_ELEMENTS, OPERAND_TILE],
        types: ["TA", "TC"], constants: Constants, params: Params,
        reads: ["quants: vec4<u32>", "high: u32", "scales: ScaleWords", "a: vec4<u32>", "bias: TC"],
        writes: ["c: TC", "c2 or c_words", "c4 or c8"],
    )
};

params! {
    struct Params {
        sizes: SizeParams,
        a_offset: u32,
        a_ld: u32,
        planes: WeightParams,
        result: ResultParams,
    }
}

/// Elements of k in a step: a block of B.
const STEP: usize = 32;

/// Whether weights of a format may be f16, k is whole blocks, and no fourth plane is needed: with A, the bias and C's three
/// bindings, there is room for three.
const fn is_staged(format: QuantFormat) -> bool {
    let scales = format.scale_kind();
    fits_half(format) && !scales.has_halves() && !matches!(scales, ScaleKind::Group)
}

/// The workgroup's tile of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile(CooperativeTile);

impl Tile {
    /// Every tile, largest first, with the times of steps of Q4_0.
    const ALL: [Self; 4] = [
        Self::new([128, 128], 800, 1150),
        Self::new([96, 128], 705, 1050),
        Self::new([64, 128], 635, 920),
        Self::new([64, 64], 430, 590),
    ];

    const fn new([m, n]: [usize; 2], alone: usize, paired: usize) -> Self {
        Self(CooperativeTile::divided([m, n, STEP], [2, 2], alone, paired))
    }

    /// Nanoseconds of a product with a matrix of a format.
    fn time(self, format: QuantFormat, sizes: [usize; 4], compute_units: usize) -> usize {
        let percent = match format {
            QuantFormat::Q4_0 => 100,
            QuantFormat::Q8_0 => 110,
            _ => 115,
        };
        let [m, n, ..] = sizes;
        let [tile_m, tile_n] = self.tile();
        let tiles = m.div_ceil(tile_m).saturating_mul(n.div_ceil(tile_n));
        // Workgroups that follow others, of which a compute unit runs two, don't begin at once.
        let percent = if tiles > 2 * compute_units { percent + 10 } else { percent };
        self.0.time(sizes, compute_units) / 100 * percent
    }

    /// Rows and columns.
    pub(super) const fn tile(self) -> [usize; 2] {
        [self.0.m, self.0.n]
    }

    fn variant(self, format: QuantFormat, dtype: DType, activation: Activation) -> Variant {
        let constants = Constants {
            tile: self.0.constants([false, true], activation),
            in_registers: dtype == DType::F16,
            half_scales: has_half_scales(format),
        };
        Variant::new(&COOPERATIVE, [DType::F16, dtype], constants)
            .with_libs(tile_libs(format, constants.in_registers))
            .with_rolled_loops()
    }

    /// The fastest tile for a product, if the device and the operands allow it and it beats dequantising B to memory
    /// first. A residual is added from C, before the activation.
    pub(super) fn candidate(ctx: &OpContext, desc: &QuantMatmulDesc, operands: &Operands) -> Option<Self> {
        let (tile, time) = Self::fastest(ctx, desc, operands)?;
        let is_faster = time < time_of_dequantised(desc, ctx.profile().compute_units);
        (is_faster && tile.passes(ctx, desc.b.format, desc.c.dtype)).then_some(tile)
    }

    /// The fastest tile and its time, if the device and the operands allow one.
    fn fastest(ctx: &OpContext, desc: &QuantMatmulDesc, operands: &Operands) -> Option<(Self, usize)> {
        let gpu = ctx.gpu();
        // No browser offers tensor cores.
        if cfg!(target_family = "wasm") || !(gpu.cooperative_matrices && gpu.takes_spirv) {
            return None;
        }
        let aligned =
            VecWidth::fitting(DType::F16, &[&operands.product.a], &strides_of_a(desc)) == VecWidth::Eight;
        let fits = is_staged(desc.b.format)
            && desc.a.dtype == DType::F16
            && aligned
            && desc.k() > 0
            && desc.k().is_multiple_of(STEP);
        if !fits {
            return None;
        }
        let sizes = [desc.m, desc.n(), desc.k(), 1];
        let compute_units = ctx.profile().compute_units;
        let time = |tile: &Self| tile.time(desc.b.format, sizes, compute_units);
        let tile = Self::ALL.into_iter().filter(|tile| tile.0.fits(&gpu.limits)).min_by_key(time)?;
        Some((tile, time(&tile)))
    }

    /// Makes the columns `first..end` of the product, whose residual, if it has one, is in C.
    pub(super) fn launch(
        self,
        ctx: &OpContext,
        op: &'static str,
        desc: &QuantMatmulDesc,
        windows: &Operands,
        planes: &Planes,
        (first, end): (usize, usize),
    ) -> BackendResult<()> {
        let here = windows.starting_at(first);
        let params = self.params(op, desc, &here, planes, end - first)?;
        let [quants, high, scales, _] = planes.windows();
        let ProductOperands { a, bias, c } = &here.product;
        let inputs = [quants, high, scales, a, bias, c, c];
        let variant = self.variant(desc.b.format, desc.c.dtype, desc.activation);
        ctx.launch(op, &variant, &inputs, c, &params, linear_grid(op, params.sizes.tiles as usize)?)
    }

    fn params(
        self,
        op: &'static str,
        desc: &QuantMatmulDesc,
        windows: &Operands,
        planes: &Planes,
        columns: usize,
    ) -> BackendResult<Params> {
        let sizes = SizeParams::new(op, [desc.m, columns], [desc.k(); 2], 1, self.tile())?;
        let ld = |what, ld: usize| if desc.m <= 1 { Ok(0) } else { dim(op, what, ld) };
        let has_residual = desc.residual.is_some();
        Ok(Params {
            sizes,
            a_offset: windows.product.a.offset,
            a_ld: ld("lda", desc.a.ld)?,
            planes: planes.weight_params(),
            result: ResultParams {
                c_offset: windows.product.c.offset,
                c_ld: ld("ldc", desc.c.ld)?,
                c_batch: 0,
                bias_offset: windows.product.bias.offset,
                bias: u32::from(desc.bias.is_some()),
                accumulate: u32::from(has_residual),
                alpha: factor(desc.alpha, desc.k()),
                beta: if has_residual { 1.0 } else { 0.0 },
            },
        })
    }

    /// Whether the device makes right products with it, its activation apart.
    fn passes(self, ctx: &OpContext, format: QuantFormat, dtype: DType) -> bool {
        let variant = self.variant(format, dtype, Activation::Identity);
        ctx.is_right(&variant, move |ctx| self.check(ctx, format, dtype, &variant))
    }

    /// Multiplies a little more than a tile, along more than two steps.
    fn check(
        self,
        ctx: &OpContext,
        format: QuantFormat,
        dtype: DType,
        variant: &Variant,
    ) -> BackendResult<()> {
        let [tile_m, tile_n] = self.tile();
        let sizes @ [m, n, k] = [tile_m + 24, tile_n + 40, 512];
        check_product(ctx, format, dtype, sizes, &few_ones(m, k), |test, desc, windows, planes| {
            let params = self.params(OP, desc, windows, planes, n)?;
            let [quants, high, scales, _] = planes.windows();
            let ProductOperands { a, bias, c } = &windows.product;
            let bound = [quants, high, scales, a, bias, c, c, c];
            test.launch(variant, &bound, &params, linear_grid(OP, params.sizes.tiles as usize)?)
        })
    }
}

/// Whether a kernel that takes `time` nanoseconds is faster than the kernels for many rows, which dequantise B as it is staged,
/// or to memory first.
pub(super) fn is_faster_than_many_rows(
    ctx: &OpContext,
    desc: &QuantMatmulDesc,
    operands: &Operands,
    time: usize,
) -> bool {
    /// Nanoseconds of a launch that opens a gate, and the numbers of the gated product that it reads in a nanosecond.
    const GATE_LAUNCH: usize = 5000;
    const GATE_RATE: usize = 333;
    /// Percent of the estimate of a dequantised product that it takes with up to 256 rows on an H200, mostly.
    const DEQUANTISED_PERCENT: usize = 82;
    let mut plain = *desc;
    let gate = match plain.gate.take() {
        None => 0,
        // The product of all rows of B goes to scratch memory, and a launch of its own opens the gate.
        Some(_) => {
            (plain.activation, plain.residual) = (Activation::Identity, None);
            plain.c = Matrix::new(0, desc.c.dtype, desc.b.rows);
            GATE_LAUNCH.saturating_add(desc.m.saturating_mul(desc.b.rows) / GATE_RATE)
        }
    };
    let staged = Tile::fastest(ctx, &plain, operands).filter(|_| dense::has_room_for_residual(&plain));
    let dequantised = || time_of_dequantised(&plain, ctx.profile().compute_units);
    staged.is_none_or(|(_, staged)| time < staged.saturating_add(gate))
        && (!dense::is_possible(ctx, &plain)
            || time < dequantised().saturating_add(gate) / 100 * DEQUANTISED_PERCENT)
}

/// Nanoseconds of a product whose B is dequantised to memory first.
fn time_of_dequantised(desc: &QuantMatmulDesc, compute_units: usize) -> usize {
    let &QuantMatmulDesc { m, a, c, .. } = desc;
    let (n, k) = (desc.n(), desc.k());
    let weights = n.saturating_mul(k);
    // Of up to 256 rows, B decides about the time of gemm/unstaged, which waits for what has just been written.
    let product = if m <= 256 {
        (weights.saturating_mul(m + 96) / (128 * 1000)).saturating_add(14_000)
    } else {
        let b = Matrix::new(0, a.dtype, k);
        let product = MatmulDesc::new(m, n, k, a, b, c)
            .with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans);
        cooperative_time(&product, compute_units)
    };
    h200::partial_sums(weights, 1000, compute_units).saturating_add(product)
}

/// Rows with three ones in each, spread over as many columns as there are ones: sums of three weights are whole
/// numbers of f16.
fn few_ones(m: usize, k: usize) -> Vec<i32> {
    let mut a = vec![0; m * k];
    for (i, row) in a.chunks_mut(k).enumerate() {
        for j in 0..3 {
            row[(i + j * m) * 7 % k] = 1;
        }
    }
    a
}

/// Every tile for each format and type of C, with activations alternating.
pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for tile in Tile::ALL {
        for format in QuantFormat::GGUF.into_iter().filter(|&format| is_staged(format)) {
            for dtype in [DType::F16, DType::F32] {
                let activation = Activation::ALL[variants.len() % Activation::ALL.len()];
                variants.push(tile.variant(format, dtype, activation));
            }
        }
    }
    variants
}

#[cfg(test)]
mod tests {
    use backend_api::desc::QuantMatrix;

    use super::*;

    /// Measured on an H100, dequantised while staged and to memory: 64 rows by 4096 took 56 and 53 µs, 128 by 4096 56 and
    /// 63, 512 by 6144 147 and 182, 64 by 28672 125 and 242, 512 by 4096 104 and 97, 512 by 28672 600 and 566, 2048 by
    /// 28672 1979 and 1781, all with a k of 4096.
    #[test]
    fn tiles_are_for_large_matrices_and_not_too_many_rows() {
        let is_faster = |m, n| {
            let matrix = |ld| Matrix::new(0, DType::F16, ld);
            let b = QuantMatrix::new(0, QuantFormat::Q4_0, n, 4096);
            let desc = QuantMatmulDesc::new(m, matrix(4096), b, matrix(n));
            let times = Tile::ALL.map(|tile| tile.time(b.format, [m, n, 4096, 1], h200::COMPUTE_UNITS));
            times.into_iter().min().unwrap() < time_of_dequantised(&desc, h200::COMPUTE_UNITS)
        };
        let staged = [(128, 4096), (512, 6144), (64, 28672)];
        assert_eq!(staged.map(|(m, n)| is_faster(m, n)), [true; 3]);
        let copied = [(64, 4096), (512, 4096), (512, 28672), (2048, 28672)];
        assert_eq!(copied.map(|(m, n)| is_faster(m, n)), [false; 4]);
    }

    #[test]
    fn the_ones_of_the_self_test_are_spread_over_the_columns() {
        for tile in Tile::ALL {
            let (m, k) = (tile.tile()[0] + 24, 512);
            let a = few_ones(m, k);
            let seen = (0..k).filter(|&p| (0..m).any(|i| a[i * k + p] == 1)).count();
            assert!(seen >= k.min(3 * m), "{seen} of {k}");
            assert!(a.chunks(k).all(|row| row.iter().sum::<i32>() <= 3));
        }
    }
}
