//! The shared inputs of the threads, and operations on them with known results.

use backend_api::desc::{
    BinaryDesc, CopyDesc, GatherDesc, IndexShape, MatmulDesc, Matrix, SoftmaxDesc, TensorDesc, UnaryDesc,
};
use backend_api::{
    Activation, BackendResult, BackendTranspose, BinaryOp, ComputeBackend, DType, ReduceOp, UnaryOp,
};

use super::read;
use crate::rng::Rng;

/// Rows and columns of the shared square matrices.
pub(super) const N: usize = 12;
pub(super) const ELEMENTS: usize = N * N;
pub(super) const BYTES: usize = ELEMENTS * size_of::<f32>();

type Call = Box<dyn Fn(&dyn ComputeBackend, u64) -> BackendResult<()> + Send + Sync>;

/// An operation on the shared inputs, from its output's handle.
pub(super) struct Job {
    pub(super) name: String,
    pub(super) call: Call,
    /// What the start of the output must hold.
    pub(super) expected: Vec<f32>,
}

/// Inputs that every thread reads through the same handles.
pub(super) struct Shared<'a> {
    pub(super) backend: &'a dyn ComputeBackend,
    pub(super) a: u64,
    pub(super) b: u64,
    indices: u64,
    lower_half: u64,
    unit_product: Vec<f32>,
    pub(super) jobs: Vec<Job>,
}

impl<'a> Shared<'a> {
    pub(super) fn new(backend: &'a dyn ComputeBackend) -> BackendResult<Self> {
        let mut rng = Rng::from_name("threads");
        let mut integers = || -> Vec<f32> { (0..ELEMENTS).map(|_| rng.below(9) as f32 - 4.0).collect() };
        let (a, b) = (integers(), integers());
        let rows: Vec<u32> = (0..N).map(|i| ((5 * i + 3) % N) as u32).collect();
        let upload = |bytes: &[u8]| -> BackendResult<u64> {
            let ptr = backend.alloc(bytes.len())?;
            backend.copy_htod(ptr, bytes)?;
            Ok(ptr)
        };
        let a_ptr = upload(bytemuck::cast_slice(&a))?;
        let mut shared = Self {
            backend,
            a: a_ptr,
            b: upload(bytemuck::cast_slice(&b))?,
            indices: upload(bytemuck::cast_slice(&rows))?,
            lower_half: backend.view(a_ptr, BYTES / 2, BYTES / 2)?,
            unit_product: product(&a, &b),
            jobs: Vec::new(),
        };
        shared.add_products();
        shared.add_elementwise(&a, &b);
        shared.add_moves(&a, &rows);
        shared.add_softmax()?;
        Ok(shared)
    }

    /// `factor · A · B`.
    pub(super) fn product(&self, factor: f32) -> Vec<f32> {
        self.unit_product.iter().map(|x| factor * x).collect()
    }

    pub(super) fn free(&self) -> BackendResult<()> {
        [self.a, self.b, self.indices, self.lower_half].into_iter().try_for_each(|ptr| self.backend.free(ptr))
    }

    fn add(
        &mut self,
        name: impl Into<String>,
        expected: Vec<f32>,
        call: impl Fn(&dyn ComputeBackend, u64) -> BackendResult<()> + Send + Sync + 'static,
    ) {
        self.jobs.push(Job { name: name.into(), call: Box::new(call), expected });
    }

    fn add_products(&mut self) {
        let (a, b, no) = (self.a, self.b, BackendTranspose::NoTrans);
        for factor in [-2.0, -1.0, 1.0, 2.0, 3.0] {
            let expected = self.product(factor as f32);
            self.add(format!("gemm by {factor}"), expected, move |backend, c| {
                backend.gemm(no, no, N, N, N, factor, a, N, b, N, 0.0, c, N)
            });
            let positive = self.product(factor as f32).iter().map(|x| x.max(0.0)).collect();
            self.add(format!("matmul by {factor}"), positive, move |backend, c| {
                let matrix = |ptr| Matrix::new(ptr, DType::F32, N);
                let desc = MatmulDesc::new(N, N, N, matrix(a), matrix(b), matrix(c));
                backend.matmul(&desc.with_scale(factor, 0.0).with_activation(Activation::Relu))
            });
        }
    }

