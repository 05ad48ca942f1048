//! The router of a mixture of experts in one launch: a norm, a product with a row for each expert, and the experts with the
//! largest products.
//!
//! Each takes a launch of its own, and waits for the one before, which costs a few rows more than the work. Behind each other in a
//! graph, as in a decoder's captured step, one launch makes all three, with all that each of them writes.

use std::sync::Arc;

use backend_api::desc::{BiasAxis, MatmulDesc, SoftmaxOver, TopKDesc};
use backend_api::{Activation, BackendResult, BackendTranspose, DType};

use super::capture::{Made, Replaced};
use super::normed_rows::NormedRows;
use super::shared::row_top_k::{MOST, place_of_largest, softmax_constant};
use crate::context::{FIXUP_COUNTERS, FIXUP_WORDS};
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim};
use crate::recorder::Window;

constants! { struct Constants { lanes: usize, block: usize, softmax: u32 } }

static ROUTER: KernelSource = kernel!(
    native "tokens/router", libs: [GRID, WORKGROUP, LAST_WORKGROUP, ROW_TOP_K, SORT_KEY],
    types: ["T"], constants: Constants, params: Params,
    reads: ["x: vec4<f32>", "scale: vec4<f32>", "b: vec4<T>", "bias: f32"],
    writes: ["normed: vec4<T>", "c: f32", "values: f32", "indices: u32", "fixup"],
);

params! {
    struct Params {
        // Experts, and those that are found.
        columns: u32,
        k: u32,
        // All ones to find the largest, else 0.
        flip: u32,
        // The place of the number whose exponential is 1.
        largest: u32,
        // Of four elements, in a row that is normalised.
        vectors: u32,
        eps: f32,
        has_bias: u32,
        x: u32,
        scale: u32,
        b: u32,
        b_ld: u32,
        bias: u32,
        normed: u32,
        c: u32,
        values: u32,
        indices: u32,
    }
}

/// Rows up to which one launch is faster than three.
const MOST_ROWS: usize = 16;

// Each row has a counter, and room for its products.
const _: () = assert!(MOST_ROWS <= FIXUP_COUNTERS && FIXUP_COUNTERS + MOST_ROWS * MOST <= FIXUP_WORDS);

/// Elements of a vector.
const VECTOR: usize = 4;

/// Invocations of a workgroup.
const WORKGROUP: usize = 256;

/// Invocations that hold a short row, and the vectors that each of them holds at most, or of a workgroup that holds a long one.
const LANES: usize = 128;
const SHORT_BLOCK: usize = 4;
const LONG_BLOCK: usize = 8;

/// How a workgroup is divided among rows of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// Invocations of an expert.
    lanes: usize,
    /// Vectors that each of them holds.
    block: usize,
}

impl Tile {
    /// For rows of so many elements.
    fn choose(columns: usize) -> Option<Self> {
        let vectors = columns / VECTOR;
        let fits = columns.is_multiple_of(VECTOR) && (1..=LONG_BLOCK * WORKGROUP).contains(&vectors);
        let lanes = if vectors <= SHORT_BLOCK * LANES { LANES } else { WORKGROUP };
        fits.then(|| Self { lanes, block: vectors.div_ceil(lanes).next_power_of_two() })
    }

    fn all() -> impl Iterator<Item = Self> {
        let narrow = [1, 2, SHORT_BLOCK].map(|block| Self { lanes: LANES, block });
        let wide = [SHORT_BLOCK, LONG_BLOCK].map(|block| Self { lanes: WORKGROUP, block });
        narrow.into_iter().chain(wide)
    }

