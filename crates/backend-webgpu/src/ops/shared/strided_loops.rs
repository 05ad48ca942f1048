//! How element-wise kernels iterate over strided tensors together: in which order, and how many elements at a
//! time.

use std::cmp::Reverse;

use backend_api::desc::MAX_RANK;
use backend_api::support::{Loop, sort_few_by_key};
use backend_api::{BackendError, BackendResult, DType};

use super::long_work::{Divisible, division, in_parts, middle};
use crate::device::DeviceProfile;
use crate::kernels::{Origin, STEPS, constants};
use crate::ops::op_context::{OpContext, WORKGROUP, dim, linear_grid};
use crate::recorder::Window;

/// Numbers of an element at most.
const MAX_VEC_WIDTH: usize = 8;

/// From this many elements on, the ends of a tensor get launches of their own so that the rest can go in
/// vectors: where elements have four bytes, and where some have two.
const WORTH_SPLITTING: [usize; 2] = [1 << 22, 1 << 21];

/// From this many elements on, the vectors beside a gathered input are worth a launch of their own: a second one for
/// the tail takes as long as a million numbers one by one.
const WORTH_GATHERING: usize = 1 << 20;

constants! {
    /// What a kernel iterates over.
    pub(in crate::ops) struct Shape {
        /// Numbers of an element.
        vec_width: u32,
        /// Whether there is one loop, where other kernels look for theirs in the parameters, which takes as long as an
        /// addition of few numbers.
        one_loop: bool,
    }
}

/// The shapes of loops over tensors of these types, the widest first.
pub(in crate::ops) fn shapes_of(dtypes: &[DType]) -> impl Iterator<Item = Shape> {
    let most = most_lanes(dtypes);
    let widths = [MAX_VEC_WIDTH, 4, 1].into_iter().filter(move |&vec_width| vec_width <= most);
    widths.flat_map(|vec_width| [1, 2].map(|loops| Shape::of(vec_width, loops)))
}

/// Elements of 16 bytes; those of wider types, where there are several.
fn most_lanes(dtypes: &[DType]) -> usize {
    if dtypes.iter().all(|&dtype| dtype == DType::F16) { MAX_VEC_WIDTH } else { 4 }
}

impl Shape {
    /// With vectors of so many elements, in so many loops.
    const fn of(vec_width: usize, loops: usize) -> Self {
        Self { vec_width: vec_width as u32, one_loop: loops < 2 }
    }
}

/// One launch: nested loops over elements of some numbers, each tensor starting at `starts`. The output comes
/// last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ops) struct StridedLoops<const N: usize> {
    pub(in crate::ops) shape: Shape,
    /// In elements, but for a tensor that is [`Repeated`](Origin::Repeated) in numbers; of one that is
    /// [`Gathered`](Origin::Gathered), the number of the first element.
    pub(in crate::ops) starts: [u32; N],
    pub(in crate::ops) loops: Vec<Loop<N>>,
    /// Which tensors give the same number to all elements of a vector.
    repeated: [bool; N],
    gathered: Option<Gathered>,
}

/// An input of which every element of a vector lies in a place of its own, beside a packed output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gathered {
    /// Which of the tensors.
    tensor: usize,
    /// Elements of a row of the output, and the input's stride from one to the next.
    columns: Loop<1>,
    /// The input's stride from row to row.
    row_stride: usize,
    /// Where it starts.
    start: u32,
}

impl<const N: usize> StridedLoops<N> {
    /// The launches that visit all of `loops`, in which the output starts at number `starts[N − 1]` of its
    /// binding and so on. `dtypes` are all element types that occur.
    pub(in crate::ops) fn plan(loops: Vec<Loop<N>>, starts: [u32; N], dtypes: &[DType]) -> Vec<Self> {
        let loops = in_output_order(loops);
        let most = most_lanes(dtypes);
        let [words, halves] = WORTH_SPLITTING;
        let least = if dtypes.contains(&DType::F16) { halves } else { words };
        match ends(&loops, starts, most, least) {
            Some(lengths) => {
                let stride = loops[0].1;
                let mut first = 0;
                let pieces = lengths.into_iter().map(|length| {
                    let starts = std::array::from_fn(|t| starts[t] + (first * stride[t]) as u32);
                    first += length;
                    Self::new(vec![(length, stride)], starts, most)
                });
                pieces.filter(|piece| piece.loops[0].0 > 0).collect()
            }
            None => vec![Self::new(loops, starts, most)],
        }
    }

