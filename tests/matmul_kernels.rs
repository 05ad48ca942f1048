//! Every kernel for matrix products on every adapter, not only those that the planner would choose there:
//! right around the edges of its tile in all layouts, in one piece and in several, and twice the same bits.

mod forced;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{BackendError, BackendResult, BackendTranspose, ComputeBackend, DType, MathMode};
use backend_webgpu::WebGpuBackend;
use backend_webgpu::variants::matmul_source;
use conformance::{matmul_along_k, matmul_around, matmul_in_vectors};
use forced::Device;
use libtest_mimic::{Failed, Trial};

fn main() -> ExitCode {
    forced::run(kernels)
}

/// A test for each kernel that the device can run.
fn kernels(device: &Arc<Device>) -> Vec<Trial> {
    let names = forced::runnable(device, WebGpuBackend::matmul_kernels(), matmul_source);
    let names = names
        .flat_map(|name| ["", "+split3", "+k128", "+packed", "+edges"].map(|how| format!("{name}{how}")));
    // Kernels for few rows copy nothing.
    let may_copy =
        |name: &str| ["direct/", "tiled/", "cooperative/"].iter().any(|family| name.starts_with(family));
    let names = names.filter(|name| may_copy(name) || !name.ends_with("+packed"));
    // Of all kernels, one is planned with pieces of unequal length.
    let names = names.filter(|name| name.starts_with("tiled/") || !name.ends_with("+k128"));
    // Only products of gemm/cooperative peel their edges off.
    let names = names.filter(|name| name.starts_with("cooperative/") || !name.ends_with("+edges"));
    let mut trials = vec![
        device.trial("tuning", tuning_is_kept),
        device.trial("few rows without copies", few_rows_copy_nothing),
        device.trial("many shapes", many_shapes_compile_few_kernels),
    ];
    if forced::has_tensor_cores(&device.backend) {
        trials.push(device.trial("emulated", emulation_is_close));
        trials.push(device.trial("emulated lines", emulation_of_special_lines));
    }
    trials.extend(names.map(|kernel| device.trial(&kernel.clone(), move |backend| check(backend, &kernel))));
    trials
}

fn check(backend: &WebGpuBackend, kernel: &str) -> Result<(), Failed> {
    backend.force_matmul(Some(kernel))?;
    let outcome = is_used(backend, kernel)
        .and_then(|()| right_around_its_tile(backend, kernel))
        .and_then(|()| repeatable(backend));
    backend.force_matmul(None)?;
    outcome
}

/// Whether a kernel on tensor cores makes a product that suits it: one that fails its self-test is replaced
/// without a word.
fn is_used(backend: &WebGpuBackend, kernel: &str) -> Result<(), Failed> {
    if !forced::needs_tensor_cores(kernel, matmul_source) {
        return Ok(());
    }
    let [m, n, k] = tile(kernel)?;
    let matrix = |rows: usize, columns: usize| {
        let ptr = backend.alloc(rows * columns * DType::F16.size())?;
        Ok::<_, BackendError>(Matrix::new(ptr, DType::F16, columns))
    };
    // Some need rows of B that run along k.
    let (a, b, c) = (matrix(m, 2 * k)?, matrix(n, 2 * k)?, matrix(m, n)?);
    let desc = MatmulDesc::new(m, n, 2 * k, a, b, c)
        .with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans);
    let used = backend.explain_matmul(&desc)?;
    [a, b, c].iter().try_for_each(|matrix| backend.free(matrix.ptr))?;
    let name = kernel.split('+').next().unwrap_or_default();
    if used.starts_with(name) { Ok(()) } else { Err(format!("{used} is used").into()) }
}

fn right_around_its_tile(backend: &WebGpuBackend, kernel: &str) -> Result<(), Failed> {
    let [m, n, k] = tile(kernel)?;
    // The last piece is the shortest, or all that there is.
    let k = if kernel.contains("+k128") { 300 } else { k };
    let mut cases = matmul_around([m, n, k]);
    if m == 1 {
        // It is for one column too.
        cases.extend(matmul_around([n, m, k]));
    }
    if kernel.starts_with("skinny_cooperative/") || kernel.starts_with("unstaged/") {
        cases.extend(matmul_along_k([m, n, k]));
        cases.extend(matmul_along_k([n, m, k]));
    }
    if kernel.starts_with("unstaged/") {
        cases.extend(matmul_in_vectors([m, n, k]));
        cases.extend(matmul_in_vectors([n, m, k]));
    }
    // In pieces or of copies, it is the same kernel.
    if kernel.contains('+') {
        cases = cases.into_iter().step_by(3).collect();
    }
    forced::check(backend, &cases)
}

