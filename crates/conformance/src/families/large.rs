//! Sizes at which the places of a grid run out, on inputs that are cheap to make.

use backend_api::DType;
use backend_api::desc::{NormBackwardDesc, NormBackwardWeightDesc};

use super::copy_dtod::{free, text};
use crate::case::Case;
use crate::device::Device;
use crate::element::decode;

const F32: DType = DType::F32;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::script("norm_backward_weight", "columns_16776961", |device| Box::pin(wide_row(device)))]
}

/// One row of as many columns as take 65,536 workgroups of 256.
async fn wide_row(device: &Device<'_>) -> Result<(), String> {
    const COLUMNS: usize = 65_535 * 256 + 1;
    const HALF: usize = 65_536 * 100;
    let backend = device.backend;
    let alloc = || backend.alloc(4 * COLUMNS).map_err(text);
    let [x, gradient, weight] = [alloc()?, alloc()?, alloc()?];
    // Without a mean, the normalised row is of ones and twos over their root mean square.
    backend.fill(x, F32, COLUMNS, 2.0).map_err(text)?;
    backend.fill(x, F32, HALF, 1.0).map_err(text)?;
    backend.fill(gradient, F32, COLUMNS, 3.0).map_err(text)?;
    backend.fill(weight, F32, COLUMNS, f64::NAN).map_err(text)?;
    let norm = NormBackwardDesc::rms_norm(F32, x, gradient, 0, 1, COLUMNS);
    backend.norm_backward_weight(&NormBackwardWeightDesc::of(&norm, weight)).map_err(text)?;
    let mean = (HALF as f64 + 4.0 * (COLUMNS - HALF) as f64) / COLUMNS as f64;
    // At both ends, in the middle, where a grid may be folded, and behind the last place of one that isn't.
    for first in [0, HALF - 256, COLUMNS / 2 - 256, COLUMNS - 512] {
        let part = backend.view(weight, 4 * first, 4 * 512).map_err(text)?;
        let found = decode(F32, &device.read(part, 4 * 512).await.map_err(text)?);
        free(device, &[part])?;
        for (column, found) in (first..).zip(found) {
            let product = if column < HALF { 3.0 } else { 6.0 };
            let result = product / (mean + norm.eps).sqrt();
            if found.is_nan() || (found - result).abs() > 1e-5 * result {
                return Err(format!("column {column} is {found}, not {result}"));
            }
        }
    }
    free(device, &[x, gradient, weight])
}
