//! Which cases run on which adapter.
//!
//! A GPU runs all of them. The CPU and software adapters have samples, always the same ones, which keeps a run of
//! everything within CI's time on two cores: a fourth on the CPU, a 48th on the first software adapter, lavapipe, and a 192nd on
//! SwiftShader and OpenGL's llvmpipe, another part on each. Conformance adds a case on lavapipe for each sequence of kernels that
//! a call launches and no case of the 48th does: plans.txt names them. Suites that run fewer cases than conformance choose
//! from its sample: Mesa has their kernels in its cache by then, where it spent most of the time.

use std::collections::HashSet;
use std::sync::LazyLock;

use backend_api::{DeviceInfo, DeviceKind};
use conformance::{Case, hash_of_name, rarity};

/// The environment variable that has suites run one in so many cases on every adapter. `EVERY=1` runs all.
const VARIABLE: &str = "EVERY";

/// One in so many cases runs on a software adapter: on the first, and on a further one.
const CASES: [usize; 2] = [48, 192];

/// One in so many cases runs on the CPU.
const CASES_ON_CPU: usize = 4;

/// One in so many kernels is forced on a software adapter, where each takes its driver 5 to 10 s to compile: on the first, and on a
/// further one.
const KERNELS: [usize; 2] = [6, 24];

/// The cases that the first software adapter runs beside one in [`CASES`], a path a line.
static PLANS: LazyLock<HashSet<&str>> = LazyLock::new(|| include_str!("plans.txt").lines().collect());

/// The sample of an adapter.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    every: usize,
    /// Which part of the cases it is, of `every` parts.
    part: usize,
    /// Whether a case for each plan belongs to it.
    plans: bool,
}

impl Sample {
    /// What runs on `device`.
    ///
    /// # Errors
    /// What is wrong with the environment variable.
    pub fn of(device: &DeviceInfo) -> Result<Self, String> {
        Self::on(device, if device.kind == DeviceKind::Cpu { CASES_ON_CPU } else { 1 }, CASES)
    }

    /// What runs on `device`, with a case for each plan where that is the first software adapter.
    ///
    /// # Errors
    /// What is wrong with the environment variable.
    pub fn with_plans(device: &DeviceInfo) -> Result<Self, String> {
        let sample = Self::of(device)?;
        Ok(Self { plans: is_first(device) && sample.every == CASES[0], ..sample })
    }

    /// What runs on the first software adapter without a case for each plan.
    #[must_use]
    pub const fn without_plans() -> Self {
        Self { every: CASES[0], part: 0, plans: false }
    }

    /// The cases that plans.txt names.
    pub fn named() -> impl Iterator<Item = &'static str> {
        PLANS.iter().copied()
    }

    /// Which kernels are forced on `device`.
    ///
    /// # Errors
    /// What is wrong with the environment variable.
    pub fn of_kernels(device: &DeviceInfo) -> Result<Self, String> {
        Self::on(device, 1, KERNELS)
    }

    /// Which cases a forced kernel runs, given which kernels are forced: a third of them where kernels are sampled.
    #[must_use]
    pub const fn of_a_kernel(self) -> Self {
        Self { every: if self.every == 1 { 1 } else { 3 }, part: 0, plans: false }
    }

    /// One in `usual` cases on every device: a part of what conformance runs on lavapipe, as far as `usual` is a
    /// multiple of 48.
    ///
    /// # Errors
    /// What is wrong with the environment variable.
    pub fn nested(device: &DeviceInfo, usual: usize) -> Result<Self, String> {
        Self::on(device, usual, [usual; 2])
    }

    fn on(device: &DeviceInfo, usual: usize, software: [usize; 2]) -> Result<Self, String> {
        let further = further(device);
        let usual = match device.kind {
            DeviceKind::SoftwareAdapter => software[usize::from(further.is_some())],
            _ => usual,
        };
        let every = every(usual)?;
        Ok(Self { every, part: further.unwrap_or(0) % every, plans: false })
    }

    /// Every case, whatever the environment variable says.
    #[must_use]
    pub const fn all() -> Self {
        Self { every: 1, part: 0, plans: false }
    }

    /// Whether a case of this name is in the sample.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let rarer = name.split_once('/').map_or(1, |(family, _)| rarity(family));
        let every = if self.every > 1 { self.every * rarer } else { 1 };
        (spread(name) & 0xffff_ffff) % every as u64 == self.part as u64 || self.plans && PLANS.contains(name)
    }

    /// Runs the cases of a family that are in the sample, and others until `run` says that one counts.
    pub fn run<'a>(&self, cases: impl IntoIterator<Item = &'a Case>, mut run: impl FnMut(&'a Case) -> bool) {
        let (chosen, others): (Vec<_>, Vec<_>) = cases.into_iter().partition(|case| self.has(&case.path()));
        let counted = chosen.into_iter().filter(|case| run(case)).count();
        if counted == 0 {
            others.into_iter().any(run);
        }
    }

    /// In how many cases one is in the sample.
    #[must_use]
    pub const fn one_in(&self) -> usize {
        self.every
    }

    /// For people: `" (a sample of one in 8)"`, or nothing if all run.
    #[must_use]
    pub fn text(&self) -> String {
        let plans = if self.plans { " and one for each plan" } else { "" };
        if self.every == 1 { String::new() } else { format!(" (a sample of one in {}{plans})", self.every) }
    }
}