/// The m, n and k of a kernel's tile, from its name.
fn tile(kernel: &str) -> Result<[usize; 3], Failed> {
    let (family, sizes) = kernel.split_once('/').unwrap_or_default();
    let sizes: Option<Vec<usize>> =
        sizes.split('+').next().unwrap_or_default().split('x').map(|size| size.parse().ok()).collect();
    let sizes: Option<[usize; 3]> = sizes.and_then(|sizes| sizes.try_into().ok());
    let sizes = sizes.ok_or_else(|| format!("no tile in {kernel:?}"))?;
    Ok(match (family, sizes) {
        // The rows are those of the product, the columns those of all its lanes.
        ("skinny", [lanes, span, ahead]) => {
            [(512 / lanes).min(64 / ahead), 256 / lanes * span, 4 * lanes * ahead]
        }
        ("gemv_dot", [lanes, span, ahead]) => [1, 128 / lanes * span, 8 * lanes * ahead],
        ("gemv", [lanes, vectors, ahead]) => [1, 1024 / lanes * vectors * 4, lanes * ahead],
        _ => sizes,
    })
}

/// What was measured is used, can be written down and read again, and is for this device alone.
fn tuning_is_kept(backend: &WebGpuBackend) -> Result<(), Failed> {
    const SIDE: usize = 48;
    let values = numbers(5, SIDE * SIDE);
    let operands = [(); 3].map(|()| backend.alloc(size_of_val(values.as_slice())));
    let [a, b, c] = operands;
    let matrix = |ptr| Matrix::new(ptr, DType::F32, SIDE);
    let (a, b, c) = (matrix(a?), matrix(b?), matrix(c?));
    backend.copy_htod(c.ptr, bytemuck::cast_slice(&values))?;
    let desc = MatmulDesc::new(SIDE, SIDE, SIDE, a, b, c).with_scale(1.0, 1.0);
    backend.tune_matmul(&desc, Duration::from_millis(200))?;

    let mut after = vec![0.0f32; SIDE * SIDE];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut after), c.ptr)?;
    if after != values {
        return Err("C was written".into());
    }
    let text = backend.tuning()?;
    let chosen = backend.explain_matmul(&desc)?;
    let line = text.lines().nth(1).ok_or("nothing was found")?;
    let kernel = line.split(" = ").nth(1).ok_or("no kernel in the line")?;
    if !chosen.starts_with(kernel) {
        return Err(format!("{line:?} was found, but {chosen:?} is used").into());
    }
    let taken = [backend.set_tuning(&text)?, backend.set_tuning(&format!("another {text}"))?];
    if taken != [1, 0] {
        return Err(format!("{taken:?} lines were taken of this device's and another's tuning").into());
    }
    [a, b, c].iter().try_for_each(|matrix| backend.free(matrix.ptr))?;
    Ok(())
}

/// Kernels are compiled for kinds of products, not for their sizes.
fn many_shapes_compile_few_kernels(backend: &WebGpuBackend) -> Result<(), Failed> {
    const SHAPES: usize = 500;
    const MOST: usize = 40;
    let before = backend.compiled_kernels();
    let memory = backend.alloc(1 << 20)?;
    let result = backend.alloc(1 << 20)?;
    let sizes = numbers(6, 3 * SHAPES);
    for sizes in sizes.chunks(3) {
        let [m, n, k] = [0, 1, 2].map(|i| ((sizes[i] + 1.0) * 80.0) as usize + 1);
        let trans =
            |i: usize| if sizes[i] > 0.5 { BackendTranspose::Trans } else { BackendTranspose::NoTrans };
        let matrix = |ptr| Matrix::new(ptr, DType::F32, 161);
        let desc = MatmulDesc::new(m, n, k, matrix(memory), matrix(memory), matrix(result));
        backend.matmul(&desc.with_transpose(trans(0), trans(1)))?;
    }
    backend.synchronize()?;
    backend.free(memory)?;
    backend.free(result)?;
    let compiled = backend.compiled_kernels() - before;
    if compiled <= MOST { Ok(()) } else { Err(format!("{compiled} kernels were compiled").into()) }
}

