//! Whether a variant on cooperative matrices makes right products with experts on this device.

use backend_api::desc::{ExpertMatmulDesc, Matrix, QuantMatrix};
use backend_api::quant::{QuantFormat, QuantLayout, dequantize};
use backend_api::{BackendResult, DType};

use super::expert_cooperative::Tile;
use super::expert_operands::{Bound, Operands, Params, Tiling};
use super::expert_order::{OrderParams, order_variant, words};
use super::operands::ProductOperands;
use super::planes::{Planes, Stored};
use super::self_test::planes_of_integers;
use crate::kernels::Variant;
use crate::ops::op_context::{OpContext, linear_grid};
use crate::ops::shared::self_test::{OP, SelfTest, compare, numbers};

/// Matrices of the stack.
const EXPERTS: usize = 3;

/// Multiplies integers by n×k matrices of integers in a format, and compares with the host's products of the weights: of
/// some rows with four experts each, which are summed, or of more rows than a tile has with two, which aren't.
pub(super) fn check_experts(
    ctx: &OpContext,
    format: QuantFormat,
    [n, k]: [usize; 2],
    (variant, tile): (&Variant, Tile),
    tiling: impl FnOnce(&ExpertMatmulDesc, usize) -> Tiling,
) -> BackendResult<()> {
    let layout = QuantLayout::new(OP, format, EXPERTS * n, k)?;
    let planes = planes_of_integers(&layout);
    let mut weights = vec![0.0; EXPERTS * n * k];
    dequantize(format, EXPERTS * n, k, &planes, &mut weights)?;

    let ordered = tile.ordered_rows();
    let (rows, used) = ordered.map_or((2, 4), |rows| (rows + 3, 2));
    let pairs = rows * used;
    let is_sum = ordered.is_none();
    let a_rows = if is_sum { pairs } else { rows };
    let a = numbers(1, a_rows * k, k);
    // Numbers from −1 to 3, of which −1 and 3 are no expert's.
    let indices: Vec<i32> = numbers(2, pairs, 1).into_iter().map(|x| (x + 1).clamp(-1, 3)).collect();
    let factors: Vec<f32> = (0..pairs).map(|pair| [1.0, -1.0, 2.0][pair % 3]).collect();

    let mut test = SelfTest::new(ctx);
    let stored = test.upload(&planes)?;
    let results = test.results(if is_sum { rows } else { pairs } * n, DType::F32)?;
    let factors_slice = test.upload(bytemuck::cast_slice(&factors))?;
    let biases: Vec<f32> = (0..EXPERTS * n).map(|at| (at % 7) as f32 - 3.0).collect();
    let biases_slice = test.upload(bytemuck::cast_slice(&biases))?;
    let windows = Operands {
        product: ProductOperands {
            a: test.halves(&a)?,
            bias: if tile.sums_biases() { ctx.output(&biases_slice, DType::F32) } else { ctx.null() },
            c: results.window.clone(),
        },
        indices: test.integers(&indices)?,
        weights: ctx.output(&factors_slice, DType::F32),
    };
    let matrix = |dtype, ld| Matrix::new(0, dtype, ld);
    let b = QuantMatrix::new(0, format, EXPERTS * n, k);
    let mut desc =
        ExpertMatmulDesc::new([rows, used, EXPERTS], matrix(DType::F16, k), b, 0, matrix(DType::F32, n));
    if is_sum {
        desc = desc.with_per_expert(true).with_weights(0);
    }
    desc.bias = tile.sums_biases().then_some(0);
    let plan = match ordered {
        Some(rows) => {
            let slice = test.upload(&vec![0; 4 * words(OP, &desc, rows)?])?;
            let plan = ctx.output(&slice, DType::U32);
            let params = OrderParams::new(OP, &desc, &windows.indices, &plan)?;
            let grid = linear_grid(OP, EXPERTS + 1)?;
            test.launch(&order_variant(rows), &[&windows.indices, &plan], &params, grid)?;
            Some(plan)
        }
        None => None,
    };
    let planes = Planes::new(
        ctx,
        OP,
        Stored { layout: &layout, slice: Some(&stored) },
        (0, EXPERTS * n),
        &windows.product.c,
    )?;
    let bound = Bound { planes, units: layout.units, experts: 0..EXPERTS };
    let params = Params::new(OP, &desc, &windows, &bound, tiling(&desc, layout.units), plan.as_ref())?;
    let [quants, high, scales, extra] = bound.planes.windows();
    let Operands { product, indices: chosen, weights: factors_window } = &windows;
    let ProductOperands { a: rows_of_a, bias, c } = product;
    let [sixth, seventh] = plan.as_ref().map_or([chosen, factors_window], |plan| [bias, plan]);
    let before = [quants, high, scales, extra, rows_of_a, sixth, seventh];
    let windows: Vec<_> = before.into_iter().chain(tile.sums_biases().then_some(bias)).chain([c]).collect();
    test.launch(variant, &windows, &params, linear_grid(OP, params.product.tiles as usize)?)?;
    let found = test.whole_numbers(results)?;

    let product = |pair: usize, column: usize| -> f32 {
        let Ok(expert) = usize::try_from(indices[pair]) else { return 0.0 };
        if expert >= EXPERTS {
            return 0.0;
        }
        let row = if is_sum { pair } else { pair / used };
        let b = &weights[(expert * n + column) * k..][..k];
        let bias = if tile.sums_biases() { biases[expert * n + column] } else { 0.0 };
        // Sums of integers below 2²⁴, exact in any order.
        a[row * k..][..k].iter().zip(b).map(|(&a, b)| a as f32 * b).sum::<f32>() + bias
    };
    let wanted = (0..found.len()).map(|at| {
        let (row, column) = (at / n, at % n);
        if !is_sum {
            return Some(product(row, column) as i32);
        }
        let terms = (row * used..(row + 1) * used).map(|pair| factors[pair] * product(pair, column));
        Some(terms.sum::<f32>() as i32)
    });
    compare(&found, &wanted.collect::<Vec<_>>())
}
