//! Runs a trial: places operands between guards, calls, and looks at every byte.

use backend_api::{BackendError, BackendResult, ErrorKind};

use crate::case::Outcome;
use crate::device::Device;
use crate::element::{decode, encode};
use crate::failure::Detail;
use crate::rng::Rng;
use crate::trial::{Operand, Trial};

/// A handle that no backend gives out: what an operand of no elements may carry.
const DANGLING: u64 = 0xdead_beef_dead_beef;

/// An operand in device memory.
struct Placed {
    allocation: u64,
    view: u64,
    /// Byte offset of the view.
    offset: usize,
    /// Bytes of the view.
    len: usize,
    /// The whole allocation before the call.
    before: Vec<u8>,
}

/// Runs `trial` and compares all memory with what it must be.
pub(crate) async fn trial(device: &Device<'_>, trial: &Trial, rng: &mut Rng) -> Result<Outcome, Detail> {
    let mut placed = Vec::with_capacity(trial.operands.len());
    let checked = match place_all(device, trial, rng, &mut placed) {
        Ok(()) => call_and_check(device, trial, &placed, rng).await,
        Err(error) => Err(error.into()),
    };
    let freed = free_all(device, &placed);
    let outcome = checked?;
    freed?;
    Ok(outcome)
}

fn place_all(
    device: &Device<'_>,
    trial: &Trial,
    rng: &mut Rng,
    placed: &mut Vec<Placed>,
) -> BackendResult<()> {
    let placement = rng.below(3);
    // In an arena, whether all operands share a block, and how many bytes of it are taken.
    let mut taken = (device.arena.is_some() && rng.one_in(4)).then_some(0);
    for (index, operand) in trial.operands.iter().enumerate() {
        let content = encode(operand.dtype, &operand.before);
        // As badly aligned as the element type can be, or so well that operands are read as vectors.
        let aligned = match placement {
            0 => false,
            1 => true,
            _ => rng.one_in(2),
        };
        let offset = if aligned { 64 * (1 + rng.below(3)) } else { operand.align * (1 + 2 * rng.below(24)) };
        let mut before = rng.bytes(offset);
        before.extend_from_slice(&content);
        let behind = 64 + rng.below(64);
        before.extend(rng.bytes(behind));
        if device.arena.is_some() {
            // Whole words are uploaded without a kernel, and so without its limit.
            before.resize(before.len().next_multiple_of(4), 0);
        }

        let allocation = match device.arena {
            Some(arena) => arena.place(device.backend, index, taken, before.len())?,
            None => device.backend.alloc(before.len())?,
        };
        taken = taken.map(|taken| taken.next_multiple_of(256) + before.len());
        placed.push(Placed { allocation, view: 0, offset, len: content.len(), before });
        if let Some(last) = placed.last_mut() {
            device.backend.copy_htod(allocation, &last.before)?;
            last.view = device.backend.view(allocation, offset, content.len())?;
        }
    }
    Ok(())
}

fn free_all(device: &Device<'_>, placed: &[Placed]) -> BackendResult<()> {
    let mut result = Ok(());
    for operand in placed {
        if operand.view != 0 {
            result = result.and(device.backend.free(operand.view));
        }
        result = result.and(device.backend.free(operand.allocation));
    }
    result
}

/// Captures a call and replays it twice: with the trial's numbers, and with each operand's in reverse, for which
/// the call itself says what must come out.
pub(crate) async fn replayed(device: &Device<'_>, trial: &Trial, rng: &mut Rng) -> Result<Outcome, Detail> {
    let mut placed = Vec::with_capacity(trial.operands.len());
    let mut graph = None;
    let checked = match place_all(device, trial, rng, &mut placed) {
        Ok(()) => capture_and_replay(device, trial, &mut placed, &mut graph, rng).await,
        Err(error) => Err(error.into()),
    };
    let freed = free_all(device, &placed);
    let graph_freed = graph.map_or(Ok(()), |graph| device.backend.free_graph(graph));
    let outcome = checked?;
    freed.and(graph_freed)?;
    Ok(outcome)
}

async fn capture_and_replay(
    device: &Device<'_>,
    trial: &Trial,
    placed: &mut [Placed],
    graph: &mut Option<u64>,
    rng: &mut Rng,
) -> Result<Outcome, Detail> {
    let backend = device.backend;
    let handles = handles(placed, rng);
    let captured = match backend.capture(&mut |backend| trial.call(backend, &handles)) {
        // A case that makes views within its call.
        Err(BackendError::Capturing { op: "view" }) => return Ok(Outcome::Refused),
        captured => captured.map(|made| *graph = Some(made)),
    };
    let outcome = judge(device, trial, captured)?;
    expect_memory(device, placed, "before the replay").await?;
    let Some(graph) = *graph else { return Ok(outcome) };
    backend.replay(graph)?;
    check_all(device, trial, placed, outcome).await?;

    for (operand, placed) in trial.operands.iter().zip(&mut *placed) {
        let reversed: Vec<f64> = operand.before.iter().rev().copied().collect();
        let content = encode(operand.dtype, &reversed);
        if let Some(inside) = placed.before.get_mut(placed.offset..placed.offset + content.len()) {
            inside.copy_from_slice(&content);
        }
        backend.copy_htod(placed.allocation, &placed.before)?;
    }
    trial.call(backend, &handles)?;
    for placed in &mut *placed {
        let called = device.read(placed.allocation, placed.before.len()).await?;
        backend.copy_htod(placed.allocation, &placed.before)?;
        placed.before = called;
    }
    backend.replay(graph)?;
    expect_memory(device, placed, "after the second replay").await?;
    Ok(outcome)
}

