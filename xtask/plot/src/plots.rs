//! The plots of `docs/plots`, as SVG.

use std::path::Path;

use anyhow::Context as _;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::data::{Measurement, geometric_mean};

/// A curve: its name, its colour, and the time of a measurement.
type Curve = (&'static str, RGBColor, fn(&Measurement) -> Option<f64>);

const CURVES: [Curve; 4] = [
    ("this", RGBColor(0xd6, 0x27, 0x28), |line| Some(line.ours)),
    ("PyTorch (cuBLAS)", RGBColor(0x1f, 0x77, 0xb4), |line| line.pytorch),
    ("burn (wgpu)", RGBColor(0xff, 0x7f, 0x0e), |line| line.burn),
    ("ONNX Runtime WebGPU", RGBColor(0x2c, 0xa0, 0x2c), |line| line.ort),
];

const FONT: &str = "sans-serif";

/// TFLOP/s of square products over their size, f32 beside f16.
pub(crate) fn throughput(measurements: &[Measurement], path: &Path) -> anyhow::Result<()> {
    create_folder(path)?;
    let area = SVGBackend::new(path, (960, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(480);
    squares(&left, measurements, "f32", 60.0)?;
    squares(&right, measurements, "f16", 700.0)?;
    area.present().with_context(|| path.display().to_string())
}

fn squares(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    measurements: &[Measurement],
    dtype: &str,
    most: f64,
) -> anyhow::Result<()> {
    let is_shown = |line: &&Measurement| line.group == "gemm" && line.dtype == dtype;
    // Of cases like 1024³: curves through odd sizes would be jagged.
    let size = |line: &Measurement| {
        let size: u32 = line.case.strip_suffix('³')?.parse().ok()?;
        size.is_power_of_two().then_some(size)
    };
    let mut chart = ChartBuilder::on(area)
        .caption(format!("n×n×n products of {dtype}, TFLOP/s"), (FONT, 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(44)
        .build_cartesian_2d((256_u32..8192).log_scale().base(2.0), 0.0..most)?;
    chart
        .configure_mesh()
        .x_desc("n")
        .y_label_formatter(&|throughput| format!("{throughput:.0}"))
        .light_line_style(WHITE)
        .label_style((FONT, 13))
        .draw()?;
    for (name, colour, time) in CURVES {
        let points: Vec<(u32, f64)> = measurements
            .iter()
            .filter(is_shown)
            .filter_map(|line| Some((size(line)?, line.gflop? / time(line)? * 1e3)))
            .collect();
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.9))
        .label_font((FONT, 13))
        .draw()?;
    Ok(())
}

/// PyTorch's time by ours, for each group and type: the geometric mean, the best and the worst.
pub(crate) fn speeds(measurements: &[Measurement], path: &Path) -> anyhow::Result<()> {
    let mut groups: Vec<(String, Vec<f64>)> = Vec::new();
    for line in measurements {
        let Some(speed) = line.speed() else { continue };
        let name = format!("{} {}", line.group, line.dtype);
        match groups.iter_mut().find(|(group, _)| *group == name) {
            Some((_, speeds)) => speeds.push(speed),
            None => groups.push((name, vec![speed])),
        }
    }
    let count = groups.len();
    create_folder(path)?;
    let area = SVGBackend::new(path, (960, 60 + 30 * count as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let name = |row: &f64| {
        // The axis counts from below; names stand beside the middle of a row.
        let index = count as f64 - row - 0.5;
        let is_middle = (index - index.round()).abs() < 1e-6;
        groups
            .get(index.round() as usize)
            .filter(|_| is_middle)
            .map(|(name, _)| name.clone())
            .unwrap_or_default()
    };
    let mut chart = ChartBuilder::on(&area)
        .caption("PyTorch's time by ours, NVIDIA H200: geometric mean, worst to best", (FONT, 16))
        .margin(10)
        .x_label_area_size(28)
        .y_label_area_size(140)
        .build_cartesian_2d((0.25_f64..32.0).log_scale().base(2.0), 0.0..count as f64)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(WHITE)
        .y_labels(2 * count + 1)
        .y_label_formatter(&name)
        .x_label_formatter(&|speed| format!("{speed}×"))
        .label_style((FONT, 13))
        .draw()?;
    for (i, (_, speeds)) in groups.iter().enumerate() {
        let bottom = (count - i) as f64 - 1.0;
        let mean = geometric_mean(speeds);
        let colour = if mean < 1.0 { RGBColor(0xe3, 0x77, 0x5b) } else { RGBColor(0x3c, 0x9a, 0x5f) };
        let worst = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let best = speeds.iter().copied().fold(0.0, f64::max);
        chart.draw_series([
            Rectangle::new([(1.0, bottom + 0.2), (mean, bottom + 0.8)], colour.filled()),
            Rectangle::new([(worst, bottom + 0.48), (best, bottom + 0.52)], BLACK.filled()),
        ])?;
        let label = Text::new(format!("{mean:.2}"), (best * 1.06, bottom + 0.68), (FONT, 13));
        chart.draw_series([label])?;
    }
    area.present().with_context(|| path.display().to_string())
}

fn create_folder(file: &Path) -> anyhow::Result<()> {
    let folder = file.parent().context("a plot lies in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}
