//! Products of queries, keys and values whose graph rotates them and appends them to a cache in one launch: each kernel that can,
//! on every adapter, against products and rotations in f64.
//!
//! Operands are integers of which products are exact, so that only the rotation rounds.

mod forced;
#[path = "fused_launches/run.rs"]
mod run;

use std::process::ExitCode;
use std::sync::Arc;

use backend_api::desc::{
    Matrix, QkNorm, QuantMatmulDesc, QuantMatrix, RmsNorm, RopeAppendDesc, RopeAppendShape, RopeStyle,
    RopeTables,
};
use backend_api::quant::{QuantFormat, QuantLayout, dequantize};
use backend_api::support::numbers;
use backend_api::{Activation, BackendResult, ComputeBackend, DType};
use backend_webgpu::WebGpuBackend;
use conformance::Rng;
use forced::Device;
use half::f16;
use libtest_mimic::{Failed, Trial};
use run::run;

/// Calls of each kernel.
const CALLS: usize = 40;

/// Storage buffers of the launch that makes both, with a norm one more, with norms of heads three.
const BUFFERS: u32 = 12;

fn main() -> ExitCode {
    forced::run(|device| {
        let mut kernels = vec!["decode", "decode_subgroup"];
        kernels.extend(forced::has_tensor_cores(&device.backend).then_some("skinny_cooperative"));
        let random =
            kernels.into_iter().map(|kernel| device.trial(kernel, move |backend| random(backend, kernel)));
        random.chain([apart(device)]).collect()
    })
}

/// A product with a rotation and a cache behind it.
#[derive(Clone, Copy, Debug)]
struct Call {
    format: QuantFormat,
    a: DType,
    c: DType,
    kv: DType,
    rows: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    rotary_dim: usize,
    k: usize,
    /// Elements behind each row of A, C and the cache.
    padding: usize,
    alpha: f64,
    has_bias: bool,
    has_norm: bool,
    /// Whether normalised rows of f32 are rounded to f16.
    narrows: bool,
    /// What is added to the mean squares of heads that are normalised.
    head_eps: Option<f64>,
    style: RopeStyle,
    cache_rows: usize,
    max_position: usize,
    /// Values are a product of their own, before that of queries and keys.
    values_before: bool,
}

impl Call {
    fn random(rng: &mut Rng, kernel: &str) -> Self {
        let on_tensor_cores = kernel == "skinny_cooperative";
        let head_dim = rng.pick(&[2, 4, 10, 16, 24, 32, 64]);
        let kv_heads = 1 + rng.below(2);
        let head_eps = rng.one_in(2).then(|| rng.pick(&[0.0, 0.0, 300.0]));
        // Heads of several rows are normalised by a launch of their own.
        let rows = if head_eps.is_some() && !rng.one_in(4) { 1 } else { rng.pick(&[1, 1, 2, 3, 5, 9, 17]) };
        let k = match (on_tensor_cores, rows) {
            (false, _) => 32 * (1 + rng.below(5)),
            // Of one row, short ones and others have workgroups of their own.
            (true, 1) if rng.one_in(2) => rng.pick(&[2048, 2176]),
            (true, _) => 128 * (1 + rng.below(3)),
        };
        let has_halves = head_eps.is_some() && rng.one_in(2);
        // Elsewhere it is a launch of its own.
        let has_norm = rng.one_in(2);
        let a = if on_tensor_cores && !has_norm { DType::F16 } else { rng.pick(&[DType::F32, DType::F16]) };
        let format = rng.pick(&[
            QuantFormat::Q8_0,
            QuantFormat::Q4_0,
            QuantFormat::U4 { group: 32, zero_points: false },
            QuantFormat::U4 { group: 32, zero_points: true },
        ]);
        // Sums of weights up to 15 may be odd whole numbers above 2048.
        let is_exact = format.zero_point().is_some();
        let mut result = || if is_exact { rng.pick(&[DType::F32, DType::F16]) } else { DType::F32 };
        let (c, kv) = (result(), result());
        Self {
            format,
            a,
            c,
            kv,
            rows,
            heads: kv_heads * (1 + rng.below(3)),
            kv_heads,
            head_dim,
            rotary_dim: if rng.one_in(3) { 2 * rng.below(head_dim / 2 + 1) } else { head_dim },
            k,
            padding: 8 * rng.below(2),
            // Sums of long rows times two might be odd whole numbers above 2048, which f16 doesn't have.
            alpha: if k > 1024 { 1.0 } else { rng.pick(&[1.0, -2.0]) },
            has_bias: rng.one_in(2),
            has_norm,
            narrows: has_norm && a == DType::F32 && (on_tensor_cores || rng.one_in(2)),
            cache_rows: 1 + rng.below(6),
            max_position: 1 + rng.below(40),
            values_before: rng.one_in(3),
            // Rows that are normalised have none to add.
            head_eps,
            style: if has_halves { RopeStyle::Half } else { RopeStyle::Interleaved },
        }
    }

