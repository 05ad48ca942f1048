//! Pieces of the keys that the last workgroup of each tile puts together, as lib/attention_fixup explains.

use crate::context::{FIXUP_COUNTERS, FIXUP_WORDS};
use crate::device::h200;
use crate::ops::op_context::OpContext;

/// Bytes of workgroup memory that this takes: of a word and what aligns it.
pub(super) const WORKGROUP_BYTES: usize = 16;

/// Nanoseconds of a tile's last workgroup until it reads the others' parts: it waits for its own to be written, and for the
/// counter.
const TAIL: usize = 300;

/// Nanoseconds of an iteration, in which each of its invocations reads, rescales and adds four elements of eight pieces: on
/// tensor cores, 8 pieces of 4 rows of 128 take one, 9 to 16 0.56 µs more; otherwise 16 pieces are up to 1.5 µs faster than with a
/// launch, and 32 up to 0.9 slower (shaders/attention/notes.md).
pub(super) const COOPERATIVE_ITERATION: usize = 560;
pub(super) const ITERATION: usize = 1000;
pub(super) const PIECES_PER_ITERATION: usize = 8;
const VEC4S_PER_ITERATION: usize = 128;

/// Elements of K in a piece that are worth another iteration if there are more, and another workgroup for each compute unit. On
/// tensor cores over heads of 128, H200: 1000 keys take 7.4 µs in 8 pieces and 7.9 in 16, 2000 10.4 and 10.0, 4000 15.6 and
/// 12.3 (13.2 in 32, two for each unit), 16,000 29.4 in 16 and 24.4 in 32.
const WORTH_AN_ITERATION: usize = 5 << 12;
const WORTH_A_WORKGROUP: usize = 1 << 16;

/// How many pieces to put together of so many elements of K: at most those that give each compute unit one workgroup, or, of
/// many elements, whole iterations of those that give it as many as it works on at a time.
pub(super) fn pieces(elements: usize, [for_each, at_a_time]: [usize; 2]) -> usize {
    let iterations = elements.div_ceil(WORTH_AN_ITERATION * PIECES_PER_ITERATION);
    let pieces = iterations.saturating_mul(PIECES_PER_ITERATION).min(for_each);
    let whole_iterations = at_a_time / PIECES_PER_ITERATION * PIECES_PER_ITERATION;
    if elements / pieces.max(1) > WORTH_A_WORKGROUP { whole_iterations } else { pieces }
}

/// What the last workgroups of a call put together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// Tiles, each of so many rows that share keys.
    tiles: usize,
    rows: usize,
    /// Pieces of the keys.
    pieces: usize,
    /// Elements of a row of O.
    columns: usize,
    /// Nanoseconds of an iteration.
    iteration: usize,
}

impl Parts {
    /// Of pieces that become rows of O of so many `columns`.
    pub(super) const fn new(
        [tiles, rows]: [usize; 2],
        pieces: usize,
        columns: usize,
        iteration: usize,
    ) -> Self {
        Self { tiles, rows, pieces, columns, iteration }
    }

    /// Whether this can be done on the device.
    pub(super) fn fit(self, ctx: &OpContext) -> bool {
        let words = self.words_of_tile().saturating_mul(self.tiles).saturating_add(FIXUP_COUNTERS);
        ctx.has_fixup() && self.tiles <= FIXUP_COUNTERS && words <= FIXUP_WORDS
    }

    /// Whether that is faster than a launch for all tiles. Where a compute unit has more than two workgroups, the others'
    /// loads keep the last ones waiting.
    pub(super) fn are_fast(self, ctx: &OpContext) -> bool {
        let at_once = self.tiles.saturating_mul(self.pieces) <= ctx.profile().compute_units * 2;
        at_once && self.pieces > 1 && self.tail() < h200::COMBINING_LAUNCH
    }

