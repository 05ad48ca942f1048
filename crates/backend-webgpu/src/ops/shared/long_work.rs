//! Work that takes long, a part at a time.
//!
//! Windows resets a GPU that is two seconds over one submission, and nothing stops a dispatch once it runs.
//! So the time of each operation is estimated from its shapes and the device's profile, and what is long is
//! divided along its outputs into parts of about [`MAX_PART`](super::pace::MAX_PART), which are launched, and may be submitted, one
//! by one. Parts are operations of the kind that they are parts of, so the launchers needn't know.

use backend_api::support::require_bounded;
use backend_api::{BackendError, BackendResult};

use crate::device::DeviceProfile;
use crate::memory::DeviceSlice;
use crate::ops::op_context::OpContext;
use crate::recorder::{PART_ALIGNMENT, UNBINDABLE, Window, cut, excess};

/// Seconds that what can't be divided may take: those after which Windows resets a GPU.
const MAX_UNDIVIDED: f64 = 2.0;

/// Work that can be done in parts.
pub(in crate::ops) trait Divisible: Sized {
    /// The time that the device should take.
    fn seconds(&self, profile: &DeviceProfile) -> f64;

    /// The time of the longest chain of steps that no division shortens.
    fn undivided_seconds(&self, _profile: &DeviceProfile) -> f64 {
        0.0
    }

    /// Two parts that together write what the whole writes, in order; `None` if it can't be divided.
    fn halves(&self) -> Option<[Self; 2]>;

    /// The bytes by which operands pass what a launch can bind, or what is better divided than copied, all of them
    /// together; from [`UNBINDABLE`] on, if it can't be launched.
    fn excess(&self) -> u64 {
        0
    }

    /// [`halves`](Self::halves) that lead to smaller operands; `None` where no division does.
    fn smaller_halves(&self) -> Option<[Self; 2]> {
        self.halves()
    }
}

/// The most parts into which a call is divided so that its operands can be bound.
const MAX_PARTS: usize = 1 << 14;

/// Launches `work`, in parts if it is long. Each part is done with its scratch memory when `launch` returns.
///
/// # Errors
/// [`Limit`](BackendError::Limit) for work without an end in sight, before anything is launched; what
/// `launch` returns.
pub(in crate::ops) fn in_parts<T: Divisible>(
    ctx: &OpContext,
    op: &'static str,
    work: T,
    mut launch: impl FnMut(&T) -> BackendResult<()>,
) -> BackendResult<()> {
    require_end(ctx, op, &work)?;
    let seconds = work.seconds(&ctx.profile());
    if !ctx.state.pace.is_long(seconds, 0) && work.excess() == 0 {
        ctx.expect(ctx.state.pace.slowdown() * seconds);
        return launch(&work);
    }
    parts(ctx, work).iter().try_for_each(|(part, seconds)| {
        ctx.expect(*seconds);
        let _part = ctx.begin_part();
        launch(part)
    })
}

/// The parts into which work is divided, in order, with the seconds that each should take. A part that no division
/// makes small enough to be bound is refused when it is launched.
pub(in crate::ops) fn parts<T: Divisible>(ctx: &OpContext, work: T) -> Vec<(T, f64)> {
    let (mut parts, mut waiting) = (Vec::new(), vec![(work, 0)]);
    while let Some((part, halvings)) = waiting.pop() {
        let seconds = part.seconds(&ctx.profile());
        let excess = part.excess();
        let halves = if excess > 0 {
            // Matrices of a batch may share the operand that is too large, so halves aren't always smaller.
            let has_room = parts.len() + waiting.len() < MAX_PARTS;
            let halves = if has_room { part.smaller_halves() } else { None };
            // What can be launched as it is has to gain by it.
            let gains = |[first, second]: &[T; 2]| first.excess().max(second.excess()) < excess;
            halves.filter(|halves| excess >= UNBINDABLE || gains(halves))
        } else if ctx.state.pace.is_long(seconds, halvings) {
            part.halves()
        } else {
            None
        };
        match halves {
            Some([first, second]) => waiting.extend([(second, halvings + 1), (first, halvings + 1)]),
            None => parts.push((part, ctx.state.pace.slowdown() * seconds)),
        }
    }
    parts
}

