//! `cargo xtask plot`: from the measurements in `docs/measurements`, the plots in `docs/plots` and the tables in
//! `docs/performance.md`.

mod data;
mod plots;
mod tables;

use std::path::Path;

use anyhow::Context as _;

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = root.canonicalize().context("the workspace's root")?.join("docs");
    let measurements = data::read(&docs.join("measurements/h200.tsv"))?;
    plots::throughput(&measurements, &docs.join("plots/gemm.svg"))?;
    plots::speeds(&measurements, &docs.join("plots/speed.svg"))?;
    tables::update(&measurements, &docs.join("performance.md"))
}
