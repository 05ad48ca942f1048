//! What is written down of plans, to see that some have changed, and which.
//!
//! `digests.txt` has a line for each family of calls on each device: the hash of all its plans, and six bits of the hash of each.
//! `DIGESTS=write` writes it anew, and `PLANS=FILE` the plans themselves into `FILE.calls`, to compare those of two versions.

use std::fmt::Write as _;

use super::fnv1a;

const WRITTEN: &str = include_str!("digests.txt");

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops/plans/digests.txt");

const DIGITS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-";

/// The plans of this version.
#[derive(Default)]
pub(super) struct Digests {
    lines: String,
    plans: String,
    differences: String,
}

impl Digests {
    /// Compares the plans of a family of calls, one line each.
    pub(super) fn note(&mut self, of: &str, plans: &[String]) {
        _ = writeln!(self.lines, "{}", line(of, plans));
        plans.iter().for_each(|plan| _ = writeln!(self.plans, "{plan}"));
        if let Some(difference) = difference(WRITTEN, of, plans) {
            _ = writeln!(self.differences, "{difference}");
        }
    }

    /// Panics unless all plans are those that are written down.
    pub(super) fn require_as_written(self) {
        if let Ok(path) = std::env::var("PLANS") {
            std::fs::write(path + ".calls", self.plans).unwrap();
        }
        if std::env::var("DIGESTS").is_ok_and(|what| what == "write") {
            return std::fs::write(PATH, self.lines).unwrap();
        }
        // A family that was taken out is a difference too.
        let is_whole = self.lines == WRITTEN;
        assert!(
            is_whole,
            "plans have changed, see docs/testing.md for what to do:\n{}{} lines in place of {}",
            self.differences,
            self.lines.lines().count(),
            WRITTEN.lines().count()
        );
    }
}

/// What is written down of plans.
fn line(of: &str, plans: &[String]) -> String {
    let hash = |plan: &String| fnv1a(plan.bytes().chain([b'\n']));
    let mut line = format!("{of}: {:016x} ", fnv1a(plans.iter().flat_map(|plan| hash(plan).to_le_bytes())));
    let digit = |hash: u64| char::from(DIGITS[((hash ^ hash >> 32) % 64) as usize]);
    line.extend(plans.iter().map(|plan| digit(hash(plan))));
    line
}

/// What is different from what was written down, in words.
fn difference(written: &str, of: &str, plans: &[String]) -> Option<String> {
    let now = line(of, plans);
    let digits = |line: &str| line.rsplit(' ').next().unwrap_or_default().as_bytes().to_vec();
    let Some(before) =
        written.lines().find(|line| line.strip_prefix(of).is_some_and(|rest| rest.starts_with(": ")))
    else {
        return Some(format!("{of}: nothing is written down"));
    };
    if *before == now {
        return None;
    }
    let (before, now) = (digits(before), digits(&now));
    let differing: Vec<usize> = (0..before.len().min(now.len())).filter(|&i| before[i] != now[i]).collect();
    let (count, was) = (plans.len(), before.len());
    // Six bits may be the same by chance.
    let first = differing.first().map_or_else(
        || "which one isn't known".to_owned(),
        |&i| format!("the first is number {i}: {}", plans[i]),
    );
    Some(format!("{of}: {} of {count} plans, which were {was}; {first}", differing.len()))
}

#[test]
fn a_plan_that_changes_is_named() {
    let plans = |texts: [&str; 3]| texts.map(str::to_owned);
    let was = format!(
        "{}\n{}\n",
        line("device, others", &plans(["x"; 3])),
        line("device", &plans(["a", "b", "c"]))
    );
    let said = |texts| difference(&was, "device", &plans(texts));
    assert_eq!(said(["a", "b", "c"]), None);
    let other = said(["a", "d", "c"]).unwrap();
    assert!(other.contains("device: 1 of 3 plans") && other.contains("number 1: d"), "{other}");
    let swapped = said(["b", "a", "c"]).unwrap();
    assert!(swapped.contains("2 of 3") && swapped.contains("number 0: b"), "{swapped}");
    let fewer = difference(&was, "device", &plans(["a", "b", "c"])[..2]).unwrap();
    assert!(fewer.contains("of 2 plans, which were 3"), "{fewer}");
    assert!(difference(&was, "dev", &plans(["a", "b", "c"])).unwrap().contains("nothing"));
}
