//! The router of a mixture of experts: a norm, a product and the largest of its results.
//!
//! Rows have elements of one magnitude, and weights are integers, so that products are nearly whole numbers, many of them equal.
//! Experts are compared with the products that were found, to the index.

use std::cmp::Ordering;

use backend_api::desc::{Bias, BiasAxis, MatmulDesc, Matrix, RmsNormDesc, SoftmaxOver, TopKDesc};
use backend_api::support::numbers;
use backend_api::{Activation, BackendResult, BackendTranspose, ComputeBackend, DType};
use backend_webgpu::WebGpuBackend;
use conformance::Rng;
use libtest_mimic::Failed;

use crate::apart::require_apart;
use crate::memory::{GUARD, Memory, bytes, is_able, require};
use crate::run::run;

/// Calls in a trial.
const CALLS: usize = 60;

/// Storage buffers of the launch.
const BUFFERS: u32 = 9;

/// A norm, a product and the largest of its results.
#[derive(Clone, Copy, Debug)]
struct Call {
    rows: usize,
    /// Elements of a row.
    columns: usize,
    experts: usize,
    /// Experts that are found.
    used: usize,
    dtype: DType,
    softmax: Option<SoftmaxOver>,
    largest: bool,
    has_bias: bool,
    /// Elements behind each row of B.
    padding: usize,
    /// What is added to mean squares, which are 4.
    eps: f64,
    /// An expert whose products are infinite or NaN.
    special: Option<(usize, f64)>,
}

impl Call {
    const SMALL: Self = Self {
        rows: 2,
        columns: 64,
        experts: 5,
        used: 2,
        dtype: DType::F32,
        softmax: Some(SoftmaxOver::Found),
        largest: true,
        has_bias: true,
        padding: 0,
        eps: 0.0,
        special: None,
    };

    fn random(rng: &mut Rng, has_f16: bool) -> Self {
        let experts = match rng.below(4) {
            0 => 1 + rng.below(9),
            1 => rng.pick(&[8, 32, 60, 128, 256, 512]),
            _ => 1 + rng.below(200),
        };
        let columns = match rng.below(4) {
            0 => 4 * (1 + rng.below(8)),
            1 => rng.pick(&[512, 516, 1020, 1024, 2048, 2052, 2880, 4096, 4100, 8192]),
            _ => 4 * (1 + rng.below(300)),
        };
        let special = rng
            .one_in(4)
            .then(|| (rng.below(experts), rng.pick(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN])));
        Self {
            rows: rng.pick(&[1, 1, 1, 2, 3, 7, 16]),
            columns,
            experts,
            used: 1 + rng.below(experts.min(9)),
            dtype: if has_f16 { rng.pick(&[DType::F32, DType::F16]) } else { DType::F32 },
            softmax: rng.pick(&[None, Some(SoftmaxOver::Found), Some(SoftmaxOver::Row)]),
            largest: !rng.one_in(4),
            has_bias: rng.one_in(2),
            padding: if rng.one_in(3) { 4 * (1 + rng.below(3)) } else { 0 },
            eps: rng.pick(&[0.0, 12.0]),
            special,
        }
    }

    const fn ldb(&self) -> usize {
        self.columns + self.padding
    }
}

/// What is different from three calls right behind each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    /// A warm-up compiles all kernels.
    WarmUp,
    /// A call that has nothing to do comes between.
    NothingBetween,
    /// Largest numbers that are refused come before the right ones.
    Refused,
    FillBehindNorm,
    FillBehindProduct,
    /// The product is of rows that weren't normalised.
    OtherRows,
    /// Numbers that weren't multiplied are compared.
    OtherNumbers,
    /// The product is doubled.
    Doubled,
    /// B has a column for each expert.
    Columns,
    /// Rows are normalised where they are.
    InPlace,
    /// The indices lie in the allocation of the products.
    IndicesBesideProducts,
    /// The values aren't asked for.
    NoValues,
    /// An input lies in one allocation with what is written before it is read, so that it is copied.
    XBesideNormed,
    ScaleBesideNormed,
    WeightsBesideProducts,
    BiasBesideProducts,
    /// The norm also writes the sum of its input and no residual.
    Sum,
    NoScale,
    /// The product is added to what is there.
    Added,
    Relu,
    BiasOfRows,
    /// Vectors of four begin nowhere.
    ScaleApart,
    WeightsApart,
    /// The product is of the first halves of the rows.
    Halves,
    /// The largest of the first products.
    Fewer,
    /// Rows of products have an element behind them.
    LongRows,
    /// The products' bits are compared.
    Bits,
}

