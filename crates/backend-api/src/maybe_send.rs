//! `Send` and `Sync` where threads exist, nothing where they don't.
//!
//! In a browser without threads the objects of WebGPU live on one thread and are neither `Send` nor `Sync`.
//! Everywhere else a backend is shared between threads. The two traits let one contract serve both.

use std::future::Future;
use std::pin::Pin;

use crate::{BackendResult, ComputeBackend};

#[cfg(any(not(target_family = "wasm"), target_feature = "atomics"))]
mod bounds {
    /// `Send`, except in a browser build without threads, where it asks for nothing.
    pub trait MaybeSend: Send {}
    impl<T: Send + ?Sized> MaybeSend for T {}
    /// `Sync`, except in a browser build without threads, where it asks for nothing.
    pub trait MaybeSync: Sync {}
    impl<T: Sync + ?Sized> MaybeSync for T {}
}

#[cfg(all(target_family = "wasm", not(target_feature = "atomics")))]
mod bounds {
    /// `Send`, except in a browser build without threads, where it asks for nothing.
    pub trait MaybeSend {}
    impl<T: ?Sized> MaybeSend for T {}
    /// `Sync`, except in a browser build without threads, where it asks for nothing.
    pub trait MaybeSync {}
    impl<T: ?Sized> MaybeSync for T {}
}

pub use bounds::{MaybeSend, MaybeSync};

/// What an asynchronous operation of a backend returns: a boxed future, so that the contract stays
/// object-safe. It is `Send` wherever threads exist.
#[cfg(any(not(target_family = "wasm"), target_feature = "atomics"))]
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = BackendResult<T>> + Send + 'a>>;

/// What an asynchronous operation of a backend returns: a boxed future, so that the contract stays
/// object-safe. It is `Send` wherever threads exist.
#[cfg(all(target_family = "wasm", not(target_feature = "atomics")))]
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = BackendResult<T>> + 'a>>;

/// One operation, as a call on the backend that it is given:
/// `&|backend: &dyn ComputeBackend| backend.unary(UnaryOp::Tanh, x, y, n)`. It is `Sync` wherever threads
/// exist.
#[cfg(any(not(target_family = "wasm"), target_feature = "atomics"))]
pub type Operation<'a> = &'a (dyn Fn(&dyn ComputeBackend) -> BackendResult<()> + Sync + 'a);

/// One operation, as a call on the backend that it is given:
/// `&|backend: &dyn ComputeBackend| backend.unary(UnaryOp::Tanh, x, y, n)`. It is `Sync` wherever threads
/// exist.
#[cfg(all(target_family = "wasm", not(target_feature = "atomics")))]
pub type Operation<'a> = &'a (dyn Fn(&dyn ComputeBackend) -> BackendResult<()> + 'a);
