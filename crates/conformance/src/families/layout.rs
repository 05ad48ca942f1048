//! Strided tensors for tests.

use backend_api::DType;
use backend_api::desc::TensorDesc;

use crate::rng::Rng;

/// How a tensor lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Row-major without strides.
    Packed,
    /// Row-major with its strides spelled out.
    Explicit,
    /// The dimensions in some other order in memory.
    Permuted,
    /// With unused elements behind each row, plane and so on.
    Gaps,
    /// Both.
    PermutedGaps,
    /// The last two dimensions in the other order in memory. Only asked for by name.
    Turned,
}

impl Layout {
    pub(super) const ALL: [Self; 5] =
        [Self::Packed, Self::Explicit, Self::Permuted, Self::Gaps, Self::PermutedGaps];

    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A shape and where its elements lie.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
    explicit: bool,
}

impl Tensor {
    pub(super) fn new(rng: &mut Rng, shape: &[usize], layout: Layout) -> Self {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        if matches!(layout, Layout::Permuted | Layout::PermutedGaps) {
            for i in (1..order.len()).rev() {
                order.swap(i, rng.below(i + 1));
            }
        }
        if let (Layout::Turned, [.., row, column]) = (layout, &mut order[..]) {
            std::mem::swap(row, column);
        }
        let gaps = matches!(layout, Layout::Gaps | Layout::PermutedGaps);
        let mut strides = vec![0; shape.len()];
        let mut stride = 1;
        for &dim in order.iter().rev() {
            strides[dim] = stride;
            stride = stride * shape[dim].max(1) + if gaps { 1 + rng.below(3) } else { 0 };
        }
        Self { shape: shape.to_vec(), strides, explicit: layout != Layout::Packed }
    }

    /// Repeats some dimensions by a stride of 0.
    pub(super) fn repeated(mut self, dims: &[usize]) -> Self {
        for &dim in dims {
            self.strides[dim] = 0;
        }
        self.explicit = true;
        self
    }

    pub(super) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Where each element lies, in row-major order of the shape.
    pub(super) fn offsets(&self) -> Vec<usize> {
        let mut offsets = vec![0];
        for (&extent, &stride) in self.shape.iter().zip(&self.strides) {
            let next = offsets.iter().flat_map(|start| (0..extent).map(move |i| start + i * stride));
            offsets = next.collect();
        }
        offsets
    }

    /// The memory that holds `values`, in row-major order of the shape; NaN between them.
    pub(super) fn store(&self, mut value: impl FnMut(usize) -> f64) -> Vec<f64> {
        let offsets = self.offsets();
        let len = offsets.iter().max().map_or(0, |last| last + 1);
        let mut data = vec![f64::NAN; len];
        for (i, offset) in offsets.into_iter().enumerate() {
            data[offset] = value(i);
        }
        data
    }

    pub(super) fn desc(&self, ptr: u64, dtype: DType) -> TensorDesc<'_> {
        TensorDesc::packed(ptr, dtype, &self.shape).with_strides(self.explicit.then_some(&self.strides))
    }
}

/// Shapes of every rank up to 6, some with extents of 0 and 1, some large, some that fill vectors of four,
/// and one of rank 8 that collapses.
pub(super) const SHAPES: [&[usize]; 21] = [
    &[64],
    &[12, 8],
    &[5, 3, 20],
    &[],
    &[1],
    &[7],
    &[257],
    &[3, 5],
    &[64, 65],
    &[33, 1],
    &[1, 33],
    &[4, 0, 3],
    &[2, 3, 4],
    &[3, 32, 33],
    &[5, 1, 7],
    &[2, 3, 4, 5],
    &[3, 1, 5, 2],
    &[2, 3, 2, 5, 3],
    &[2, 3, 2, 3, 2, 3],
    &[3, 1, 2, 1, 3, 4],
    &[2, 1, 3, 1, 2, 1, 1, 5],
];

/// A shape in a case's name.
pub(super) fn shape_name(shape: &[usize]) -> String {
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    if extents.is_empty() { "scalar".into() } else { extents.join("x") }
}
