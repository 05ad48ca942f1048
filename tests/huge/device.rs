//! The memory of a family on a device, its calls, what their results are compared with, and what they take.

use std::time::{Duration, Instant};

use backend_api::desc::{Distribution, RandomDesc};
use backend_api::support::Access;
use backend_api::{BackendResult, Command, ComputeBackend, DType};
use conformance::reference::{Bytes, compare};

use super::family::{Buffer, Call, Family, Fill, Piece, Values};

/// How long the whole and its parts are timed.
const TIMED: Duration = Duration::from_millis(800);

/// Turns of either at most, and at least.
const TURNS: usize = 12;
const FEWEST_TURNS: usize = 3;

/// What every byte of the memory for a result is before: a NaN as f32 and as f16.
const NAN: f64 = u32::MAX as f64;

/// Two scales of f16, each 0.00625.
const SCALES: u32 = 0x1e66_1e66;

/// The buffers of a family on a device.
pub(crate) struct Placed<'a> {
    backend: &'a dyn ComputeBackend,
    buffers: Vec<u64>,
}

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        let freed = self.buffers.iter().try_for_each(|&ptr| self.backend.free(ptr));
        if let Err(error) = freed.and_then(|()| self.backend.trim().map(drop)) {
            println!("memory doesn't come back: {error}");
        }
    }
}

impl<'a> Placed<'a> {
    pub(crate) fn new(backend: &'a dyn ComputeBackend, family: &Family) -> BackendResult<Self> {
        let mut placed = Self { backend, buffers: Vec::new() };
        for (number, buffer) in family.buffers.iter().enumerate() {
            let ptr = backend.alloc(buffer.bytes)?;
            placed.buffers.push(ptr);
            fill(backend, ptr, buffer, number as u64)?;
        }
        for (buffer, byte, bytes) in &family.planted {
            placed.within(*buffer, *byte..*byte + bytes.len(), |view| backend.copy_htod(view, bytes))?;
        }
        Ok(placed)
    }

    /// Hands over a part of a buffer.
    fn within<T>(
        &self,
        buffer: usize,
        range: std::ops::Range<usize>,
        then: impl FnOnce(u64) -> BackendResult<T>,
    ) -> BackendResult<T> {
        let view = self.backend.view(self.buffers[buffer], range.start, range.len())?;
        let result = then(view);
        self.backend.free(view)?;
        result
    }

    /// The bytes of an operand.
    fn read(&self, pieces: &[Piece]) -> BackendResult<Vec<u8>> {
        let mut all = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Given(bytes) => all.extend(bytes),
                Piece::Part(buffer, range) => {
                    let mut bytes = vec![0; range.len()];
                    self.within(*buffer, range.clone(), |view| self.backend.copy_dtoh(&mut bytes, view))?;
                    all.extend(bytes);
                }
            }
        }
        Ok(all)
    }

    /// The bytes of all operands.
    pub(crate) fn read_all(&self, call: &Call) -> BackendResult<Vec<Vec<u8>>> {
        call.operands.iter().map(|pieces| self.read(pieces)).collect()
    }

    /// Makes a call whose operands are single parts.
    pub(crate) fn execute(&self, call: &Call) -> BackendResult<()> {
        let mut views = Vec::new();
        for pieces in &call.operands {
            let [Piece::Part(buffer, range)] = pieces.as_slice() else { panic!("an operand in pieces") };
            views.push(self.backend.view(self.buffers[*buffer], range.start, range.len())?);
        }
        let result = execute(self.backend, call, &views);
        views.into_iter().try_for_each(|view| self.backend.free(view))?;
        result
    }

    /// The shortest times of the whole and of its parts, which take turns.
    pub(crate) fn time(&self, family: &Family) -> BackendResult<[Duration; 2]> {
        let parts = || family.parts.iter().try_for_each(|part| self.execute(part));
        parts()?;
        let mut best = [Duration::MAX; 2];
        let started = Instant::now();
        for turn in 0..TURNS {
            if turn >= FEWEST_TURNS && started.elapsed() > TIMED {
                break;
            }
            for which in [turn % 2, 1 - turn % 2] {
                self.backend.synchronize()?;
                let start = Instant::now();
                if which == 0 {
                    self.execute(&family.whole)?;
                } else {
                    parts()?;
                }
                self.backend.synchronize()?;
                best[which] = best[which].min(start.elapsed());
            }
        }
        Ok(best)
    }

    /// The shortest time of what the call would be if its indices were known before; `None` if it has none.
    pub(crate) fn time_known(&self, family: &Family) -> BackendResult<Option<Duration>> {
        let mut best = None;
        for _ in 0..if family.known.is_empty() { 0 } else { FEWEST_TURNS } {
            self.backend.synchronize()?;
            let start = Instant::now();
            family.known.iter().try_for_each(|part| self.execute(part))?;
            self.backend.synchronize()?;
            best = Some(start.elapsed().min(best.unwrap_or(Duration::MAX)));
        }
        Ok(best)
    }

    /// Whether the planted numbers have become what they should.
    pub(crate) fn has(&self, values: &Values) -> Result<(), String> {
        let end = values.byte + 4 * values.want.len();
        let bytes = self.read(&[Piece::Part(values.buffer, values.byte..end)]).map_err(text)?;
        let got: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        match got.iter().zip(&values.want).position(|(got, want)| got != want) {
            Some(at) => Err(format!("number {at} is {}, expected {}", got[at], values.want[at])),
            None => Ok(()),
        }
    }
}