impl Change {
    /// All that leaves the calls apart.
    const APART: [Self; 23] = [
        Self::FillBehindNorm,
        Self::FillBehindProduct,
        Self::OtherRows,
        Self::OtherNumbers,
        Self::Doubled,
        Self::Columns,
        Self::InPlace,
        Self::IndicesBesideProducts,
        Self::NoValues,
        Self::XBesideNormed,
        Self::ScaleBesideNormed,
        Self::WeightsBesideProducts,
        Self::BiasBesideProducts,
        Self::Sum,
        Self::NoScale,
        Self::Added,
        Self::Relu,
        Self::BiasOfRows,
        Self::ScaleApart,
        Self::WeightsApart,
        Self::Fewer,
        Self::LongRows,
        Self::Bits,
    ];
}

/// The operands' numbers.
struct Operands {
    x: Vec<f64>,
    scale: Vec<f64>,
    b: Vec<f64>,
    bias: Vec<f64>,
}

impl Operands {
    fn random(rng: &mut Rng, call: &Call) -> Self {
        // Mean squares of 4.
        let x = (0..call.rows * call.columns).map(|_| if rng.one_in(2) { 2.0 } else { -2.0 }).collect();
        let mut whole = |n: usize| -> Vec<f64> { (0..n).map(|_| rng.below(5) as f64 - 2.0).collect() };
        let (scale, bias) = (whole(call.columns), whole(call.experts));
        let mut b = whole(call.experts * call.ldb());
        if let Some((expert, number)) = call.special {
            b[expert * call.ldb()] = number;
        }
        Self { x, scale, b, bias }
    }
}

/// What the calls leave in memory.
#[derive(Debug, PartialEq)]
struct Results {
    normed: Vec<f64>,
    products: Vec<f64>,
    values: Vec<f64>,
    indices: Vec<u32>,
    /// Of the norm's input and no residual.
    sum: Vec<f64>,
    launches: usize,
}

