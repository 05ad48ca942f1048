//! Random programs on a backend and on the model of the contract.

use std::time::Duration;

use conformance::program::{Findings, Profile, Program, Target, generate, run, shrink};

use crate::deadline;
use crate::options::Options;
use crate::target;

/// A call must be back by then, compiling a kernel included.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// The limit of a call while a failing program is made smaller: of one that hangs, each try takes so long.
const SHORT_LIMIT: Duration = Duration::from_secs(10);

/// How long a failing program is made smaller.
const SHRINK_LIMIT: Duration = Duration::from_secs(60);

/// Failing programs after which no more are tried: each takes its time to be made smaller.
const MOST_FAILURES: usize = 5;

/// Programs with faults that a campaign has found to be judged wrongly, run before the random ones. A read of
/// a handle that isn't live has waited for nothing, and what went wrong before is yet to be told.
const FOUND: [&str; 1] = [r#"
0 {"call":"alloc","to":"s1","bytes":1}
0 {"call":"upload","dst":"s1","dtype":"f16","bytes":1,"seed":0}
0 {"call":"destroy_buffer","slot":"s1"}
0 {"call":"free","slot":"s1"}
0 {"call":"read","src":"s5","bytes":1}
"#];

/// A part of the campaign that is made of programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) profile: Profile,
    /// Programs in CI.
    pub(crate) few: u64,
}

pub(crate) fn run_part(selector: &str, part: Part, options: &Options) -> Result<(), String> {
    let start = std::time::Instant::now();
    let (mut total, mut programs, mut failures) = (Findings::default(), 0, Vec::new());
    let mut opened = None;
    if part.profile.faults && options.case.is_none() {
        for text in FOUND {
            let (_, findings) = attempt(target::open(selector)?, &text.parse()?, CALL_LIMIT)
                .map_err(|why| format!("{why}\n{text}"))?;
            total.absorb(findings);
        }
    }
    for case in options.cases(part.few) {
        let program = match &options.program {
            Some(text) => text.parse()?,
            None => generate(&format!("{} {} {case}", part.name, options.seed), &part.profile),
        };
        let target = match opened.take() {
            Some(target) => target,
            None => target::open(selector)?,
        };
        programs += 1;
        match attempt(target, &program, CALL_LIMIT) {
            Ok((target, findings)) => {
                opened = Some(target);
                total.absorb(findings);
            }
            Err(why) => failures.push(explain(selector, part.name, options, case, &program, &why)),
        }
        if failures.len() >= MOST_FAILURES || options.program.is_some() {
            break;
        }
    }
    println!(
        "{selector}: {programs} programs of the part {:?}, {} calls, {} of them refused, {} of {} bytes read \
         compared, {} programs failed, {:.1?}",
        part.name,
        total.calls,
        total.refused,
        total.compared,
        total.read,
        failures.len(),
        start.elapsed(),
    );
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Runs a program while somebody watches. The target comes back only if all was well.
fn attempt(
    mut target: Box<dyn Target>,
    program: &Program,
    limit: Duration,
) -> Result<(Box<dyn Target>, Findings), String> {
    let program = program.clone();
    let (outcome, target) = deadline::within(limit, move |steps| {
        let begin = steps.clone();
        let outcome = run(target.as_mut(), &program, move |call| begin.begin(call));
        (outcome, target)
    })?;
    outcome.map(|findings| (target, findings))
}

/// A failure as a person wants it: the command, the smallest program, and why that one fails.
fn explain(selector: &str, part: &str, options: &Options, case: u64, program: &Program, why: &str) -> String {
    let fails = |program: &Program| {
        target::open(selector).is_ok_and(|target| attempt(target, program, SHORT_LIMIT).is_err())
    };
    let small = shrink(program, SHRINK_LIMIT, fails);
    let again = target::open(selector).and_then(|target| attempt(target, &small, SHORT_LIMIT).map(drop));
    let again = again.err().unwrap_or_else(|| "it doesn't fail each time".to_owned());
    format!(
        "{why}\n  again: {}\n  made smaller ({} of {} calls; --program FILE runs it): {again}\n{small}",
        options.command(part, selector, case),
        small.len(),
        program.len(),
    )
}