    const fn columns(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Whether a product of workgroups of so many columns can normalise its heads: the product's rows have one `eps` with them.
    fn may_normalise_heads(&self, backend: &WebGpuBackend, columns: usize, is_normed: bool) -> bool {
        let is_other = is_normed && self.head_eps.is_some_and(|eps| eps > 0.0);
        let is_whole = self.head_dim.is_multiple_of(columns);
        let is_possible =
            self.rows == 1 && is_whole && !is_other && forced::has_device_scope_barriers(backend);
        self.head_eps.is_none() || is_possible
    }

    const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Rows of the matrices of weights, that of queries first.
    fn parts(&self) -> Vec<usize> {
        let (all, values) = (self.columns(), self.kv_width());
        if self.values_before { vec![all - values, values] } else { vec![all] }
    }

    /// Elements from one row to the next of A, C and the cache.
    const fn lds(&self) -> [usize; 3] {
        [self.k + self.padding, self.columns() + self.padding, 2 * self.kv_width() + self.padding]
    }
}

/// Planes of quants of any bits with scales of 1.
fn random_planes(rng: &mut Rng, format: QuantFormat, [rows, columns]: [usize; 2]) -> BackendResult<Vec<u8>> {
    let layout = QuantLayout::new("test", format, rows, columns)?;
    let mut planes: Vec<u8> = (0..layout.bytes).map(|_| rng.below(256) as u8).collect();
    if format == QuantFormat::Q8_0 {
        planes.iter_mut().for_each(|byte| *byte = ((*byte % 9) as i8 - 4) as u8);
    }
    // Of f16.
    let scales = &mut planes[layout.scales.offset..][..rows * layout.scales.row_bytes];
    scales.iter_mut().enumerate().for_each(|(i, byte)| *byte = if i % 2 == 0 { 0 } else { 0x3c });
    Ok(planes)
}

/// A number and the error that it may have; `None` stays as it was.
type Expected = Option<(f64, f64)>;

/// The operands' numbers.
struct Operands {
    a: Vec<f64>,
    /// Of each matrix of weights.
    planes: Vec<Vec<u8>>,
    bias: Vec<f64>,
    norm: Vec<f64>,
    /// The weights of the norms of queries and of keys.
    head_norms: [Vec<f64>; 2],
    cosines: Vec<f64>,
    sines: Vec<f64>,
    positions: Vec<u32>,
    indices: Vec<u32>,
}

impl Operands {
    fn random(rng: &mut Rng, call: &Call) -> BackendResult<Self> {
        let planes = call.parts().into_iter().map(|rows| random_planes(rng, call.format, [rows, call.k]));
        let planes = planes.collect::<BackendResult<_>>()?;
        let mut whole = |n: usize| -> Vec<f64> { (0..n).map(|_| rng.below(5) as f64 - 2.0).collect() };
        let (bias, norm) = (whole(call.columns()), whole(call.k));
        let head_norms = [(); 2].map(|()| whole(call.head_dim));
        // With a norm, a row's mean square is 1.
        let a = whole(call.rows * call.lds()[0]).iter().map(|&x| if x < 0.0 { -1.0 } else { 1.0 }).collect();
        let pairs = call.max_position * call.rotary_dim / 2;
        let angles: Vec<f64> = (0..pairs).map(|i| 0.7 * i as f64 + 0.1).collect();
        let rounded = |x: f64| f64::from(x as f32);
        Ok(Self {
            a,
            planes,
            bias,
            norm,
            head_norms,
            cosines: angles.iter().map(|x| rounded(x.cos())).collect(),
            sines: angles.iter().map(|x| rounded(x.sin())).collect(),
            positions: (0..call.rows).map(|_| rng.below(call.max_position + 2) as u32).collect(),
            // Some are outside, some negative as i32, some equal.
            indices: (0..call.rows)
                .map(|_| (rng.below(call.cache_rows + 2) as u32).wrapping_sub(1))
                .collect(),
        })
    }