    /// [`plan`](Self::plan) for kernels that can gather one input: where that lies otherwise than a long packed
    /// output, such as a row that is added to each of a matrix, the others go in vectors all the same.
    pub(in crate::ops) fn plan_gathering(
        loops: Vec<Loop<N>>,
        starts: [u32; N],
        dtypes: &[DType],
    ) -> Vec<Self> {
        let loops = in_output_order(loops);
        let most = most_lanes(dtypes);
        let repeated = loops.last().map_or([false; N], |inner| inner.1.map(|stride| stride == 0));
        if [most, 4].into_iter().any(|vec_width| fits(&loops, starts, repeated, vec_width)) {
            return Self::plan(loops, starts, dtypes);
        }
        Self::gathering(&loops, starts, most).unwrap_or_else(|| Self::plan(loops, starts, dtypes))
    }

    /// The elements up to the first aligned vector of the output, the vectors, and the rest.
    fn gathering(loops: &[Loop<N>], starts: [u32; N], most: usize) -> Option<Vec<Self>> {
        let &[(rows, outer), (columns, inner)] = loops else { return None };
        let length = rows * columns;
        let packed = |t: usize| inner[t] == 1 && outer[t] == columns;
        let mut others = (0..N - 1).filter(|&t| !packed(t));
        let (Some(tensor), None) = (others.next(), others.next()) else { return None };
        if !packed(N - 1) || length < WORTH_GATHERING || columns < most {
            return None;
        }
        let phase = |t: usize| starts[t] as usize % most;
        if (0..N - 1).any(|t| t != tensor && phase(t) != phase(N - 1)) {
            return None;
        }
        let head = (most - phase(N - 1)) % most;
        let tail = (length - head) % most;
        // Neither reaches into another row than the first and the last.
        let ends = [(0, head), (length - tail, tail)].map(|(first, count)| {
            let (row, column) = (first / columns, first % columns);
            let starts = std::array::from_fn(|t| starts[t] + (row * outer[t] + column * inner[t]) as u32);
            Self::new(vec![(count, inner)], starts, most)
        });
        let vectors = Self {
            shape: Shape::of(most, 1),
            starts: std::array::from_fn(|t| {
                if t == tensor { head as u32 } else { (starts[t] + head as u32) / most as u32 }
            }),
            loops: vec![(
                (length - head - tail) / most,
                std::array::from_fn(|t| if t == tensor { most } else { 1 }),
            )],
            repeated: [false; N],
            gathered: Some(Gathered {
                tensor,
                columns: (columns, [inner[tensor]]),
                row_stride: outer[tensor],
                start: starts[tensor],
            }),
        };
        let [first, last] = ends;
        Some([first, vectors, last].into_iter().filter(|piece| piece.loops[0].0 > 0).collect())
    }

    fn new(mut loops: Vec<Loop<N>>, mut starts: [u32; N], most: usize) -> Self {
        let repeated = loops.last().map_or([false; N], |inner| inner.1.map(|stride| stride == 0));
        let Some(vec_width) =
            [most, 4].into_iter().find(|&vec_width| fits(&loops, starts, repeated, vec_width))
        else {
            return Self {
                shape: Shape::of(1, loops.len()),
                starts,
                loops,
                repeated: [false; N],
                gathered: None,
            };
        };
        for t in (0..N).filter(|&t| !repeated[t]) {
            starts[t] /= vec_width as u32;
            loops.iter_mut().for_each(|l| l.1[t] /= vec_width);
        }
        if let Some((extent, strides)) = loops.last_mut() {
            *extent /= vec_width;
            *strides = repeated.map(|repeated| usize::from(!repeated));
        }
        Self { shape: Shape::of(vec_width, loops.len()), starts, loops, repeated, gathered: None }
    }

