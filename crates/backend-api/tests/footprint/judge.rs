//! What a call must answer, by enumeration of the elements that docs/operations.md says it names.

use backend_api::support::{self, Access, Operand, Region};
use backend_api::{BackendError, BackendResult, Bound, DType};

use crate::random::Tensor;

pub(crate) const OP: &str = "t";

/// Extent and stride of each dimension, outermost first.
pub(crate) type Dims = Vec<(usize, usize)>;

/// An operand as the documentation names it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    arg: &'static str,
    ptr: u64,
    dtype: DType,
    access: Access,
    dims: Dims,
}

impl Named {
    pub(crate) fn new(
        arg: &'static str,
        ptr: u64,
        dtype: DType,
        access: Access,
        dims: impl IntoIterator<Item = (usize, usize)>,
    ) -> Self {
        Self { arg, ptr, dtype, access, dims: dims.into_iter().collect() }
    }

    pub(crate) fn packed(arg: &'static str, ptr: u64, dtype: DType, access: Access, shape: &[usize]) -> Self {
        Self::new(arg, ptr, dtype, access, packed_dims(shape))
    }

    pub(crate) fn tensor(arg: &'static str, tensor: &Tensor, access: Access) -> Self {
        Self::new(arg, tensor.ptr, tensor.dtype, access, tensor.dims())
    }

    /// An operand that is left out.
    pub(crate) fn absent(arg: &'static str) -> Self {
        Self::packed(arg, 0, DType::F32, Access::Read, &[0])
    }

    /// A call that touches nothing of a handle doesn't look at it.
    pub(crate) fn only_if(self, touched: bool) -> Self {
        if touched { self } else { Self::absent(self.arg) }
    }

    fn bytes(&self) -> u128 {
        let last = if is_small(&self.dims) {
            addresses(&self.dims).into_iter().max().map(|last| last as u128)
        } else if volume(&self.dims) == 0 {
            None
        } else {
            Some(reach(&self.dims))
        };
        last.map_or(0, |last| last.saturating_add(1).saturating_mul(self.dtype.size() as u128))
    }

    /// Whether its elements can be told to be distinct: with the dimensions in the order of their strides,
    /// every element lies behind the one before. Unknown where there are too many.
    fn ascends(&self) -> Option<bool> {
        let mut dims = self.dims.clone();
        dims.sort_by_key(|&(_, stride)| std::cmp::Reverse(stride));
        if is_small(&dims) {
            return Some(addresses(&dims).is_sorted_by(|a, b| a < b));
        }
        let is_packed = self.bytes() <= usize::MAX as u128 && self.dims == packed_dims(&self.extents());
        (volume(&dims) == 0 || is_packed).then_some(true)
    }

    fn extents(&self) -> Vec<usize> {
        self.dims.iter().map(|&(extent, _)| extent).collect()
    }
}

/// A call: how it may be refused, and what it names if it isn't.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// What is wrong with it. If there is something, one of these must be answered.
    faults: Vec<BackendError>,
    /// What may be answered as well: strides and extents beyond memory of a tensor that has no elements.
    tolerated: Vec<BackendError>,
    named: Vec<Named>,
}

impl Call {
    pub(crate) fn fault_if(&mut self, condition: bool, fault: BackendError) {
        if condition {
            self.faults.push(fault);
        }
    }

    pub(crate) fn require_eq(&mut self, expected: usize, got: usize) {
        self.fault_if(expected != got, shape(expected, got));
    }

    pub(crate) fn require_at_least(&mut self, expected: usize, got: usize) {
        self.fault_if(got < expected, shape(expected, got));
    }

    pub(crate) fn require_float(&mut self, arg: &'static str, got: DType) {
        self.fault_if(!matches!(got, DType::F32 | DType::F16), dtype(arg, got));
    }

    pub(crate) fn require_dtype(&mut self, arg: &'static str, got: DType, expected: DType) {
        self.fault_if(got != expected, dtype(arg, got));
    }

    /// A number of elements that a call may work on.
    pub(crate) fn require_countable(&mut self, factors: &[usize]) {
        let dims: Dims = factors.iter().map(|&extent| (extent, 0)).collect();
        self.fault_if(volume(&dims) > usize::MAX as u128, overflow());
    }

    pub(crate) fn tolerate(&mut self, fault: BackendError) {
        self.tolerated.push(fault);
    }

