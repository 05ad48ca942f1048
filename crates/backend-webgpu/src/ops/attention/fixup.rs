//! Pieces of the keys that the last workgroup of each tile puts together, as lib/attention_fixup explains.

use backend_api::desc::AttentionDesc;

use super::pieces::{Pieces, shared_rows};
use crate::context::FIXUP_WORDS;
use crate::device::h200;
use crate::ops::op_context::OpContext;

/// Counters before the parts, and rows of all pieces of a tile, as lib/attention_fixup has them.
const COUNTERS: usize = 1024;
const STATES: usize = 256;

/// Bytes of workgroup memory that this takes.
pub(super) const WORKGROUP_BYTES: usize = STATES * 2 * size_of::<f32>() + 16;

/// Nanoseconds of a tile's last workgroup, from its own part to the first read of the others': it waits for its part to be
/// written, for the counter, and for what it reads. A prototype of tensor cores, whose last workgroup put 8 pieces of 16
/// rows together, took 3.6 µs more than with a launch for that.
const TAIL: usize = h200::COMBINING_LAUNCH + 3600;

/// Words of parts that a compute unit reads in a nanosecond.
const WORDS_RATE: usize = 16;

/// Whether the last of workgroups with so many rows can put so many pieces together on this device.
pub(super) fn suits(ctx: &OpContext, desc: &AttentionDesc, rows: usize, pieces: usize) -> bool {
    let tiles = Pieces::tiles(desc, rows);
    let words = words_of_tile(desc, rows, pieces).saturating_mul(tiles).saturating_add(COUNTERS);
    ctx.has_fixup()
        && desc.lse.is_none()
        && tiles <= COUNTERS
        && rows_of(desc, rows).saturating_mul(pieces) <= STATES
        && words <= FIXUP_WORDS
}

/// Whether that is faster than a launch for all of them.
pub(super) fn is_faster(desc: &AttentionDesc, rows: usize, pieces: usize) -> bool {
    pieces > 1 && TAIL + words_of_tile(desc, rows, pieces) / WORDS_RATE < h200::COMBINING_LAUNCH
}

fn rows_of(desc: &AttentionDesc, rows: usize) -> usize {
    rows.min(shared_rows(desc))
}

