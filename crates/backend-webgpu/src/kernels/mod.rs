//! WGSL kernels: their sources, how a variant's text is made, and the compiled pipelines.

mod compose;
mod constants;
mod elements;
#[cfg(test)]
mod emulated;
pub(crate) mod libs;
mod params;
mod pipelines;
mod requirements;
mod source;
#[cfg(not(target_family = "wasm"))]
mod spirv;
mod target;
mod variant;

#[cfg(any(test, feature = "test-hooks"))]
pub use compose::compose;
pub use constants::{MAX_CONSTANTS, Values};
pub use params::Field;
#[cfg(feature = "test-hooks")]
pub use params::PADDING;
#[cfg(feature = "test-hooks")]
pub use requirements::Requirements;
pub use requirements::WorkgroupSize;
#[cfg(feature = "test-hooks")]
pub use source::Unrolled;
pub(crate) use source::native;
pub use source::{KernelSource, Lib};
pub use target::Target;
pub use variant::Variant;

#[cfg(feature = "count-out-of-bounds")]
pub(crate) use self::spirv::validate;
#[cfg(test)]
pub(crate) use constants::filled_up;
pub(crate) use constants::{Constant, Names, constants, numbered};
pub(crate) use elements::{Origin, STEPS};
pub(crate) use params::{FieldType, flattened, params};
pub(crate) use pipelines::{Kernel, Layout, MAX_IMMEDIATES, MAX_PARAMS, Pipelines, Signature};
#[cfg(target_family = "wasm")]
pub(crate) use source::{bare, bare_length};
pub(crate) use source::{kernel, shader};
pub(crate) use variant::Function;