    /// What C and the cache become.
    fn expected(&self, call: &Call) -> BackendResult<[Vec<Expected>; 2]> {
        let (n, k, d) = (call.columns(), call.k, call.head_dim);
        let mut weights = Vec::new();
        for (rows, planes) in call.parts().into_iter().zip(&self.planes) {
            let mut part = vec![0f32; rows * k];
            dequantize(call.format, rows, k, planes, &mut part)?;
            weights.extend(part);
        }
        let [lda, ldc, ld_cache] = call.lds();
        let product = |i: usize, j: usize| {
            let term = |p: usize| {
                let norm = if call.has_norm { self.norm[p] } else { 1.0 };
                self.a[i * lda + p] * norm * f64::from(weights[j * k + p])
            };
            let bias = if call.has_bias { self.bias[j] } else { 0.0 };
            call.alpha * (0..k).map(term).sum::<f64>() + bias
        };
        let first_key = n - 2 * call.kv_width();
        let first_value = n - call.kv_width();
        let stored = |value: f64, error: f64, to: DType| {
            let rounded = if to == DType::F16 { 2f64.powi(-11) * value.abs() + 2f64.powi(-25) } else { 0.0 };
            (value, error + rounded)
        };
        // An element of a query or key, normalised if heads are, and its relative error: of a sum of `d` squares, a root and
        // products of f32.
        let factors = |i: usize, head: usize| {
            let Some(eps) = call.head_eps else { return (1.0, 0.0) };
            let squares: f64 = (0..d).map(|j| product(i, head * d + j).powi(2)).sum();
            (1.0 / (squares / d as f64 + eps).sqrt(), 2f64.powi(-24) * (d as f64 / 2.0 + 16.0))
        };
        let weight = |j: usize| {
            let [query, key] = &self.head_norms;
            let weights = if j < first_key { query } else { key };
            call.head_eps.map_or(1.0, |_| weights[j % d])
        };
        // Two products and a sum of f32.
        let rotated = |i: usize, j: usize, to: DType| {
            let (factor, relative) = factors(i, j / d);
            let normed = |j: usize| product(i, j) * factor * weight(j);
            if j % d >= call.rotary_dim {
                let rounded = if call.head_eps.is_some() { to } else { DType::F32 };
                return stored(normed(j), relative * normed(j).abs(), rounded);
            }
            let position = (self.positions[i] as usize).min(call.max_position - 1);
            let pairs = call.rotary_dim / 2;
            let (first, element) = (j - j % d, j % d);
            let (pair, is_first) = match call.style {
                RopeStyle::Half => (element % pairs, element < pairs),
                RopeStyle::Interleaved => (element / 2, element.is_multiple_of(2)),
            };
            let places = match call.style {
                RopeStyle::Half => [pair, pair + pairs],
                RopeStyle::Interleaved => [2 * pair, 2 * pair + 1],
            };
            let angle = position * pairs + pair;
            let (cos, sin) = (self.cosines[angle], self.sines[angle]);
            let [x, y] = places.map(|place| normed(first + place));
            let value = if is_first { x * cos - y * sin } else { x * sin + y * cos };
            stored(value, (2f64.powi(-22) + relative) * (x.abs() + y.abs()), to)
        };
        let mut c = vec![None; call.rows * ldc];
        let mut cache = vec![None; call.cache_rows * ld_cache];
        for i in 0..call.rows {
            for j in 0..n {
                c[i * ldc + j] =
                    Some(if j < first_key { rotated(i, j, call.c) } else { (product(i, j), 0.0) });
            }
            let row = self.indices[i] as usize;
            if row < call.cache_rows {
                for j in first_key..n {
                    let value = if j < first_value { rotated(i, j, call.kv) } else { (product(i, j), 0.0) };
                    cache[row * ld_cache + j - first_key] = Some(value);
                }
            }
        }
        Ok([c, cache])
    }
}

/// What a number of results has before they are made: a NaN that no kernel makes.
const BEFORE: [u8; 4] = [0xa5, 0x7e, 0xa5, 0x7f];

fn bytes(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    let of = |&x: &f64| match dtype {
        DType::F16 => f16::from_f64(x).to_le_bytes().to_vec(),
        _ => (x as f32).to_le_bytes().to_vec(),
    };
    numbers.iter().flat_map(of).collect()
}

/// Handles that are freed together.
struct Memory<'a> {
    backend: &'a WebGpuBackend,
    ptrs: Vec<u64>,
}

