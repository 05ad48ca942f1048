//! The conformance suite on one backend.

use std::collections::BTreeMap;

use backend_api::ComputeBackend;
use conformance::{Case, Outcome, cases, rarity};
use web_time::Instant;

/// How many failing cases of an operation are listed.
const LISTED: usize = 20;

/// Cases that take a browser on a CPU one or two minutes: 65,600 products, each a workgroup, and a row of 16,776,961 columns, which
/// are both longer than a grid is wide. The long vectors of `gemm` fold their grid too.
const SLOW: [&str; 2] = ["batched_gemm/x65600", "norm_backward_weight/columns_16776961"];

/// What became of an operation's cases.
#[derive(Default)]
struct Tally {
    right: usize,
    refused: usize,
    failures: Vec<String>,
    seconds: f64,
}

pub(crate) async fn run(name: &str, every: usize, filter: &str, shard: usize, shards: usize) -> Vec<String> {
    let selection = match super::open(name).await {
        Ok(selection) => selection,
        Err(error) => return vec![format!("{name} can't be opened: {error}")],
    };
    let device = &selection.device;
    super::log(&format!("{} {} ({}, {})", device.selector, device.name, device.api, device.driver));
    let mut families: BTreeMap<&'static str, Vec<Case>> = BTreeMap::new();
    let mut total = 0;
    for case in cases() {
        total += 1;
        families.entry(case.family).or_default().push(case);
    }
    let mut failures = Vec::new();
    let mut run = [0; 2];
    for (family, cases) in families.into_iter().skip(shard).step_by(shards.max(1)) {
        let cases = named(cases, filter);
        let every = match family {
            // Each of the scripts of captures is of a kind of its own.
            "capture" => 1,
            _ if every > 1 => every * rarity(family),
            _ => 1,
        };
        let tally = run_family(selection.backend.as_ref(), &cases, every).await;
        let count = tally.right + tally.refused + tally.failures.len();
        if count == 0 {
            continue;
        }
        let outcome = if tally.failures.is_empty() { "ok" } else { "FAILED" };
        super::log(&format!(
            "test conformance/{name}/{family} ... {outcome} ({count} cases, {} refused as documented, {:.1} s)",
            tally.refused, tally.seconds
        ));
        run = [run[0] + count, run[1] + tally.refused];
        failures.extend(tally.failures.into_iter().take(LISTED));
    }
    super::log(&format!(
        "conformance/{name}: {} of {total} cases, {} failures, {} refused as documented (no f16)",
        run[0],
        failures.len(),
        run[1]
    ));
    if run[0] == 0 {
        failures.push(format!("no case was run on {name}"));
    }
    failures
}

/// The cases that `filter` names; without one, all but those that take a software adapter minutes.
fn named(cases: Vec<Case>, filter: &str) -> Vec<Case> {
    let meant = |case: &Case| {
        let path = case.path();
        if filter.is_empty() { !SLOW.iter().any(|part| path.contains(part)) } else { matches(filter, &path) }
    };
    cases.into_iter().filter(meant).collect()
}

/// Whether a path contains all words of one of the filter's parts, which are separated by commas.
fn matches(filter: &str, path: &str) -> bool {
    filter.split(',').any(|part| part.split_whitespace().all(|word| path.contains(word)))
}

/// Runs the first of the cases and then one in `every`. A case that was refused, as every f16 one is where
/// there is no f16, costs nothing and doesn't count, so the sample is one of those that compute. It is the
/// same each time.
async fn run_family(backend: &dyn ComputeBackend, cases: &[Case], every: usize) -> Tally {
    let mut tally = Tally::default();
    let start = Instant::now();
    let mut skip = 0;
    for case in cases {
        if skip > 0 {
            skip -= 1;
            continue;
        }
        match case.run_async(backend).await {
            Ok(Outcome::Right) => tally.right += 1,
            Ok(Outcome::Limited) => tally.failures.push(format!("{} passed a limit", case.path())),
            Ok(Outcome::Refused) => {
                tally.refused += 1;
                continue;
            }
            Err(failure) => tally.failures.push(failure.to_string()),
        }
        skip = every - 1;
    }
    tally.seconds = start.elapsed().as_secs_f64();
    tally
}