/// What `plan` says of the first part, and how many there are if there are several.
///
/// # Errors
/// [`Limit`](BackendError::Limit) as of [`in_parts`].
pub(in crate::ops) fn explain_parts<T: Divisible>(
    ctx: &OpContext,
    op: &'static str,
    work: T,
    plan: impl FnOnce(&T) -> String,
) -> BackendResult<String> {
    require_end(ctx, op, &work)?;
    let parts = parts(ctx, work);
    let plan = parts.first().map(|(part, _)| plan(part)).unwrap_or_default();
    Ok(if parts.len() > 1 { format!("{plan}, in {} parts", parts.len()) } else { plan })
}

/// Whether work would be divided if it can be.
pub(in crate::ops) fn is_long<T: Divisible>(ctx: &OpContext, work: &T) -> bool {
    ctx.state.pace.is_long(work.seconds(&ctx.profile()), 0)
}

/// Refuses work without an end in sight.
///
/// # Errors
/// [`Limit`](BackendError::Limit).
pub(in crate::ops) fn require_end<T: Divisible>(
    ctx: &OpContext,
    op: &'static str,
    work: &T,
) -> BackendResult<()> {
    let (profile, slower) = (ctx.profile(), ctx.state.pace.slowdown());
    require_bounded(op, slower * work.seconds(&profile))?;
    let undivided = slower * work.undivided_seconds(&profile);
    if undivided <= MAX_UNDIVIDED {
        return Ok(());
    }
    let what = "estimated time of one result in milliseconds";
    // The conversion saturates.
    let requested = (undivided * 1e3).ceil() as usize;
    Err(BackendError::Limit { op, what, requested, max: (MAX_UNDIVIDED * 1e3) as usize })
}

/// Where an extent is divided: in the middle, but at a multiple of a large power of two if that is near, so
/// that the second half is as aligned as the first and has as few ragged tiles.
pub(in crate::ops) fn middle(extent: usize) -> Option<usize> {
    let half = extent / 2;
    let step = [256, 64, 16, 4].into_iter().find(|step| half >= 2 * step).unwrap_or(1);
    (half > 0).then_some(half / step * step)
}

/// Both parts of an extent that is divided in the [middle]: `part` makes one from its first item and their number.
pub(in crate::ops) fn halves_of<P>(extent: usize, part: impl Fn(usize, usize) -> P) -> Option<[P; 2]> {
    let first = middle(extent)?;
    Some([part(0, first), part(first, extent - first)])
}

/// Where `count` items are divided of operands in which they lie so many elements apart: where a buffer of one of them
/// ends, or else in the [middle].
pub(in crate::ops) fn division(count: usize, operands: &[(&Window, usize)]) -> Option<usize> {
    operands.iter().find_map(|(window, stride)| window.cut(*stride, count)).or_else(|| middle(count))
}

/// Items `first..end` of equally long ones, such as the rows of a matrix.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Run {
    pub(in crate::ops) first: usize,
    pub(in crate::ops) end: usize,
    /// Bytes that are read and written for an item.
    bytes: f64,
    /// Floating-point operations for an item.
    flops: f64,
    /// Steps of the longest loop that one invocation goes through.
    iterations: f64,
    /// A multiple of which every part but the last one has.
    align: usize,
    /// The operands that have some elements for each item.
    packed: [Option<Packed>; PACKED],
}

/// The most operands of which a run binds parts.
const PACKED: usize = 4;

/// An operand that has so many bytes for each item, by its first byte in its buffer.
#[derive(Clone, Copy, Debug)]
struct Packed {
    offset: usize,
    item: usize,
    max: u64,
    part_len: Option<usize>,
}

impl Run {
    /// `count` items, for each of which `bytes` bytes are read and written.
    pub(in crate::ops) fn of_bytes(count: usize, bytes: f64) -> Self {
        Self { first: 0, end: count, bytes, flops: 0.0, iterations: 0.0, align: 1, packed: [None; PACKED] }
    }

    /// `count` items of `flops` floating-point operations each.
    pub(in crate::ops) fn of_flops(count: usize, flops: f64) -> Self {
        Self { flops, ..Self::of_bytes(count, 0.0) }
    }

    /// Divided at multiples of `align`.
    pub(in crate::ops) fn aligned(self, align: usize) -> Self {
        Self { align, ..self }
    }

