//! What moves memory: element-wise functions, casts, copies, transposes and broadcasts.
//!
//! `cargo bench --bench elementwise`; `COMPUTE_BACKEND=webgpu:0` chooses a device. Throughput counts each
//! byte read and written once. Each line comes twice: by the host's clock, waiting included, and as
//! `…/device` by the device's own where it has one.

use backend_api::desc::{BinaryDesc, CopyDesc, PermuteDesc, TensorDesc, UnaryDesc};
use backend_api::{BackendResult, BinaryOp, ComputeBackend, DType, DeviceKind, UnaryOp};
use benches::{Subject, criterion};
use criterion::{Criterion, Throughput};

type Call<'a> = &'a dyn Fn(&dyn ComputeBackend) -> BackendResult<()>;

/// Times one call that moves `bytes`.
fn measure(
    criterion: &mut Criterion,
    subject: &Subject,
    group: &str,
    name: &str,
    bytes: usize,
    call: Call<'_>,
) {
    subject.measure(criterion, group, name, Throughput::Bytes(bytes as u64), call);
}

/// The largest tensor: 64 Mi elements where there is a GPU.
fn elements(subject: &Subject) -> usize {
    match subject.device().kind {
        DeviceKind::Cpu | DeviceKind::SoftwareAdapter => 1 << 16,
        _ => 1 << 26,
    }
}

fn functions(criterion: &mut Criterion, subject: &Subject, dtype: DType) {
    let n = elements(subject);
    let (shape, bytes) = ([n], n * dtype.size());
    let [x, z, y] = [0; 3].map(|_| subject.operand(dtype, n));
    let tensor = |ptr| TensorDesc::packed(ptr, dtype, &shape);
    let name = n.to_string();
    for op in [UnaryOp::Relu, UnaryOp::Gelu, UnaryOp::GeluTanh, UnaryOp::Silu, UnaryOp::Tanh, UnaryOp::Exp] {
        let desc = UnaryDesc::new(op, tensor(x), tensor(y));
        let group = format!("{}/{dtype}", op.name());
        measure(criterion, subject, &group, &name, 2 * bytes, &|b| b.unary_ext(&desc));
    }
    for op in [BinaryOp::Add, BinaryOp::Swiglu] {
        let desc = BinaryDesc::new(op, tensor(x), tensor(z), tensor(y));
        let group = format!("{}/{dtype}", op.name());
        measure(criterion, subject, &group, &name, 3 * bytes, &|b| b.binary_ext(&desc));
    }
    let copy = CopyDesc::new(tensor(x), tensor(y));
    measure(criterion, subject, &format!("copy/{dtype}"), &name, 2 * bytes, &|b| b.copy(&copy));

    // Elements that don't start where vectors do.
    let odd = [n - 1];
    let view = subject.backend().view(x, dtype.size(), bytes - dtype.size()).expect("a view");
    let unaligned = CopyDesc::new(TensorDesc::packed(view, dtype, &odd), TensorDesc::packed(y, dtype, &odd));
    let group = format!("copy_unaligned/{dtype}");
    measure(criterion, subject, &group, &name, 2 * bytes, &|b| b.copy(&unaligned));

    // 64×1024×1024 with the last two dimensions exchanged, and a row added to each row.
    let side = if n == 1 << 26 { 1024 } else { 64 };
    let cube = [n / side / side, side, side];
    let cube_of = |ptr| TensorDesc::packed(ptr, dtype, &cube);
    let permute = PermuteDesc::new(cube_of(x), cube_of(y), &[0, 2, 1]);
    let name = cube.map(|extent| extent.to_string()).join("x");
    let group = format!("permute_021/{dtype}");
    measure(criterion, subject, &group, &name, 2 * bytes, &|b| b.permute(&permute));
    let row_shape = [side];
    let row =
        BinaryDesc::new(BinaryOp::Add, cube_of(x), TensorDesc::packed(z, dtype, &row_shape), cube_of(y));
    measure(criterion, subject, &format!("add_row/{dtype}"), &name, 2 * bytes, &|b| b.binary_ext(&row));
    subject.free(&[view, x, z, y]);
}

fn casts(criterion: &mut Criterion, subject: &Subject) {
    let n = elements(subject);
    let shape = [n];
    let tensor = |ptr, dtype| TensorDesc::packed(ptr, dtype, &shape);
    for [from, to] in [[DType::F32, DType::F16], [DType::F16, DType::F32], [DType::F32, DType::I32]] {
        if [from, to].into_iter().all(|dtype| subject.supports(dtype)) {
            let ptrs = [subject.operand(from, n), subject.operand(to, n)];
            let desc = CopyDesc::new(tensor(ptrs[0], from), tensor(ptrs[1], to));
            let bytes = n * (from.size() + to.size());
            let group = format!("cast/{from}_to_{to}");
            measure(criterion, subject, &group, &n.to_string(), bytes, &|b| b.copy(&desc));
            subject.free(&ptrs);
        }
    }
}

fn main() {
    let subject = Subject::open();
    let mut criterion = criterion(1);
    for dtype in [DType::F32, DType::F16] {
        if subject.supports(dtype) {
            functions(&mut criterion, &subject, dtype);
        } else {
            eprintln!("{dtype} is not supported by {}", subject.device().name);
        }
    }
    casts(&mut criterion, &subject);
    criterion.final_summary();
}