pub(crate) fn text(error: backend_api::BackendError) -> String {
    format!("{error:?}")
}

fn fill(backend: &dyn ComputeBackend, ptr: u64, buffer: &Buffer, seed: u64) -> BackendResult<()> {
    let normal = |ptr: u64, dtype: DType, bytes: usize| {
        let distribution = Distribution::Normal { mean: 0.0, std: 1.0 };
        backend.random(&RandomDesc::new(ptr, dtype, bytes / dtype.size(), seed, distribution))
    };
    match &buffer.fill {
        Fill::Normal(dtype) => normal(ptr, *dtype, buffer.bytes),
        Fill::Value(dtype, value) => backend.fill(ptr, *dtype, buffer.bytes / dtype.size(), *value),
        Fill::Nan => backend.fill(ptr, DType::U32, buffer.bytes / 4, NAN),
        Fill::Given(bytes) => backend.copy_htod(ptr, bytes),
        Fill::Quants(quants) => {
            normal(ptr, DType::F32, *quants)?;
            let scales = backend.view(ptr, *quants, buffer.bytes - quants)?;
            backend.fill(scales, DType::U32, (buffer.bytes - quants) / 4, SCALES.into())?;
            backend.free(scales)
        }
    }
}

/// Makes a call with these handles as its operands.
fn execute(backend: &dyn ComputeBackend, call: &Call, handles: &[u64]) -> BackendResult<()> {
    let mut result = Ok(());
    (call.make)(&mut |op, command| {
        let mut handle = |number: u64| {
            (number as usize).checked_sub(1).and_then(|at| handles.get(at)).copied().unwrap_or(0)
        };
        result = command.with_handles(&mut handle, |command| backend.execute(op, command));
    });
    result
}

/// Compares the results of a sample with the CPU's. `before` and `after` have the bytes of its operands.
pub(crate) fn judge(
    cpu: &dyn ComputeBackend,
    call: &Call,
    before: &[Vec<u8>],
    after: &[Vec<u8>],
) -> Result<(), String> {
    let handles: Vec<u64> =
        before.iter().map(|bytes| cpu.alloc(bytes.len())).collect::<BackendResult<_>>().map_err(text)?;
    let wanted = (|| {
        handles.iter().zip(before).try_for_each(|(&ptr, bytes)| cpu.copy_htod(ptr, bytes))?;
        execute(cpu, call, &handles)?;
        let mut results = before.to_vec();
        handles.iter().zip(&mut results).try_for_each(|(&ptr, bytes)| cpu.copy_dtoh(bytes, ptr))?;
        Ok(results)
    })();
    handles.into_iter().try_for_each(|ptr| cpu.free(ptr)).map_err(text)?;
    let wanted = wanted.map_err(|error| format!("on the CPU {}", text(error)))?;
    let [before, after, wanted] = [before, after, &wanted].map(|operands| {
        let mut bytes = Bytes::default();
        for (number, operand) in (1..).zip(operands) {
            bytes.insert(number, operand.clone());
        }
        bytes
    });
    let mut result = Err("no call was made".to_owned());
    (call.make)(&mut |op, command: Command<'_>| {
        let writes =
            |operand: &backend_api::support::Operand| operand.access == Access::Write && operand.bytes > 0;
        result = match command.operands(op) {
            Err(error) => Err(text(error)),
            Ok(operands) if !operands.iter().any(writes) => Err("nothing is written".to_owned()),
            Ok(_) => match compare(op, &command, &before, [&after, &wanted]) {
                Ok(None) => Ok(()),
                Ok(Some(difference)) => Err(format!("{difference:?}")),
                Err(error) => Err(text(error)),
            },
        };
    });
    result
}
