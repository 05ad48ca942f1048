//! `llama bench`: tokens a second, with the names and columns of llama.cpp's llama-bench.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use llama::{Input, Session};
use serde::Serialize;

use crate::args::{self, BenchArgs};
use crate::loaded;
use crate::report::{self, About};

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    about: About,
    repetitions: usize,
    tests: Vec<Test>,
}

#[derive(Debug, Serialize)]
struct Test {
    test: String,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    n_parallel: usize,
    avg_ts: f64,
    stddev_ts: f64,
    samples_ts: Vec<f64>,
}

/// How long a test runs, once its kernels have been compiled, before it is measured: a device that was idle meanwhile
/// reaches its full clock rate.
const WARM_UP: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let BenchArgs { prompt, generate, depth, parallel, repetitions, .. } = *args;
    let longest = args.longest().context("-d, -p and -n are too large")?;
    let loaded = loaded::load(&args.common)?;
    // Unless more is asked for, room for the longest test.
    let mut session = loaded.session_of(&args.common, longest, if generate > 0 { parallel } else { 1 })?;
    ensure!(longest <= session.context(), args::too_short(longest, session.context()));

    let mut tests = Vec::new();
    for (n_prompt, n_gen) in [(prompt, 0), (0, generate)] {
        if n_prompt + n_gen == 0 {
            continue;
        }
        let n_parallel = if n_prompt > 0 { 1 } else { parallel };
        let mut test = if n_prompt > 0 { format!("pp{n_prompt}") } else { format!("tg{n_gen}") };
        if n_parallel > 1 {
            test += &format!(" x {n_parallel}");
        }
        if depth > 0 {
            test += &format!(" @ d{depth}");
        }
        model_cli::note(format_args!("measuring {test}"));
        let mut samples_ts = Vec::new();
        let mut compiled: Option<Instant> = None;
        while samples_ts.len() < repetitions {
            fill(&mut session, n_parallel, depth)?;
            let start = Instant::now();
            if n_prompt > 0 {
                let tokens = tokens(&session, n_prompt);
                session.step(&[Input { sequence: 0, tokens: &tokens }])?;
                session.model().backend().synchronize()?;
            } else {
                session.decode_greedy(0, &vec![0; n_parallel], n_gen)?;
            }
            let seconds = start.elapsed().as_secs_f64();
            if compiled.get_or_insert_with(Instant::now).elapsed() >= WARM_UP {
                samples_ts.push((n_prompt + n_parallel * n_gen) as f64 / seconds);
            }
        }
        let (avg_ts, stddev_ts) = statistics(&samples_ts);
        tests.push(Test { test, n_prompt, n_gen, n_depth: depth, n_parallel, avg_ts, stddev_ts, samples_ts });
    }
    if args.common.json {
        return report::json(&Report {
            about: About::new(&loaded, &args.common, &session),
            repetitions,
            tests,
        });
    }
    report::line(format_args!("| model | size | params | backend | test | t/s |"))?;
    report::line(format_args!("| --- | ---: | ---: | --- | ---: | ---: |"))?;
    for test in tests {
        report::line(format_args!(
            "| {} | {:.2} MiB | {:.2} M | {} ({}) | {} | {:.2} ± {:.2} |",
            loaded.name,
            loaded.bytes as f64 / f64::from(1 << 20),
            loaded.parameters as f64 / 1e6,
            loaded.device.name,
            loaded.device.api,
            test.test,
            test.avg_ts,
            test.stddev_ts,
        ))?;
    }
    Ok(())
}

/// A session with so many tokens in each of its first sequences, and its device idle.
fn fill(session: &mut Session, sequences: usize, depth: usize) -> anyhow::Result<()> {
    for sequence in 0..sequences {
        session.truncate(sequence, depth);
        let missing = depth - session.len(sequence);
        if missing > 0 {
            let tokens = tokens(session, missing);
            session.step(&[Input { sequence, tokens: &tokens }])?;
        }
    }
    Ok(session.model().backend().synchronize()?)
}

/// Any tokens: the speed doesn't depend on them.
fn tokens(session: &Session, count: usize) -> Vec<u32> {
    let vocabulary = session.model().config().vocabulary as u32;
    (0..count as u32).map(|i| i.wrapping_mul(7919) % vocabulary).collect()
}

/// Mean and standard deviation of a sample.
fn statistics(samples: &[f64]) -> (f64, f64) {
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_of_a_sample() {
        assert_eq!(statistics(&[1.0, 3.0]), (2.0, 2f64.sqrt()));
        assert_eq!(statistics(&[5.0]), (5.0, 0.0));
    }
}