impl Memory<'_> {
    fn with(&mut self, bytes: &[u8]) -> BackendResult<u64> {
        let ptr = self.backend.alloc(bytes.len() + 4)?;
        self.ptrs.push(ptr);
        self.backend.copy_htod(ptr, bytes)?;
        Ok(ptr)
    }

    /// Memory behind so many other words.
    fn behind(&mut self, words: usize, bytes: &[u8]) -> BackendResult<u64> {
        let before = vec![0xff; words * size_of::<u32>()];
        let ptr = self.with(&[&before, bytes].concat())?;
        self.view(ptr, before.len(), bytes.len())
    }

    fn view(&mut self, ptr: u64, offset: usize, bytes: usize) -> BackendResult<u64> {
        let view = self.backend.view(ptr, offset, bytes.max(4))?;
        self.ptrs.push(view);
        Ok(view)
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        for &ptr in &self.ptrs {
            // Nothing else frees them.
            self.backend.free(ptr).expect("the handle is there");
        }
    }
}

/// What is different from a product with a rotation right behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    /// A warm-up compiles all kernels.
    WarmUp,
    /// A rotation that is refused comes before the right one.
    Refused,
    /// A call that has nothing to do comes between.
    NothingBetween,
    FillBetween,
    Half,
    Activation,
    Residual,
    /// The matrix that is rotated isn't C, and lies in another allocation.
    OtherMatrix,
    /// The matrix that is rotated isn't C, but lies in its allocation.
    OtherPlace,
    /// The cache lies in the allocation of C.
    CacheBesideC,
    /// The indices lie in the allocation of C.
    IndicesBesideC,
    /// The weights lie in the allocation of the cache.
    WeightsBesideCache,
    /// The weight of the norm of keys lies in the allocation of C.
    KeyNormBesideC,
}

