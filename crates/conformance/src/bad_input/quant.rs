//! quant_matmul, expert_matmul, quant_gather, dequantize and quantize_rows.

use backend_api::desc::{
    DequantizeDesc, ExpertMatmulDesc, Matrix, QuantGatherDesc, QuantMatmulDesc, QuantMatrix,
    QuantizeRowsDesc, RmsNorm,
};
use backend_api::quant::QuantFormat;
use backend_api::{Activation, BackendError, Bound, DType, Gate, MathMode};

use super::expect::{
    OVERFLOW, SHAPE, TOO_SMALL, at_least, bound, dtype, multiple, overlap, short_row, too_small,
};
use super::operation::Change;
use super::{Expect, Handles, Operation, Role, Slot};

/// Words of planes that name three rows of 64 weights in groups of 16.
const WORDS: usize = (256 + 3 * 16) / 4;

const FORMAT: QuantFormat = QuantFormat::U4 { group: 16, zero_points: false };

pub(super) fn operations() -> Vec<Operation> {
    let of_type = |of| {
        let products = [product(of, MathMode::Standard), product(of, MathMode::Int8), experts(of)];
        products.into_iter().chain([lookup(of), whole(of), append(of)])
    };
    [DType::F32, DType::F16].into_iter().flat_map(of_type).collect()
}

/// All quants and scales 0, so that every weight is 0.
fn planes(arg: &'static str) -> Slot {
    Slot { align: 16, ..Slot::new(arg, Role::Input, DType::U32, WORDS).holding(0.0) }
}

const fn matrix(ptr: u64) -> QuantMatrix {
    QuantMatrix::new(ptr, FORMAT, 3, 64)
}

/// Changes of a quantised matrix.
macro_rules! changes_of_matrix {
    ($op:expr, $arg:literal, $matrix:ident, $D:ty) => {{
        let bytes = WORDS * 4;
        let changes: Vec<Change<$D>> = vec![
            ("a group of 48", bound($op, "group", Bound::PowerOfTwo, 48), |d| {
                d.$matrix.format = QuantFormat::U4 { group: 48, zero_points: false };
            }),
            ("a group of 0", SHAPE, |d| {
                d.$matrix.format = QuantFormat::U4 { group: 0, zero_points: true };
            }),
            ("a row that is no whole block", multiple($op, "columns", 256, 64), |d| {
                d.$matrix.format = QuantFormat::Q4_K;
            }),
            ("planes without zero points", too_small($op, $arg, bytes, 512 + 32), |d| {
                d.$matrix.format = QuantFormat::U4 { group: 16, zero_points: true };
            }),
            ("planes of another format", TOO_SMALL, |d| d.$matrix.format = QuantFormat::Q8_0),
        ];
        changes
    }};
}

fn product(element: DType, math: MathMode) -> Operation {
    let op = "quant_matmul";
    let bytes = element.size();
    let slots = vec![
        Slot::new("a", Role::Input, element, 2 * 64),
        planes("b"),
        Slot::new("c", Role::Output, element, 2 * 3),
        Slot::new("bias", Role::Input, element, 3),
        Slot::new("residual", Role::InPlaceInput, element, 2 * 3),
        Slot::new("norm", Role::Input, element, 64),
    ];
    let good = move |h: &Handles| {
        let of = |i: usize, ld| Matrix::new(h[i], element, ld);
        QuantMatmulDesc::new(2, of(0, 64), matrix(h[1]), of(2, 3))
            .with_bias(h[3])
            .with_activation(Activation::Relu)
            .with_residual(of(4, 3))
            .with_norm(RmsNorm::new(h[5], 1e-5))
            .with_math(math)
    };
    let mut changes: Vec<Change<QuantMatmulDesc>> = vec![
        ("A of i32", dtype(op, "a", DType::I32), |d| d.a.dtype = DType::I32),
        ("C of u32", dtype(op, "c", DType::U32), |d| d.c.dtype = DType::U32),
        ("a residual of i32", dtype(op, "residual", DType::I32), |d| {
            d.residual.iter_mut().for_each(|residual| residual.dtype = DType::I32);
        }),
        ("rows normalised to u32", dtype(op, "output_dtype of the norm", DType::U32), |d| {
            d.norm.iter_mut().for_each(|norm| norm.output_dtype = Some(DType::U32));
        }),
        ("lda below k", short_row(op, "lda", 64, 63), |d| d.a.ld = 63),
        ("ldc below n", short_row(op, "ldc", 3, 2), |d| d.c.ld = 2),
        ("a short residual", SHAPE, |d| {
            d.residual.iter_mut().for_each(|residual| residual.ld = 2);
        }),
        ("a row of A too many", too_small(op, "a", 128 * bytes, 192 * bytes), |d| d.m = 3),
        ("m usize::MAX", OVERFLOW, |d| d.m = usize::MAX),
        ("lda usize::MAX", OVERFLOW, |d| d.a.ld = usize::MAX),
        ("rows usize::MAX", Expect::Kind(backend_api::ErrorKind::Shape), |d| d.b.rows = usize::MAX),
        ("a row of B too many", SHAPE, |d| d.b.rows = 4),
        ("a gate for an odd number of rows", multiple(op, "B's number of rows", 2, 3), |d| {
            d.gate = Some(Gate::Swiglu);
        }),
    ];
    changes.extend(changes_of_matrix!(op, "b", b, QuantMatmulDesc));
    let variant = format!("{element} {}", math.name());
    Operation::of(op, slots, 2.0, good, |b, _, d| b.quant_matmul(d), changes).variant(variant)
}