/// Whether it is the software adapter that runs most.
#[must_use]
pub fn is_first(device: &DeviceInfo) -> bool {
    device.kind == DeviceKind::SoftwareAdapter && further(device).is_none()
}

/// Its number among the software adapters that run less than the first one does; `None` for that, GPUs and the CPU.
fn further(device: &DeviceInfo) -> Option<usize> {
    match device.kind {
        DeviceKind::SoftwareAdapter if device.api == "Gl" => Some(0),
        DeviceKind::SoftwareAdapter if device.name.contains("SwiftShader") => Some(1),
        _ => None,
    }
}

/// The environment variable that has a suite run a part of its cases, so that several processes share them:
/// `SHARD=2/8` is the third of eight.
const SHARD: &str = "SHARD";

/// A part of the cases of a suite.
#[derive(Clone, Copy, Debug)]
pub struct Shard {
    part: u64,
    of: u64,
}

impl Shard {
    /// The part that the environment variable names, all of them without it.
    ///
    /// # Errors
    /// What is wrong with the environment variable.
    pub fn from_environment() -> Result<Self, String> {
        std::env::var(SHARD).map_or(Ok(Self { part: 0, of: 1 }), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let numbers =
            text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((part, of)) if part < of => Ok(Self { part, of }),
            _ => Err(format!("{SHARD} is {text:?}, and not like 2/8, or 0/8 for the first part")),
        }
    }

    /// Whether it is all of the cases.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.of == 1
    }

    /// Whether a case of this name belongs to it.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        // The upper half doesn't depend on which cases are in a sample.
        (spread(name) >> 32) % self.of == self.part
    }
}

/// The hash of a case's name with each of its bits in all others, by SplitMix64's finalizer: names that differ in their
/// last letters alone have few upper bits apart in FNV-1a.
fn spread(name: &str) -> u64 {
    let mut z = hash_of_name(name);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// In how many cases one runs: `usual`, unless the environment variable says otherwise.
///
/// # Errors
/// What is wrong with the environment variable.
pub fn every(usual: usize) -> Result<usize, String> {
    match std::env::var(VARIABLE) {
        Ok(text) => {
            let every = text.parse().ok().filter(|&every| every > 0);
            every.ok_or_else(|| format!("{VARIABLE} is {text:?}, and not a number such as 1 or 50"))
        }
        Err(_) => Ok(usual),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_belongs_to_one_shard() {
        let shards: Vec<Shard> = (0..5).map(|part| Shard::parse(&format!("{part}/5")).unwrap()).collect();
        let mut counts = [0; 5];
        for name in (0..3000).map(|i| format!("conv2d/k{i}_c{}", i % 7)) {
            let chosen: Vec<usize> = (0..5).filter(|&part| shards[part].has(&name)).collect();
            assert_eq!(chosen.len(), 1, "{name}");
            counts[chosen[0]] += 1;
        }
        assert!(counts.iter().all(|count| (480..=720).contains(count)), "{counts:?}");
        for wrong in ["", "5/5", "1", "1/x", "-1/2", "0/0"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_rarer_sample_is_part_of_a_larger_one() {
        let names: Vec<String> =
            (0..20_000).map(|i| format!("{}/n{i}", ["gemm", "attention", "attention_ext"][i % 3])).collect();
        for part in 0..2 {
            let [larger, rarer] = [24, 48].map(|every| Sample { every, part, plans: false });
            assert!(names.iter().all(|name| larger.has(name) || !rarer.has(name)));
            let count =
                |family: &str| names.iter().filter(|n| n.starts_with(family) && larger.has(n)).count();
            assert!(count("gemm/") > 2 * count("attention/") && count("attention/") > 0);
        }
        assert!(names.iter().all(|name| Sample::all().has(name)));
    }

    #[test]
    fn samples_are_as_large_as_they_should_be() {
        let names: Vec<String> = (0..3000).map(|i| format!("gemm/m{i}_n{}", i % 7)).collect();
        for (every, expected) in [(1, 3000..=3000), (3, 850..=1150), (20, 100..=200)] {
            let parts: Vec<usize> = (0..every)
                .map(|part| {
                    names.iter().filter(|name| Sample { every, part, plans: false }.has(name)).count()
                })
                .collect();
            assert!(parts.iter().all(|count| expected.contains(count)), "{parts:?} of 3000");
            assert_eq!(parts.iter().sum::<usize>(), 3000, "each name is in one part");
        }
    }
}
