//! The conformance suite, sampled, with every operand inside of a block that is larger than what can be bound.

use std::collections::BTreeMap;

use backend_api::ComputeBackend;
use backend_webgpu::WebGpuBackend;
use conformance::{Arena, Case, Failure, Outcome, cases};
use suites::{Filter, Sample, Shard};

use super::{BLOCK, BUFFER, text};

/// A share of the conformance cases, and how they run.
struct Share {
    /// One in how many cases runs.
    every: usize,
    /// The fewest cases that all shards together run.
    fewest: usize,
    /// Runs a case with its operands in the arena.
    run: fn(&Case, &dyn ComputeBackend, &Arena) -> Result<Outcome, Failure>,
}

const IN_BLOCKS: Share = Share { every: 192, fewest: 60, run: Case::run_within };
const ACROSS_BUFFERS: Share = Share { every: 288, fewest: 60, run: Case::run_within };
const REPLAYED: Share = Share { every: 384, fewest: 40, run: Case::run_replayed_within };

/// How many failing cases are listed.
pub(super) const LISTED: usize = 20;

/// The most cases of a share that may be refused, as their operands or what is made of them are larger than [`BINDING`]: one in
/// so many.
const REFUSED: usize = 10;

/// The families that refuse cases, and what of them stays undivided. All others refuse none.
const UNDIVIDED: [(&str, &str); 24] = [
    ("attention", "the keys or values of one head"),
    ("attention_ext", "the keys, values or mask of one head, a pool of blocks, and a mask of u32"),
    ("conv2d", "an image"),
    ("conv2d_backward_data", "an image"),
    ("conv2d_backward_filter", "images and gradients of all filters"),
    ("conv_transpose2d", "an image"),
    ("cumsum", "a slice along the axis"),
    ("expert_matmul", "the rows of a token, and the matrix of an expert"),
    ("group_norm", "the channels of a group"),
    ("layer_norm", "a row"),
    ("log_softmax", "a slice along the axis"),
    ("norm_backward", "a row"),
    ("norm_backward_weight", "rows and gradients of all of them"),
    ("pool2d", "images and results"),
    ("pool2d_backward", "images and results"),
    ("quant_matmul", "the rows of A"),
    ("reduce", "the elements of an index"),
    ("reduce_ext", "the elements of an index, and of an output in the middle of several axes"),
    ("rms_norm", "a row"),
    ("sample", "the logits of a row"),
    ("scatter", "indices of each element of few rows, and sources of f16 that are added or multiplied"),
    ("softmax", "a slice along the axis"),
    ("softmax_backward", "a slice along the axis"),
    ("top_k", "a row"),
];

/// How many cases went which way.
#[derive(Debug, Default)]
struct Tally {
    right: usize,
    /// The paths of the cases of each family that passed a limit.
    limited: BTreeMap<&'static str, Vec<String>>,
    failures: Vec<String>,
}

/// With every operand at the same byte of a block.
pub(super) fn in_blocks(backend: &WebGpuBackend) -> Result<(), String> {
    conformance(backend, Arena::new(backend, BLOCK).map_err(text)?, &IN_BLOCKS)
}

/// With every operand where one buffer of a block ends and the next begins.
pub(super) fn across_buffers(backend: &WebGpuBackend) -> Result<(), String> {
    conformance(backend, Arena::around(backend, BLOCK, BUFFER).map_err(text)?, &ACROSS_BUFFERS)
}

/// As in [`in_blocks`], captured and replayed with two sets of numbers.
pub(super) fn replayed_in_blocks(backend: &WebGpuBackend) -> Result<(), String> {
    conformance(backend, Arena::new(backend, BLOCK).map_err(text)?, &REPLAYED)
}

/// As in [`across_buffers`], captured and replayed with two sets of numbers.
pub(super) fn replayed_across_buffers(backend: &WebGpuBackend) -> Result<(), String> {
    conformance(backend, Arena::around(backend, BLOCK, BUFFER).map_err(text)?, &REPLAYED)
}

fn conformance(backend: &WebGpuBackend, arena: Arena, share: &Share) -> Result<(), String> {
    let &Share { every, fewest, .. } = share;
    let sample = Sample::nested(&backend.device_info().map_err(text)?, every)?;
    let filter = Filter::from_environment();
    let shard = Shard::from_environment()?;
    let mut families: BTreeMap<&str, Vec<Case>> = BTreeMap::new();
    let chosen = |case: &Case| case.is_one_call() && filter.has(&case.path()) && shard.has(&case.path());
    for case in cases().into_iter().filter(chosen) {
        families.entry(case.family).or_default().push(case);
    }
    let mut tally = Tally::default();
    for cases in families.values() {
        tally.run(backend, &arena, cases, sample, share);
    }
    arena.free(backend).map_err(text)?;
    let limited: usize = tally.limited.values().map(Vec::len).sum();
    println!("{} cases right, {limited} refused as Limit:", tally.right);
    for (family, refused) in &tally.limited {
        println!("  {} of {family}: {}", refused.len(), refused.join(", "));
    }
    if filter.is_empty() && shard.is_all() && (tally.right < fewest || limited * REFUSED > tally.right) {
        tally.failures.push(format!("{} right and {limited} refused is too little", tally.right));
    }
    let divided = |family: &str| UNDIVIDED.iter().all(|&(undivided, _)| undivided != family);
    for (family, refused) in tally.limited.iter().filter(|(family, _)| divided(family)) {
        let refused = refused.len();
        tally
            .failures
            .push(format!("{refused} cases of {family} refused as Limit, which divides its operands"));
    }
    if tally.failures.is_empty() {
        return Ok(());
    }
    let failed = tally.failures.len();
    tally.failures.truncate(LISTED);
    Err(format!("{failed} failures:\n{}", tally.failures.join("\n")))
}

impl Tally {
    /// Runs the sample of the cases of a family, at least one that the device can compute.
    fn run(&mut self, backend: &WebGpuBackend, arena: &Arena, cases: &[Case], sample: Sample, share: &Share) {
        sample.run(cases, |case| {
            match (share.run)(case, backend, arena) {
                Ok(Outcome::Right) => self.right += 1,
                // What needs f16 doesn't count where there is none.
                Ok(Outcome::Refused) => return false,
                Ok(Outcome::Limited) => self.limited.entry(case.family).or_default().push(case.path()),
                Err(failure) => self.failures.push(failure.to_string()),
            }
            true
        });
    }
}