/// Two rows with three experts each, of three that have a row: products are 0, and biases and weights 1.
fn experts(element: DType) -> Operation {
    let op = "expert_matmul";
    let bytes = element.size();
    let slots = vec![
        Slot::new("a", Role::Input, element, 2 * 64),
        planes("b"),
        Slot::new("indices", Role::Input, DType::U32, 2 * 3),
        Slot::new("c", Role::Output, element, 2),
        Slot::new("weights", Role::Input, DType::F32, 2 * 3),
        Slot::new("bias", Role::Input, DType::F32, 3),
    ];
    let good = move |h: &Handles| {
        let of = |i: usize, ld| Matrix::new(h[i], element, ld);
        ExpertMatmulDesc::new([2, 3, 3], of(0, 64), matrix(h[1]), h[2], of(3, 1))
            .with_bias(h[5])
            .with_weights(h[4])
    };
    let mut changes: Vec<Change<ExpertMatmulDesc>> = vec![
        ("A of i32", dtype(op, "a", DType::I32), |d| d.a.dtype = DType::I32),
        ("C of u32", dtype(op, "c", DType::U32), |d| d.c.dtype = DType::U32),
        ("lda below k", short_row(op, "lda", 64, 63), |d| d.a.ld = 63),
        ("ldc below n", short_row(op, "ldc", 1, 0), |d| d.c.ld = 0),
        ("no experts", SHAPE, |d| d.experts = 0),
        ("four experts of three rows", multiple(op, "B's number of rows", 4, 3), |d| d.experts = 4),
        ("a gate for an odd number of rows", multiple(op, "B's number of rows", 6, 3), |d| {
            d.gate = Some(Gate::Swiglu);
        }),
        ("a row too many", too_small(op, "a", 128 * bytes, 192 * bytes), |d| d.rows = 3),
        ("a row of A for each expert", too_small(op, "a", 128 * bytes, 384 * bytes), |d| d.per_expert = true),
        ("an expert of each too many", too_small(op, "indices", 24, 32), |d| d.used = 4),
        ("without a sum", too_small(op, "c", 2 * bytes, 6 * bytes), |d| d.weights = None),
        ("rows usize::MAX", OVERFLOW, |d| d.rows = usize::MAX),
        ("used usize::MAX", OVERFLOW, |d| d.used = usize::MAX),
        ("experts usize::MAX", SHAPE, |d| d.experts = usize::MAX),
        ("lda usize::MAX", OVERFLOW, |d| d.a.ld = usize::MAX),
    ];
    changes.extend(changes_of_matrix!(op, "b", b, ExpertMatmulDesc));
    Operation::of(op, slots, 3.0, good, |b, _, d| b.expert_matmul(d), changes).variant(element)
}