    fn variant(self, dtype: DType, softmax: Option<SoftmaxOver>) -> Variant {
        let Self { lanes, block } = self;
        Variant::new(&ROUTER, [dtype], Constants { lanes, block, softmax: softmax_constant(softmax) })
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let softmax = [None, Some(SoftmaxOver::Found), Some(SoftmaxOver::Row)];
    let types =
        [DType::F32, DType::F16].into_iter().flat_map(|dtype| softmax.map(|softmax| (dtype, softmax)));
    types.flat_map(|(dtype, softmax)| Tile::all().map(move |tile| tile.variant(dtype, softmax))).collect()
}

/// A product of normalised rows with a row for each expert.
#[derive(Debug)]
pub(super) struct RouterProduct {
    normed: Made,
    experts: usize,
    b: Window,
    b_ld: usize,
    bias: Option<Window>,
    /// Packed rows.
    c: Window,
}

impl RouterProduct {
    /// The product behind what was `made` before; `None` if that isn't its left operand, or it isn't what a router's launch makes.
    pub(super) fn behind(
        desc: &MatmulDesc,
        [a_window, b_window, bias, c_window]: [&Window; 4],
        made: &Made,
    ) -> Option<Made> {
        let rows = made.downcast_ref::<NormedRows>()?;
        let &MatmulDesc { m, n, k, a, b, c, .. } = desc;
        let is_plain = desc.batch == 1
            && desc.alpha == 1.0
            && desc.beta == 0.0
            && desc.activation == Activation::Identity
            && (desc.trans_a, desc.trans_b) == (BackendTranspose::NoTrans, BackendTranspose::Trans);
        let dtype = rows.dtype;
        let is_of_rows = [m, k] == rows.size
            && m <= MOST_ROWS
            && [a.dtype, b.dtype, c.dtype] == [dtype, dtype, DType::F32]
            && rows.is_weighted()
            && (m == 1 || (a.ld, c.ld) == (k, n))
            && a_window.is_at(&rows.y);
        let is_by_column = desc.bias.is_none_or(|bias| bias.axis == BiasAxis::Column);
        let bias = desc.bias.map(|_| bias.clone());
        let b_ld = if n > 1 { b.ld } else { k };
        (is_plain && is_of_rows && is_by_column && n <= MOST && b_ld.is_multiple_of(VECTOR)).then(
            || -> Made {
                let (b, c) = (b_window.clone(), c_window.clone());
                Arc::new(Self { normed: Arc::clone(made), experts: n, b, b_ld, bias, c })
            },
        )
    }
}

/// Finds the largest of a graph's last products in the launch that makes them, if those are the input; whether it does. `input`,
/// `indices` and `values` are the memory of its operands.
pub(super) fn find_with_product(
    ctx: &OpContext,
    op: &'static str,
    desc: &TopKDesc,
    [input, indices]: [&DeviceSlice; 2],
    values: Option<&DeviceSlice>,
) -> BackendResult<bool> {
    let Some(made) = ctx.made_before() else { return Ok(false) };
    let Some(product) = made.downcast_ref::<RouterProduct>() else { return Ok(false) };
    let Some(rows) = product.normed.downcast_ref::<NormedRows>() else { return Ok(false) };
    let [count, columns] = rows.size;
    let (Some(values), Some(tile)) = (values, Tile::choose(columns)) else { return Ok(false) };
    let is_of_product = desc.dtype == DType::F32
        && [desc.rows, desc.columns] == [count, product.experts]
        && ctx.output(input, DType::F32).is_at(&product.c);
    let x = rows.x.as_ref().unwrap_or(&rows.y);
    let vectors = [x, &rows.weight, &product.b, &rows.y];
    let are_vectors = vectors.iter().all(|window| window.offset.is_multiple_of(VECTOR as u32));
    if !(is_of_product && are_vectors && ctx.has_fixup()) {
        return Ok(false);
    }
    let bias = product.bias.clone().unwrap_or_else(|| ctx.null());
    let reads = [x, &rows.weight, &product.b, &bias];
    let (values, indices) = (ctx.output(values, DType::F32), ctx.output(indices, DType::U32));
    // Three launches need no memory for it.
    let Ok(fixup) = ctx.fixup() else { return Ok(false) };
    let writes = [&rows.y, &product.c, &values, &indices, &fixup];
    let vector = VECTOR as u32;
    let params = Params {
        columns: dim(op, "columns", desc.columns)?,
        k: dim(op, "k", desc.k)?,
        flip: if desc.largest { u32::MAX } else { 0 },
        largest: dim(op, "k", place_of_largest(desc))?,
        vectors: dim(op, "columns", columns / VECTOR)?,
        eps: rows.params.eps,
        has_bias: u32::from(product.bias.is_some()),
        x: x.offset / vector,
        scale: rows.weight.offset / vector,
        b: product.b.offset / vector,
        b_ld: dim(op, "ldb", product.b_ld / VECTOR)?,
        bias: bias.offset,
        normed: rows.y.offset / vector,
        c: product.c.offset,
        values: values.offset,
        indices: indices.offset,
    };
    let workgroups = product.experts.div_ceil(WORKGROUP / tile.lanes);
    let grid = [dim(op, "columns", workgroups)?, dim(op, "rows", count)?, 1];
    let variant = tile.variant(rows.dtype, desc.softmax);
    ctx.replace(
        op,
        (&made, Replaced::BothCalls),
        &variant,
        reads.into_iter().chain(writes),
        bytemuck::bytes_of(&params),
        grid,
    )
}

#[cfg(test)]
mod tests {
    use backend_api::desc::{Matrix, RmsNormDesc};
    use backend_api::{Command, ComputeBackend as _};

