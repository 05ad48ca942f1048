//! The bytes of a command's operands, and what must become of its outputs.

use std::collections::HashMap;

use backend_api::DType;
use backend_api::desc::{HeadLayout, TensorDesc};
use backend_api::support::Loop;

use crate::element::decode;
use crate::want::Want;

/// Memory as the host sees it: the bytes behind handles, from each handle's start on.
#[derive(Clone, Debug, Default)]
pub struct Bytes(HashMap<u64, Vec<u8>>);

impl Bytes {
    /// Sets the first bytes behind a handle.
    pub fn insert(&mut self, ptr: u64, bytes: Vec<u8>) {
        self.0.insert(ptr, bytes);
    }

    /// The first bytes behind a handle; none behind one that was never set.
    #[must_use]
    pub fn get(&self, ptr: u64) -> &[u8] {
        self.0.get(&ptr).map_or(&[], Vec::as_slice)
    }

    pub(super) fn numbers(&self, ptr: u64, dtype: DType) -> Vec<f64> {
        decode(dtype, self.get(ptr))
    }

    /// Numbers behind an optional handle; none without one.
    pub(super) fn optional(&self, ptr: Option<u64>, dtype: DType) -> Vec<f64> {
        ptr.map(|ptr| self.numbers(ptr, dtype)).unwrap_or_default()
    }

    /// A u64 in two words, low one first; 0 without a handle.
    pub(super) fn word_pair(&self, ptr: Option<u64>) -> u64 {
        let bytes = ptr.map(|ptr| self.get(ptr)).unwrap_or_default();
        bytes.first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes))
    }
}

/// What must become of one output.
pub(crate) struct Expected {
    pub(crate) ptr: u64,
    pub(crate) dtype: DType,
    /// Whether elements that are not in `wants` are moved, to the bit of a NaN's payload.
    pub(crate) moved: bool,
    /// Elements that are computed, by their place after the handle's start.
    pub(crate) wants: Vec<(usize, Want)>,
}

impl Expected {
    /// An output of which some elements are computed, and the rest stays.
    pub(super) const fn computed(ptr: u64, dtype: DType, wants: Vec<(usize, Want)>) -> Self {
        Self { ptr, dtype, moved: true, wants }
    }

    /// A function of each number of `input`, by the loops over both tensors. That of an integer is exact.
    pub(super) fn of_each(
        [input, output]: [TensorDesc<'_>; 2],
        loops: &[Loop<2>],
        memory: &Bytes,
        want: impl Fn(f64) -> Want,
    ) -> Self {
        if !output.dtype.is_float() {
            return Self::exact(output.ptr, output.dtype);
        }
        let x = memory.numbers(input.ptr, input.dtype);
        let places = places_of(loops).into_iter();
        let wants = places.map(|[from, to]| (output.offset + to, want(x[input.offset + from])));
        Self::computed(output.ptr, output.dtype, wants.collect())
    }

    /// A packed output.
    pub(super) fn packed(ptr: u64, dtype: DType, wants: impl IntoIterator<Item = Want>) -> Self {
        Self::computed(ptr, dtype, wants.into_iter().enumerate().collect())
    }

    /// An output whose bits are known, unless the element type changes on the way: then NaN is any NaN, and a
    /// subnormal number may be zero.
    pub(crate) const fn moved(ptr: u64, dtype: DType, from: DType) -> Self {
        Self {
            ptr,
            dtype,
            moved: dtype.size() == from.size() && dtype.is_float() == from.is_float(),
            wants: Vec::new(),
        }
    }

    /// An output of exact numbers.
    pub(super) const fn exact(ptr: u64, dtype: DType) -> Self {
        Self { ptr, dtype, moved: false, wants: Vec::new() }
    }
}

/// Every place of nested loops, in order: for each tensor the elements from its first one.
pub(super) fn places_of<const N: usize>(loops: &[Loop<N>]) -> Vec<[usize; N]> {
    let mut places = vec![[0; N]];
    for &(extent, strides) in loops {
        let along = |place: &[usize; N]| {
            let place = *place;
            (0..extent).map(move |i| std::array::from_fn(|t| place[t] + i * strides[t]))
        };
        places = places.iter().flat_map(along).collect();
    }
    places
}

/// Where the vector of a head begins.
pub(super) const fn start(layout: HeadLayout, [batch, head, token]: [usize; 3]) -> usize {
    layout.offset + batch * layout.batch + head * layout.head + token * layout.token
}
