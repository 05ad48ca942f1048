//! The kernel that a test or a measurement asks for, by its name.

use std::fmt::Display;

use backend_api::{BackendError, BackendResult};

use crate::sync::Mutex;

/// A kernel of one family of operations to be used wherever it can be, whose text is what [`read`](Self::read) takes.
pub(crate) trait KernelOverride: Copy + Display + Send + Sync + 'static {
    /// Every kernel by its name.
    fn all() -> impl Iterator<Item = impl Display>;

    /// The kernel of a name, and of what may stand behind one; `None` if there is no such kernel.
    fn read(name: &str) -> Option<Self>;

    /// The names of all kernels.
    fn names() -> Vec<String> {
        Self::all().map(|kernel| kernel.to_string()).collect()
    }

    /// The kernel of a name.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) with the names that there are.
    fn parse(op: &'static str, name: &str) -> BackendResult<Self> {
        Self::read(name).ok_or_else(|| {
            let need = format!("one of the kernels {}, not {name:?}", Self::names().join(", "));
            BackendError::Unsupported { op, need }
        })
    }
}

/// The kernel of a name.
pub(in crate::ops) fn find<K: Display>(mut kernels: impl Iterator<Item = K>, name: &str) -> Option<K> {
    kernels.find(|known| known.to_string() == name)
}

/// The kernel that was asked for, if one was.
#[derive(Debug)]
pub(in crate::ops) struct Override<K>(Mutex<Option<K>>);

impl<K> Default for Override<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: KernelOverride> Override<K> {
    pub(in crate::ops) fn get(&self) -> Option<K> {
        *self.0.lock()
    }

    /// Asks for a kernel, or for none.
    pub(in crate::ops) fn set(&self, kernel: Option<K>) {
        *self.0.lock() = kernel;
    }
}
