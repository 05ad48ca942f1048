//! Matrix products: f32 and f16 over sizes, the four transposes, odd sizes, a fused bias and activation,
//! batches, few tiles with long sums, few rows.
//!
//! `cargo bench --bench gemm`; `COMPUTE_BACKEND=webgpu:0` chooses a device. Each line comes twice: by the
//! host's clock, waiting included, and as `…/device` by the device's own where it has one. With `KERNELS`, a
//! list separated by commas of what `force_matmul` reads, each product is made by each of them where it can
//! be: `KERNELS=skinny/64x2x2,skinny/32x2x2+split4 cargo bench --bench gemm few_rows`.

use backend_api::desc::{Bias, BiasAxis, MatmulDesc, Matrix};
use backend_api::{Activation, BackendTranspose, DType, MathMode};
use benches::{Subject, criterion};
use criterion::{Criterion, Throughput};

/// One product to be timed.
#[derive(Clone, Copy)]
struct Product {
    dtype: DType,
    m: usize,
    n: usize,
    k: usize,
    batch: usize,
    trans: [BackendTranspose; 2],
    /// Elements between the rows of a matrix.
    padding: usize,
    /// Whether a bias and GELU follow.
    fused: bool,
    math: MathMode,
}

impl Product {
    const fn square(dtype: DType, size: usize) -> Self {
        let trans = [BackendTranspose::NoTrans; 2];
        Self {
            dtype,
            m: size,
            n: size,
            k: size,
            batch: 1,
            trans,
            padding: 0,
            fused: false,
            math: MathMode::Standard,
        }
    }

    fn flops(&self) -> u64 {
        2 * (self.m * self.n * self.k * self.batch) as u64
    }

    fn descriptor(&self, ptrs: [u64; 3]) -> MatmulDesc {
        let &Self { dtype, m, n, k, batch, trans, padding, fused, math } = self;
        let matrix = |ptr, rows, columns, trans: BackendTranspose| {
            let (rows, columns) = if trans.is_transposed() { (columns, rows) } else { (rows, columns) };
            let ld = columns + padding;
            Matrix::new(ptr, dtype, ld).with_batch_stride(rows * ld)
        };
        let [a, b, c] = ptrs;
        let no_trans = BackendTranspose::NoTrans;
        let desc = MatmulDesc::new(
            m,
            n,
            k,
            matrix(a, m, k, trans[0]),
            matrix(b, k, n, trans[1]),
            matrix(c, m, n, no_trans),
        )
        .with_transpose(trans[0], trans[1])
        .with_batch(batch)
        .with_math(math);
        if !fused {
            return desc;
        }
        desc.with_bias(Bias { ptr: b, axis: BiasAxis::Column }).with_activation(Activation::Gelu)
    }
}

/// Times one product with the kernels that are asked for.
fn measure(criterion: &mut Criterion, subject: &Subject, group: &str, name: &str, product: Product) {
    let (Ok(kernels), Some(backend)) = (std::env::var("KERNELS"), subject.webgpu()) else {
        return measure_one(criterion, subject, group, name, product);
    };
    for kernel in kernels.split(',') {
        backend.force_matmul(Some(kernel)).expect("there is such a kernel");
        measure_one(criterion, subject, group, &format!("{name}/{kernel}"), product);
    }
    backend.force_matmul(None).expect("no kernel needs to be there");
}

/// Times one product; the throughput of a matrix is operations, of a vector bytes.
fn measure_one(criterion: &mut Criterion, subject: &Subject, group: &str, name: &str, product: Product) {
    if !subject.supports(product.dtype) {
        eprintln!("{group}/{name}: {} is not supported by {}", product.dtype, subject.device().name);
        return;
    }
    let &Product { dtype, m, n, k, batch, .. } = &product;
    let padded = |rows: usize, columns: usize| (rows * columns + rows.max(columns) * product.padding) * batch;
    let ptrs = [padded(m, k), padded(k, n), padded(m, n)].map(|elements| subject.operand(dtype, elements));
    let desc = product.descriptor(ptrs);
    let throughput = if m.min(n) <= 16 {
        Throughput::Bytes(((m * k + k * n + m * n) * batch * dtype.size()) as u64)
    } else {
        Throughput::Elements(product.flops())
    };
    let group = format!("{group}/{dtype}");
    subject.measure(criterion, &group, name, throughput, |backend| backend.matmul(&desc));
    subject.free(&ptrs);
}