fn results(
    backend: &WebGpuBackend,
    call: &Call,
    operands: &Operands,
    change: Change,
    replays: Option<usize>,
) -> Result<Results, Failed> {
    let &Call { rows, columns, experts, used, dtype, .. } = call;
    let mut memory = Memory::new(backend);
    let mut x = memory.behind(DType::F32, 12, &operands.x)?;
    let mut scale =
        memory.behind(DType::F32, 4 + usize::from(change == Change::ScaleApart), &operands.scale)?;
    // A view begins at a word.
    let word = if change == Change::WeightsApart { 4 / dtype.size() } else { 0 };
    let mut b = memory.behind(dtype, 20 + word, &operands.b)?;
    let mut bias = memory.behind(DType::F32, 8, &operands.bias)?;
    let sizes = [rows * columns * dtype.size(), rows * experts * 4, rows * used * 4];
    let [normed, products, values] = sizes.map(|bytes| memory.result(bytes));
    let (mut normed, mut products, values) = (normed?, products?, values?);
    let mut beside = |input: &mut u64, output: &mut u64, written: usize, dtype, numbers: &[f64]| {
        let own = bytes(dtype, numbers);
        let rooms = [written + GUARD, own.len()].map(|bytes| bytes.next_multiple_of(256));
        let both = memory.result(rooms[0] + rooms[1])?;
        *output = memory.view(both, 0, rooms[0])?;
        *input = memory.view(both, rooms[0], rooms[1])?;
        backend.copy_htod(*input, &own)
    };
    match change {
        Change::XBesideNormed => beside(&mut x, &mut normed, sizes[0], DType::F32, &operands.x)?,
        Change::ScaleBesideNormed => beside(&mut scale, &mut normed, sizes[0], DType::F32, &operands.scale)?,
        Change::WeightsBesideProducts => beside(&mut b, &mut products, sizes[1], dtype, &operands.b)?,
        Change::BiasBesideProducts => beside(&mut bias, &mut products, sizes[1], DType::F32, &operands.bias)?,
        _ => {}
    }
    let sum = memory.result(4 * rows * columns)?;
    let indices = if change == Change::IndicesBesideProducts {
        let room = [sizes[1], sizes[2]].map(|bytes| (bytes + GUARD).next_multiple_of(256));
        let both = memory.result(room[0] + room[1])?;
        products = memory.view(both, 0, room[0])?;
        memory.view(both, room[0], room[1])?
    } else {
        memory.result(sizes[2])?
    };
    let target = if change == Change::InPlace { x } else { normed };
    let other = memory.with(&bytes(dtype, &vec![1.0; rows * columns]))?;
    let numbers_beside = memory.with(&bytes(DType::F32, &vec![1.0; rows * experts]))?;

    let mut norm =
        RmsNormDesc::new(DType::F32, x, target, rows, columns).with_output_dtype(dtype).with_eps(call.eps);
    if change != Change::NoScale {
        norm = norm.with_weight(scale);
    }
    if change == Change::Sum {
        norm = norm.with_sum(sum);
    }
    let a = Matrix::new(if change == Change::OtherRows { other } else { target }, dtype, columns);
    let is_transposed = change != Change::Columns;
    let weights = Matrix::new(b, dtype, if is_transposed { call.ldb() } else { experts });
    let mut product =
        MatmulDesc::new(rows, experts, columns, a, weights, Matrix::new(products, DType::F32, experts));
    if is_transposed {
        product = product.with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans);
    }
    if call.has_bias {
        let axis = if change == Change::BiasOfRows { BiasAxis::Row } else { BiasAxis::Column };
        product.bias = Some(Bias { ptr: bias, axis });
    }
    match change {
        Change::Doubled => product.alpha = 2.0,
        Change::Added => product.beta = 1.0,
        Change::Relu => product.activation = Activation::Relu,
        Change::Halves => product.k = columns / 2,
        Change::LongRows => product.n = experts - 1,
        _ => {}
    }
    if change == Change::Added {
        backend.copy_htod(products, &bytes(DType::F32, &vec![3.0; rows * experts]))?;
    }
    let input = if change == Change::OtherNumbers { numbers_beside } else { products };
    let compared = if matches!(change, Change::Fewer | Change::LongRows) { experts - 1 } else { experts };
    let compared_as = if change == Change::Bits { DType::U32 } else { DType::F32 };
    let mut top = TopKDesc::new(compared_as, input, indices, rows, compared, used);
    if change != Change::NoValues {
        top = top.with_values(values);
    }
    if let Some(softmax) = call.softmax.filter(|_| change != Change::Bits) {
        top = top.with_softmax(softmax);
    }
    if !call.largest {
        top = top.with_smallest();
    }
    let step = |graph: &dyn ComputeBackend| -> BackendResult<()> {
        graph.rms_norm(&norm)?;
        if change == Change::FillBehindNorm {
            graph.fill(bias, DType::F32, 1, 1.0)?;
        }
        graph.matmul(&product)?;
        match change {
            Change::FillBehindProduct => graph.fill(products, DType::F32, 1, 1.0)?,
            Change::NothingBetween => graph.fill(products, DType::F32, 0, 1.0)?,
            Change::Refused => {
                let mut refused = top;
                refused.k = experts + 1;
                assert!(graph.top_k(&refused).is_err(), "{refused:?}");
            }
            _ => {}
        }
        graph.top_k(&top)
    };
    let launches = run(backend, replays, change == Change::WarmUp, &step)?;
    let read = |ptr, dtype: DType, bytes| -> Result<Vec<f64>, Failed> {
        Ok(numbers(dtype, &memory.read(ptr, bytes)?).collect())
    };
    let found = memory.read(indices, sizes[2])?;
    Ok(Results {
        normed: if change == Change::InPlace { Vec::new() } else { read(normed, dtype, sizes[0])? },
        products: read(products, DType::F32, sizes[1])?,
        values: read(values, DType::F32, sizes[2])?,
        sum: read(sum, DType::F32, 4 * rows * columns)?,
        indices: found
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect(),
        launches,
    })
}