/// An f32 product that may be made of parts on tensor cores is at most twice as far from the truth as one of f32 arithmetic,
/// as it is planned; made of parts in one piece, where additions truncate, it is closer than 2⁻²¹ of the magnitudes that are
/// summed.
fn emulation_is_close(backend: &WebGpuBackend) -> Result<(), Failed> {
    const SIDE: usize = 192;
    const DEPTH: usize = 2048;
    let a: Vec<f32> = numbers(1, SIDE * DEPTH);
    let b: Vec<f32> = numbers(2, DEPTH * SIDE);
    let (mut truth, mut magnitudes) = (vec![0.0f64; SIDE * SIDE], 0.0);
    for (i, row) in truth.chunks_mut(SIDE).enumerate() {
        for (k, b) in b.chunks(SIDE).enumerate() {
            let a = f64::from(a[i * DEPTH + k]);
            for (sum, &b) in row.iter_mut().zip(b) {
                *sum += a * f64::from(b);
                magnitudes += (a * f64::from(b)).abs();
            }
        }
    }
    let matrix = |columns| Matrix::new(0, DType::F32, columns);
    let desc = MatmulDesc::new(SIDE, SIDE, DEPTH, matrix(DEPTH), matrix(SIDE), matrix(SIDE));
    let product = |math| product(backend, &desc.with_math(math), &a, &b);
    let root_mean_square = |product: &[f32]| -> f64 {
        let squares = product.iter().zip(&truth).map(|(&got, &want)| (f64::from(got) - want).powi(2));
        (squares.sum::<f64>() / truth.len() as f64).sqrt()
    };
    let (plain, planned) = (product(MathMode::Standard)?, product(MathMode::EmulatedF32)?);
    // By itself, so small a product isn't made of parts on every device.
    backend.force_matmul(Some("cooperative/64x64x64"))?;
    let emulated = product(MathMode::EmulatedF32);
    backend.force_matmul(None)?;
    let emulated = emulated?;
    if emulated == plain {
        return Err("the product of parts has the bits of that of f32".into());
    }
    let [plain, planned, emulated] = [plain, planned, emulated].map(|product| root_mean_square(&product));
    if planned > 2.0 * plain {
        return Err(format!("{planned:e} is more than twice {plain:e}").into());
    }
    let bound = 2f64.powi(-21) * magnitudes / truth.len() as f64;
    println!("root mean square error: {plain:.3e} of f32, {emulated:.3e} emulated");
    if emulated <= bound { Ok(()) } else { Err(format!("{emulated:e} is more than {bound:e}").into()) }
}

/// Rows and columns of zeros, of numbers near the ends of f32's range, and with an infinity or a NaN, of operands stored in
/// both ways, in one piece and in several.
fn emulation_of_special_lines(backend: &WebGpuBackend) -> Result<(), Failed> {
    let (m, n, k) = (70, 72, 200);
    let mut a: Vec<f32> = numbers(7, m * k);
    let mut b: Vec<f32> = numbers(8, k * n);
    for l in 0..k {
        a[3 * k + l] = 0.0;
        a[7 * k + l] *= 2f32.powi(100);
        a[9 * k + l] *= 2f32.powi(-100);
        b[l * n + 4] = 0.0;
        b[l * n + 8] *= 2f32.powi(-100);
    }
    (a[5 * k + 11], b[17 * n + 6]) = (f32::INFINITY, f32::NAN);
    let transposed = |of: &[f32], rows: usize, columns: usize| -> Vec<f32> {
        (0..columns * rows).map(|at| of[at % rows * columns + at / rows]).collect()
    };
    let matrix = |columns| Matrix::new(0, DType::F32, columns);
    let plain = MatmulDesc::new(m, n, k, matrix(k), matrix(n), matrix(n)).with_math(MathMode::EmulatedF32);
    let mut turned = plain.with_transpose(BackendTranspose::Trans, BackendTranspose::Trans);
    (turned.a.ld, turned.b.ld) = (m, k);
    let (turned_a, turned_b) = (transposed(&a, m, k), transposed(&b, k, n));
    for kernel in ["cooperative/64x64x64", "cooperative/64x64x64+split3"] {
        for (desc, stored_a, stored_b) in [(&plain, &a, &b), (&turned, &turned_a, &turned_b)] {
            backend.force_matmul(Some(kernel))?;
            let product = product(backend, desc, stored_a, stored_b);
            backend.force_matmul(None)?;
            for (at, got) in product?.into_iter().enumerate() {
                let (i, j) = (at / n, at % n);
                let factors = (0..k).map(|l| [a[i * k + l], b[l * n + j]].map(f64::from));
                let (mut sum, mut magnitudes, mut largest) = (0.0, 0.0, [0.0f64; 2]);
                for [x, y] in factors {
                    (sum, magnitudes) = (sum + x * y, magnitudes + (x * y).abs());
                    largest = [largest[0].max(x.abs()), largest[1].max(y.abs())];
                }
                // As the mode's documentation states it, and what f32 can't tell from 0.
                let bound = (2f64.powi(-20) + k as f64 * 2f64.powi(-23)) * magnitudes
                    + k as f64 * 2f64.powi(-38) * largest[0] * largest[1]
                    + f64::from(f32::MIN_POSITIVE);
                let is_right =
                    if i == 5 || j == 6 { got.is_nan() } else { (f64::from(got) - sum).abs() <= bound };
                if !is_right {
                    return Err(format!("{kernel}: ({i}, {j}) is {got:e}, not {sum:e} ± {bound:e}").into());
                }
            }
        }
    }
    Ok(())
}