    /// With a loop of so many steps in one invocation.
    pub(in crate::ops) fn with_iterations(self, iterations: f64) -> Self {
        Self { iterations, ..self }
    }

    /// Over `slice`, which has `item` bytes for each item, on this device.
    pub(in crate::ops) fn over(mut self, ctx: &OpContext, slice: &DeviceSlice, item: usize) -> Self {
        let max = ctx.device.limits.max_bytes;
        if slice.block.size() as u64 > max
            && let Some(place) = self.packed.iter_mut().find(|place| place.is_none())
        {
            *place = Some(Packed { offset: slice.offset, item, max, part_len: slice.block.part_len() });
        }
        self
    }

    /// The first `groups` times as many items as are kept together, and the others.
    fn divided(&self, groups: usize) -> [Self; 2] {
        let at = self.first + groups * self.align;
        [Self { end: at, ..*self }, Self { first: at, ..*self }]
    }

    /// The number of items.
    pub(in crate::ops) fn count(&self) -> usize {
        self.end - self.first
    }

    /// The bytes of a packed operand that has `item` bytes for each item.
    pub(in crate::ops) fn part_of(&self, slice: &DeviceSlice, item: usize) -> DeviceSlice {
        let (offset, len) = (slice.offset + self.first * item, self.count() * item);
        DeviceSlice { block: slice.block.clone(), offset, len }
    }
}

/// Launches work on `count` items, such as rows, in parts. Each of the slices has `item` bytes for an item, and `passes`
/// times as many are read and written for it. `launch` gets the number of items of a part, and its slices.
pub(in crate::ops) fn in_parts_of_slices<const N: usize>(
    ctx: &OpContext,
    op: &'static str,
    [count, item, passes]: [usize; 3],
    slices: [&DeviceSlice; N],
    mut launch: impl FnMut(usize, [DeviceSlice; N]) -> BackendResult<()>,
) -> BackendResult<()> {
    let run = Run::of_bytes(count, (passes * item) as f64);
    let run = slices.iter().fold(run, |run, slice| run.over(ctx, slice, item));
    in_parts(ctx, op, run, |run| launch(run.count(), slices.map(|slice| run.part_of(slice, item))))
}

/// Halves a whole until `halves` doesn't any more, and visits the parts in their order; how many there are.
#[cfg(test)]
pub(in crate::ops) fn visit_parts<T>(
    whole: &T,
    halves: fn(&T) -> Option<[T; 2]>,
    visit: &mut impl FnMut(&T),
) -> usize {
    let Some(parts) = halves(whole) else {
        visit(whole);
        return 1;
    };
    parts.iter().map(|part| visit_parts(part, halves, visit)).sum()
}

impl Divisible for Run {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        self.count() as f64 * (self.bytes / profile.bandwidth + self.flops / profile.flops)
    }

    fn undivided_seconds(&self, profile: &DeviceProfile) -> f64 {
        self.iterations / profile.iterations
    }

    fn halves(&self) -> Option<[Self; 2]> {
        Some(self.divided(middle(self.count().div_ceil(self.align))?))
    }

    /// Where a buffer ends, if one does.
    fn smaller_halves(&self) -> Option<[Self; 2]> {
        let groups = self.count().div_ceil(self.align);
        let cut = |packed: &Packed| {
            let start = packed.offset + self.first * packed.item;
            cut(packed.max, packed.part_len, start, packed.item * self.align, groups)
        };
        match self.packed.iter().flatten().find_map(cut) {
            Some(at) => Some(self.divided(at)),
            None => self.halves(),
        }
    }

    fn excess(&self) -> u64 {
        let excess = |packed: &Packed| {
            // Within the operand, whose bytes are counted in `usize`.
            let start = (packed.offset + self.first * packed.item) as u64;
            let before = start % PART_ALIGNMENT;
            let bytes = (before + (self.count() * packed.item) as u64).next_multiple_of(16);
            excess(packed.max, packed.part_len, start - before, bytes)
        };
        self.packed.iter().flatten().map(excess).sum()
    }
}

#[cfg(test)]
mod tests {
    use backend_api::DeviceKind;

    use super::*;
    use crate::WebGpuBackend;
    use crate::ops::shared::pace::MAX_PART;

