//! Matrix products.

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{BackendTranspose, DType};

use crate::device::{Outcome, Tensor, common_shape};
use crate::node::Node;

pub(super) fn run(node: &Node<'_>) -> Outcome<Option<Vec<Tensor>>> {
    let output = match node.case.operator.as_str() {
        "MatMul" => product(node)?,
        "Gemm" => gemm(node)?,
        _ => return Ok(None),
    };
    Ok(Some(vec![output]))
}

/// NumPy's `matmul`: vectors are a row or a column, and what precedes the last two dimensions is broadcast.
fn product(node: &Node<'_>) -> Outcome<Tensor> {
    let (device, a, b) = (node.device, node.input(0)?, node.input(1)?);
    let a = if a.shape.len() == 1 { a.reshaped(&[1, a.shape[0]]) } else { a.clone() };
    let b = if b.shape.len() == 1 { b.reshaped(&[b.shape[0], 1]) } else { b.clone() };
    let (a_outer, a_matrix) = a.shape.split_at(a.shape.len() - 2);
    let (b_outer, b_matrix) = b.shape.split_at(b.shape.len() - 2);
    let (&[m, k], &[_, n]) = (a_matrix, b_matrix) else { return Err("no matrices".into()) };
    let outer = common_shape(a_outer, b_outer);
    let whole = |matrix: &[usize]| [outer.as_slice(), matrix].concat();
    let [a, b] = [device.expand(&a, &whole(a_matrix))?, device.expand(&b, &whole(b_matrix))?];
    let y = device.empty(DType::F32, &whole(&[m, n]))?;
    let matrix =
        |x: &Tensor, rows, columns| Matrix::new(x.ptr, x.dtype, columns).with_batch_stride(rows * columns);
    let desc = MatmulDesc::new(m, n, k, matrix(&a, m, k), matrix(&b, k, n), matrix(&y, m, n));
    device.backend.matmul(&desc.with_batch(outer.iter().product()))?;
    Ok(y.reshaped(node.output(0)?.1))
}

/// alpha · op(A) · op(B) + beta · C, with C broadcast.
fn gemm(node: &Node<'_>) -> Outcome<Tensor> {
    let (device, a, b) = (node.device, node.input(0)?, node.input(1)?);
    let trans = ["transA", "transB"].map(|name| match node.int(name, 0) {
        0 => BackendTranspose::NoTrans,
        _ => BackendTranspose::Trans,
    });
    let (_, shape) = node.output(0)?;
    let &[m, n] = shape else { return Err("no matrix".into()) };
    let k = a.shape[usize::from(!trans[0].is_transposed())];
    let (y, beta) = match node.optional(2) {
        Some(c) => (device.expand(c, shape)?, node.float("beta", 1.0)),
        None => (device.empty(DType::F32, shape)?, 0.0),
    };
    let matrix = |x: &Tensor| Matrix::new(x.ptr, x.dtype, x.shape[1]);
    let desc = MatmulDesc::new(m, n, k, matrix(a), matrix(b), matrix(&y))
        .with_transpose(trans[0], trans[1])
        .with_scale(node.float("alpha", 1.0), beta);
    device.backend.matmul(&desc)?;
    Ok(y)
}