/// A kernel for few rows is asked to copy its operands, of which no row is aligned.
fn few_rows_copy_nothing(backend: &WebGpuBackend) -> Result<(), Failed> {
    let few_rows = WebGpuBackend::matmul_kernels().into_iter().filter(|name| {
        name.starts_with("skinny/") || name.starts_with("gemv/") || name.starts_with("gemv_dot/")
    });
    for name in few_rows {
        for (m, trans_b) in
            [(1, BackendTranspose::NoTrans), (1, BackendTranspose::Trans), (16, BackendTranspose::Trans)]
        {
            let (n, k) = (33, 1151);
            let (a, b) = (numbers(6, m * k), numbers(7, n * k));
            let matrix = |ld| Matrix::new(0, DType::F32, ld);
            let ldb = if trans_b.is_transposed() { k } else { n };
            let desc = MatmulDesc::new(m, n, k, matrix(k), matrix(ldb), matrix(n))
                .with_transpose(BackendTranspose::NoTrans, trans_b);
            backend.force_matmul(Some(&format!("{name}+packed")))?;
            let packed = product(backend, &desc, &a, &b);
            backend.force_matmul(Some(&name))?;
            let plain = product(backend, &desc, &a, &b);
            backend.force_matmul(None)?;
            if packed?.iter().zip(&plain?).any(|(packed, plain)| packed.to_bits() != plain.to_bits()) {
                return Err(format!("{name}+packed with {m} rows").into());
            }
        }
    }
    Ok(())
}

/// Numbers in [−1, 1) without a pattern.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

/// C of a packed f32 product.
fn product(backend: &WebGpuBackend, desc: &MatmulDesc, a: &[f32], b: &[f32]) -> BackendResult<Vec<f32>> {
    let mut desc = *desc;
    let mut c = vec![0.0f32; desc.m * desc.n];
    for (ptr, content) in [(&mut desc.a.ptr, a), (&mut desc.b.ptr, b), (&mut desc.c.ptr, &c)] {
        *ptr = backend.alloc(size_of_val(content))?;
        backend.copy_htod(*ptr, bytemuck::cast_slice(content))?;
    }
    backend.matmul(&desc)?;
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut c), desc.c.ptr)?;
    [desc.a, desc.b, desc.c].iter().try_for_each(|matrix| backend.free(matrix.ptr))?;
    Ok(c)
}

/// A product made twice has the same bits, of numbers whose sums depend on their order.
fn repeatable(backend: &WebGpuBackend) -> Result<(), Failed> {
    const SIZE: usize = 65;
    let (a, b) = (numbers(3, SIZE * SIZE), numbers(4, SIZE * SIZE));
    let matrix = Matrix::new(0, DType::F32, SIZE);
    let desc = MatmulDesc::new(SIZE, SIZE, SIZE, matrix, matrix, matrix);
    let bits = || -> BackendResult<Vec<u32>> {
        Ok(product(backend, &desc, &a, &b)?.into_iter().map(f32::to_bits).collect())
    };
    if bits()? == bits()? { Ok(()) } else { Err("two runs differ".into()) }
}
