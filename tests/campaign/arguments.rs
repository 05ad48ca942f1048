//! Random arguments of every method.

use std::time::{Duration, Instant};

use conformance::bad_input::{RandomReport, random_arguments};

use crate::deadline;
use crate::options::Options;
use crate::target;

/// One call, compiling a kernel included, must be back by then.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Calls of a case. In CI the suite `bad_input` makes more.
const CALLS: usize = 2_000;

/// Failures that are listed.
const LISTED: usize = 20;

pub(crate) fn run(selector: &str, options: &Options) -> Result<(), String> {
    let start = Instant::now();
    let mut target = target::open(selector)?;
    let (mut total, mut cases) = (RandomReport::default(), 0);
    for case in options.cases(1) {
        let seed = format!("arguments {} {case}", options.seed);
        let (report, back) = deadline::within(CALL_LIMIT, move |steps| {
            let report = random_arguments(target.backend(), &seed, CALLS, &|label| steps.begin(label));
            (report, target)
        })
        .map_err(|why| format!("{why}\n  again: {}", options.command("arguments", selector, case)))?;
        target = back;
        cases += 1;
        total.calls += report.calls;
        total.accepted += report.accepted;
        if !report.failures.is_empty() {
            let listed: Vec<&str> = report.failures.iter().take(LISTED).map(String::as_str).collect();
            let command = options.command("arguments", selector, case);
            return Err(format!(
                "{} of {} calls went wrong:\n{}\n  again: {command}",
                report.failures.len(),
                report.calls,
                listed.join("\n")
            ));
        }
    }
    println!(
        "{selector}: {} random calls in {cases} cases, {} of them good, {:.1?}",
        total.calls,
        total.accepted,
        start.elapsed()
    );
    Ok(())
}
