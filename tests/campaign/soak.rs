//! Four threads of random programs for as long as there is time, and memory that doesn't grow.

use std::fs::read_to_string;
use std::time::{Duration, Instant};

use conformance::bounded::GROWTH_LIMIT;
use conformance::program::{Findings, Profile, Target, generate, run};

use crate::deadline;
use crate::options::Options;
use crate::target;

/// A call must be back by then, compiling a kernel included.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lines of the table that is printed.
const LINES: usize = 20;

/// The shortest soak that says something.
const SHORTEST: Duration = Duration::from_secs(20);

pub(crate) fn run_soak(selector: &str, options: &Options) -> Result<(), String> {
    let time = options.time(SHORTEST).max(SHORTEST);
    let (selector, seed) = (selector.to_owned(), options.seed);
    deadline::within(CALL_LIMIT, move |steps| {
        let (start, mut target) = (Instant::now(), target::open(&selector)?);
        let (mut samples, mut total) = (vec![Sample::take(target.as_ref(), start)], Findings::default());
        let mut programs = 0u64;
        while start.elapsed() < time {
            let program = generate(&format!("soak {seed} {programs}"), &Profile::soak());
            let begin = steps.clone();
            let findings = run(target.as_mut(), &program, move |call| begin.begin(call));
            total.absorb(findings.map_err(|why| format!("program {programs}: {why}\n{program}"))?);
            programs += 1;
            if samples.last().is_none_or(|last| last.at + INTERVAL <= start.elapsed()) {
                samples.push(Sample::take(target.as_ref(), start));
            }
        }
        samples.push(Sample::take(target.as_ref(), start));
        print_table(&samples);
        println!(
            "{selector}: {programs} programs of four threads, {} calls, {} of {} bytes read compared, {:.1?}",
            total.calls,
            total.compared,
            total.read,
            start.elapsed()
        );
        growth(&samples)
    })?
}

/// What is looked at each second, between two programs: nothing of theirs is allocated then.
struct Sample {
    at: Duration,
    /// Names and values; those of `BYTES` are bytes.
    values: Vec<(&'static str, usize)>,
}

/// How many of a sample's values are bytes.
const BYTES: usize = 4;

impl Sample {
    fn take(target: &dyn Target, start: Instant) -> Self {
        let stats = target.backend().memory_stats();
        let mut values = vec![
            ("resident", resident_bytes().unwrap_or(0)),
            ("in use", stats.in_use),
            ("pooled", stats.pooled),
            ("staging", stats.staging),
            ("handles", stats.handles),
        ];
        values.extend(target.gauges());
        Self { at: start.elapsed(), values }
    }

    fn kernels(&self) -> Option<usize> {
        self.values.iter().find(|(name, _)| *name == "kernels").map(|&(_, value)| value)
    }
}

/// The process's resident memory, on Linux with its usual pages.
fn resident_bytes() -> Option<usize> {
    let statm = read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

fn print_table(samples: &[Sample]) {
    let Some(first) = samples.first() else { return };
    let names: String = first.values.iter().map(|(name, _)| format!("{name:>12}")).collect();
    println!("{:>8}{names}   (KiB, then numbers)", "seconds");
    let step = samples.len().div_ceil(LINES).max(1);
    let last = samples.len() - 1;
    for (i, sample) in samples.iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last) {
        let value = |(k, &(_, value)): (usize, &(_, usize))| {
            format!("{:>12}", if k < BYTES { value >> 10 } else { value })
        };
        let values: String = sample.values.iter().enumerate().map(value).collect();
        println!("{:>8.1}{values}{}", sample.at.as_secs_f64(), if i == last { "   the end" } else { "" });
    }
}

/// What grew after the warm-up: a third of the time, or until the last kernel was compiled, of which drivers
/// keep the code.
fn growth(samples: &[Sample]) -> Result<(), String> {
    let end = &samples[samples.len() - 1];
    let compiled = samples.iter().position(|sample| sample.kernels() == end.kernels()).unwrap_or(0);
    let warm = compiled.max(samples.len() / 3);
    if warm > samples.len() * 2 / 3 {
        return Err(format!("too short: kernels were compiled until {:.0?}", samples[warm].at));
    }
    let warm = &samples[warm];
    for (k, (&(name, before), &(_, after))) in warm.values.iter().zip(&end.values).enumerate() {
        let bound = if k < BYTES { before + GROWTH_LIMIT } else { before.max(MANY) * 2 };
        if after > bound {
            return Err(format!("{name} grew from {before} to {after} after {:.0?}", warm.at));
        }
    }
    Ok(())
}

/// Counts below this come and go.
const MANY: usize = 4096;
