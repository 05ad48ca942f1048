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

/// Without a new kernel for this long, or for a sixth of a shorter soak, the warm-up is over.
const QUIET: Duration = Duration::from_secs(60);

pub(crate) fn run_soak(selector: &str, options: &Options) -> Result<(), String> {
    let time = options.time(SHORTEST).max(SHORTEST);
    let (selector, seed) = (selector.to_owned(), options.seed);
    deadline::within(CALL_LIMIT, move |steps| {
        let (start, mut target) = (Instant::now(), target::open(&selector)?);
        let (mut samples, mut total) = (vec![Sample::take(target.as_ref(), start)], Findings::default());
        let (mut programs, mut warm_up) = (0, WarmUp::default());
        while start.elapsed() < time {
            let number = warm_up.different.map_or(programs, |different| programs % different);
            let program = generate(&format!("soak {seed} {number}"), &Profile::soak());
            let begin = steps.clone();
            let findings = run(target.as_mut(), &program, move |call| begin.begin(call));
            total.absorb(findings.map_err(|why| format!("program {number}: {why}\n{program}"))?);
            programs += 1;
            if samples.last().is_none_or(|last| last.at + INTERVAL <= start.elapsed()) {
                let sample = Sample::take(target.as_ref(), start);
                warm_up.look(&sample, time, programs);
                samples.push(sample);
            }
        }
        samples.push(Sample::take(target.as_ref(), start));
        print_table(&samples);
        println!(
            "{selector}: {programs} programs of four threads, {} of them different, {} calls, {} of {} bytes read \
             compared, {:.1?}",
            warm_up.different.unwrap_or(programs),
            total.calls,
            total.compared,
            total.read,
            start.elapsed()
        );
        growth(&samples, warm_up.end)
    })?
}

/// The part of a soak in which kernels are compiled, of which drivers keep the code. After it, its programs
/// come again, which compile nothing: new ones would now and then, however long it takes.
#[derive(Debug, Default)]
struct WarmUp {
    kernels: Option<usize>,
    compiled: Duration,
    /// When it was over.
    end: Duration,
    /// How many programs it had, once it is over.
    different: Option<u64>,
}

impl WarmUp {
    /// Sees whether it is over: without a new kernel for a while, or at half of the time.
    fn look(&mut self, sample: &Sample, time: Duration, programs: u64) {
        if self.different.is_some() {
            return;
        }
        if self.kernels != sample.kernels() {
            (self.kernels, self.compiled) = (sample.kernels(), sample.at);
        }
        if sample.at - self.compiled >= QUIET.min(time / 6) || sample.at >= time / 2 {
            (self.end, self.different) = (sample.at, Some(programs));
        }
    }
}

/// What is looked at each second, between two programs: nothing of theirs is allocated then.
struct Sample {
    at: Duration,
    /// Names and values; those of `BYTES` are bytes.
    values: Vec<(&'static str, usize)>,
}

/// How many of a sample's values are bytes.
const BYTES: usize = 5;

impl Sample {
    fn take(target: &dyn Target, start: Instant) -> Self {
        let stats = target.backend().memory_stats();
        let mut values = vec![
            ("resident", resident_bytes().unwrap_or(0)),
            ("in use", stats.in_use),
            ("pooled", stats.pooled),
            ("staging", stats.staging),
            ("device", target.device_bytes()),
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

/// What grew after the warm-up, and after the last kernel: from the median of a quarter of the time to that of
/// the last quarter, as what is sampled comes and goes.
fn growth(samples: &[Sample], warm: Duration) -> Result<(), String> {
    let end = &samples[samples.len() - 1];
    let compiled = samples.iter().position(|sample| sample.kernels() == end.kernels()).unwrap_or(0);
    let first = compiled.max(samples.iter().position(|sample| sample.at >= warm).unwrap_or(0));
    let judged = &samples[first..];
    if judged.len() < FEWEST || judged[0].at > end.at * 2 / 3 {
        return Err(format!("too short: kernels were compiled until {:.0?}", judged[0].at));
    }
    let quarter = judged.len() / 4;
    println!("growth is judged from {:.0?} on", judged[0].at);
    for (k, (name, _)) in end.values.iter().enumerate() {
        let before = median(&judged[..quarter], k);
        let after = median(&judged[judged.len() - quarter..], k);
        let bound = if k < BYTES { before + GROWTH_LIMIT } else { before.max(MANY) * 2 };
        println!("{name}: {before} before, {after} after");
        if after > bound {
            return Err(format!("{name} grew from {before} to {after} after {:.0?}", judged[0].at));
        }
    }
    Ok(())
}

/// The fewest samples that say something.
const FEWEST: usize = 8;

fn median(samples: &[Sample], k: usize) -> usize {
    let mut values: Vec<usize> = samples.iter().map(|sample| sample.values[k].1).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// Counts below this come and go.
const MANY: usize = 4096;
