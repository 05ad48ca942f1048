//! How many iterations a device lets the loops of an invocation make.
//!
//! Mesa's gallivm, the compiler of llvmpipe and lavapipe, counts the iterations of all loops together, nested
//! or in a row, for the invocations that share a SIMD vector of the CPU. After 65,535 of them, in Mesa 22.3,
//! every loop is left after one more, and nothing is reported. Loops of up to 32 constant iterations are unrolled
//! and don't count, unless much is in them. Whoever launches a kernel whose loops may be longer asks here
//! first, and launches it for parts of the work, or refuses.

use backend_api::{BackendError, BackendResult, DType, DeviceKind};

use super::self_test::{OP, SelfTest};
use super::verdicts::tells_nothing;
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::ops::op_context::OpContext;

static ITERATIONS: KernelSource = kernel!(
    "memory/iterations", libs: [],
    types: [], constants: [], params: Params, reads: [], writes: ["counted: u32"],
);

params! {
    struct Params {
        iterations: u32,
        output: u32,
    }
}

/// Iterations that every known device makes.
const SAFE: usize = 60_000;

/// What is kept for a kernel's loops of constant length, which nobody counts.
const RESERVE: usize = 4096;

/// Iterations of the self-test. A device that makes so many is taken for one without a limit.
const TRIED: usize = 1 << 20;

pub(in crate::ops) fn variants() -> Vec<Variant> {
    vec![variant()]
}

fn variant() -> Variant {
    Variant::new(&ITERATIONS, [], [])
}

/// The most iterations that an invocation may make on the device, if `wanted` are more than that. The first
/// question about more than any device makes has the device tried, if it is a CPU that poses as a GPU: no
/// other kind is known to have a limit.
pub(in crate::ops) fn exceeded(ctx: &OpContext, wanted: usize) -> Option<usize> {
    if wanted.saturating_add(RESERVE) <= SAFE || ctx.gpu().info.kind != DeviceKind::SoftwareAdapter {
        return None;
    }
    let known = &ctx.state.self_tests.iterations;
    let limit = match known.get() {
        Some(&limit) => limit,
        None => match found(ctx) {
            Ok(limit) => *known.get_or_init(|| limit),
            Err(_) => Some(SAFE),
        },
    };
    let most = limit?.saturating_sub(RESERVE);
    (wanted > most).then_some(most)
}

/// The error where a kernel that can't be launched in parts would make `each` iterations for each of
/// `requested` elements.
pub(in crate::ops) fn require(
    ctx: &OpContext,
    op: &'static str,
    what: &'static str,
    requested: usize,
    each: usize,
) -> BackendResult<()> {
    match exceeded(ctx, requested.saturating_mul(each)) {
        Some(most) => Err(BackendError::Limit { op, what, requested, max: most / each.max(1) }),
        None => Ok(()),
    }
}

/// The device's limit. Where it can't be tried, it is taken for the one that is known.
///
/// # Errors
/// Where the device was too busy or too full for the trial, which may be made again.
fn found(ctx: &OpContext) -> BackendResult<Option<usize>> {
    if cfg!(target_family = "wasm") {
        // A self-test would have to wait for its result.
        return Ok(Some(SAFE));
    }
    let counted = match count(ctx) {
        Ok(counted) => counted,
        Err(error) => {
            tracing::warn!(?error, "the longest loop of this device can't be found out");
            if tells_nothing(&error) {
                return Err(error);
            }
            SAFE
        }
    };
    tracing::debug!(counted, tried = TRIED, "iterations of a loop");
    Ok((counted < TRIED).then_some(counted))
}

/// How many of [`TRIED`] iterations the device makes.
fn count(ctx: &OpContext) -> BackendResult<usize> {
    ctx.time_left(OP)?;
    let mut test = SelfTest::new(ctx);
    let counted = test.upload(&[0; 4])?;
    let output = ctx.output(&counted, DType::U32);
    let params = Params { iterations: TRIED as u32, output: output.offset };
    test.launch(&variant(), &[&output], &params, [1; 3])?;
    let mut bytes = [0; 4];
    test.read(&counted, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;

    #[test]
    fn a_device_makes_the_iterations_that_it_is_trusted_with() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let call = backend.context("test").unwrap();
        let ctx = &call.context;
        let counted = count(ctx).unwrap();
        assert!((SAFE..=TRIED).contains(&counted), "{counted}");
        let limited = ctx.gpu().info.kind == DeviceKind::SoftwareAdapter && counted < TRIED;
        assert_eq!(exceeded(ctx, TRIED), limited.then(|| counted - RESERVE));
        assert_eq!(exceeded(ctx, SAFE - RESERVE), None);
    }
}
