//! What backends are made with; a runtime that only calls them needs none of it.
//!
//! * [`Operand`]: a descriptor's `operands` method checks shapes and says, for each handle, which bytes the
//!   operation touches and how. [`check`] compares that with the memory behind the handles. Both backends
//!   call it, so a bad call gets the same error everywhere, before anything has happened.
//! * [`HandleTable`], [`GraphTable`]: the tables behind a backend's handles. [`encode_handle`] makes a handle of
//!   a key of another table.
//! * [`Calls`]: operations as data, for a backend that has no command buffers to capture into.
//! * [`Loop`], [`collapse`], [`ReduceLoops`], [`Part`], [`ConvGather`]: how tensors are walked.
//! * [`numbers`], [`alloc_set`]: bytes as elements of a type, and memory whose bytes are all equal.
//! * [`require_bounded`]: the bound on the time of one call.

pub use crate::backend::alloc_set;
pub use crate::bound::{MAX_SECONDS, require_bounded};
pub use crate::calls::Calls;
pub use crate::desc::conv_gather::{ConvGather, GatherAxis};
pub use crate::desc::movement::Part;
pub use crate::desc::reduce::ReduceLoops;
pub use crate::desc::tensor::{Loop, collapse};
pub use crate::dtype::{numbers, round_to_odd};
pub use crate::graphs::GraphTable;
pub use crate::handle_code::{decode_handle, encode_handle};
pub use crate::handles::{HandleTable, Slice};
pub use crate::operand::{Access, Operand, Region, check};
pub use crate::size::{checked_add, checked_product, sort_few_by_key};
