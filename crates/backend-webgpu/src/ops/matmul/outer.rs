//! gemm/outer: products of short sums, straight from memory, which take the time of writing C.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType};

use super::cost::{Cost, Staged};
use super::kernel::{Family, GemmKernel, Kernel, Signature, TYPES};
use super::layout::reads_as_vectors;
use super::plan::{Candidate, Problem};
use super::shapes::Outer;
use super::skinny::FEW;
use super::{Params, Windows, activation_libs, pack};
use crate::device::Gpu;
use crate::kernels::{Constant as _, KernelSource, Target, Values, Variant, constants, kernel};
use crate::ops::shared::tensor_cores::FRAGMENT;
use crate::ops::shared::text::{lines, pairs};

constants! {
    struct Constants {
        rows: usize,
        columns_per_thread: usize,
        depth: usize,
        across: usize,
        trans_a: bool,
        trans_b: bool,
        activation: Activation,
    }
}

static OUTER: KernelSource = KernelSource {
    unrolled: Some(multiply),
    ..kernel!(
        "gemm/outer", libs: [GRID, MATMUL, C_ELEMENTS],
        types: ["TA", "TB", "TC"], constants: Constants, params: Params,
        reads: ["a: TA", "b: TB", "bias: TC"], writes: ["c: TC"],
    )
};

/// Invocations of a workgroup.
const THREADS: usize = 128;

/// Columns of a workgroup that makes a tile, and invocations across it.
const TILE_COLUMNS: usize = 128;
const ACROSS: usize = 32;

/// The most products of a sum that take hardly longer than writing it, that this kernel is planned for whatever
/// the operands' layouts, and at all.
const FEW_PRODUCTS: usize = 8;
const SHORT: usize = 32;
const LONG: usize = 64;

/// The most products of a compute unit where sums are longer than a few: if neighbours read neighbouring
/// elements, and if they don't.
const MOST: usize = 40_000;
const MOST_APART: usize = 16_000;

/// How a product's results are shared among compute units, for the choice of a shape.
struct Load {
    /// Results of a compute unit.
    results: usize,
    /// Products of a compute unit.
    products: usize,
}

impl Outer {
    /// Every shape, those for fewer results first.
    pub(super) const ALL: [Self; 4] =
        [Self::along_rows(1, 1, 8), Self::along_rows(2, 1, 4), Self::along_rows(4, 2, 2), Self::IN_TILES];

    /// The shape that meets the same of B several times.
    const IN_TILES: Self =
        Self { rows: 8, columns_per_thread: TILE_COLUMNS / ACROSS, depth: 2, across: Some(ACROSS) };

    const fn along_rows(rows: usize, columns_per_thread: usize, depth: usize) -> Self {
        Self { rows, columns_per_thread, depth, across: None }
    }

    /// Rows and columns of a workgroup, so many of whose invocations share rows.
    const fn extent(self, across: usize) -> [usize; 2] {
        [THREADS / across * self.rows, across * self.columns_per_thread]
    }

    /// The shape that is estimated to be the fastest for a product on so many compute units, if its sums are
    /// short enough for this kernel.
    fn choose(desc: &MatmulDesc, compute_units: usize) -> Option<Self> {
        let load = Load::of(desc, compute_units);
        if !load.is_light(desc) {
            return None;
        }
        let [one, two, eight, tiles] = Self::ALL;
        Some(match load.results {
            // As many as a compute unit has room for invocations, or fewer.
            ..512 => one,
            512..2048 => two,
            8192.. if desc.k >= 8 && desc.n >= TILE_COLUMNS => tiles,
            _ => eight,
        })
    }
}

/// Whether tensor cores make sums of more than a few products sooner, or write so many results sooner.
fn is_for_tensor_cores(desc: &MatmulDesc, windows: &Windows) -> bool {
    let results = desc.m.saturating_mul(desc.n).saturating_mul(desc.batch);
    let is_worth_it = match desc.k {
        ..=FEW_PRODUCTS => results >= 1 << 21,
        k => results.saturating_mul(k) >= 1 << 20,
    };
    [desc.a.dtype, desc.b.dtype] == [DType::F16; 2]
        && 2 * desc.m.min(desc.n) >= FRAGMENT
        && is_worth_it
        && pack::has_whole_vectors(desc, windows)
}