async fn expect_memory(device: &Device<'_>, placed: &[Placed], when: &str) -> Result<(), Detail> {
    for (number, placed) in placed.iter().enumerate() {
        let bytes = device.read(placed.allocation, placed.before.len()).await?;
        if let Some(at) = bytes.iter().zip(&placed.before).position(|(got, want)| got != want) {
            let place = at as isize - placed.offset as isize;
            return Err(Detail::Script(format!("byte {place} of operand {number} is wrong {when}")));
        }
    }
    Ok(())
}

async fn call_and_check(
    device: &Device<'_>,
    trial: &Trial,
    placed: &[Placed],
    rng: &mut Rng,
) -> Result<Outcome, Detail> {
    let handles = handles(placed, rng);
    let outcome = judge(device, trial, trial.call(device.backend, &handles))?;
    check_all(device, trial, placed, outcome).await?;
    Ok(outcome)
}

fn handles(placed: &[Placed], rng: &mut Rng) -> Vec<u64> {
    let mut handle = |operand: &Placed| match operand.len {
        0 if rng.one_in(2) => DANGLING,
        _ => operand.view,
    };
    placed.iter().map(&mut handle).collect()
}

/// What a call's result means.
fn judge(device: &Device<'_>, trial: &Trial, called: BackendResult<()>) -> Result<Outcome, Detail> {
    let refusable = trial.uses_f16() && !device.backend.capabilities()?.f16;
    match called {
        Err(error) if refusable && error.kind() == ErrorKind::Unsupported => Ok(Outcome::Refused),
        Err(error) if device.arena.is_some() && error.kind() == ErrorKind::Limit => Ok(Outcome::Limited),
        // A call with nothing to do may succeed before anyone looks at its types.
        Ok(()) if refusable && !trial.writes_nothing() => Err(Detail::NotRefused(None)),
        Err(error) if refusable => Err(Detail::NotRefused(Some(error))),
        called => {
            called?;
            Ok(Outcome::Right)
        }
    }
}

/// Looks at all memory after a call.
async fn check_all(
    device: &Device<'_>,
    trial: &Trial,
    placed: &[Placed],
    outcome: Outcome,
) -> Result<(), Detail> {
    for (operand, placed) in trial.operands.iter().zip(placed) {
        let after = device.read(placed.allocation, placed.before.len()).await?;
        let len = placed.len;
        check_guards(operand, placed, &after)?;
        let (old, new) = (&placed.before[placed.offset..][..len], &after[placed.offset..][..len]);
        if outcome != Outcome::Right || operand.after.is_empty() {
            check_unchanged(operand, old, new, |_| false)?;
        } else {
            check_unchanged(operand, old, new, |element| operand.after[element].is_some())?;
            check_elements(operand, new)?;
        }
    }
    Ok(())
}

fn check_guards(operand: &Operand, placed: &Placed, after: &[u8]) -> Result<(), Detail> {
    let inside = placed.offset..placed.offset + placed.len;
    let pairs = placed.before.iter().zip(after).enumerate();
    match pairs.filter(|(byte, _)| !inside.contains(byte)).find(|(_, (old, new))| old != new) {
        Some((byte, _)) => {
            Err(Detail::Guard { arg: operand.arg, offset: byte as isize - placed.offset as isize })
        }
        None => Ok(()),
    }
}

fn check_unchanged(
    operand: &Operand,
    old: &[u8],
    new: &[u8],
    written: impl Fn(usize) -> bool,
) -> Result<(), Detail> {
    if old == new {
        return Ok(());
    }
    let size = operand.dtype.size();
    let pairs = old.chunks(size).zip(new.chunks(size)).enumerate();
    match pairs.filter(|(_, (old, new))| old != new).find(|&(index, _)| !written(index)) {
        Some((index, _)) => Err(Detail::Touched { arg: operand.arg, index }),
        None => Ok(()),
    }
}

/// Whether the elements `new` of an output are right.
pub(crate) fn check_elements(operand: &Operand, new: &[u8]) -> Result<(), Detail> {
    let (mut wrong, mut worst, mut worst_index) = (0, 1.0, 0);
    let (mut error_squares, mut value_squares) = (0.0, 0.0);
    let elements = decode(operand.dtype, new);
    for (index, (want, &got)) in operand.after.iter().zip(&elements).enumerate() {
        let Some(want) = want else { continue };
        let miss = want.miss(got, operand.dtype);
        if miss > 1.0 {
            wrong += 1;
            if miss > worst {
                (worst, worst_index) = (miss, index);
            }
        }
        if let Some(value) = want.value().filter(|value| value.is_finite() && got.is_finite()) {
            error_squares += (got - value).powi(2);
            value_squares += value.powi(2);
        }
    }
    if let (true, Some(Some(want))) = (wrong > 0, operand.after.get(worst_index)) {
        return Err(Detail::Elements {
            arg: operand.arg,
            wrong,
            total: operand.after.iter().flatten().count(),
            index: worst_index,
            got: elements[worst_index],
            want: want.to_string(),
        });
    }
    let nmse = error_squares / value_squares;
    if nmse > operand.nmse {
        return Err(Detail::Nmse { arg: operand.arg, got: nmse, limit: operand.nmse });
    }
    Ok(())
}