/// The numbers of C and the cache after both calls, and the launches of a graph of them if they are captured.
fn results(
    backend: &WebGpuBackend,
    call: &Call,
    operands: &Operands,
    change: Change,
    captured: bool,
) -> BackendResult<([Vec<f64>; 2], usize)> {
    let mut memory = Memory { backend, ptrs: Vec::new() };
    let words = |words: &[u32]| -> Vec<u8> { bytemuck::cast_slice(words).to_vec() };
    let a = memory.with(&bytes(call.a, &operands.a))?;
    let norm = memory.with(&bytes(call.a, &operands.norm))?;
    let cos = memory.behind(3, &bytes(DType::F32, &operands.cosines))?;
    let sin = memory.behind(61, &bytes(DType::F32, &operands.sines))?;
    let positions = memory.behind(64, &words(&operands.positions))?;
    let [lda, ldc, ld_cache] = call.lds();
    let lens = [call.rows * ldc, call.cache_rows * ld_cache];
    let of_results = |dtype: DType, elements: usize| BEFORE[..dtype.size()].repeat(elements);
    let of_cache = of_results(call.kv, lens[1]);
    let of_indices = words(&operands.indices);
    // C with what may lie beside it, whole vectors of 16 bytes further on.
    let of_c = of_results(call.c, lens[0].next_multiple_of(64));
    let of_numbers = bytes(call.c, &vec![2.0; lens[0].next_multiple_of(64)]);
    let of_head_norms = operands.head_norms.each_ref().map(|norm| bytes(call.c, norm));
    let beside = match change {
        Change::CacheBesideC => of_cache.clone(),
        Change::IndicesBesideC => of_indices.clone(),
        Change::KeyNormBesideC => of_head_norms[1].clone(),
        _ => of_numbers.clone(),
    };
    let all = memory.with(&[of_c.as_slice(), &beside].concat())?;
    let c = memory.view(all, 0, of_c.len())?;
    let beside = memory.view(all, of_c.len(), beside.len())?;
    let mut weights = None;
    let cache = match change {
        Change::CacheBesideC => beside,
        // Planes begin behind it.
        Change::WeightsBesideCache => {
            let planes = operands.planes.first().map_or(&[][..], Vec::as_slice);
            let behind = of_cache.len().next_multiple_of(256);
            let gap = vec![0; behind - of_cache.len()];
            let all = memory.with(&[of_cache.as_slice(), &gap, planes].concat())?;
            weights = Some(memory.view(all, behind, planes.len())?);
            memory.view(all, 0, of_cache.len())?
        }
        _ => memory.with(&of_cache)?,
    };
    let indices = match change {
        Change::IndicesBesideC => beside,
        _ => memory.behind(1001, &of_indices)?,
    };
    let other = memory.with(&of_numbers)?;
    let query_norm = memory.behind(5, &of_head_norms[0])?;
    let key_norm = match change {
        Change::KeyNormBesideC => beside,
        _ => memory.behind(62, &of_head_norms[1])?,
    };

    let qkv = Matrix::new(c, call.c, ldc);
    let mut products = Vec::new();
    let mut column = 0;
    for (rows, planes) in call.parts().into_iter().zip(&operands.planes) {
        let planes = weights.map_or_else(|| memory.with(planes), Ok)?;
        let b = QuantMatrix::new(planes, call.format, rows, call.k);
        let (a, c) = (Matrix::new(a, call.a, lda), qkv.with_offset(column));
        let mut product = QuantMatmulDesc::new(call.rows, a, b, c).with_alpha(call.alpha);
        if call.has_bias {
            let bias = bytes(call.c, &operands.bias[column..column + rows]);
            product = product.with_bias(memory.with(&bias)?);
        }
        if call.has_norm {
            let norm = RmsNorm::new(norm, 0.0);
            product = product.with_norm(if call.narrows { norm.with_output_dtype(DType::F16) } else { norm });
        }
        product = match change {
            Change::Activation => product.with_activation(Activation::Relu),
            Change::Residual => product.with_residual(Matrix::new(other, call.c, ldc)),
            _ => product,
        };
        products.push(product);
        column += rows;
    }
    let &Call { rows, heads, kv_heads, head_dim, cache_rows, max_position, .. } = call;
    let shape = RopeAppendShape { rows, heads, kv_heads, head_dim, cache_rows };
    let tables = RopeTables { cos, sin, max_position };
    let cached = Matrix::new(cache, call.kv, ld_cache);
    let rotated = match change {
        Change::OtherMatrix => Matrix::new(other, call.c, ldc),
        Change::OtherPlace => Matrix::new(beside, call.c, ldc),
        _ => qkv,
    };
    let style = if change == Change::Half { RopeStyle::Half } else { call.style };
    let mut append = RopeAppendDesc::new(rotated, cached, tables, shape, positions, indices)
        .with_style(style)
        .with_rotary_dim(call.rotary_dim);
    append.norm = call.head_eps.map(|eps| QkNorm::new(query_norm, key_norm, eps));
    let step = |graph: &dyn ComputeBackend| -> BackendResult<()> {
        products.iter().rev().try_for_each(|product| graph.quant_matmul(product))?;
        match change {
            Change::FillBetween => graph.fill(norm, DType::U32, 1, 1.0)?,
            Change::NothingBetween => graph.fill(norm, DType::U32, 0, 1.0)?,
            Change::Refused => {
                let refused = append.with_rotary_dim(call.head_dim + 2);
                assert!(graph.rope_append(&refused).is_err(), "{refused:?}");
            }
            _ => {}
        }
        graph.rope_append(&append)
    };
    // A second replay finds what the first one has left.
    let launches = run(backend, captured.then_some(2), change == Change::WarmUp, &step)?;
    let read = |ptr, dtype: DType, elements: usize| {
        let mut found = vec![0u8; elements * dtype.size()];
        backend.copy_dtoh(&mut found, ptr)?;
        // What is untouched is told by its bits.
        let of = |bytes: &[u8]| {
            if *bytes == BEFORE[..dtype.size()] {
                f64::INFINITY
            } else {
                numbers(dtype, bytes).next().unwrap_or(f64::NAN)
            }
        };
        BackendResult::Ok(found.chunks_exact(dtype.size()).map(of).collect())
    };
    Ok(([read(c, call.c, lens[0])?, read(cache, call.kv, lens[1])?], launches))
}

