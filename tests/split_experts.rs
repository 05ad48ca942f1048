//! Products with experts whose planes are more than can be bound, by every kind of kernel.

use backend_api::desc::{ExpertMatmulDesc, Matrix, QuantMatrix};
use backend_api::quant::{QuantFormat, repack};
use backend_api::{BackendResult, ComputeBackend, DType};
use backend_webgpu::WebGpuBackend;

use super::{BINDING, expect_all, read, text};

const EXPERTS: usize = 41;
const COLUMNS: usize = 128;
/// Results of a product, which are rows of an expert.
const RESULTS: usize = 100;
const USED: usize = 3;

/// All weights of expert e are e.
pub(super) fn split_experts(backend: &WebGpuBackend) -> Result<(), String> {
    let block = |row: usize| [&[0u8, 0x3c][..], &[(row / RESULTS) as u8; 32]].concat();
    let rows = EXPERTS * RESULTS;
    let blocks: Vec<u8> = (0..rows * COLUMNS / 32).flat_map(|i| block(i * 32 / COLUMNS)).collect();
    let mut planes = vec![0; QuantFormat::Q8_0.bytes(rows, COLUMNS).map_err(text)?];
    repack(QuantFormat::Q8_0, rows, COLUMNS, &blocks, &mut planes).map_err(text)?;
    assert!(planes.len() > 2 * BINDING);
    for (kernel, tokens) in [(None, 5), (Some("decode"), 5), (Some("tiled"), 50), (None, 230)] {
        backend.force_quant_matmul(kernel).map_err(text)?;
        let outcome = products(backend, &planes, tokens);
        backend.force_quant_matmul(None).map_err(text)?;
        outcome.map_err(|error| format!("{kernel:?} for {tokens} rows: {error}"))?;
    }
    Ok(())
}

fn products(backend: &WebGpuBackend, planes: &[u8], tokens: usize) -> Result<(), String> {
    let upload = |bytes: &[u8]| -> BackendResult<u64> {
        let ptr = backend.alloc(bytes.len())?;
        backend.copy_htod(ptr, bytes)?;
        Ok(ptr)
    };
    let pairs = tokens * USED;
    // A token's experts are far from each other, and some indices are no expert's.
    let chosen: Vec<u32> =
        (0..pairs).map(|pair| [7 * pair % 43, u32::MAX as usize][usize::from(pair == 4)] as u32).collect();
    let value =
        |pair: usize| if chosen[pair] < EXPERTS as u32 { chosen[pair] as f32 * COLUMNS as f32 } else { 0.0 };
    let weights: Vec<f32> = (0..pairs).map(|pair| (pair % 4) as f32).collect();
    let uploads = [
        planes,
        bytemuck::cast_slice(&vec![1f32; tokens * COLUMNS]),
        bytemuck::cast_slice(&chosen),
        bytemuck::cast_slice(&weights),
        bytemuck::cast_slice(&vec![3f32; pairs * RESULTS]),
    ];
    let ptrs: Vec<u64> = uploads.into_iter().map(upload).collect::<BackendResult<_>>().map_err(text)?;
    let [b, a, indices, weight, c] = ptrs[..] else { return Err("five uploads".to_owned()) };
    let b = QuantMatrix::new(b, QuantFormat::Q8_0, EXPERTS * RESULTS, COLUMNS);
    let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
    let desc =
        ExpertMatmulDesc::new([tokens, USED, EXPERTS], matrix(a, COLUMNS), b, indices, matrix(c, RESULTS));

    backend.expert_matmul(&desc.with_accumulate(true)).map_err(text)?;
    for (pair, row) in read(backend, c, pairs * RESULTS).map_err(text)?.chunks(RESULTS).enumerate() {
        expect_all(&format!("the row of index {pair}"), row, 3.0 + value(pair))?;
    }
    let summed = desc.with_weights(weight);
    for accumulate in [false, true] {
        backend.expert_matmul(&summed.with_accumulate(accumulate)).map_err(text)?;
        for (i, row) in read(backend, c, tokens * RESULTS).map_err(text)?.chunks(RESULTS).enumerate() {
            let sum: f32 = (USED * i..USED * (i + 1)).map(|pair| weights[pair] * value(pair)).sum();
            expect_all(&format!("the sum of row {i}"), row, if accumulate { 2.0 * sum } else { sum })?;
        }
    }
    if backend.capabilities().map_err(text)?.f16 {
        // Parts of a sum, which are up to 60,000, aren't rounded to f16 on the way.
        let half = backend.alloc(tokens * RESULTS * 2).map_err(text)?;
        let into = Matrix::new(half, DType::F16, RESULTS);
        let mut of_half = summed;
        of_half.c = into;
        backend.expert_matmul(&of_half).map_err(text)?;
        let mut got = vec![half::f16::ZERO; tokens * RESULTS];
        backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), half).map_err(text)?;
        for (i, row) in got.chunks(RESULTS).enumerate() {
            let sum: f32 = (USED * i..USED * (i + 1)).map(|pair| weights[pair] * value(pair)).sum();
            let row: Vec<f32> = row.iter().map(|x| x.to_f32()).collect();
            expect_all(&format!("the sum of row {i} in f16"), &row, half::f16::from_f32(sum).to_f32())?;
        }
        backend.free(half).map_err(text)?;
    }
    ptrs.into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}
