//! The backend under every order of its threads' steps that shuttle chooses.
//!
//! The device is wgpu's `noop`: copies are made in the host's memory, and kernels do nothing. So what is
//! uploaded can be read back and compared, and kernels are recorded, bound and submitted as ever.

mod closing;
mod explore;
mod late_errors;
mod memory;
mod rig;
mod transfers;
mod waits;

use explore::{Time, explore, explore_each};
use rig::{Rig, Submits, join, pattern, read, spawn};
