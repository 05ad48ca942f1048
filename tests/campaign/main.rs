//! Random work of every kind: a small fixed part of it in CI, the whole by `cargo xtask campaign`.
//!
//! Each case depends on nothing but the seed and its number. A failure ends with the command that runs it
//! again.

#[path = "../deadline.rs"]
mod deadline;
#[path = "../fake/mod.rs"]
mod fake;

mod arguments;
mod fuzz;
mod options;
mod programs;
mod soak;
mod target;
mod wgsl;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use conformance::program::Profile;
use libtest_mimic::{Arguments, Trial};
use suites::backends;

use options::Options;
use programs::Part;

const PARTS: [Part; 3] = [
    Part { name: "programs", profile: Profile::plain(), few: 40 },
    Part { name: "threads", profile: Profile::threads(), few: 8 },
    Part { name: "faults", profile: Profile::faults(), few: 15 },
];

type Run = Box<dyn FnOnce(&Options) -> Result<(), String> + Send>;

fn main() -> ExitCode {
    if let Some(exit_code) = wgsl::child() {
        return exit_code;
    }
    let mut arguments = Arguments::from_args();
    // Memory is looked at, and a case that fails should fail alone as well.
    arguments.test_threads = Some(1);
    let mut options = match Options::from_environment() {
        Ok(options) => options,
        Err(why) => {
            println!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let all = all(options.is_long());
    // Each backend has the parts of the others.
    let parts: BTreeSet<&str> = all.iter().map(|&(part, ..)| part).collect();
    if let Err(why) = options.check(&Vec::from_iter(parts), &PARTS.map(|part| part.name)) {
        println!("{why}");
        return ExitCode::FAILURE;
    }
    let wanted: Vec<(String, Run)> =
        all.into_iter().filter(|(part, ..)| options.wants(part)).map(|(_, name, run)| (name, run)).collect();
    options.trials = wanted.len();
    let options = Arc::new(options);
    let trial = |(name, run): (String, Run)| {
        let options = Arc::clone(&options);
        Trial::test(format!("campaign/{name}"), move || Ok(run(&options)?))
    };
    suites::run(&arguments, wanted.into_iter().map(trial).collect()).exit_code()
}

/// A part of the campaign, run on a backend by its selector.
type Runner = Box<dyn FnOnce(&str, &Options) -> Result<(), String> + Send>;

/// Every part on every backend: the part, the name of its test, and the test. What takes long by itself, only
/// if there is time.
fn all(long: bool) -> Vec<(&'static str, String, Run)> {
    let mut all: Vec<(&'static str, String, Run)> = Vec::new();
    for tested in backends() {
        let (selector, missing) = (tested.selector.clone(), tested.backend().err().map(str::to_owned));
        let mut add = |part: &'static str, run: Runner| {
            let (selector, missing) = (selector.clone(), missing.clone());
            let run: Run = Box::new(move |options: &Options| match missing {
                Some(why) => Err(why),
                None => run(&selector, options),
            });
            all.push((part, format!("{}/{part}", tested.slug), run));
        };
        add("arguments", Box::new(arguments::run));
        for part in PARTS {
            add(
                part.name,
                Box::new(move |selector: &str, options: &Options| {
                    programs::run_part(selector, part, options)
                }),
            );
        }
        add("fuzz", Box::new(fuzz::run));
        add("wgsl", Box::new(wgsl::run));
        if long {
            add(options::SOAK, Box::new(soak::run_soak));
        }
    }
    all
}