    use super::*;
    use crate::WebGpuBackend;
    use crate::ops::{Capture, execute};

    const OP: &str = "test";

    /// How many commands a router's calls leave if another thread captures a call while the norm, the product or the largest numbers
    /// are between their plan and their commit, and if none does.
    #[test]
    fn calls_of_other_threads_keep_their_commands() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let call = backend.context(OP).unwrap();
        if !call.context.has_fixup() {
            return;
        }
        let [x, weight, normed, b, c, values, indices, other] =
            [(); 8].map(|()| backend.alloc(1024).unwrap());
        let norm = RmsNormDesc::new(DType::F32, x, normed, 1, 64).with_weight(weight);
        let product = MatmulDesc::new(
            1,
            4,
            64,
            Matrix::new(normed, DType::F32, 64),
            Matrix::new(b, DType::F32, 64),
            Matrix::new(c, DType::F32, 4),
        )
        .with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans);
        let top = TopKDesc::new(DType::F32, c, indices, 1, 4, 2).with_values(values);
        let fill = Command::Fill { dst: other, dtype: DType::F32, n: 4, value: 1.0 };
        let commands = [Command::RmsNorm(&norm), Command::Matmul(&product), Command::TopK(&top)];
        let captured = |interrupted: Option<usize>| {
            let capture = Arc::default();
            for (number, command) in commands.iter().enumerate() {
                let own = call.context.capturing(&capture);
                execute(&own, OP, *command).unwrap().unwrap();
                if interrupted == Some(number) {
                    let others = call.context.capturing(&capture);
                    execute(&others, OP, fill).unwrap().unwrap();
                    others.commit(OP).unwrap();
                }
                own.commit(OP).unwrap();
            }
            Capture::take(&capture).len()
        };
        assert_eq!(captured(None), 1);
        // What is captured before the norm's commit comes before it; the largest numbers are found when they are planned.
        assert_eq!([0, 1, 2].map(|number| captured(Some(number))), [2, 4, 2]);
    }

    #[test]
    fn rows_have_room_in_a_workgroup() {
        let tile = |columns| Tile::choose(columns).map(|Tile { lanes, block }| (lanes, block));
        assert_eq!([512, 516, 2048].map(tile), [(128, 1), (128, 2), (128, 4)].map(Some));
        assert_eq!([2052, 4096, 4100, 8192].map(tile), [(256, 4), (256, 4), (256, 8), (256, 8)].map(Some));
        assert_eq!([0, 2, 4094, 8196].map(tile), [None; 4]);
        for columns in (4..=8192).step_by(4) {
            assert!(Tile::all().any(|tile| Some(tile) == Tile::choose(columns)), "{columns}");
        }
    }
}