    pub(crate) fn strides_of(&mut self, tensor: &Tensor) {
        if let Some(strides) = &tensor.strides {
            self.require_eq(tensor.shape.len(), strides.len());
        }
        let all: Dims = tensor.shape.iter().map(|&extent| (extent.max(1), 0)).collect();
        if volume(&all) > usize::MAX as u128 {
            self.tolerate(overflow());
        }
    }

    /// An operand: that it fits in memory, and that what is written is written once.
    pub(crate) fn name(&mut self, operand: Named) {
        let most = usize::MAX as u128;
        self.fault_if(operand.bytes() > most, overflow());
        let packed: Dims = operand.dims.iter().map(|&(extent, _)| (extent.max(1), 0)).collect();
        if reach(&operand.dims).max(volume(&packed)).saturating_mul(4) > most {
            self.tolerate(overflow());
        }
        if operand.access == Access::Write {
            let overlap = BackendError::Overlap { op: OP, a: operand.arg, b: operand.arg };
            match operand.ascends() {
                Some(ascends) => self.fault_if(!ascends, overlap),
                None => self.tolerate(overlap),
            }
        }
        self.named.push(operand);
    }

    pub(crate) fn is_refused(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Compares an answer. Returns what came with the operands, if the call was accepted.
    #[track_caller]
    pub(crate) fn judge<const N: usize, T>(self, got: BackendResult<([Operand; N], T)>) -> Option<T> {
        let (operands, rest) = self.answer(got)?;
        self.operands(&operands);
        Some(rest)
    }

    /// [`judge`](Self::judge) for operands alone. Returns whether the call was accepted.
    #[track_caller]
    pub(crate) fn judge_operands<const N: usize>(self, got: BackendResult<[Operand; N]>) -> bool {
        self.judge(got.map(|operands| (operands, ()))).is_some()
    }

    /// Compares the error, or that there is none.
    #[track_caller]
    pub(crate) fn answer<T>(&self, got: BackendResult<T>) -> Option<T> {
        match got {
            Ok(got) => {
                assert!(self.faults.is_empty(), "accepted, but should be one of {:?}", self.faults);
                Some(got)
            }
            Err(error) => {
                let error = without_prose(error);
                let known = self.faults.iter().chain(&self.tolerated).any(|fault| *fault == error);
                assert!(known, "{error:?}, should be one of {:?}", self.faults);
                None
            }
        }
    }

    #[track_caller]
    pub(crate) fn operands<const N: usize>(&self, got: &[Operand; N]) {
        assert_eq!(N, self.named.len(), "operands");
        for (got, named) in got.iter().zip(&self.named) {
            assert_eq!((got.arg, got.bytes as u128), (named.arg, named.bytes()));
            if got.bytes > 0 {
                let of = (got.ptr, got.align, got.access);
                assert_eq!(of, (named.ptr, named.dtype.size(), named.access), "{}", got.arg);
            }
        }
        memory(got);
    }
}

/// Gives operands memory of every kind and sees that `check` tells what fits.
#[track_caller]
fn memory<const N: usize>(operands: &[Operand; N]) {
    let exact = |of: &Operand| Region { allocation: of.ptr, offset: 0, len: of.bytes };
    let check = |place: &dyn Fn(&Operand) -> Option<Region>| {
        support::check(OP, operands, |ptr| operands.iter().find(|of| of.ptr == ptr).and_then(place))
    };
    assert_eq!(check(&|of| Some(exact(of))), Ok(()));
    for this in operands.iter().filter(|of| of.bytes > 0) {
        let &Operand { arg, ptr, bytes: need, align, access, .. } = this;
        let but =
            |region: Option<Region>| check(&move |of| if of.ptr == ptr { region } else { Some(exact(of)) });
        let short = Region { len: need - 1, ..exact(this) };
        assert_eq!(but(Some(short)), Err(BackendError::BufferTooSmall { op: OP, arg, have: need - 1, need }));
        assert_eq!(but(None), Err(BackendError::InvalidHandle { op: OP, arg, ptr }));
        let odd = Region { offset: 1, ..exact(this) };
        assert_eq!(but(Some(odd)), Err(BackendError::Misaligned { op: OP, arg, offset: 1, align }));
        // In one allocation, the ends of both must be numbers.
        let fits = |of: &Operand| (1..usize::MAX / 4).contains(&of.bytes);
        if access != Access::Write || !fits(this) {
            continue;
        }
        for other in operands.iter().filter(|of| fits(of) && of.ptr != ptr) {
            // The other operand in this one's allocation: at the same byte, behind it, and before its last
            // element.
            let end = need.next_multiple_of(4);
            for offset in [0, end, need.saturating_sub(align) / 4 * 4] {
                let shared = Region { allocation: ptr, offset, len: usize::MAX / 4 };
                let collides = (offset..offset.saturating_add(other.bytes)).start < need;
                let same = offset == 0 && need == other.bytes && other.access == Access::ReadInPlace;
                let got = but_both(operands, this, other, shared);
                assert_eq!(got.is_err(), collides && !same, "{arg} and {} at {offset}", other.arg);
                if let Err(error) = got {
                    let pair = [arg, other.arg];
                    assert!(
                        matches!(error, BackendError::Overlap { a, b, .. } if pair == [a, b]
                            || (other.access == Access::Write && pair == [b, a])),
                        "{error:?}"
                    );
                }
            }
        }
    }
}

fn but_both<const N: usize>(
    operands: &[Operand; N],
    this: &Operand,
    other: &Operand,
    shared: Region,
) -> BackendResult<()> {
    support::check(OP, operands, |ptr| {
        let of = operands.iter().find(|of| of.ptr == ptr)?;
        let len = if ptr == this.ptr { usize::MAX / 4 } else { of.bytes };
        let own = Region { allocation: ptr, offset: 0, len };
        Some(if ptr == other.ptr { shared } else { own })
    })
}

pub(crate) fn shape(expected: usize, got: usize) -> BackendError {
    BackendError::Shape { op: OP, what: "", expected: Bound::Exactly(expected), got }
}

pub(crate) fn listed_twice(got: usize) -> BackendError {
    BackendError::Shape { op: OP, what: "", expected: Bound::Unlisted, got }
}

pub(crate) fn dtype(arg: &'static str, got: DType) -> BackendError {
    BackendError::Dtype { op: OP, arg, got }
}

pub(crate) fn overflow() -> BackendError {
    BackendError::Overflow { op: OP, what: "" }
}

pub(crate) fn limit(requested: usize, max: usize) -> BackendError {
    BackendError::Limit { op: OP, what: "", requested, max }
}

/// What an error calls a size is prose; its numbers are compared.
fn without_prose(error: BackendError) -> BackendError {
    match error {
        BackendError::Shape { op, expected, got, .. } => {
            let (expected, got) = match expected {
                Bound::Unlisted => return listed_twice(got),
                Bound::Exactly(value) | Bound::AtLeast(value) => (value, got),
                Bound::AtMost(value) | Bound::LessThan(value) => (value, got),
                Bound::Row { length, .. } => (length, got),
                Bound::MultipleOf(divisor) => (0, got % divisor),
                other => panic!("{other}"),
            };
            BackendError::Shape { op, what: "", expected: Bound::Exactly(expected), got }
        }
        BackendError::Overflow { op, .. } => BackendError::Overflow { op, what: "" },
        BackendError::Limit { op, requested, max, .. } => {
            BackendError::Limit { op, what: "", requested, max }
        }
        other => other,
    }
}

/// The element index of every multi-index, in row-major order.
pub(crate) fn addresses(dims: &[(usize, usize)]) -> Vec<usize> {
    dims.iter().fold(vec![0], |all, &(extent, stride)| {
        all.iter().flat_map(|&start| (0..extent).map(move |i| start + i * stride)).collect()
    })
}

/// Whether [`addresses`] can be listed.
pub(crate) fn is_small(dims: &[(usize, usize)]) -> bool {
    let nonzero: Dims = dims.iter().map(|&(extent, stride)| (extent.max(1), stride)).collect();
    volume(&nonzero) <= 1 << 12 && reach(dims) < usize::MAX as u128
}

pub(crate) fn volume(dims: &[(usize, usize)]) -> u128 {
    if dims.iter().any(|&(extent, _)| extent == 0) {
        return 0;
    }
    dims.iter().fold(1, |product: u128, &(extent, _)| product.saturating_mul(extent as u128))
}

/// The largest element index, extents of 0 left out.
pub(crate) fn reach(dims: &[(usize, usize)]) -> u128 {
    dims.iter().fold(0, |sum: u128, &(extent, stride)| {
        sum.saturating_add((extent.saturating_sub(1) as u128).saturating_mul(stride as u128))
    })
}

pub(crate) fn packed_dims(shape: &[usize]) -> Dims {
    let inner = |k: usize| shape[k + 1..].iter().fold(1usize, |product, &n| product.saturating_mul(n.max(1)));
    shape.iter().enumerate().map(|(k, &extent)| (extent, inner(k))).collect()
}