/// NaN is the largest.
fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl Results {
    fn check(&self, call: &Call, operands: &Operands) -> Result<(), Failed> {
        let &Call { rows, columns, experts, used, .. } = call;
        // The square root's inverse is off by two units in the last place, each of three products by half of one; what is
        // rounded to f16 is a number of halves.
        let relative = if call.dtype == DType::F16 { 0.0 } else { 4.0 * f64::from(f32::EPSILON) };
        for row in 0..rows {
            let normed: Vec<f64> = (0..columns)
                .map(|column| {
                    operands.x[row * columns + column] / (4.0 + call.eps).sqrt() * operands.scale[column]
                })
                .collect();
            for (column, &wanted) in normed.iter().enumerate() {
                let found = self.normed[row * columns + column];
                require(&format!("element {column} of row {row}"), found, wanted, relative * wanted.abs())?;
            }
            let products = &self.products[row * experts..][..experts];
            for (expert, &found) in products.iter().enumerate() {
                let b = &operands.b[expert * call.ldb()..][..columns];
                let bias = if call.has_bias { operands.bias[expert] } else { 0.0 };
                let wanted = normed.iter().zip(b).map(|(x, b)| x * b).sum::<f64>() + bias;
                // Sums of halves are exact in f32.
                let terms = normed.iter().zip(b).map(|(x, b)| (x * b).abs()).sum::<f64>() + bias.abs();
                let rounded =
                    if relative == 0.0 { 0.0 } else { columns as f64 * f64::from(f32::EPSILON) / 2.0 };
                let bound = if terms.is_finite() { terms * (relative + rounded) } else { 0.0 };
                require(&format!("product {expert} of row {row}"), found, wanted, bound)?;
            }
            let mut sorted: Vec<usize> = (0..experts).collect();
            sorted.sort_by(|&a, &b| {
                let ascending = order(products[a], products[b]);
                if call.largest { ascending.reverse() } else { ascending }
            });
            let indices: Vec<usize> =
                self.indices[row * used..][..used].iter().map(|&index| index as usize).collect();
            if indices != sorted[..used] {
                return Err(format!("experts {indices:?} of row {row}, not {:?}", &sorted[..used]).into());
            }
            let values = &self.values[row * used..][..used];
            let over: Vec<f64> = match call.softmax {
                Some(SoftmaxOver::Row) => products.to_vec(),
                _ => indices.iter().map(|&index| products[index]).collect(),
            };
            let largest = over.iter().copied().reduce(|a, b| if order(a, b).is_lt() { b } else { a });
            let largest = largest.unwrap_or(f64::NAN);
            let sum: f64 = over.iter().map(|x| (x - largest).exp()).sum();
            for (place, &found) in values.iter().enumerate() {
                let number = products[indices[place]];
                let (wanted, bound) = match call.softmax {
                    None => (number, 0.0),
                    Some(_) if !largest.is_finite() => (f64::NAN, 0.0),
                    // WGSL's exp is off by 3 + 2 · |x| units in the last place, and a difference by half of one of its
                    // terms; the sum rounds once a term. Below 2⁻¹²⁶, a number may be 0.
                    Some(_) => {
                        let distance = (number - largest).abs();
                        let wanted = (number - largest).exp() / sum;
                        let units = 16.0 + 4.0 * distance + number.abs() + largest.abs() + over.len() as f64;
                        (wanted, wanted * units * f64::from(f32::EPSILON) + 2f64.powi(-126))
                    }
                };
                require(&format!("value {place} of row {row}"), found, wanted, bound)?;
            }
        }
        Ok(())
    }
}

