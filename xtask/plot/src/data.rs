//! Measurements as lines of tab-separated text.

use std::path::Path;

use anyhow::{Context as _, ensure};

/// The columns of a file, in order. Times are in µs.
const COLUMNS: &str = "date\tgroup\tdtype\tcase\tgflop\tours_us\tpytorch_us\tort_us\tburn_us";

/// The time that a case took, and what other libraries took for it.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    /// The family, such as `gemm`.
    pub(crate) group: String,
    pub(crate) dtype: String,
    pub(crate) case: String,
    /// 10⁹ floating-point operations, where the case is limited by arithmetic.
    pub(crate) gflop: Option<f64>,
    pub(crate) ours: f64,
    pub(crate) pytorch: Option<f64>,
    pub(crate) ort: Option<f64>,
    pub(crate) burn: Option<f64>,
}

impl Measurement {
    /// PyTorch's time by ours: above 1, ours is faster.
    pub(crate) fn speed(&self) -> Option<f64> {
        self.pytorch.map(|pytorch| pytorch / self.ours)
    }
}

/// Reads a file of measurements.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Measurement>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut lines = text.lines();
    ensure!(lines.next() == Some(COLUMNS), "{}: expected the columns {COLUMNS:?}", path.display());
    lines
        .enumerate()
        .map(|(i, line)| parse(line).with_context(|| format!("{}:{}", path.display(), i + 2)))
        .collect()
}

fn parse(line: &str) -> anyhow::Result<Measurement> {
    let fields: Vec<&str> = line.split('\t').collect();
    let &[_, group, dtype, case, gflop, ours, pytorch, ort, burn] = fields.as_slice() else {
        anyhow::bail!("expected 9 fields, found {}", fields.len());
    };
    let number = |field: &str| -> anyhow::Result<Option<f64>> {
        if field.is_empty() {
            return Ok(None);
        }
        let value: f64 = field.parse().with_context(|| format!("{field:?}"))?;
        ensure!(value > 0.0, "{field:?} is no time");
        Ok(Some(value))
    };
    Ok(Measurement {
        group: group.to_owned(),
        dtype: dtype.to_owned(),
        case: case.to_owned(),
        gflop: number(gflop)?,
        ours: number(ours)?.context("a time of ours")?,
        pytorch: number(pytorch)?,
        ort: number(ort)?,
        burn: number(burn)?,
    })
}

/// The geometric mean.
pub(crate) fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len().max(1) as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_nine_fields_and_times_are_positive() {
        let line = parse("2026-11-21\tgemm\tf32\t256³\t0.03\t8.3\t6.3\t\t67").unwrap();
        assert_eq!((line.ours, line.pytorch, line.ort, line.burn), (8.3, Some(6.3), None, Some(67.0)));
        assert!(parse("2026-11-21\tgemm\tf32\t256³\t0.03\t8.3\t6.3\t").is_err());
        assert!(parse("2026-11-21\tgemm\tf32\t256³\t0.03\t\t6.3\t\t").is_err());
        assert!(parse("2026-11-21\tgemm\tf32\t256³\t0.03\t-1\t6.3\t\t").is_err());
    }

    #[test]
    fn the_geometric_mean_of_a_half_and_two_is_one() {
        assert!((geometric_mean(&[0.5, 2.0]) - 1.0).abs() < 1e-12);
    }
}