/// Whether a row or column is multiplied by vectors, which is faster for sums of more than [`SHORT`].
fn is_for_gemv(desc: &MatmulDesc, windows: &Windows) -> bool {
    desc.m.min(desc.n) == 1 && desc.k > SHORT && reads_as_vectors(desc, windows, 4)
}

impl Load {
    fn of(desc: &MatmulDesc, compute_units: usize) -> Self {
        let results = desc.m.saturating_mul(desc.n).saturating_mul(desc.batch) / compute_units.max(1);
        Self { results, products: results.saturating_mul(desc.k) }
    }

    /// Whether a product is estimated to take longer in kernels that stage operands in workgroup memory, or
    /// whose invocations share sums.
    fn is_light(&self, desc: &MatmulDesc) -> bool {
        let few = desc.m.min(desc.n);
        let halves = [desc.a.dtype, desc.b.dtype] == [DType::F16; 2];
        // Neighbours are columns of B, or rows of A if there is one column.
        let adjacent = if desc.n > 1 { !desc.trans_b.is_transposed() } else { desc.trans_a.is_transposed() };
        match desc.k {
            0 => false,
            1..=FEW_PRODUCTS => true,
            9..=16 if adjacent && !halves => true,
            9..=SHORT if adjacent => self.products <= MOST,
            9..=SHORT => self.products <= if few <= FEW { MOST_APART } else { MOST_APART / 2 },
            k if k <= LONG => adjacent && self.products <= MOST,
            _ => false,
        }
    }
}

impl Family for Outer {
    const LEAST: Cost = Cost::Traffic(Staged::Nothing);

    fn shapes() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }

    fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate> {
        let &Problem { ctx, desc, windows } = problem;
        let is_for_another = problem.is_on_software()
            || ctx.gpu().cooperative_matrices && is_for_tensor_cores(desc, windows)
            || is_for_gemv(desc, windows);
        let shape = if is_for_another { None } else { Self::choose(desc, problem.compute_units()) };
        shape.and_then(|shape| problem.candidate(Kernel::Outer(shape), 1, Self::LEAST)).into_iter()
    }

    /// Each shape for each type and layout. The activations alternate.
    fn variants() -> Vec<Variant> {
        let mut variants = Vec::new();
        for dtypes in TYPES {
            for shape in Self::ALL {
                for trans in [[false, false], [false, true], [true, false], [true, true]] {
                    let activation = Activation::ALL[variants.len() % Activation::ALL.len()];
                    let signature = Signature::new(dtypes, trans, activation);
                    variants.push(shape.variant(&signature));
                }
            }
        }
        variants
    }
}

impl GemmKernel for Outer {
    fn is_possible(&self, _: &Gpu, desc: &MatmulDesc) -> bool {
        desc.k > 0
    }

    fn reads_as_vectors(&self, _: &MatmulDesc, _: &Windows) -> bool {
        false
    }

    fn named(&self) -> Kernel {
        Kernel::Outer(*self)
    }

    fn tile(&self, _: &Signature) -> [usize; 2] {
        match self.across {
            None => [self.rows, self.columns_per_thread],
            Some(across) => self.extent(across),
        }
    }

    #[cfg(not(target_family = "wasm"))]
    fn measured_packings(&self, desc: &MatmulDesc, _: bool) -> &'static [bool] {
        if desc.k <= LONG { &[false] } else { &[] }
    }

    fn tiles_of_a_workgroup(&self) -> usize {
        if self.across.is_none() { THREADS } else { 1 }
    }

    fn variant(&self, signature: &Signature) -> Variant {
        let &Self { rows, columns_per_thread, depth, across } = self;
        let &Signature { trans: [trans_a, trans_b], activation, .. } = signature;
        let across = across.unwrap_or(0);
        let constants = Constants { rows, columns_per_thread, depth, across, trans_a, trans_b, activation };
        Variant::new(&OUTER, signature.dtypes, constants).with_libs(activation_libs(signature.dtypes[2]))
    }
}

