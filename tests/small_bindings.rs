//! Operands inside of buffers that are larger than what can be bound, as are arenas of several GiB on large
//! devices and much smaller ones on others: on each adapter, a device whose binding limit is set to
//! [`BINDING`], and one whose buffers are no larger than [`BUFFER`] besides. Where the adapter has tensor cores, both are
//! opened with them too.
//!
//! `EVERY=1 cargo test -p suites --test small_bindings` runs every conformance case and not only some
//! of each operation.

mod divided_blocks;
mod few_limits;
mod large_operands;
mod large_products;
mod opened;
mod random_operands;
mod wide_filters;
mod within_blocks;

use std::process::ExitCode;
use std::sync::Arc;

use backend_api::desc::{
    AttentionDesc, AttentionShape, BlockTable, ConcatDesc, DequantizeDesc, Matrix, PadDesc, QuantGatherDesc,
    QuantMatmulDesc, QuantMatrix, TensorDesc,
};
use backend_api::quant::{QuantFormat, repack};
use backend_api::{BackendError, BackendResult, ComputeBackend, DType, ErrorKind, ReduceOp};
use backend_webgpu::WebGpuBackend;
use conformance::{Case, cases};
use libtest_mimic::{Failed, Trial};
use suites::{BackendUnderTest, Filter};

/// The most bytes that a kernel can bind.
const BINDING: usize = 64 << 10;

/// The most bytes of a buffer, where allocations in several of them are tested.
const BUFFER: usize = 256 << 10;

/// Bytes of each block of memory: what lies in it is bound through a window.
const BLOCK: usize = 32 * BINDING;

fn main() -> ExitCode {
    let names = cases()
        .iter()
        .map(Case::path)
        .chain(random_operands::families().map(str::to_owned))
        .collect::<Vec<_>>();
    if let Err(why) = Filter::from_environment().check(names) {
        println!("{why}");
        return ExitCode::FAILURE;
    }
    // Cases share the arena of their device.
    suites::run_one_at_a_time(trials)
}

type Check = fn(&WebGpuBackend) -> Result<(), String>;

fn trials(tested: Arc<BackendUnderTest>) -> Vec<Trial> {
    let checks: [(&str, Check); 25] = [
        ("growing_fills", growing_fills),
        ("growing_sums", growing_sums),
        ("growing_caches", growing_caches),
        ("split_planes", split_planes),
        ("refused_pad", refused_pad),
        ("refused_concat", refused_concat),
        ("refused_pool", refused_pool),
        ("large_operands/elements", large_operands::elements),
        ("large_operands/rows", large_operands::rows),
        ("large_operands/lookups", large_operands::lookups),
        ("large_operands/offsets", large_operands::offsets),
        ("large_operands/products", large_operands::products),
        ("large_operands/batches", large_operands::batches),
        ("large_products/products", large_products::products),
        ("large_products/sums_of_a_batch", large_products::sums_of_a_batch),
        ("large_products/tuned", large_products::tuned),
        ("large_products/short", large_products::short),
        ("large_products/sums", large_products::sums),
        ("large_products/shared_mask", large_products::shared_mask),
        ("large_products/convolutions", large_products::convolutions),
        ("large_products/wide_filters", wide_filters::wide_filters),
        ("large_products/wide_phases", wide_filters::wide_phases),
        ("random_operands", random_operands::random_operands),
        ("conformance", within_blocks::in_blocks),
        ("replayed", within_blocks::replayed_in_blocks),
    ];
    let of_buffers: [(&str, Check); 14] = [
        ("transfers", divided_blocks::transfers),
        ("reads", divided_blocks::reads),
        ("memory", divided_blocks::memory),
        ("tables", divided_blocks::tables),
        ("products", divided_blocks::products),
        ("caches", divided_blocks::caches),
        ("own_kernels", divided_blocks::own_kernels),
        ("growing_caches", growing_caches),
        ("split_planes", split_planes),
        ("lookups", large_operands::lookups),
        ("large_products", large_products::products),
        ("random_operands", random_operands::random_operands),
        ("conformance", within_blocks::across_buffers),
        ("replayed", within_blocks::replayed_across_buffers),
    ];
    if tested.selector == "cpu" {
        return Vec::new();
    }
    let trial = |folder: &str, (name, check): (&str, Check), buffer: Option<usize>, tensor_cores: bool| {
        let tested = Arc::clone(&tested);
        Trial::test(format!("small_bindings/{}/{folder}{name}", tested.slug), move || {
            check(&limited(&tested, buffer, tensor_cores)?).map_err(Failed::from)
        })
    };
    let mut trials = Vec::new();
    trials.extend(checks.into_iter().map(|check| trial("", check, None, false)));
    trials.extend(of_buffers.into_iter().map(|check| trial("buffers/", check, Some(BUFFER), false)));
    trials.extend(few_limits::OPENINGS.iter().map(|opening| {
        let tested = Arc::clone(&tested);
        Trial::test(format!("small_bindings/{}/opened/{}", tested.slug, opening.name), move || {
            opening.check(&tested).map_err(Failed::from)
        })
    }));
    if has_tensor_cores(&tested) {
        trials.extend(checks.into_iter().map(|check| trial("tensor_cores/", check, None, true)));
        let of_buffers = of_buffers.into_iter();
        trials.extend(of_buffers.map(|check| trial("tensor_cores/buffers/", check, Some(BUFFER), true)));
    }
    trials
}