    /// Where the kernel has tensor `t` from, `in_place` being whether it is the output.
    pub(in crate::ops) fn origin(&self, t: usize, in_place: bool) -> u32 {
        let gathered = self.gathered.is_some_and(|gathered| gathered.tensor == t);
        let origin = match (in_place, self.repeated[t]) {
            (true, _) => Origin::Output,
            _ if gathered => Origin::Gathered,
            (false, true) => Origin::Repeated,
            (false, false) => Origin::Memory,
        };
        origin as u32
    }

    /// The number of elements.
    pub(in crate::ops) fn count(&self, op: &'static str) -> BackendResult<u32> {
        let extents: Vec<_> = self.loops.iter().map(|&(extent, _)| extent).collect();
        dim(op, "elements", backend_api::support::checked_product(op, "elements", &extents)?)
    }

    pub(in crate::ops) fn grid(&self, op: &'static str) -> BackendResult<[u32; 3]> {
        linear_grid(op, (self.count(op)? as usize).div_ceil(WORKGROUP * STEPS as usize))
    }

    /// The loops as kernels take them: extent and up to three strides. Behind the one loop beside a gathered
    /// input come its columns, its strides from row to row, and its start.
    pub(in crate::ops) fn packed(&self, op: &'static str) -> BackendResult<[[u32; 4]; MAX_RANK]> {
        const { assert!(N <= 3, "a loop has room for three strides") };
        require_loops(op, self.loops.len(), MAX_RANK)?;
        let mut packed = [[0; 4]; MAX_RANK];
        for (slot, (extent, strides)) in packed.iter_mut().zip(&self.loops) {
            slot[0] = dim(op, "extent", *extent)?;
            for (stride, value) in slot[1..].iter_mut().zip(strides) {
                *stride = dim(op, "stride", *value)?;
            }
        }
        if let Some(Gathered { tensor, columns: (extent, [stride]), row_stride, start }) = self.gathered {
            packed[1][0] = dim(op, "extent", extent)?;
            packed[1][1 + tensor] = dim(op, "stride", stride)?;
            packed[2][1 + tensor] = dim(op, "stride", row_stride)?;
            packed[3][1 + tensor] = start;
        }
        Ok(packed)
    }
}

/// # Errors
/// [`Limit`](BackendError::Limit) for more loops than a kernel has room for.
pub(in crate::ops) fn require_loops(op: &'static str, requested: usize, max: usize) -> BackendResult<()> {
    let what = "dimensions that can't be merged";
    if requested <= max { Ok(()) } else { Err(BackendError::Limit { op, what, requested, max }) }
}

/// Loops over tensors with the windows of their first elements, of which a part may be iterated over at a time.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Stretch<const N: usize> {
    pub(in crate::ops) loops: Vec<Loop<N>>,
    pub(in crate::ops) windows: [Window; N],
}

impl<const N: usize> Stretch<N> {
    /// Launches the loops in parts, each with what it accesses of the tensors. A tensor that is `in_place` is the last
    /// one, and its window has no other meaning than its offset.
    ///
    /// # Errors
    /// What `launch` returns, and [`Limit`](BackendError::Limit) as of [`in_parts`].
    pub(in crate::ops) fn launch_parts(
        self,
        ctx: &OpContext,
        op: &'static str,
        in_place: [bool; N],
        mut launch: impl FnMut(&[Loop<N>], &[Window; N]) -> BackendResult<()>,
    ) -> BackendResult<()> {
        in_parts(ctx, op, self, |part| {
            if !part.windows.iter().any(Window::is_wide) {
                return launch(&part.loops, &part.windows);
            }
            let mut windows: [_; N] = std::array::from_fn(|t| part.windows[t].truncated(part.elements(t)));
            for t in (0..N).filter(|&t| in_place[t]) {
                windows[t].offset = windows[N - 1].offset;
            }
            launch(&part.loops, &windows)
        })
    }