fn compare(call: &Call, operands: &Operands, found: &[Vec<f64>; 2]) -> Result<(), Failed> {
    let expected = operands.expected(call)?;
    for (what, (found, expected)) in ["C", "the cache"].iter().zip(found.iter().zip(&expected)) {
        for (at, (&found, expected)) in found.iter().zip(expected).enumerate() {
            let is_right = match expected {
                None => found == f64::INFINITY,
                Some((value, bound)) => (found - value).abs() <= *bound,
            };
            if !is_right {
                return Err(format!("{call:?}: number {at} of {what} is {found}, not {expected:?}").into());
            }
        }
    }
    Ok(())
}

/// Whether the device binds what one launch of both needs, with a norm of rows and norms of heads.
fn has_room(backend: &WebGpuBackend, has_norm: bool, has_head_norms: bool) -> Result<bool, Failed> {
    let device = backend.device().ok_or("the backend is open")?;
    let buffers = BUFFERS + u32::from(has_norm) + if has_head_norms { 3 } else { 0 };
    Ok(device.limits().max_storage_buffers_per_shader_stage >= buffers)
}

fn random(backend: &WebGpuBackend, kernel: &'static str) -> Result<(), Failed> {
    backend.force_quant_matmul(Some(kernel))?;
    let outcome = (0..CALLS).try_for_each(|number| {
        let mut rng = Rng::from_name(&format!("{kernel} {number}"));
        let mut call = Call::random(&mut rng, kernel);
        if !backend.capabilities()?.f16 {
            (call.a, call.c, call.kv) = (DType::F32, DType::F32, DType::F32);
            call.narrows = false;
        }
        let operands = Operands::random(&mut rng, &call)?;
        let (found, launches) = results(backend, &call, &operands, Change::Nothing, true)?;
        compare(&call, &operands, &found)?;
        // Tensor cores normalise a few rows in the product's launch; elsewhere rows that lie apart are copied first.
        let in_product = !call.has_norm || kernel == "skinny_cooperative" && call.rows <= 4;
        let norms = if in_product { 0 } else { 1 + usize::from(call.padding > 0 && call.rows > 1) };
        let products = (norms + 1) * call.parts().len();
        let is_normed = call.has_norm && in_product;
        let columns = if kernel == "skinny_cooperative" { 16 } else { 8 };
        let is_one = call.may_normalise_heads(backend, columns, is_normed)
            && has_room(backend, is_normed, call.head_eps.is_some())?;
        let expected = products + 1 - usize::from(is_one);
        if launches == expected {
            Ok(())
        } else {
            Err(format!("{call:?}: {launches} launches, not {expected}").into())
        }
    });
    backend.force_quant_matmul(None)?;
    outcome
}

