//! Memory stays flat under much work without a pause, on every backend.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use conformance::bounded::SCENARIOS;
use libtest_mimic::{Arguments, Trial};
use suites::backends;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The resident memory is the whole process's.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for tested in backends() {
        let tested = Arc::new(tested);
        for scenario in SCENARIOS {
            let tested = Arc::clone(&tested);
            let name = format!("bounded/{}/{}", tested.slug, scenario.name.replace(' ', "_"));
            trials.push(Trial::test(name, move || {
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
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The process's resident memory, on Linux.
fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}
