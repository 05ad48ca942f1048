//! Random numbers.

use backend_api::desc::{Distribution, RandomDesc};
use backend_api::{BackendResult, random};
use bytemuck::cast_slice_mut;

use crate::access::Call;
use crate::element::{Element, with_float};
use crate::parallel::Cores;

/// Numbers in the share of one thread.
const GRAIN: usize = 1 << 12;

/// `output` = numbers of a stream.
pub(crate) fn random(call: Call<'_>, desc: &RandomDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.access(&operands, |[_, offset], output| {
        let mut desc = *desc;
        if let [low, high] = *offset.elements::<u32>() {
            desc.offset = desc.offset.wrapping_add(u64::from(high) << 32 | u64::from(low));
        }
        with_float!(desc.dtype, T => fill(&desc, cast_slice_mut::<u8, T>(output)));
    })
}

fn fill<T: Element>(desc: &RandomDesc, output: &mut [T]) {
    let [shift, scale] = desc.distribution.affine();
    let numbers = match desc.distribution {
        Distribution::Normal { .. } => random::normals,
        // The enum may grow; what is unknown here is uniform.
        _ => random::uniforms,
    };
    Cores::run(output.len().saturating_mul(16), |cores| {
        cores.chunks(output, 4, GRAIN, &|first, chunk: &mut [T]| {
            let mut at = desc.offset.wrapping_add(first as u64);
            let mut block = [0.0; 4];
            let mut is_fresh = false;
            for y in chunk {
                if !is_fresh || at.is_multiple_of(4) {
                    block = numbers(random::philox_block(desc.seed, at / 4));
                    is_fresh = true;
                }
                *y = T::from_f32(shift + scale * block[(at % 4) as usize]);
                at = at.wrapping_add(1);
            }
        });
    });
}