/// Words of the parts of a tile: a reference and a sum for each row of each piece, and a vector of whole fours.
fn words_of_tile(desc: &AttentionDesc, rows: usize, pieces: usize) -> usize {
    let length = desc.v_head_dim.next_multiple_of(4) + 2;
    rows_of(desc, rows).saturating_mul(pieces).saturating_mul(length)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use backend_api::desc::AttentionShape;
    use backend_api::support::{Access, Operand};
    use backend_api::{BackendResult, ComputeBackend, DType};

    use super::*;
    use crate::WebGpuBackend;
    use crate::memory::DeviceSlice;
    use crate::ops::copy_bytes::copy_bytes;

    const SHAPE: AttentionShape = AttentionShape { batch: 3, heads: 12, seq_q: 1, seq_kv: 200, head_dim: 64 };
    const KV_HEADS: usize = 3;

    /// Kernels, each in more pieces than one.
    const KERNELS: [&str; 4] = ["decode/4+split7", "decode/2+split3", "decode/1s16+split2", "split/4+split5"];

    /// A backend whose workgroups can tell each other something, with operands; `None` where there is none.
    fn operands() -> BackendResult<Option<(WebGpuBackend, AttentionDesc)>> {
        let backend = WebGpuBackend::open()?;
        if !backend.context("test")?.context.has_fixup() {
            return Ok(None);
        }
        let upload = |seed: usize, heads: usize, seq: usize| -> BackendResult<u64> {
            let count = SHAPE.batch * heads * seq * SHAPE.head_dim;
            let number = |i: usize| ((i * 7919 + seed * 104_729) % 1013) as f32 / 506.0 - 1.0;
            let numbers: Vec<f32> = (0..count).map(number).collect();
            let ptr = backend.alloc(4 * count)?;
            backend.copy_htod(ptr, bytemuck::cast_slice(&numbers))?;
            Ok(ptr)
        };
        let [q, o] = [1, 2].map(|seed| upload(seed, SHAPE.heads, 1));
        let [k, v] = [3, 4].map(|seed| upload(seed, KV_HEADS, SHAPE.seq_kv));
        let mut desc = AttentionDesc::new(DType::F32, q?, k?, v?, o?, SHAPE);
        desc.kv_heads = KV_HEADS;
        Ok(Some((backend, desc)))
    }

    fn read(backend: &WebGpuBackend, ptr: u64, count: usize) -> BackendResult<Vec<u32>> {
        let mut words = vec![u32::MAX; count];
        backend.copy_dtoh(bytemuck::cast_slice_mut(&mut words), ptr)?;
        Ok(words)
    }

    /// The bits of an output that was NaN before.
    fn attend(backend: &WebGpuBackend, desc: &AttentionDesc) -> BackendResult<Vec<u32>> {
        let count = SHAPE.batch * SHAPE.heads * SHAPE.head_dim;
        backend.copy_htod(desc.o, &vec![0xff; 4 * count])?;
        backend.attention_ext(desc)?;
        read(backend, desc.o, count)
    }

    fn counters(backend: &WebGpuBackend) -> BackendResult<Vec<u32>> {
        let bytes = 4 * COUNTERS;
        let ptr = backend.alloc(bytes)?;
        {
            let call = backend.context("test")?;
            let source = DeviceSlice { block: call.context.fixup()?.block, offset: 0, len: bytes };
            let target = Operand::bytes("dst", ptr, bytes, Access::Write);
            if let [Some(target)] = call.context.resolve("test", &[target])? {
                copy_bytes(&call.context, "test", &target, &source, bytes)?;
            }
            call.context.commit("test")?;
        }
        let words = read(backend, ptr, COUNTERS)?;
        backend.free(ptr)?;
        Ok(words)
    }

    #[test]
    fn many_launches_give_the_same_bits_and_leave_counters_at_0() {
        let Some((backend, desc)) = operands().unwrap() else { return };
        for kernel in KERNELS {
            backend.force_attention(Some(kernel)).unwrap();
            let in_two_launches = attend(&backend, &desc).unwrap();
            let fixed_up = format!("{kernel}+fixup");
            backend.force_attention(Some(&fixed_up)).unwrap();
            let first = attend(&backend, &desc).unwrap();
            if kernel.starts_with("split") {
                assert_eq!(backend.explain_attention(&desc).unwrap(), fixed_up);
            }
            // Sums of two hundred products of weights, which have the sum 1, and values up to 1.
            for (found, wanted) in first.iter().zip(&in_two_launches) {
                let [found, wanted] = [found, wanted].map(|&bits| f32::from_bits(bits));
                assert!((found - wanted).abs() <= 2e-6, "{kernel}: {found}, not {wanted}");
            }
            for _ in 0..10 {
                (0..20).for_each(|_| backend.attention_ext(&desc).unwrap());
                assert!(attend(&backend, &desc).unwrap() == first, "{kernel}");
            }
            assert_eq!(counters(&backend).unwrap(), [0; COUNTERS], "{kernel}");
        }
    }

    #[test]
    fn graphs_that_threads_replay_share_the_counters() {
        let Some((backend, desc)) = operands().unwrap() else { return };
        backend.force_attention(Some("split/4+split5+fixup")).unwrap();
        let wanted = attend(&backend, &desc).unwrap();
        let count = wanted.len();
        let run = || -> BackendResult<Vec<u32>> {
            let mut desc = desc;
            desc.o = backend.alloc(4 * count)?;
            let graph =
                backend.capture(&mut |recorded| (0..3).try_for_each(|_| recorded.attention_ext(&desc)))?;
            (0..10).try_for_each(|_| backend.replay(graph))?;
            read(&backend, desc.o, count)
        };
        thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(run));
            for thread in threads {
                assert!(thread.join().unwrap().unwrap() == wanted);
            }
        });
        assert_eq!(counters(&backend).unwrap(), [0; COUNTERS]);
    }

    #[test]
    fn what_has_no_room_is_put_together_by_a_launch() {
        let Some((backend, desc)) = operands().unwrap() else { return };
        let call = backend.context("test").unwrap();
        let suits = |pieces, change: fn(&mut AttentionDesc)| {
            let mut desc = desc;
            change(&mut desc);
            suits(&call.context, &desc, 4, pieces)
        };
        assert!(suits(64, |_| ()));
        assert!(!suits(65, |_| ()), "more rows of pieces than workgroup memory holds");
        assert!(!suits(2, |desc| desc.lse = Some(1)), "logarithms have no binding");
        assert!(!suits(2, |desc| desc.batch = 342), "more tiles than counters");
        assert!(!suits(7, |desc| desc.batch = 200), "more words than the buffer");
        // The one row of a head that has no others.
        assert!(suits(256, |desc| desc.heads = KV_HEADS));
    }

    #[test]
    fn a_launch_is_faster_by_the_prototypes_measure() {
        let desc = AttentionDesc::new(DType::F16, 0, 0, 0, 0, SHAPE);
        assert!(![1, 2, 8, 33].iter().any(|&pieces| is_faster(&desc, 4, pieces)));
    }
}
