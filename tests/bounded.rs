//! Memory stays flat under much work without a pause, on every backend.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use conformance::bounded::{SCENARIOS, Scenario};
use libtest_mimic::Trial;
use suites::BackendUnderTest;

fn main() -> ExitCode {
    // The resident memory is the whole process's.
    suites::run_one_at_a_time(trials)
}

fn trials(tested: Arc<BackendUnderTest>) -> Vec<Trial> {
    let trial = |scenario: Scenario| {
        let tested = Arc::clone(&tested);
        let name = format!("bounded/{}/{}", tested.slug, scenario.name.replace(' ', "_"));
        Trial::test(name, move || {
            let start = Instant::now();
            let growth = scenario.run(tested.backend()?, &resident_bytes)?;
            let grown = growth.resident.map(|(before, after)| after.saturating_sub(before) >> 10);
            println!(
                "{}: {} {} in {:.1?}, resident memory grew by {} KiB",
                tested.label,
                scenario.rounds,
                scenario.name,
                start.elapsed(),
                grown.map_or("(unknown)".to_owned(), |kib| kib.to_string()),
            );
            Ok(())
        })
    };
    SCENARIOS.map(trial).into()
}

/// The process's resident memory, on Linux.
fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}