/// The largest square product that takes less than a third of a second, by the speed of a small one.
fn largest_size(subject: &Subject) -> usize {
    let probe = Product::square(DType::F32, 128);
    let ptrs = [0; 3].map(|_| subject.operand(DType::F32, 128 * 128));
    let desc = probe.descriptor(ptrs);
    subject.wall(1, |backend| backend.matmul(&desc));
    let seconds = subject.wall(5, |backend| backend.matmul(&desc)).as_secs_f64() / 5.0;
    subject.free(&ptrs);
    let flops = probe.flops() as f64 / seconds / 3.0;
    // A small product keeps a large device mostly idle.
    let sustained = if subject.device().kind.rank() < 4 { flops * 200.0 } else { flops };
    ((sustained / 2.0).cbrt() as usize).clamp(128, 8192)
}

fn main() {
    let subject = Subject::open();
    let mut criterion = criterion(2);
    let largest = largest_size(&subject);
    let float = [DType::F32, DType::F16];

    for dtype in float {
        for size in [128, 256, 512, 1024, 2048, 4096, 8192].into_iter().filter(|&size| size <= largest) {
            measure(&mut criterion, &subject, "gemm", &size.to_string(), Product::square(dtype, size));
        }
    }
    let size = largest.min(4096);
    for dtype in float {
        for (name, trans) in transposes() {
            let product = Product { trans, ..Product::square(dtype, size) };
            measure(&mut criterion, &subject, "gemm_transposed", &format!("{name}/{size}"), product);
        }
        for size in [size - 1, size + 1] {
            measure(&mut criterion, &subject, "gemm_odd", &size.to_string(), Product::square(dtype, size));
        }
        let padded = Product { padding: 8, ..Product::square(dtype, size) };
        measure(&mut criterion, &subject, "gemm_odd", &format!("{size}/ld+8"), padded);
        let fused = Product { fused: true, ..Product::square(dtype, size) };
        measure(&mut criterion, &subject, "gemm_bias_gelu", &size.to_string(), fused);
        let side = largest.min(512);
        let batched = Product { batch: if largest > 1024 { 64 } else { 4 }, ..Product::square(dtype, side) };
        measure(&mut criterion, &subject, "batched_gemm", &format!("{}x{side}", batched.batch), batched);
        let long = Product { m: 128, n: 128, k: (largest * 7 / 2).min(14336), ..Product::square(dtype, 0) };
        measure(&mut criterion, &subject, "few_tiles", &format!("128x128x{}", long.k), long);
    }
    let emulated = Product { math: MathMode::EmulatedF32, ..Product::square(DType::F32, size) };
    measure(&mut criterion, &subject, "gemm_emulated", &size.to_string(), emulated);
    rows(&mut criterion, &subject, largest.min(4096));
    criterion.final_summary();
}

/// Few rows times a large matrix, stored either way, and a large matrix times few columns.
fn rows(criterion: &mut Criterion, subject: &Subject, side: usize) {
    let wide = side * 7 / 2;
    for dtype in [DType::F32, DType::F16] {
        for (name, trans_b) in [("nn", BackendTranspose::NoTrans), ("nt", BackendTranspose::Trans)] {
            for (rows, k, n) in
                [(1, side, side), (1, side, wide), (1, wide, side), (8, side, side), (16, side, side)]
            {
                let trans = [BackendTranspose::NoTrans, trans_b];
                let product = Product { m: rows, n, k, trans, ..Product::square(dtype, 0) };
                measure(criterion, subject, "few_rows", &format!("{name}/{rows}x{k}x{n}"), product);
            }
        }
        for columns in [1, 8] {
            let product = Product { m: side, n: columns, k: side, ..Product::square(dtype, 0) };
            measure(criterion, subject, "few_columns", &format!("{side}x{side}x{columns}"), product);
        }
    }
}

/// The four ways to read the factors, named as BLAS does.
fn transposes() -> [(&'static str, [BackendTranspose; 2]); 4] {
    use BackendTranspose::{NoTrans, Trans};
    [("nn", [NoTrans, NoTrans]), ("nt", [NoTrans, Trans]), ("tn", [Trans, NoTrans]), ("tt", [Trans, Trans])]
}
