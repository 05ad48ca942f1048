//! Cumulative sums, in f64 or modulo 2³².

use backend_api::desc::CumSumDesc;
use backend_api::{BackendResult, DType};
use bytemuck::{Pod, cast_slice_mut};
use half::f16;

use crate::access::{Call, Input};
use crate::parallel::Cores;

/// Numbers in the share of one thread.
const GRAIN: usize = 1 << 15;

/// `output = cumulative sum of input` along the axis.
pub(crate) fn cumsum(call: Call<'_>, desc: &CumSumDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.access(&operands, |[input, _], output| {
        Cores::run(output.len(), |cores| match desc.dtype {
            DType::F16 => {
                sums::<f16, f64>(cores, desc, input, output, f64::from, |a, b| a + b, f16::from_f64);
            }
            // Of either sign, the bits are the same.
            DType::I32 | DType::U32 => {
                sums::<u32, u32>(cores, desc, input, output, |x| x, u32::wrapping_add, |x| x);
            }
            _ => sums::<f32, f64>(cores, desc, input, output, f64::from, |a, b| a + b, |x| x as f32),
        });
    })
}

/// Each core has slabs `[length, inner]` of its own.
fn sums<T: Pod + Send + Sync, S: Copy + Default>(
    cores: Cores,
    desc: &CumSumDesc,
    input: Input<'_>,
    output: &mut [u8],
    load: fn(T) -> S,
    add: fn(S, S) -> S,
    store: fn(S) -> T,
) {
    let CumSumDesc { length, inner, exclusive, reverse, .. } = *desc;
    let input = input.separate::<T>();
    let slab = length * inner;
    cores.chunks(cast_slice_mut(output), slab, GRAIN, &|first, chunk: &mut [T]| {
        for (i, y) in chunk.chunks_exact_mut(slab).enumerate() {
            if let Some(input) = input {
                y.copy_from_slice(&input[first + i * slab..][..slab]);
            }
            let mut sums = vec![S::default(); inner];
            for line in 0..length {
                let line = if reverse { length - 1 - line } else { line };
                for (y, sum) in y[line * inner..][..inner].iter_mut().zip(&mut sums) {
                    let before = *sum;
                    *sum = add(before, load(*y));
                    *y = store(if exclusive { before } else { *sum });
                }
            }
        }
    });
}