/// Compares a graph's results, and its launches with what an able device has.
fn compare(backend: &WebGpuBackend, call: &Call, change: Change, launches: usize) -> Result<(), Failed> {
    let mut rng = Rng::from_name(&format!("{call:?}"));
    let operands = Operands::random(&mut rng, call);
    let found = results(backend, call, &operands, change, Some(1))?;
    found.check(call, &operands).map_err(|failed| told(call, change, &failed))?;
    let is_right = if is_able(backend, BUFFERS)? { found.launches == launches } else { found.launches >= 3 };
    if is_right { Ok(()) } else { Err(format!("{call:?}: {} launches", found.launches).into()) }
}

fn told(call: &Call, change: Change, failed: &Failed) -> Failed {
    format!("{call:?}, {change:?}: {}", failed.message().unwrap_or_default()).into()
}

pub(crate) fn random(backend: &WebGpuBackend) -> Result<(), Failed> {
    let has_f16 = backend.capabilities()?.f16;
    (0..CALLS).try_for_each(|number| {
        let call = Call::random(&mut Rng::new(number as u64), has_f16);
        compare(backend, &call, Change::Nothing, 1)
    })
}

/// A warm-up compiles what the graph needs.
pub(crate) fn warm_up(backend: &WebGpuBackend) -> Result<(), Failed> {
    compare(backend, &Call::SMALL, Change::WarmUp, 1)
}

/// What has to stay several launches does, with the same bits as without a graph, and what makes no difference doesn't.
pub(crate) fn apart(backend: &WebGpuBackend) -> Result<(), Failed> {
    let call = Call::SMALL;
    for change in [Change::NothingBetween, Change::Refused] {
        compare(backend, &call, change, 1)?;
    }
    let changed = Change::APART.map(|change| (call, change));
    let others = [
        // Rows are no whole vectors, or too long; too many, or of too many experts.
        (Call { columns: 66, ..call }, Change::Nothing),
        (Call { columns: 8196, ..call }, Change::Nothing),
        (Call { rows: 17, ..call }, Change::Nothing),
        (Call { experts: 513, ..call }, Change::Nothing),
        (Call { padding: 2, ..call }, Change::Nothing),
        // One row of any length may have half of it in front of the other.
        (Call { rows: 1, ..call }, Change::Halves),
    ];
    let half = |(call, change): (Call, Change)| (Call { dtype: DType::F16, ..call }, change);
    let is_half = |&(_, change): &(Call, Change)| {
        change != Change::InPlace && backend.capabilities().is_ok_and(|all| all.f16)
    };
    let halves = changed.into_iter().filter(is_half).map(half);
    for (call, change) in changed.into_iter().chain(halves).chain(others) {
        let operands = Operands::random(&mut Rng::new(7), &call);
        let mut found = results(backend, &call, &operands, change, Some(1))?;
        let expected = results(backend, &call, &operands, change, None)?;
        let launches = std::mem::take(&mut found.launches);
        require_apart(&format!("{call:?}, {change:?}"), launches, 3, [&found, &expected])?;
    }
    Ok(())
}

/// Many replays give equal bits: each leaves the counters as it found them.
pub(crate) fn again(backend: &WebGpuBackend) -> Result<(), Failed> {
    for call in [Call { rows: 16, experts: 300, columns: 128, ..Call::SMALL }, Call::SMALL] {
        let operands = Operands::random(&mut Rng::new(3), &call);
        let once = results(backend, &call, &operands, Change::Nothing, Some(1))?;
        let often = results(backend, &call, &operands, Change::Nothing, Some(50))?;
        // What isn't asked for stays the NaN that it was.
        if format!("{once:?}") != format!("{often:?}") {
            return Err(format!("{call:?}: {often:?}, not {once:?}").into());
        }
        often.check(&call, &operands).map_err(|failed| told(&call, Change::Nothing, &failed))?;
    }
    Ok(())
}