    /// The elements from the first to the last one of tensor `t`.
    fn elements(&self, t: usize) -> usize {
        let reach = |&(extent, strides): &Loop<N>| extent.saturating_sub(1) * strides[t];
        self.loops.iter().map(reach).sum::<usize>() + 1
    }

    /// The first `half` iterations of a loop, and the others.
    fn divided(&self, at: usize, half: usize) -> [Self; 2] {
        let (extent, strides) = self.loops[at];
        let part = |first: usize, extent: usize| {
            let mut part = self.clone();
            part.loops[at].0 = extent;
            for (window, stride) in part.windows.iter_mut().zip(strides) {
                *window = window.advanced(first * stride);
            }
            part
        };
        [part(0, half), part(half, extent - half)]
    }
}

impl<const N: usize> Divisible for Stretch<N> {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        let elements: f64 = self.loops.iter().map(|&(extent, _)| extent as f64).product();
        elements * (N * size_of::<u32>()) as f64 / profile.bandwidth
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let at = (0..self.loops.len()).max_by_key(|&at| self.loops[at].0)?;
        Some(self.divided(at, middle(self.loops[at].0)?))
    }

    fn excess(&self) -> u64 {
        (0..N).map(|t| self.windows[t].excess(self.elements(t))).sum()
    }

    /// Along the loop that reaches furthest in the tensor that is the most too large.
    fn smaller_halves(&self) -> Option<[Self; 2]> {
        let t = (0..N).max_by_key(|&t| self.windows[t].excess(self.elements(t)))?;
        let reach = |at: usize| self.loops[at].0.saturating_sub(1) * self.loops[at].1[t];
        let at = (0..self.loops.len()).max_by_key(|&at| reach(at))?;
        let (extent, strides) = self.loops[at];
        Some(self.divided(at, division(extent, &[(&self.windows[t], strides[t])])?))
    }
}

/// The loops in the order of the output's memory, merged where all tensors iterate over two of them like one:
/// neighbouring invocations then write neighbouring elements.
fn in_output_order<const N: usize>(mut loops: Vec<Loop<N>>) -> Vec<Loop<N>> {
    sort_few_by_key(&mut loops, |&(_, strides)| Reverse(strides[N - 1]));
    let dims: [Vec<(usize, usize)>; N] =
        std::array::from_fn(|t| loops.iter().map(|&(extent, strides)| (extent, strides[t])).collect());
    backend_api::support::collapse(std::array::from_fn(|t| dims[t].as_slice()))
}

/// Whether a loop can go in vectors of so many elements. `repeated` are the tensors that stand still along
/// the innermost loop.
fn fits<const N: usize>(loops: &[Loop<N>], starts: [u32; N], repeated: [bool; N], vec_width: usize) -> bool {
    loops.split_last().is_some_and(|(inner, outer)| {
        let aligned = |t: usize| {
            repeated[t]
                || (inner.1[t] == 1
                    && (starts[t] as usize).is_multiple_of(vec_width)
                    && outer.iter().all(|l| l.1[t].is_multiple_of(vec_width)))
        };
        inner.0.is_multiple_of(vec_width) && !repeated[N - 1] && (0..N).all(aligned)
    })
}

/// The lengths into which a long packed loop falls if only its middle part can go in vectors: the elements up
/// to the first aligned one, those that fill whole vectors, and the rest. Fewer than `least` elements stay together.
fn ends<const N: usize>(
    loops: &[Loop<N>],
    starts: [u32; N],
    vec_width: usize,
    least: usize,
) -> Option<[usize; 3]> {
    let &[(length, strides)] = loops else { return None };
    let phase = |t: usize| starts[t] as usize % vec_width;
    let together = (0..N).all(|t| strides[t] == 0 || (strides[t] == 1 && phase(t) == phase(N - 1)));
    let head = (vec_width - phase(N - 1)) % vec_width;
    let tail = length.checked_sub(head)? % vec_width;
    let splits = together && strides[N - 1] == 1 && length >= least && head + tail > 0;
    splits.then(|| [head, length - head - tail, tail])
}

#[cfg(test)]
mod tests;
