//! Matrix products.

use backend_api::desc::{Bias, BiasAxis, MatmulDesc, Matrix, QuantMatmulDesc, QuantMatrix};
use backend_api::{Activation, BackendTranspose, MathMode};

use super::call::Call;
use super::shape::broadcast;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("MatMul", Kinds::Float, matmul),
    Operator::new("Gemm", Kinds::Float, gemm),
    Operator::new("MatMulNBits", Kinds::Float, unpacked).of_microsoft().of_bytes().with_check(four_bits),
    Operator::new("QuantMatMul", Kinds::Float, quantized).of_own(),
    Operator::new("FusedMatMul", Kinds::Float, matmul).of_microsoft().with_check(no_batch_transposes),
];

fn no_batch_transposes(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.int("transBatchA", 0) == 0 && node.int("transBatchB", 0) == 0 {
        Ok(())
    } else {
        Err("transposed batches".to_owned())
    }
}

/// Constant weights of 4 bits in groups of consecutive columns.
fn four_bits(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.int("bits", 4) != 4 {
        return Err("other than 4 bits".to_owned());
    }
    let group = node.int("block_size", 0);
    if group < 16 || group & (group - 1) != 0 {
        return Err("the size of the groups".to_owned());
    }
    if node.input(4).is_some() {
        return Err("reordered columns".to_owned());
    }
    let is_constant = |i| node.input(i).is_none_or(|name| graph.unchanging.contains(name));
    if !(is_constant(1) && is_constant(2) && is_constant(3)) {
        return Err("weights that aren't constant".to_owned());
    }
    let is_bytes = |i| node.input(i).is_none() || graph.input_kind(node, i) == Some(Kind::Raw);
    let is_like = |i| node.input(i).is_none() || graph.input_kind(node, i) == graph.input_kind(node, 0);
    if is_bytes(1) && is_bytes(3) && is_like(2) && is_like(5) {
        Ok(())
    } else {
        Err("zero points or scales of another type".to_owned())
    }
}

/// A fusion packs its weights before it runs.
fn unpacked(_call: &Call<'_>) -> Result<Vec<Tensor>> {
    Err(Error::invalid("weights that weren't packed"))
}

/// A product with packed weights, which have a row for each column of the result.
fn quantized(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let (format, [n, k]) = crate::fuse::format(call.node)?;
    let mut shape = x.shape.clone();
    if shape.pop() != Some(k) {
        return Err(Error::invalid(format!("{:?} times a matrix of {k} rows", x.shape)));
    }
    let m = shape.iter().product();
    shape.push(n);
    let y = d.empty(x.kind, &shape)?;
    let matrix = |x: &Tensor, columns: usize| -> Result<Matrix> {
        Ok(Matrix::new(d.ptr(x)?, x.kind.dtype(), columns.max(1)))
    };
    let weights = QuantMatrix::new(d.ptr(call.input(1)?)?, format, n, k);
    let mut desc = QuantMatmulDesc::new(m, matrix(x, k)?, weights, matrix(&y, n)?);
    desc = desc.with_activation(activation(call)?);
    desc.bias = d.optional_sized(call.optional(2), n)?;
    call.backend.quant_matmul(&desc)?;
    Ok(vec![y])
}

/// What is done with a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epilogue<'a> {
    pub(super) alpha: f64,
    /// One number for each column.
    pub(super) bias: Option<&'a Tensor>,
    pub(super) activation: Activation,
}

/// The activation that a fusion has put into a node.
pub(super) fn activation(call: &Call<'_>) -> Result<Activation> {
    Ok(match call.node.text("activation") {
        "" => Activation::Identity,
        "Relu" => Activation::Relu,
        "Gelu" => Activation::Gelu,
        "GeluTanh" => Activation::GeluTanh,
        "Silu" => Activation::Silu,
        other => return Err(Error::invalid(format!("the activation {other:?}"))),
    })
}

/// The arithmetic that a session's precision has put into a node.
fn math(call: &Call<'_>) -> MathMode {
    if call.node.text("math") == MathMode::EmulatedF32.name() {
        MathMode::EmulatedF32
    } else {
        MathMode::Standard
    }
}

fn transpose(call: &Call<'_>, name: &str) -> BackendTranspose {
    if call.node.int(name, 0) == 0 { BackendTranspose::NoTrans } else { BackendTranspose::Trans }
}

/// NumPy's `matmul`, with the transpositions and the factor of ONNX Runtime's `FusedMatMul`; a third input is
/// a bias that a fusion has put there.
fn matmul(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let trans = ["transA", "transB"].map(|name| transpose(call, name));
    let epilogue = Epilogue {
        alpha: call.node.float("alpha", 1.0),
        bias: call.optional(2),
        activation: activation(call)?,
    };
    Ok(vec![product(call, call.input(0)?, call.input(1)?, trans, epilogue)?])
}