/// Writes `multiply`, the sums of an invocation over `end` values of k, given the kernel's constants: what is
/// fetched stays in registers only where each number has a name of its own.
fn multiply(values: &Values, _: Target) -> String {
    let Constants { rows, columns_per_thread, depth, .. } = Constants::of(values);
    let each = |of: char, count: usize, value: &dyn Fn(usize) -> String| {
        lines((0..count).map(|i| format!("let {of}_{i} = {};", value(i))))
    };
    let starts = each('a', rows, &|i| format!("start_a(place, {i}u)"))
        + &each('b', columns_per_thread, &|j| format!("start_b(place, {j}u)"));
    let sums = lines(pairs([rows, columns_per_thread]).map(|(i, j)| format!("var sum_{i}_{j} = 0.0;")));
    // All loads of a step come before its products.
    let step = |how: &str, rest: &str| {
        let fetch = |of: char, l: usize, count: usize| {
            lines(
                (0..count).map(move |i| format!("let {of}_{i}_{l} = {how}_{of}({of}_{i}, k + {l}u{rest});")),
            )
        };
        let fetches: String =
            (0..depth).map(|l| fetch('a', l, rows) + &fetch('b', l, columns_per_thread)).collect();
        let product = |l, (i, j)| format!("sum_{i}_{j} = fma(a_{i}_{l}, b_{j}_{l}, sum_{i}_{j});");
        let products =
            (0..depth).flat_map(|l| pairs([rows, columns_per_thread]).map(move |ij| product(l, ij)));
        fetches + &lines(products)
    };
    let (whole, rest) = (step("fetch", ""), step("fetch_rest", ", end"));
    let results = lines(
        pairs([rows, columns_per_thread]).map(|(i, j)| format!("write_out(place, {i}u, {j}u, sum_{i}_{j});")),
    );
    format!(
        "
fn multiply(place: Place, end: u32) {{
{starts}{sums}let steps = end / DEPTH;
for (var step = 0u; step < steps; step++) {{
let k = step * DEPTH;
{whole}}}
let k = steps * DEPTH;
if k < end {{
{rest}}}
{results}}}
"
    )
}

/// Such as `4x256x2`: rows and columns of a workgroup, where C has as many columns, and depth.
impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, columns] = self.extent(self.across.unwrap_or(THREADS));
        write!(f, "{rows}x{columns}x{}", self.depth)
    }
}

#[cfg(test)]
mod tests {
    use backend_api::BackendTranspose::{NoTrans, Trans};
    use backend_api::desc::Matrix;

    use super::*;
    use crate::device::h200;

    #[test]
    fn short_sums_are_taken_and_long_ones_left() {
        let choose = |m, n, k, trans_b, dtype| {
            let matrix = Matrix::new(0, dtype, 1 << 13);
            let desc = MatmulDesc::new(m, n, k, matrix, matrix, matrix).with_transpose(NoTrans, trans_b);
            Outer::choose(&desc, h200::COMPUTE_UNITS).map(|shape| shape.to_string())
        };
        for (m, n, k, trans_b, dtype, shape) in [
            (10, 56, 2, NoTrans, DType::F32, Some("1x128x8")),
            (160, 1024, 3, Trans, DType::F16, Some("2x128x4")),
            (4794, 706, 1, NoTrans, DType::F32, Some("4x256x2")),
            (2048, 3634, 16, NoTrans, DType::F32, Some("32x128x2")),
            // Tiles would be mostly empty.
            (1 << 18, 10, 8, NoTrans, DType::F32, Some("4x256x2")),
            // Tensor cores take them.
            (2048, 3634, 16, NoTrans, DType::F16, None),
            (16, 67, 32, NoTrans, DType::F32, Some("1x128x8")),
            (48, 5, 48, NoTrans, DType::F32, Some("1x128x8")),
            (48, 5, 48, Trans, DType::F32, None),
            (117, 192, 64, Trans, DType::F32, None),
            (1, 1023, 64, NoTrans, DType::F32, Some("1x128x8")),
            (10, 56, 65, NoTrans, DType::F32, None),
            (10, 56, 0, NoTrans, DType::F32, None),
        ] {
            assert_eq!(choose(m, n, k, trans_b, dtype).as_deref(), shape, "{m}x{n}x{k}");
        }
    }

    #[test]
    fn all_loads_of_a_step_come_before_its_products() {
        let constants = Constants {
            rows: 4,
            columns_per_thread: 2,
            depth: 2,
            across: 0,
            trans_a: false,
            trans_b: false,
            activation: Activation::Identity,
        };
        let text = multiply(&constants.values(), Target { immediates: true, unroll: true });
        let step = text.split("{\n").nth(2).expect("a loop");
        assert!(step.rfind("fetch_").unwrap() < step.find("fma").unwrap(), "{step}");
    }
}