/// Whether the backend uses cooperative matrices of the adapter. One that doesn't open fails in every trial.
fn has_tensor_cores(tested: &BackendUnderTest) -> bool {
    let capabilities = tested.backend().map(ComputeBackend::capabilities);
    capabilities.is_ok_and(|capabilities| capabilities.is_ok_and(|device| device.cooperative_matrix))
}

/// A backend on a device of the adapter under test that binds no more than [`BINDING`], with buffers of at most `buffer`
/// bytes, opened by the backend itself. Of a device without tensor cores, the other kernels are tested.
fn limited(
    tested: &BackendUnderTest,
    buffer: Option<usize>,
    tensor_cores: bool,
) -> Result<WebGpuBackend, String> {
    let wanted = tested.backend()?.device_info().map_err(text)?;
    let mut backend = WebGpuBackend::select(wanted.selector.strip_prefix("webgpu:").unwrap_or_default());
    if !tensor_cores {
        backend = backend.without_cooperative_matrices();
    }
    let lower = |limits: &mut wgpu::Limits| {
        limits.max_storage_buffer_binding_size = BINDING as u64;
        limits.max_buffer_size = buffer.map_or(limits.max_buffer_size, |bytes| bytes as u64);
    };
    backend.init_with_limits(lower).map_err(text)?;
    Ok(backend)
}

fn text(error: BackendError) -> String {
    format!("{error:?}")
}

/// Numbers at the start of `ptr`.
fn read(backend: &dyn ComputeBackend, ptr: u64, n: usize) -> BackendResult<Vec<f32>> {
    let mut numbers = vec![0f32; n];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut numbers), ptr)?;
    Ok(numbers)
}

fn expect_all(what: &str, got: &[f32], want: f32) -> Result<(), String> {
    match got.iter().position(|&x| x != want) {
        Some(at) => Err(format!("{what}: number {at} of {} is {}, expected {want}", got.len(), got[at])),
        None => Ok(()),
    }
}

/// Lengths in f32 that all start at the same byte, up to all that can be bound.
const LENGTHS: [usize; 6] = [4, 64, 1000, 1024, 16_384, BINDING / 4];

/// A longer output at the start of a shorter one.
fn growing_fills(backend: &WebGpuBackend) -> Result<(), String> {
    let block = backend.alloc(BLOCK).map_err(text)?;
    for (value, n) in (1u8..).zip(LENGTHS) {
        backend.fill(block, DType::F32, n, f64::from(value)).map_err(text)?;
        expect_all(&format!("fill of {n}"), &read(backend, block, n).map_err(text)?, f32::from(value))?;
    }
    backend.free(block).map_err(text)
}

/// A longer input at the start of a shorter one.
fn growing_sums(backend: &WebGpuBackend) -> Result<(), String> {
    let (block, sum) = (backend.alloc(BLOCK).map_err(text)?, backend.alloc(4).map_err(text)?);
    backend.copy_htod(block, bytemuck::cast_slice(&vec![1f32; BLOCK / 4])).map_err(text)?;
    for n in LENGTHS {
        backend.reduce(ReduceOp::Sum, block, sum, &[n], 0).map_err(text)?;
        expect_all(&format!("sum of {n} ones"), &read(backend, sum, 1).map_err(text)?, n as f32)?;
    }
    [block, sum].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}