    fn add_elementwise(&mut self, a: &[f32], b: &[f32]) {
        let (a_ptr, b_ptr, lower) = (self.a, self.b, self.lower_half);
        let map = |f: fn(f32) -> f32| a.iter().map(|&x| f(x)).collect();
        let unary: [(UnaryOp, Vec<f32>); 4] = [
            (UnaryOp::Neg, map(|x| -x)),
            (UnaryOp::Abs, map(f32::abs)),
            (UnaryOp::Relu, map(|x| x.max(0.0))),
            (UnaryOp::Square, map(|x| x * x)),
        ];
        for (op, expected) in unary {
            let half = expected[ELEMENTS / 2..].to_vec();
            self.add(op.name(), expected, move |backend, out| backend.unary(op, a_ptr, out, ELEMENTS));
            self.add(format!("{} of a view", op.name()), half, move |backend, out| {
                let shape = [ELEMENTS / 2];
                let tensor = |ptr| TensorDesc::packed(ptr, DType::F32, &shape);
                backend.unary_ext(&UnaryDesc::new(op, tensor(lower), tensor(out)))
            });
        }
        let zip = |f: fn(f32, f32) -> f32| a.iter().zip(b).map(|(&x, &y)| f(x, y)).collect();
        let binary: [(BinaryOp, Vec<f32>); 4] = [
            (BinaryOp::Add, zip(|x, y| x + y)),
            (BinaryOp::Sub, zip(|x, y| x - y)),
            (BinaryOp::Mul, zip(|x, y| x * y)),
            (BinaryOp::Max, zip(f32::max)),
        ];
        for (op, expected) in binary {
            self.add(op.name(), expected, move |backend, out| {
                backend.binary(op, a_ptr, b_ptr, out, ELEMENTS)
            });
        }
        let first_row: Vec<f32> = (0..ELEMENTS).map(|i| a[i] + b[i % N]).collect();
        self.add("a row added to all", first_row, move |backend, out| {
            let (full, row) = ([N, N], [N]);
            let tensor = |ptr| TensorDesc::packed(ptr, DType::F32, &full);
            let row = TensorDesc::packed(b_ptr, DType::F32, &row);
            backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, tensor(a_ptr), row, tensor(out)))
        });
    }

    fn add_moves(&mut self, a: &[f32], rows: &[u32]) {
        let (a_ptr, indices) = (self.a, self.indices);
        let row_sums = a.chunks(N).map(|row| row.iter().sum()).collect();
        self.add("sums of rows", row_sums, move |backend, out| {
            backend.reduce(ReduceOp::Sum, a_ptr, out, &[N, N], 1)
        });
        let column_maxima = (0..N).map(|j| (0..N).map(|i| a[i * N + j]).fold(f32::MIN, f32::max));
        self.add("maxima of columns", column_maxima.collect(), move |backend, out| {
            backend.reduce(ReduceOp::Max, a_ptr, out, &[N, N], 0)
        });
        let gathered = rows.iter().flat_map(|&row| a[row as usize * N..][..N].to_vec());
        self.add("gather", gathered.collect(), move |backend, out| {
            backend.gather(&GatherDesc::new(
                DType::F32,
                a_ptr,
                indices,
                out,
                IndexShape { rows: N, columns: N, count: N },
            ))
        });
        let transposed = (0..ELEMENTS).map(|i| a[i % N * N + i / N]);
        self.add("a transposing copy", transposed.collect(), move |backend, out| {
            let shape = [N, N];
            let src = TensorDesc::strided(a_ptr, DType::F32, &shape, &[1, N]);
            backend.copy(&CopyDesc::new(src, TensorDesc::packed(out, DType::F32, &shape)))
        });
        self.add("copy_dtod", a.to_vec(), move |backend, out| backend.copy_dtod(out, a_ptr, BYTES));
        self.add("fill", vec![7.0; ELEMENTS], |backend, out| backend.fill(out, DType::F32, ELEMENTS, 7.0));
    }

    fn add_softmax(&mut self) -> BackendResult<()> {
        let a = self.a;
        let call = move |backend: &dyn ComputeBackend, out| {
            backend.softmax(&SoftmaxDesc::rows(DType::F32, a, out, N, N))
        };
        let out = self.backend.alloc(BYTES)?;
        call(self.backend, out)?;
        let expected = read(self.backend, out, ELEMENTS)?;
        self.backend.free(out)?;
        self.add("softmax", expected, call);
        Ok(())
    }
}

fn product(a: &[f32], b: &[f32]) -> Vec<f32> {
    (0..ELEMENTS)
        .map(|at| {
            let (i, j) = (at / N, at % N);
            (0..N).map(|l| a[i * N + l] * b[l * N + j]).sum()
        })
        .collect()
}
