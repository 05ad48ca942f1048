//! Normalised rows that are added to others, as an output is to the residual stream of models with a norm behind each block.

use backend_api::desc::{BinaryDesc, LayerNormDesc, RmsNormDesc, TensorDesc};
use backend_api::support::numbers;
use backend_api::{BackendResult, BinaryOp, ComputeBackend, DType};
use backend_webgpu::WebGpuBackend;
use conformance::Rng;
use libtest_mimic::Failed;

use crate::apart::require_apart;
use crate::memory::{GUARD, Memory, bytes, require};
use crate::run::run;

/// Calls in a trial.
const CALLS: usize = 60;

/// Rows that are normalised and added to others.
#[derive(Clone, Copy, Debug)]
struct Call {
    rows: usize,
    columns: usize,
    has_weight: bool,
    /// Rows are normalised where they are.
    in_place: bool,
    /// The others come first in the sum.
    others_first: bool,
}

/// What is different from a norm with its sum right behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    /// A warm-up compiles all kernels.
    WarmUp,
    FillBetween,
    /// Rows are subtracted.
    Subtracted,
    /// The sum goes elsewhere.
    Elsewhere,
    /// The sum takes the place of what was normalised.
    IntoNormed,
    /// Less than all is added.
    Part,
    /// A row is added to every row.
    Broadcast,
    /// The norm has a mean.
    LayerNorm,
    /// The rows lie in one allocation with those that they are added to.
    OneAllocation,
    /// Rows are added that weren't normalised.
    OtherRows,
    /// Vectors of what is added to begin nowhere.
    SumsApart,
}

/// What the calls leave in memory.
#[derive(Debug, PartialEq)]
struct Results {
    normed: Vec<f64>,
    sums: Vec<f64>,
    elsewhere: Vec<f64>,
    launches: usize,
}

/// The operands' numbers.
struct Operands {
    x: Vec<f64>,
    others: Vec<f64>,
    weight: Vec<f64>,
}

impl Operands {
    fn random(rng: &mut Rng, call: &Call) -> Self {
        let mut some = |n: usize| -> Vec<f64> {
            (0..n).map(|_| f64::from(rng.below(2001) as f32 / 500.0 - 2.0)).collect()
        };
        let elements = call.rows * call.columns;
        let (x, others, weight) = (some(elements), some(elements), some(call.columns));
        Self { x, others, weight: if call.has_weight { weight } else { vec![1.0; call.columns] } }
    }
}

/// Added to mean squares.
const EPS: f64 = 0.0625;

fn results(
    backend: &WebGpuBackend,
    call: &Call,
    operands: &Operands,
    change: Change,
    captured: bool,
) -> Result<Results, Failed> {
    let &Call { rows, columns, .. } = call;
    let elements = rows * columns;
    let mut memory = Memory::new(backend);
    let (x, sums) = if change == Change::OneAllocation {
        let size = (4 * elements).next_multiple_of(256);
        let both = memory.result(2 * size)?;
        let (x, sums) = (memory.view(both, 0, size)?, memory.view(both, size, size)?);
        backend.copy_htod(x, &bytes(DType::F32, &operands.x))?;
        backend.copy_htod(sums, &bytes(DType::F32, &operands.others))?;
        (x, sums)
    } else {
        let x = memory.behind(DType::F32, 4, &operands.x)?;
        let mut sums = memory.result(4 * elements)?;
        if change == Change::SumsApart {
            let all = memory.result(4 * elements + 4)?;
            sums = memory.view(all, 4, 4 * elements + GUARD)?;
        }
        backend.copy_htod(sums, &bytes(DType::F32, &operands.others))?;
        (x, sums)
    };
    let (apart, elsewhere) = (memory.result(4 * elements)?, memory.result(4 * elements)?);
    let weight = memory.behind(DType::F32, 12, &operands.weight)?;
    let normed = if call.in_place { x } else { apart };

    let mut norm = RmsNormDesc::new(DType::F32, x, normed, rows, columns).with_eps(EPS);
    let mut centred = LayerNormDesc::new(DType::F32, x, normed, rows, columns).with_eps(EPS);
    if call.has_weight {
        norm = norm.with_weight(weight);
        centred = centred.with_weight(weight);
    }
    let shape = [if change == Change::Part { rows - 1 } else { rows }, columns];
    let packed = |ptr| TensorDesc::packed(ptr, DType::F32, &shape);
    let own = match change {
        Change::Broadcast => TensorDesc::strided(normed, DType::F32, &shape, &[0, 1]),
        Change::OtherRows => packed(elsewhere),
        _ => packed(normed),
    };
    let into = match change {
        Change::Elsewhere => packed(elsewhere),
        Change::IntoNormed => packed(normed),
        _ => packed(sums),
    };
    let [a, b] = if call.others_first { [packed(sums), own] } else { [own, packed(sums)] };
    let function = if change == Change::Subtracted { BinaryOp::Sub } else { BinaryOp::Add };
    let sum = BinaryDesc::new(function, a, b, into);
    let step = |graph: &dyn ComputeBackend| -> BackendResult<()> {
        match change {
            Change::LayerNorm => graph.layer_norm(&centred)?,
            _ => graph.rms_norm(&norm)?,
        }
        if change == Change::FillBetween {
            graph.fill(sums, DType::F32, 1, 1.0)?;
        }
        graph.binary_ext(&sum)
    };
    let launches = run(backend, captured.then_some(1), change == Change::WarmUp, &step)?;
    let read = |ptr| -> Result<Vec<f64>, Failed> {
        let mut found = vec![0; 4 * elements];
        backend.copy_dtoh(&mut found, ptr)?;
        Ok(numbers(DType::F32, &found).collect())
    };
    let found = Results { normed: read(normed)?, sums: read(sums)?, elsewhere: read(elsewhere)?, launches };
    if change != Change::OneAllocation {
        memory.read(sums, 4 * elements)?;
    }
    memory.read(elsewhere, 4 * elements)?;
    memory.read(apart, 4 * elements)?;
    Ok(found)
}