/// One token after another beside keys and values that grow in place. All values are 1, and so is any mean of
/// them.
fn growing_caches(backend: &WebGpuBackend) -> Result<(), String> {
    let head_dim = 32;
    let cache = || -> BackendResult<u64> {
        let block = backend.alloc(BLOCK)?;
        backend.copy_htod(block, bytemuck::cast_slice(&vec![1f32; BLOCK / 4]))?;
        Ok(block)
    };
    let [q, k, v, o] = [cache(), cache(), cache(), cache()];
    let [q, k, v, o] = [q.map_err(text)?, k.map_err(text)?, v.map_err(text)?, o.map_err(text)?];
    for tokens in [1, 2, 3, 64, 65, 300, BINDING / 4 / head_dim] {
        backend.fill(o, DType::F32, head_dim, 0.0).map_err(text)?;
        backend.attention(q, k, v, o, 1, 1, 1, tokens, head_dim, 0.125, false).map_err(text)?;
        let got = read(backend, o, head_dim).map_err(text)?;
        if let Some(x) = got.iter().find(|&&x| (x - 1.0).abs() > 1e-5) {
            return Err(format!("attention over {tokens} tokens gives {x}, expected 1"));
        }
    }
    [q, k, v, o].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}

/// An input of two rows that lie further apart than what can be bound.
const APART: [usize; 2] = [BINDING / 2, 1];

/// Right, or refused with the output as it was.
fn right_or_unchanged(
    backend: &WebGpuBackend,
    result: BackendResult<()>,
    output: u64,
    want: &[f32],
) -> Result<(), String> {
    let got = read(backend, output, want.len()).map_err(text)?;
    match result {
        Ok(()) if got == want => Ok(()),
        Ok(()) => Err(format!("got {got:?}, expected {want:?}")),
        Err(error) if error.kind() != ErrorKind::Limit => Err(text(error)),
        Err(error) => expect_all(&format!("the output of a call that gave {error:?}"), &got, 7.0),
    }
}

/// Products with, and rows of, a quantised matrix whose planes are more than can be bound. The weights of row
/// r are all r mod 100.
fn split_planes(backend: &WebGpuBackend) -> Result<(), String> {
    let (format, rows, columns) = (QuantFormat::Q8_0, 4100, 128);
    let block = |row: usize| [&[0u8, 0x3c][..], &[(row % 100) as u8; 32]].concat();
    let blocks: Vec<u8> = (0..rows * columns / 32).flat_map(|i| block(i / 4)).collect();
    let mut planes = vec![0; format.bytes(rows, columns).map_err(text)?];
    repack(format, rows, columns, &blocks, &mut planes).map_err(text)?;
    assert!(planes.len() > 2 * BINDING);
    let upload = |bytes: &[u8]| -> BackendResult<u64> {
        let ptr = backend.alloc(bytes.len())?;
        backend.copy_htod(ptr, bytes)?;
        Ok(ptr)
    };
    let weights = QuantMatrix::new(upload(&planes).map_err(text)?, format, rows, columns);
    let value = |row: usize| (row % 100) as f32;

    let few = 3;
    let ones = upload(bytemuck::cast_slice(&vec![1f32; 40 * columns])).map_err(text)?;
    let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
    let product = backend.alloc(few * rows * 4).map_err(text)?;
    let desc = QuantMatmulDesc::new(few, matrix(ones, columns), weights, matrix(product, rows));
    backend.quant_matmul(&desc).map_err(text)?;
    for (i, &got) in read(backend, product, few * rows).map_err(text)?.iter().enumerate() {
        expect_all(&format!("column {} of the product", i % rows), &[got], 128.0 * value(i % rows))?;
    }

    // More indices and rows than can be bound at once.
    let chosen = [0u32, 4099, 2045, 2046, 2047, 4100, u32::MAX, 17].repeat(BINDING / 32 + 1);
    let indices = upload(bytemuck::cast_slice(&chosen)).map_err(text)?;
    let found = backend.alloc(chosen.len() * columns * 4).map_err(text)?;
    let desc = QuantGatherDesc::new(DType::F32, weights, indices, found, chosen.len());
    backend.quant_gather(&desc).map_err(text)?;
    let got = read(backend, found, chosen.len() * columns).map_err(text)?;
    for (row, &index) in got.chunks(columns).zip(&chosen) {
        let want = if index < 4100 { value(index as usize) } else { 0.0 };
        expect_all(&format!("row {index}"), row, want)?;
    }

    let all = backend.alloc(rows * columns * 4).map_err(text)?;
    backend.dequantize(&DequantizeDesc::new(weights, matrix(all, columns))).map_err(text)?;
    for (r, row) in read(backend, all, rows * columns).map_err(text)?.chunks(columns).enumerate() {
        expect_all(&format!("row {r} of all"), row, value(r))?;
    }
    [weights.ptr, ones, product, indices, found, all]
        .into_iter()
        .try_for_each(|ptr| backend.free(ptr))
        .map_err(text)
}