/// What has to stay two launches does, and what makes no difference doesn't.
fn apart(device: &Arc<Device>) -> Trial {
    device.trial("apart", |backend| {
        let mut rng = Rng::new(7);
        let call = Call {
            format: QuantFormat::Q4_0,
            a: DType::F32,
            c: DType::F32,
            kv: DType::F32,
            rows: 2,
            heads: 2,
            kv_heads: 1,
            head_dim: 8,
            rotary_dim: 8,
            k: 64,
            padding: 0,
            alpha: 1.0,
            has_bias: true,
            has_norm: false,
            narrows: false,
            cache_rows: 4,
            max_position: 16,
            values_before: false,
            head_eps: None,
            style: RopeStyle::Interleaved,
        };
        let normed = Call { head_eps: Some(0.5), rows: 1, ..call };
        let one = 2 - usize::from(has_room(backend, false, false)?);
        let has_room_for_norms = has_room(backend, false, true)?;
        let one_normed = 2 - usize::from(has_room_for_norms && forced::has_device_scope_barriers(backend));
        // A format of which nothing else has compiled kernels.
        let zeros = QuantFormat::U4 { group: 32, zero_points: true };
        let warm_up = Call { format: zeros, ..call };
        let together = [
            (call, Change::Nothing),
            (call, Change::NothingBetween),
            (call, Change::Refused),
            (warm_up, Change::WarmUp),
            (Call { rows: 32, ..call }, Change::Nothing),
            (normed, Change::Nothing),
            (Call { style: RopeStyle::Half, ..normed }, Change::Nothing),
            // As long as a workgroup has room for.
            (Call { heads: 1, head_dim: 1024, rotary_dim: 512, ..normed }, Change::Nothing),
        ];
        for (call, change) in together {
            let one = if call.head_eps.is_some() { one_normed } else { one };
            let operands = Operands::random(&mut rng, &call)?;
            let (found, launches) = results(backend, &call, &operands, change, true)?;
            compare(&call, &operands, &found)?;
            if launches != one {
                return Err(format!("{change:?}: {launches} launches, not {one}").into());
            }
        }
        let apart = [
            (call, Change::FillBetween),
            (call, Change::Half),
            (call, Change::Activation),
            (call, Change::Residual),
            (call, Change::OtherMatrix),
            (call, Change::OtherPlace),
            (call, Change::CacheBesideC),
            (call, Change::IndicesBesideC),
            (call, Change::WeightsBesideCache),
            // The second head's pairs begin at odd columns.
            (Call { head_dim: 9, ..call }, Change::Nothing),
            (Call { rows: 33, ..call }, Change::Nothing),
            (Call { rows: 2, ..normed }, Change::Nothing),
            (normed, Change::KeyNormBesideC),
            (normed, Change::WeightsBesideCache),
            // A workgroup has columns of two heads.
            (Call { head_dim: 4, rotary_dim: 4, ..normed }, Change::Nothing),
            (Call { head_dim: 12, rotary_dim: 12, ..normed }, Change::Nothing),
            // There is no room for a head.
            (Call { heads: 1, head_dim: 1032, ..normed }, Change::Nothing),
            // There are more heads than counters.
            (Call { heads: 1024, k: 32, ..normed }, Change::Nothing),
        ];
        for (call, change) in apart {
            let operands = Operands::random(&mut rng, &call)?;
            let (found, launches) = results(backend, &call, &operands, change, true)?;
            let (expected, _) = results(backend, &call, &operands, change, false)?;
            if launches < 2 || found != expected {
                return Err(format!(
                    "{call:?}, {change:?}: {launches} launches, {found:?}, not {expected:?}"
                )
                .into());
            }
        }
        Ok(())
    })
}
