//! How much to run, and from which seed.

use std::env::var;
use std::time::{Duration, Instant};

use suites::number;

/// What `cargo xtask campaign` sets, and what it is called on its command line.
const MINUTES: &str = "CAMPAIGN_MINUTES";
const SEED: &str = "CAMPAIGN_SEED";
const ONLY: &str = "CAMPAIGN_ONLY";
const CASE: &str = "CAMPAIGN_CASE";
const PROGRAM: &str = "CAMPAIGN_PROGRAM";

/// The part that runs only where there is time.
pub(crate) const SOAK: &str = "soak";

/// The most minutes: a week.
const LONGEST: f64 = 10_080.0;

/// How much to run, and from which seed.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The time for everything; `None` for the small part that CI runs.
    minutes: Option<f64>,
    pub(crate) seed: u64,
    only: Vec<String>,
    /// Only this case.
    pub(crate) case: Option<u64>,
    /// A program to run instead, as text.
    pub(crate) program: Option<String>,
    /// Among how many trials the time is shared.
    pub(crate) trials: usize,
}

impl Options {
    pub(crate) fn from_environment() -> Result<Self, String> {
        let program = match var(PROGRAM) {
            Ok(path) => {
                let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
                if text.trim().is_empty() {
                    return Err(format!("{path} has no program"));
                }
                Some(text)
            }
            Err(_) => None,
        };
        let only = var(ONLY).unwrap_or_default();
        let minutes = number(MINUTES)?;
        let is_time = |&minutes: &f64| minutes > 0.0 && minutes <= LONGEST;
        if let Some(wrong) = minutes.filter(|minutes| !is_time(minutes)) {
            return Err(format!("{MINUTES} is {wrong}, and not a time above 0 and up to {LONGEST} minutes"));
        }
        Ok(Self {
            minutes,
            seed: number(SEED)?.unwrap_or(0),
            only: only.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
            case: number(CASE)?,
            program,
            trials: 1,
        })
    }

    /// Whether a person asked for more than CI does.
    pub(crate) const fn is_long(&self) -> bool {
        self.minutes.is_some()
    }

    /// Whether a part is wanted.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    /// That every part which is asked for is one of `parts`, and that a program is for parts that run programs.
    pub(crate) fn check(&self, parts: &[&str], of_programs: &[&str]) -> Result<(), String> {
        let wrong = |known: &[&str]| self.only.iter().find(|only| !known.contains(&only.as_str())).cloned();
        if let Some(part) = wrong(parts) {
            let why = if part == SOAK { ", which takes --minutes" } else { "" };
            return Err(format!("there is no part {part:?}{why}; there are {}", parts.join(", ")));
        }
        if self.program.is_some() && (self.only.is_empty() || wrong(of_programs).is_some()) {
            return Err(format!("a program is for --only with one of {}", of_programs.join(", ")));
        }
        Ok(())
    }

    /// The cases to run, by number: the one that was asked for, as many as the time allows, or `few`.
    pub(crate) fn cases(&self, few: u64) -> impl Iterator<Item = u64> + use<> {
        let end = self.minutes.map(|_| Instant::now() + self.time(Duration::ZERO));
        let range = match self.case {
            Some(case) => case..case + 1,
            None => 0..if end.is_some() { u64::MAX } else { few },
        };
        let only = self.case.is_some();
        range.take_while(move |_| only || end.is_none_or(|end| Instant::now() < end))
    }

    /// A trial's share of the time, or `short` in CI.
    pub(crate) fn time(&self, short: Duration) -> Duration {
        self.minutes
            .map_or(short, |minutes| Duration::from_secs_f64(60.0 * minutes / self.trials.max(1) as f64))
    }

    /// The command that runs one case again.
    pub(crate) fn command(&self, part: &str, backend: &str, case: u64) -> String {
        format!("cargo xtask campaign --only {part} --backend {backend} --seed {} --case {case}", self.seed)
    }
}
