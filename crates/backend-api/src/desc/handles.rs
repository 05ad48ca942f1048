//! The handles that a descriptor names.

use super::{AttentionMask, Bias, Matrix, QuantMatrix, RepetitionPenalty, RmsNorm, TensorDesc, Value};

/// A part of a descriptor that names device memory.
pub(crate) trait Handles {
    /// Replaces each handle by what `map` makes of it.
    fn map_handles(&mut self, map: &mut dyn FnMut(u64) -> u64);
}

/// Declares which fields of a descriptor, or of a part of one, name memory.
macro_rules! handles {
    ($desc:ident $(<$borrowed:lifetime>)?: $($field:ident),+) => {
        impl $crate::desc::handles::Handles for $desc $(<$borrowed>)? {
            fn map_handles(&mut self, map: &mut dyn FnMut(u64) -> u64) {
                $($crate::desc::handles::Handles::map_handles(&mut self.$field, map);)+
            }
        }
    };
}

impl Handles for u64 {
    fn map_handles(&mut self, map: &mut dyn FnMut(Self) -> Self) {
        *self = map(*self);
    }
}

impl<H: Handles> Handles for Option<H> {
    fn map_handles(&mut self, map: &mut dyn FnMut(u64) -> u64) {
        if let Some(part) = self {
            part.map_handles(map);
        }
    }
}

impl Handles for Value<'_> {
    fn map_handles(&mut self, map: &mut dyn FnMut(u64) -> u64) {
        match self {
            Self::Tensor(tensor) => tensor.map_handles(map),
            Self::Scalar(_) => {}
        }
    }
}

handles!(AttentionMask: ptr);
handles!(Bias: ptr);
handles!(Matrix: ptr);
handles!(QuantMatrix: ptr);
handles!(RepetitionPenalty: window);
handles!(RmsNorm: weight);
handles!(TensorDesc<'_>: ptr);