    #[test]
    fn runs_are_divided_where_they_stay_aligned() {
        let [first, second] = Run::of_bytes(1000, 4.0).aligned(256).halves().unwrap();
        assert_eq!([first.first, first.end, second.first, second.end], [0, 512, 512, 1000]);
        assert!(Run::of_bytes(256, 4.0).aligned(256).halves().is_none());
        assert!(Run::of_bytes(1, 4.0).halves().is_none());
        assert!(Run::of_bytes(0, 4.0).halves().is_none());
    }

    #[test]
    fn runs_across_buffers_are_divided_where_these_end() {
        // Rows of 1,000 bytes in buffers of 256 KiB, of which 64 KiB can be bound and 16 KiB be copied.
        let packed = Packed { offset: 500, item: 1000, max: 1 << 16, part_len: Some(1 << 18) };
        let mut run = Run::of_bytes(600, 1.0);
        run.packed[0] = Some(packed);
        assert!(run.excess() >= UNBINDABLE);
        let ends = |[a, b]: [Run; 2]| [a.end, b.first];
        assert_eq!(run.smaller_halves().map(ends), Some([256, 256]), "of 261 rows before the end");
        // What is behind begins with the end, and then with a whole number of rows.
        run.first = 256;
        assert_eq!(run.smaller_halves().map(ends), Some([272, 272]));
        run.end = 272;
        assert_eq!((run.excess(), run.smaller_halves().map(ends)), (0, Some([264, 264])));
        run.end = 300;
        assert!((1..UNBINDABLE).contains(&run.excess()));
    }

    #[test]
    fn halves_begin_at_whole_tiles() {
        assert_eq!(
            [0, 1, 2, 3, 7, 100, 1000, 5000].map(middle).map(Option::unwrap_or_default),
            [0, 0, 1, 1, 3, 48, 448, 2304]
        );
    }

