//! Which cases run on which adapter.
//!
//! A GPU, the CPU and one software adapter run all of them. On the further software adapters, SwiftShader and
//! OpenGL's llvmpipe, each run has the same sample, which keeps a run of everything within CI's time on two
//! cores.

use backend_api::{DeviceInfo, DeviceKind};
use conformance::hash_of_name;

/// The environment variable that has suites run one in so many cases on every adapter. `EVERY=1` runs all.
const VARIABLE: &str = "EVERY";

/// One in so many cases runs on a further software adapter.
const SAMPLE: usize = 3;

/// The sample of an adapter.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    every: usize,
}

impl Sample {
    /// What runs on `device`.
    ///
    /// # Errors
    /// What is wrong with the environment variable.
    pub fn of(device: &DeviceInfo) -> Result<Self, String> {
        let is_further = device.kind == DeviceKind::SoftwareAdapter
            && (device.api == "Gl" || device.name.contains("SwiftShader"));
        Ok(Self { every: every(if is_further { SAMPLE } else { 1 })? })
    }

    /// Every case, whatever the environment variable says.
    #[must_use]
    pub const fn all() -> Self {
        Self { every: 1 }
    }

    /// Whether a case of this name is in the sample.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        (hash_of_name(name) >> 32).is_multiple_of(self.every as u64)
    }

    /// For people: `" (a sample of one in 3)"`, or nothing if all run.
    #[must_use]
    pub fn text(&self) -> String {
        if self.every == 1 { String::new() } else { format!(" (a sample of one in {})", self.every) }
    }
}

/// In how many cases one runs: `usual`, unless the environment variable says otherwise.
///
/// # Errors
/// What is wrong with the environment variable.
pub fn every(usual: usize) -> Result<usize, String> {
    match std::env::var(VARIABLE) {
        Ok(text) => {
            text.parse().map(|every: usize| every.max(1)).map_err(|error| format!("{VARIABLE}: {error}"))
        }
        Err(_) => Ok(usual),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_as_large_as_they_should_be() {
        let names: Vec<String> = (0..3000).map(|i| format!("gemm/m{i}_n{}", i % 7)).collect();
        for (every, expected) in [(1, 3000..=3000), (3, 850..=1150), (20, 100..=200)] {
            let sample = Sample { every };
            let count = names.iter().filter(|name| sample.has(name)).count();
            assert!(expected.contains(&count), "{count} of 3000 in one of {every}");
        }
    }
}
