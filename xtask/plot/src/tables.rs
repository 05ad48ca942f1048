//! The tables of `docs/performance.md`, between comments that name them.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::data::Measurement;

const BEGIN: &str = "<!-- table: ";
const END: &str = "<!-- end -->";

/// Another library, and its time for a case.
type Peer = (&'static str, fn(&Measurement) -> Option<f64>);

const PEERS: [Peer; 2] = [("ORT", |line| line.ort), ("burn", |line| line.burn)];

/// Writes anew what stands between `<!-- table: GROUP -->` and `<!-- end -->`.
pub(crate) fn update(measurements: &[Measurement], path: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut rest = text.as_str();
    let mut updated = String::new();
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(" -->\n").context("a table's comment isn't closed")?;
        let (_, after) = after.split_once(END).with_context(|| format!("no {END} after the table {name}"))?;
        write!(updated, "{before}{BEGIN}{name} -->\n{}{END}", table(measurements, name)?)?;
        rest = after;
    }
    updated.push_str(rest);
    std::fs::write(path, updated)?;
    Ok(())
}

/// A line for each case, with the types beside each other. Columns that no case fills are left out.
fn table(measurements: &[Measurement], group: &str) -> anyhow::Result<String> {
    let lines: Vec<&Measurement> = measurements.iter().filter(|line| line.group == group).collect();
    ensure!(!lines.is_empty(), "no measurements of {group}");
    let mut cases: Vec<&str> = Vec::new();
    for line in &lines {
        if !cases.contains(&line.case.as_str()) {
            cases.push(&line.case);
        }
    }
    let find =
        |case: &str, dtype: &str| lines.iter().copied().find(|line| line.case == case && line.dtype == dtype);
    let dtypes: Vec<&str> =
        ["f32", "f16"].into_iter().filter(|dtype| lines.iter().any(|line| line.dtype == *dtype)).collect();
    let peers: Vec<&Peer> =
        PEERS.iter().filter(|(_, time)| lines.iter().any(|line| time(line).is_some())).collect();

    let mut rows = vec![vec!["".to_owned()]];
    rows[0].extend(
        dtypes.iter().flat_map(|dtype| [dtype.to_string(), "PyTorch".to_owned(), "speed".to_owned()]),
    );
    rows[0].extend(peers.iter().map(|(name, _)| format!("{name} {}", dtypes.join(" / "))));
    rows.push(vec!["---".to_owned(); rows[0].len()]);
    for case in cases {
        let found: Vec<Option<&Measurement>> = dtypes.iter().map(|dtype| find(case, dtype)).collect();
        let mut row = vec![case.to_owned()];
        for line in &found {
            row.extend(match line {
                Some(line) => [ours(line), time(line.pytorch), speed(line)],
                None => Default::default(),
            });
        }
        row.extend(peers.iter().map(|(_, peer)| {
            let times: Vec<String> = found.iter().map(|line| time(line.and_then(*peer))).collect();
            let text = times.join(" / ");
            if times.iter().all(String::is_empty) { String::new() } else { text.trim_end().to_owned() }
        }));
        rows.push(row);
    }
    Ok(rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect())
}

fn ours(line: &Measurement) -> String {
    let throughput = line.gflop.map(|gflop| format!(", {} TF", digits(gflop / line.ours * 1e3)));
    format!("{}{}", time(Some(line.ours)), throughput.unwrap_or_default())
}

fn speed(line: &Measurement) -> String {
    line.speed().map(|speed| format!("{speed:.2}")).unwrap_or_default()
}

/// A time given in µs, with three digits.
fn time(us: Option<f64>) -> String {
    match us {
        None => String::new(),
        Some(us) if us >= 1000.0 => format!("{} ms", digits(us * 1e-3)),
        Some(us) => format!("{} µs", digits(us)),
    }
}

/// Three digits of a number, or all before the point.
fn digits(value: f64) -> String {
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([9.514, 95.14, 951.4].map(digits), ["9.51", "95.1", "951"]);
        assert_eq!(time(Some(2677.0)), "2.68 ms");
    }

    #[test]
    fn a_table_has_the_columns_that_are_filled() {
        let line = Measurement {
            group: "gemm".to_owned(),
            dtype: "f32".to_owned(),
            case: "1024³".to_owned(),
            gflop: Some(2.147),
            ours: 64.5,
            pytorch: Some(55.4),
            ort: None,
            burn: Some(190.0),
        };
        let expected = "|  | f32 | PyTorch | speed | burn f32 |\n| --- | --- | --- | --- | --- |\n\
                        | 1024³ | 64.5 µs, 33.3 TF | 55.4 µs | 0.86 | 190 µs |\n";
        assert_eq!(table(&[line], "gemm").unwrap(), expected);
    }
}
