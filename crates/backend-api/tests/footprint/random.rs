//! Random arguments from a seed.

use backend_api::DType;
use backend_api::desc::TensorDesc;

use crate::judge::{Dims, packed_dims};

/// Extents and strides at which arithmetic wraps around: that of u32, of usize, and of a usize that counts
/// elements.
const EDGES: [usize; 14] = [
    0,
    1,
    2,
    1 << 16,
    i32::MAX as usize,
    (i32::MAX as usize) + 1,
    u32::MAX as usize,
    (u32::MAX as usize) + 1,
    1 << 61,
    usize::MAX / 4,
    usize::MAX / 4 + 1,
    usize::MAX / 2,
    usize::MAX - 1,
    usize::MAX,
];

/// A stream of choices. Half of the cases are small enough to be enumerated, the others have edge values
/// among theirs.
pub(crate) struct Gen {
    state: u64,
    big: bool,
}

impl Gen {
    pub(crate) fn new(seed: u64, big: bool) -> Self {
        Self { state: seed, big }
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub(crate) fn extent(&mut self) -> usize {
        if self.big && self.one_in(2) { self.pick(&EDGES) } else { self.pick(&[0, 1, 1, 2, 2, 3, 3, 4, 5]) }
    }

    /// Mostly not 0, and mostly no edge, for families of many extents.
    pub(crate) fn count(&mut self) -> usize {
        if self.one_in(14) { self.extent() } else { 1 + self.below(4) }
    }

    pub(crate) fn extents<const N: usize>(&mut self) -> [usize; N] {
        std::array::from_fn(|_| self.count())
    }

    /// A number that is now and then an edge, and otherwise `usual`.
    pub(crate) fn about(&mut self, usual: usize) -> usize {
        match self.below(12) {
            0 => usual.wrapping_add(1),
            1 => usual.saturating_sub(1),
            2 => self.extent(),
            _ => usual,
        }
    }

    pub(crate) fn shape(&mut self) -> Vec<usize> {
        // Seven and more dimensions may be too many.
        let rank = if self.one_in(12) { 6 + self.below(3) } else { self.below(5) };
        (0..rank).map(|_| if rank > 5 { self.pick(&[1, 2, 2, 2]) } else { self.count() }).collect()
    }

    pub(crate) fn dtype(&mut self) -> DType {
        self.pick(&DType::ALL)
    }

    /// Mostly floating-point.
    pub(crate) fn float(&mut self) -> DType {
        if self.one_in(8) { self.dtype() } else { self.pick(&[DType::F32, DType::F16]) }
    }

    /// Mostly `dtype`.
    pub(crate) fn like(&mut self, dtype: DType) -> DType {
        if self.one_in(10) { self.dtype() } else { dtype }
    }

    /// An optional handle.
    pub(crate) fn maybe(&mut self, ptr: u64) -> Option<u64> {
        (!self.one_in(3)).then_some(ptr)
    }

    pub(crate) fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        (1..n).for_each(|i| order.swap(i, self.below(i + 1)));
        order
    }

    /// Strides of every kind: in any order, with gaps, interleaved, of 0, too few, beyond memory.
    pub(crate) fn strides(&mut self, shape: &[usize]) -> Vec<usize> {
        let order = self.permutation(shape.len());
        let mut strides = vec![0; shape.len()];
        let mut stride = 1 + self.below(2);
        for axis in order {
            strides[axis] = stride;
            stride = stride.saturating_mul(shape[axis].max(1)).saturating_add(self.below(2));
        }
        if self.one_in(4) {
            strides.iter_mut().for_each(|stride| *stride = self.below(9));
        }
        if self.one_in(8) && !shape.is_empty() {
            let axis = self.below(shape.len());
            strides[axis] = if self.big { self.pick(&EDGES) } else { 0 };
        }
        if self.one_in(25) {
            strides.push(1);
        }
        strides
    }

    pub(crate) fn tensor(&mut self, ptr: u64, dtype: DType, shape: &[usize]) -> Tensor {
        let strides = (!self.one_in(3)).then(|| self.strides(shape));
        Tensor { ptr, dtype, shape: shape.to_vec(), strides }
    }

    /// A tensor whose strides are those of `other`, which is what in place needs.
    pub(crate) fn beside(&mut self, ptr: u64, dtype: DType, shape: &[usize], other: &Tensor) -> Tensor {
        if self.one_in(2) && shape.len() == other.shape.len() {
            return Tensor { ptr, dtype, shape: shape.to_vec(), strides: other.strides.clone() };
        }
        self.tensor(ptr, dtype, shape)
    }

    /// The shape with an extent or the rank changed, now and then.
    pub(crate) fn nearly(&mut self, shape: &[usize]) -> Vec<usize> {
        let mut shape = shape.to_vec();
        match self.below(20) {
            0 => shape.push(1),
            1 if !shape.is_empty() => {
                let axis = self.below(shape.len());
                shape[axis] = self.extent();
            }
            _ => {}
        }
        shape
    }
}

/// A tensor that owns its extents.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) ptr: u64,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Option<Vec<usize>>,
}

impl Tensor {
    pub(crate) fn desc(&self) -> TensorDesc<'_> {
        let packed = TensorDesc::packed(self.ptr, self.dtype, &self.shape);
        match &self.strides {
            Some(strides) => TensorDesc::strided(self.ptr, self.dtype, &self.shape, strides),
            None => packed,
        }
    }

    /// Extent and stride of each dimension. Too few or too many strides are for the caller to refuse.
    pub(crate) fn dims(&self) -> Dims {
        match &self.strides {
            Some(strides) => self.shape.iter().copied().zip(strides.iter().copied()).collect(),
            None => packed_dims(&self.shape),
        }
    }
}
