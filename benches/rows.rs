//! What the benches of operations that are bound by memory share.
//!
//! Each line comes twice: by the host's clock, waiting included, and as `…/device` by the device's own where
//! it has one. Throughput is bytes that have to be read and written at least.

use std::fmt;

use backend_api::{BackendResult, ComputeBackend, DType};
use criterion::{Criterion, Throughput};

use crate::{Subject, criterion};

/// The device, and sizes that suit it.
pub struct Bench {
    /// The backend under test.
    pub subject: Subject,
    criterion: Criterion,
    /// Whether the device only manages small tensors in moments.
    small: bool,
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench")
            .field("subject", &self.subject)
            .field("small", &self.small)
            .finish_non_exhaustive()
    }
}

impl Bench {
    /// Opens the backend. Arguments are those of criterion.
    #[must_use]
    pub fn open() -> Self {
        let subject = Subject::open();
        let small = subject.device().kind.rank() >= 4;
        let criterion = criterion(2);
        Self { subject, criterion, small }
    }

    /// An extent of the published line, or the one for a slow device.
    #[must_use]
    pub fn size(&self, published: usize, small: usize) -> usize {
        if self.small { small } else { published }
    }

    /// Times one operation of so many elements read and written.
    pub fn measure(
        &mut self,
        group: &str,
        name: &str,
        dtype: DType,
        elements: usize,
        work: impl Fn(&dyn ComputeBackend) -> BackendResult<()>,
    ) {
        let throughput = Throughput::Bytes((elements * dtype.size()) as u64);
        self.subject.measure(&mut self.criterion, &format!("{group}/{dtype}"), name, throughput, work);
    }

    /// Whether tensors of `dtype` can be used; says so if not.
    #[must_use]
    pub fn supports(&self, dtype: DType) -> bool {
        let supported = self.subject.supports(dtype);
        if !supported {
            eprintln!("{dtype} is not supported by {}", self.subject.device().name);
        }
        supported
    }

    /// Prints what criterion has to say at the end.
    pub fn finish(&mut self) {
        self.criterion.final_summary();
    }
}