    /// Work that takes so many seconds for each item, and one long chain of steps. Operands are too large by what passes
    /// `bindable` items.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Work {
        items: usize,
        seconds: f64,
        undivided: f64,
        bindable: usize,
    }

    impl Work {
        fn new(items: usize, seconds: f64) -> Self {
            Self { items, seconds, undivided: 0.0, bindable: usize::MAX }
        }
    }

    impl Divisible for Work {
        fn seconds(&self, _: &DeviceProfile) -> f64 {
            self.items as f64 * self.seconds
        }

        fn undivided_seconds(&self, _: &DeviceProfile) -> f64 {
            self.undivided
        }

        fn halves(&self) -> Option<[Self; 2]> {
            let first = middle(self.items)?;
            Some([first, self.items - first].map(|items| Self { items, ..*self }))
        }

        fn excess(&self) -> u64 {
            self.items.saturating_sub(self.bindable) as u64
        }
    }

    /// The items of each part that is launched, and what an explanation says of them.
    fn launched(ctx: &OpContext, work: Work) -> (Vec<usize>, String) {
        let mut items = Vec::new();
        in_parts(ctx, "test", work, |part| {
            items.push(part.items);
            Ok(())
        })
        .unwrap();
        let words = explain_parts(ctx, "test", work, |part| format!("{} items", part.items)).unwrap();
        (items, words)
    }

    #[test]
    fn long_work_is_launched_in_parts_in_order() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let call = backend.context("test").unwrap();
        let ctx = &call.context;
        let halves = (vec![448, 552], "448 items, in 2 parts".to_owned());
        assert_eq!(launched(ctx, Work::new(1000, MAX_PART / 1000.0)), (vec![1000], "1000 items".to_owned()));
        assert_eq!(launched(ctx, Work::new(1000, MAX_PART / 999.0)), halves);
        assert_eq!(launched(ctx, Work::new(1024, MAX_PART / 256.0)).0, [256; 4]);
        assert_eq!(launched(ctx, Work::new(1, 1.0)).0, [1], "nothing to divide");
        assert_eq!([999, 1001].map(|n| is_long(ctx, &Work::new(n, MAX_PART / 1000.0))), [false, true]);
        // Twice as slow a device, and one for which everything is halved twice.
        ctx.state.pace.pretend(2.0, 0);
        assert_eq!(launched(ctx, Work::new(1000, MAX_PART / 1999.0)), halves);
        let seconds: Vec<f64> =
            parts(ctx, Work::new(1024, 1e-3)).iter().map(|&(_, seconds)| seconds).collect();
        assert_eq!(seconds, [2.0 * 0.128; 8]);
        ctx.state.pace.pretend(1.0, 2);
        assert_eq!(launched(ctx, Work::new(1024, 0.0)).0, [256; 4]);
    }

    #[test]
    fn work_whose_operands_are_too_large_is_divided_while_that_helps() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let call = backend.context("test").unwrap();
        let of = |items, bindable| launched(&call.context, Work { bindable, ..Work::new(items, 0.0) }).0;
        assert_eq!([of(1024, 1024), of(1024, 1023), of(1024, 256)], [vec![1024], vec![512; 2], vec![256; 4]]);
        assert_eq!(of(3, 0), [1; 3], "what can't be divided is left");
        assert_eq!(of(1 << 16, 0).len(), MAX_PARTS + 1, "no more than the last halves");
    }

    #[test]
    fn work_without_an_end_in_sight_is_refused() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let call = backend.context("test").unwrap();
        let (ctx, mut launches) = (&call.context, 0);
        let mut run = |undivided: f64, seconds: f64| {
            let work = Work { undivided, ..Work::new(1, seconds) };
            in_parts(ctx, "test", work, |_| {
                launches += 1;
                Ok(())
            })
        };
        assert_eq!(run(MAX_UNDIVIDED, 1.0), Ok(()));
        let Err(BackendError::Limit { requested, max, .. }) = run(2.5, 1.0) else { panic!("it is launched") };
        assert_eq!((requested, max), (2500, 2000));
        assert!(run(0.0, 1e9).is_err());
        ctx.state.pace.pretend(2.0, 0);
        assert!(run(1.0, 1.0).is_ok() && run(1.1, 1.0).is_err());
        assert_eq!(launches, 2);
        let work = Work { undivided: 2.0, ..Work::new(1, 1.0) };
        assert!(explain_parts(ctx, "test", work, |_| String::new()).is_err());
    }

    #[test]
    fn a_run_takes_as_long_as_its_items() {
        let profile = DeviceProfile::of(DeviceKind::DiscreteGpu, true);
        let bytes = Run::of_bytes(10, 8.0);
        assert_eq!(bytes.seconds(&profile), 10.0 * (8.0 / profile.bandwidth));
        assert_eq!(Run::of_flops(10, 8.0).seconds(&profile), 10.0 * (8.0 / profile.flops));
        assert_eq!(bytes.undivided_seconds(&profile), 0.0);
        assert_eq!(bytes.with_iterations(100.0).undivided_seconds(&profile), 100.0 / profile.iterations);
        let [first, second] = bytes.halves().unwrap();
        assert_eq!([first.count(), second.count()], [5; 2]);
        assert_eq!(second.seconds(&profile), 5.0 * (8.0 / profile.bandwidth));
    }

    #[test]
    fn a_run_is_too_large_by_what_passes_a_binding() {
        let mut run = Run::of_bytes(600, 1.0);
        // Bound from byte 256 on, of two operands.
        let packed = Packed { offset: 500, item: 1000, max: 1 << 16, part_len: None };
        run.packed = [Some(packed), Some(Packed { item: 10, ..packed }), None, None];
        let bytes = (244 + 600_000_u64).next_multiple_of(16);
        assert_eq!(run.excess(), UNBINDABLE + bytes - (1 << 16));
        // Rows from the third on begin at byte 2500, 196 behind a multiple of 256.
        (run.first, run.end) = (2, 67);
        assert_eq!(run.excess(), 0);
        run.end = 68;
        assert_eq!(run.excess(), UNBINDABLE + (196_u64 + 66_000).next_multiple_of(16) - (1 << 16));
    }

    /// The largest products that docs/performance.md measures take one launch.
    #[test]
    fn measured_products_are_not_long() {
        let profile = DeviceProfile::of(DeviceKind::DiscreteGpu, true);
        let flops = 2.0 * 8192f64.powi(3);
        assert!(flops / profile.flops <= MAX_PART);
        assert!(flops / profile.flops_f16 <= MAX_PART);
    }
}