fn lookup(element: DType) -> Operation {
    let op = "quant_gather";
    let bytes = element.size();
    let slots = vec![
        planes("table"),
        Slot::new("indices", Role::Input, DType::U32, 2),
        Slot::new("output", Role::Output, element, 2 * 64),
    ];
    let good = move |h: &Handles| QuantGatherDesc::new(element, matrix(h[0]), h[1], h[2], 2);
    let mut changes: Vec<Change<QuantGatherDesc>> = vec![
        ("of i32", dtype(op, "output", DType::I32), |d| d.dtype = DType::I32),
        ("an index too many", too_small(op, "indices", 8, 12), |d| d.count = 3),
        ("count usize::MAX", OVERFLOW, |d| d.count = usize::MAX),
        ("rows usize::MAX", OVERFLOW, |d| d.table.rows = usize::MAX),
        ("columns usize::MAX", OVERFLOW, |d| d.table.columns = usize::MAX),
        ("a longer row", too_small(op, "output", 128 * bytes, 256 * bytes), |d| {
            (d.table.rows, d.table.columns) = (1, 128);
        }),
    ];
    changes.extend(changes_of_matrix!(op, "table", table, QuantGatherDesc));
    Operation::of(op, slots, 0.0, good, |b, _, d| b.quant_gather(d), changes).variant(element)
}

fn whole(element: DType) -> Operation {
    let op = "dequantize";
    let bytes = element.size();
    let slots = vec![planes("input"), Slot::new("output", Role::Output, element, 3 * 64)];
    let good = move |h: &Handles| DequantizeDesc::new(matrix(h[0]), Matrix::new(h[1], element, 64));
    let short = BackendError::Shape {
        op,
        what: "ld of the output",
        expected: Bound::Row { matrix: "the output", length: 64 },
        got: 63,
    };
    let mut changes: Vec<Change<DequantizeDesc>> = vec![
        ("to u32", dtype(op, "output", DType::U32), |d| d.output.dtype = DType::U32),
        ("a short leading dimension", Expect::Exactly(short), |d| d.output.ld = 63),
        ("a long leading dimension", too_small(op, "output", 192 * bytes, 194 * bytes), |d| d.output.ld = 65),
        ("rows usize::MAX", OVERFLOW, |d| d.input.rows = usize::MAX),
        ("ld usize::MAX", OVERFLOW, |d| d.output.ld = usize::MAX),
    ];
    changes.extend(changes_of_matrix!(op, "input", input, DequantizeDesc));
    Operation::of(op, slots, 0.0, good, |b, _, d| b.dequantize(d), changes).variant(element)
}

/// A row of two blocks, which becomes the only one of a cache, by its index.
fn append(element: DType) -> Operation {
    let op = "quantize_rows";
    let bytes = element.size();
    let slots = vec![
        Slot::new("source", Role::Input, element, 64).holding(0.0),
        Slot::new("cache", Role::Output, DType::U32, 18),
        Slot::new("indices", Role::Input, DType::U32, 1).holding(0.0),
    ];
    let good = move |h: &Handles| {
        QuantizeRowsDesc::new(Matrix::new(h[0], element, 64), h[1], 1, 64, 1).with_indices(h[2])
    };
    let changes: Vec<Change<QuantizeRowsDesc>> = vec![
        ("a source of i32", dtype(op, "source", DType::I32), |d| d.source.dtype = DType::I32),
        ("a short ld", SHAPE, |d| d.source.ld = 63),
        ("a row of the source too many", too_small(op, "source", 64 * bytes, 128 * bytes), |d| d.count = 2),
        ("a row of the cache too many", too_small(op, "cache", 72, 144), |d| d.rows = 2),
        ("a later start", too_small(op, "cache", 72, 108), |d| d.offset = 32),
        ("rows that overlap", at_least(op, "stride", 64, 32), |d| d.stride = 32),
        ("half a block", multiple(op, "columns", 32, 48), |d| d.columns = 48),
        ("a start amid a block", multiple(op, "offset", 32, 31), |d| d.offset = 31),
        ("rows that begin amid a block", multiple(op, "stride", 32, 65), |d| d.stride = 65),
        ("more rows than the cache has", at_least(op, "rows", 2, 1), |d| (d.count, d.indices) = (2, None)),
        ("rows usize::MAX", OVERFLOW, |d| d.rows = usize::MAX),
        ("count usize::MAX", OVERFLOW, |d| d.count = usize::MAX),
        ("ld usize::MAX of two rows", OVERFLOW, |d| (d.count, d.source.ld) = (2, usize::MAX)),
        ("the cache as its indices", overlap(op, "cache", "indices"), |d| d.indices = Some(d.cache)),
        ("the source as its cache", overlap(op, "cache", "source"), |d| d.cache = d.source.ptr),
    ];
    Operation::of(op, slots, 0.0, good, |b, _, d| b.quantize_rows(d), changes).variant(element)
}