impl Results {
    fn check(&self, call: &Call, operands: &Operands) -> Result<(), Failed> {
        let &Call { rows, columns, .. } = call;
        let unit = f64::from(f32::EPSILON);
        for (row, x) in operands.x.chunks_exact(columns).enumerate().take(rows) {
            let mean = x.iter().map(|x| x * x).sum::<f64>() / columns as f64;
            // Half a unit for each square and sum, of which the root halves the error, two for the root's inverse, and
            // two products.
            let relative = unit * (columns as f64 / 2.0 + 4.0);
            for (column, (x, weight)) in x.iter().zip(&operands.weight).enumerate() {
                let at = row * columns + column;
                let wanted = x / (mean + EPS).sqrt() * weight;
                require(
                    &format!("normalised element {at}"),
                    self.normed[at],
                    wanted,
                    relative * wanted.abs(),
                )?;
                let sum = operands.others[at] + wanted;
                require(
                    &format!("sum {at}"),
                    self.sums[at],
                    sum,
                    relative * wanted.abs() + unit * sum.abs(),
                )?;
            }
        }
        Ok(())
    }
}

pub(crate) fn random(backend: &WebGpuBackend) -> Result<(), Failed> {
    (0..CALLS).try_for_each(|number| {
        let mut rng = Rng::new(number as u64);
        let columns = if rng.one_in(2) { 1 + rng.below(700) } else { 4 * (1 + rng.below(1400)) };
        let call = Call {
            rows: rng.pick(&[1, 1, 2, 5, 33]),
            columns,
            has_weight: !rng.one_in(4),
            in_place: rng.one_in(2),
            others_first: rng.one_in(2),
        };
        let operands = Operands::random(&mut rng, &call);
        let change = if number == 0 { Change::WarmUp } else { Change::Nothing };
        let found = results(backend, &call, &operands, change, true)?;
        found
            .check(&call, &operands)
            .map_err(|failed| format!("{call:?}: {}", failed.message().unwrap_or_default()))?;
        if found.launches == 1 {
            Ok(())
        } else {
            Err(format!("{call:?}: {} launches", found.launches).into())
        }
    })
}

/// What has to stay two launches does, with the same bits as without a graph.
pub(crate) fn apart(backend: &WebGpuBackend) -> Result<(), Failed> {
    let call = Call { rows: 3, columns: 64, has_weight: true, in_place: false, others_first: true };
    let changes = [
        Change::FillBetween,
        Change::Subtracted,
        Change::Elsewhere,
        Change::IntoNormed,
        Change::Part,
        Change::Broadcast,
        Change::LayerNorm,
        Change::OneAllocation,
        Change::OtherRows,
        Change::SumsApart,
    ];
    for change in changes {
        let calls = [false, true].map(|others_first| Call { others_first, ..call });
        for call in calls.into_iter().flat_map(|call| [false, true].map(|in_place| Call { in_place, ..call }))
        {
            let operands = Operands::random(&mut Rng::new(7), &call);
            let mut found = results(backend, &call, &operands, change, true)?;
            let expected = results(backend, &call, &operands, change, false)?;
            let launches = std::mem::take(&mut found.launches);
            require_apart(&format!("{call:?}, {change:?}"), launches, 2, [&found, &expected])?;
        }
    }
    Ok(())
}