/// Vectors are a row or a column, and what precedes the last two dimensions is broadcast.
pub(super) fn product(
    call: &Call<'_>,
    a: &Tensor,
    b: &Tensor,
    trans: [BackendTranspose; 2],
    epilogue: Epilogue<'_>,
) -> Result<Tensor> {
    let d = call.device();
    let (a_vector, b_vector) = (a.rank() == 1, b.rank() == 1);
    let a = if a_vector { a.reshaped(vec![1, a.count()])? } else { a.clone() };
    let b = if b_vector { b.reshaped(vec![b.count(), 1])? } else { b.clone() };
    let ([a_outer @ .., a_rows, a_columns], [b_outer @ .., b_rows, b_columns]) =
        (a.shape.as_slice(), b.shape.as_slice())
    else {
        return Err(Error::invalid("a product of single numbers"));
    };
    let (&a_rows, &a_columns, &b_rows, &b_columns) = (a_rows, a_columns, b_rows, b_columns);
    let (m, k) = if trans[0].is_transposed() { (a_columns, a_rows) } else { (a_rows, a_columns) };
    let (b_k, n) = if trans[1].is_transposed() { (b_columns, b_rows) } else { (b_rows, b_columns) };
    if k != b_k {
        return Err(unequal_sums(&a, k, &b, b_k));
    }
    let outer = broadcast(a_outer, b_outer)?;
    let batch: usize = outer.iter().product();
    let mut shape = outer.clone();
    shape.extend([m, n]);
    let y = d.empty(a.kind, &shape)?;
    let one = |outer: &[usize]| outer.iter().all(|&extent| extent == 1);
    let matrix = |x: &Tensor, rows: usize, columns: usize, stride: usize| -> Result<Matrix> {
        let stride = if stride == 0 { 0 } else { rows * columns };
        Ok(Matrix::new(d.ptr(x)?, x.kind.dtype(), columns.max(1)).with_batch_stride(stride))
    };
    // One matrix B for all rows of A: the batch is rows, and the product a single one.
    let flat = one(b_outer) && !trans[0].is_transposed();
    let (rows, batch) = if flat { (batch * m, 1) } else { (m, batch) };
    let whole = |x: &Tensor, rows: usize, columns: usize| -> Result<Tensor> {
        d.expand(x, &[outer.as_slice(), &[rows, columns]].concat())
    };
    let (a, a_stride) = if flat || a_outer == outer {
        (a.clone(), usize::from(!flat))
    } else if one(a_outer) {
        (a.clone(), 0)
    } else {
        (whole(&a, a_rows, a_columns)?, 1)
    };
    let (b, b_stride) = if one(b_outer) {
        (b.clone(), 0)
    } else if b_outer == outer {
        (b.clone(), 1)
    } else {
        (whole(&b, b_rows, b_columns)?, 1)
    };
    let desc = MatmulDesc::new(
        rows,
        n,
        k,
        matrix(&a, a_rows, a_columns, a_stride)?,
        matrix(&b, b_rows, b_columns, b_stride)?,
        matrix(&y, m, n, usize::from(!flat))?,
    );
    let mut desc = desc
        .with_transpose(trans[0], trans[1])
        .with_batch(batch)
        .with_scale(epilogue.alpha, 0.0)
        .with_activation(epilogue.activation)
        .with_math(math(call));
    if let Some(bias) = epilogue.bias {
        desc = desc.with_bias(Bias { ptr: d.sized(bias, n)?, axis: BiasAxis::Column });
    }
    call.backend.matmul(&desc)?;
    if a_vector {
        shape.remove(shape.len() - 2);
    }
    if b_vector {
        shape.pop();
    }
    y.reshaped(shape)
}

fn unequal_sums(a: &Tensor, a_k: usize, b: &Tensor, b_k: usize) -> Error {
    let (a, b) = (&a.shape, &b.shape);
    Error::invalid(format!("{a:?} can't be multiplied by {b:?}: sums of {a_k} and of {b_k} products"))
}

/// `alpha · op(A) · op(B) + beta · C`, with C broadcast: a bias where it is a row, else what the product is
/// added to.
fn gemm(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, node) = (call.device(), call.node);
    let (a, b, c) = (call.input(0)?, call.input(1)?, call.optional(2));
    let trans = ["transA", "transB"].map(|name| transpose(call, name));
    let (&[a_rows, a_columns], &[b_rows, b_columns]) = (a.shape.as_slice(), b.shape.as_slice()) else {
        return Err(Error::invalid("a product of what are no matrices"));
    };
    let (alpha, beta) = (node.float("alpha", 1.0), node.float("beta", 1.0));
    let n = if trans[1].is_transposed() { b_rows } else { b_columns };
    let m = if trans[0].is_transposed() { a_columns } else { a_rows };
    let k = if trans[0].is_transposed() { a_rows } else { a_columns };
    let row = c.filter(|c| beta == 1.0 && c.count() == n && c.shape.last() == Some(&n));
    if row.is_some() || c.is_none() {
        let epilogue = Epilogue { alpha, bias: row, activation: activation(call)? };
        return Ok(vec![product(call, a, b, trans, epilogue)?]);
    }
    let b_k = if trans[1].is_transposed() { b_columns } else { b_rows };
    if k != b_k {
        return Err(unequal_sums(a, k, b, b_k));
    }
    let y = match c {
        // A copy, because the product is added in place.
        Some(c) => {
            let strides = super::device::expanded_strides(&c.shape, &c.strides(), &[m, n])?;
            d.strided(c, 0, &[m, n], &strides)?
        }
        None => d.empty(a.kind, &[m, n])?,
    };
    let matrix = |x: &Tensor, columns: usize| -> Result<Matrix> {
        Ok(Matrix::new(d.ptr(x)?, x.kind.dtype(), columns.max(1)))
    };
    let desc = MatmulDesc::new(m, n, k, matrix(a, a_columns)?, matrix(b, b_columns)?, matrix(&y, n)?)
        .with_transpose(trans[0], trans[1])
        .with_scale(alpha, beta)
        .with_activation(activation(call)?)
        .with_math(math(call));
    call.backend.matmul(&desc)?;
    Ok(vec![y])
}
