//! The device: which adapter, opened how, and whether it still works.

mod adapter;
mod closing;
mod cooperative;
mod gl_lock;
mod health;
mod open;
mod profile;
mod progress;
#[cfg(not(target_family = "wasm"))]
mod queue;
mod scope;

#[cfg(test)]
pub(crate) use adapter::LEAST_BINDINGS;
pub(crate) use adapter::{MAX_BINDINGS, Selector, describe, enumerate, find, too_low};
#[cfg(all(test, not(target_family = "wasm")))]
pub(crate) use closing::closing;
pub(crate) use closing::{LastHandle, compiling};
pub(crate) use gl_lock::{GlGuard, GlLock};
pub(crate) use health::{Health, Witness};
pub(crate) use open::{Gpu, open};
pub(crate) use profile::{DeviceProfile, h200, plausible_compute_units};
pub(crate) use progress::Progress;
#[cfg(not(target_family = "wasm"))]
pub(crate) use queue::may_be_of;
pub(crate) use scope::{GuardedDevice, guarded, guarded_async};