    /// Nanoseconds of a tile's last workgroup.
    pub(super) fn tail(self) -> usize {
        let vec4s = self.rows.saturating_mul(self.columns.div_ceil(4));
        let iterations =
            self.pieces.div_ceil(PIECES_PER_ITERATION).saturating_mul(vec4s.div_ceil(VEC4S_PER_ITERATION));
        TAIL.saturating_add(iterations.saturating_mul(self.iteration))
    }

    /// Words of a tile: a reference and a sum for each row of each piece, and a vector of whole vec4s.
    fn words_of_tile(self) -> usize {
        let length = self.columns.next_multiple_of(4) + 2;
        self.rows.saturating_mul(self.pieces).saturating_mul(length)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use backend_api::desc::{AttentionDesc, AttentionShape};
    use backend_api::support::{Access, Operand};
    use backend_api::{BackendResult, ComputeBackend, DType};

    use super::*;
    use crate::WebGpuBackend;
    use crate::memory::DeviceSlice;
    use crate::ops::copy_bytes::copy_bytes;

    const SHAPE: AttentionShape = AttentionShape { batch: 3, heads: 12, seq_q: 1, seq_kv: 200, head_dim: 64 };
    const KV_HEADS: usize = 3;

    /// Kernels, each in more pieces than one.
    const KERNELS: [&str; 6] = [
        "decode/4+split7",
        "decode/2+split3",
        "decode/1s16+split2",
        "split/4+split5",
        "decode/4+split17",
        "split/2+split25",
    ];

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
        let bytes = 4 * FIXUP_COUNTERS;
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
        let words = read(backend, ptr, FIXUP_COUNTERS)?;
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
            assert_eq!(counters(&backend).unwrap(), [0; FIXUP_COUNTERS], "{kernel}");
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
        assert_eq!(counters(&backend).unwrap(), [0; FIXUP_COUNTERS]);
    }

    #[test]
    fn what_has_no_room_is_put_together_by_a_launch() {
        let Some((backend, mut desc)) = operands().unwrap() else { return };
        let call = backend.context("test").unwrap();
        let fit = |tiles, rows, pieces| {
            Parts { tiles, rows, pieces, columns: 64, iteration: ITERATION }.fit(&call.context)
        };
        assert!(fit(9, 4, 300) && fit(FIXUP_COUNTERS, 4, 2));
        assert!(!fit(FIXUP_COUNTERS + 1, 4, 2), "more tiles than counters");
        assert!(!fit(600, 4, 7), "more words than the buffer");
        drop(call);
        // Logarithms have no binding.
        backend.force_attention(Some("split/4+split5+fixup")).unwrap();
        assert!(backend.explain_attention(&desc).unwrap().contains("+fixup"));
        desc.lse = Some(backend.alloc(4 * SHAPE.batch * SHAPE.heads).unwrap());
        assert!(!backend.explain_attention(&desc).unwrap().contains("+fixup"));
    }

    #[test]
    fn a_launch_is_faster_for_many_pieces() {
        let tail = |rows, pieces, iteration| Parts { tiles: 8, rows, pieces, columns: 128, iteration }.tail();
        let are_shorter = |rows, iteration| {
            [2, 8, 16, 32, 64].map(|pieces| tail(rows, pieces, iteration) < h200::COMBINING_LAUNCH)
        };
        assert_eq!(are_shorter(4, COOPERATIVE_ITERATION), [true, true, true, true, false]);
        assert_eq!(are_shorter(16, COOPERATIVE_ITERATION), [true, true, false, false, false]);
        assert_eq!(are_shorter(4, ITERATION), [true, true, true, false, false]);
    }

    /// 8 heads of keys and values on an H200, whose units are enough for 16 pieces of each.
    #[test]
    fn pieces_are_worth_their_iterations() {
        let pieces = |keys: usize, head_dim: usize| pieces(keys * head_dim, [16, 33]);
        assert_eq!([640, 1128, 2128, 4128, 16_128].map(|keys| pieces(keys, 128)), [8, 8, 16, 16, 32]);
        assert_eq!([1128, 2128, 4128].map(|keys| pieces(keys, 64)), [8, 8, 16]);
        assert_eq!(pieces(usize::MAX / 64, 64), 32);
    }
}