/// Keys and values of ones in blocks of a pool: one that can be bound is read, by few queries and by many, and one that
/// can't be is refused.
fn refused_pool(backend: &WebGpuBackend) -> Result<(), String> {
    let (head_dim, block_size, tokens) = (32, 16, 40);
    let cache = || -> BackendResult<u64> {
        let block = backend.alloc(BLOCK)?;
        backend.copy_htod(block, bytemuck::cast_slice(&vec![1f32; BLOCK / 4]))?;
        Ok(block)
    };
    let ptrs = || -> BackendResult<[u64; 5]> {
        Ok([cache()?, cache()?, cache()?, backend.alloc(4 * 40 * head_dim)?, backend.alloc(4 * 3)?])
    };
    let [q, k, v, o, table] = ptrs().map_err(text)?;
    backend.copy_htod(table, bytemuck::cast_slice(&[29u32, 3, 0])).map_err(text)?;
    for queries in [1, 40] {
        for pool_blocks in [30, BINDING / (4 * block_size * head_dim) + 1] {
            backend.fill(o, DType::F32, queries * head_dim, 7.0).map_err(text)?;
            let shape = AttentionShape { batch: 1, heads: 1, seq_q: queries, seq_kv: tokens, head_dim };
            let desc = AttentionDesc::new(DType::F32, q, k, v, o, shape).with_block_table(BlockTable::new(
                table,
                3,
                block_size,
                pool_blocks,
            ));
            let result = backend.attention_ext(&desc);
            let got = read(backend, o, queries * head_dim).map_err(text)?;
            let pool = 4 * pool_blocks * block_size * head_dim;
            match result {
                Ok(()) if pool <= BINDING => {
                    if let Some(x) = got.iter().find(|&&x| (x - 1.0).abs() > 1e-5) {
                        return Err(format!("{queries} queries give {x}, expected 1"));
                    }
                }
                Err(BackendError::Limit { requested, max: BINDING, .. }) if requested == pool => {
                    expect_all(&format!("the output of {queries} queries that were refused"), &got, 7.0)?;
                }
                other => return Err(format!("{queries} queries and a pool of {pool} bytes: {other:?}")),
            }
        }
    }
    [q, k, v, o, table].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}

fn refused_pad(backend: &WebGpuBackend) -> Result<(), String> {
    let (block, output) = (backend.alloc(BLOCK).map_err(text)?, backend.alloc(4 * 12).map_err(text)?);
    backend.fill(output, DType::F32, 12, 7.0).map_err(text)?;
    for row in 0..2 {
        let row = backend.view(block, 4 * row * APART[0], 8).map_err(text)?;
        backend.copy_htod(row, bytemuck::cast_slice(&[1f32, 2.0])).map_err(text)?;
        backend.free(row).map_err(text)?;
    }
    let input = TensorDesc::packed(block, DType::F32, &[2, 2]).with_strides(Some(&APART));
    let padded = TensorDesc::packed(output, DType::F32, &[3, 4]);
    let result = backend.pad(&PadDesc::new(input, padded, &[1, 1], 0.0));
    let want = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 1.0, 2.0, 0.0];
    right_or_unchanged(backend, result, output, &want)?;
    [block, output].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}

fn refused_concat(backend: &WebGpuBackend) -> Result<(), String> {
    let (block, output) = (backend.alloc(BLOCK).map_err(text)?, backend.alloc(4 * 8).map_err(text)?);
    let first = backend.alloc(4 * 4).map_err(text)?;
    backend.fill(output, DType::F32, 8, 7.0).map_err(text)?;
    backend.fill(first, DType::F32, 4, 5.0).map_err(text)?;
    for row in 0..2 {
        let row = backend.view(block, 4 * row * APART[0], 8).map_err(text)?;
        backend.copy_htod(row, bytemuck::cast_slice(&[1f32, 2.0])).map_err(text)?;
        backend.free(row).map_err(text)?;
    }
    let inputs = [
        TensorDesc::packed(first, DType::F32, &[2, 2]),
        TensorDesc::packed(block, DType::F32, &[2, 2]).with_strides(Some(&APART)),
    ];
    let result =
        backend.concat(&ConcatDesc::new(&inputs, TensorDesc::packed(output, DType::F32, &[4, 2]), 0));
    right_or_unchanged(backend, result, output, &[5.0, 5.0, 5.0, 5.0, 1.0, 2.0, 1.0, 2.0])?;
    [block, first, output].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}
