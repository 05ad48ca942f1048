//! Linear layers: products of rows with one matrix or with several.

use backend_api::desc::{BinaryDesc, Matrix, QuantMatmulDesc, TensorDesc};
use backend_api::owned::Buffer;
use backend_api::{BackendResult, ComputeBackend, DType, Gate};

use crate::Result;
use crate::layer::{Pass, input_of_block};
use crate::precision::RESIDUAL;
use crate::weights::{Loader, NeighbouringPairs, Storage, Weight};

/// Elements of a row that products on tensor cores normalise themselves.
const MOST_NORMALISED: usize = 4096;

/// What a product does to the numbers at its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Into {
    /// The product replaces the numbers.
    Assign,
    /// The product is added to the numbers.
    Add,
}

/// `y = s · (x · Wᵀ + b)` for each row of x, of one matrix or of several that read the same rows: those of one
/// format are stacked into one product, whose results lie side by side either way.
#[derive(Debug)]
pub(crate) struct Linear {
    parts: Vec<Part>,
}

/// What results of a product are like.
#[derive(Clone, Copy, Debug)]
struct Results {
    /// Their type, which biases have too.
    dtype: DType,
    /// Factor of the product and its bias.
    scale: f64,
    /// In which order queries and keys come, if not in the file's.
    order: Option<NeighbouringPairs>,
}

#[derive(Debug)]
struct Part {
    weight: Weight,
    bias: Option<Buffer>,
    /// The first column of the results.
    column: usize,
}

impl Linear {
    /// Matrices by name, without `.weight`, and rows.
    pub(crate) fn load(loader: &mut Loader<'_>, parts: &[(String, usize)], inputs: usize) -> Result<Self> {
        let dtype = loader.dtype();
        Self::into_type(loader, parts, inputs, dtype)
    }

    /// [`load`](Self::load) for results of a type, which biases have too.
    pub(crate) fn into_type(
        loader: &mut Loader<'_>,
        parts: &[(String, usize)],
        inputs: usize,
        dtype: DType,
    ) -> Result<Self> {
        Self::of(loader, parts, inputs, Results { dtype, scale: 1.0, order: None })
    }

    /// [`load`](Self::load) with the results of queries and keys in another order than the file's.
    pub(crate) fn with_neighbouring_pairs(
        loader: &mut Loader<'_>,
        parts: &[(String, usize)],
        inputs: usize,
        order: Option<NeighbouringPairs>,
    ) -> Result<Self> {
        let dtype = loader.dtype();
        Self::of(loader, parts, inputs, Results { dtype, scale: 1.0, order })
    }

    fn of(
        loader: &mut Loader<'_>,
        parts: &[(String, usize)],
        inputs: usize,
        Results { dtype, scale, order }: Results,
    ) -> Result<Self> {
        let named = |suffix: &str, parts: &[(String, usize)]| -> Vec<(String, usize)> {
            parts.iter().map(|(name, rows)| (format!("{name}.{suffix}"), *rows)).collect()
        };
        let weights = named("weight", parts);
        let mut kinds = Vec::new();
        for (name, _) in &weights {
            kinds.push((loader.kind(name)?, name));
        }
        let (mut loaded, mut column, mut first) = (Vec::new(), 0, 0);
        for run in kinds.chunk_by(|(a, _), (b, _)| a == b) {
            let range = first..first + run.len();
            let order = order.map(|order| (order, column));
            let mut weight = loader.stacked_matrices(&weights[range.clone()], inputs, order)?;
            weight.scale = scale;
            let rows = weight.rows();
            let biases = named("bias", &parts[range.clone()]);
            let bias = loader.stacked_vectors(&biases, (dtype, scale), order)?;
            loaded.push(Part { weight, bias, column });
            (column, first) = (column + rows, range.end);
        }
        Ok(Self { parts: loaded })
    }

    /// One matrix, by name without `.weight`, whose results, times a factor, belong to the residual stream.
    pub(crate) fn into_residual(
        loader: &mut Loader<'_>,
        name: &str,
        outputs: usize,
        inputs: usize,
        scale: f64,
    ) -> Result<Self> {
        let results = Results { dtype: RESIDUAL, scale, order: None };
        Self::of(loader, &[(name.to_owned(), outputs)], inputs, results)
    }

    /// The weights of the products.
    pub(crate) fn weights_mut(&mut self) -> impl Iterator<Item = &mut Weight> {
        self.parts.iter_mut().map(|part| &mut part.weight)
    }

    pub(crate) fn forward(
        &self,
        backend: &dyn ComputeBackend,
        rows: usize,
        x: Matrix,
        y: Matrix,
        into: Into,
    ) -> BackendResult<()> {
        // Queries and keys last, which are rotated next.
        for part in self.parts.iter().rev() {
            part.weight.product(
                backend,
                rows,
                x,
                y.with_offset(y.offset + part.column),
                part.bias.as_ref(),
                into,
            )?;
        }
        Ok(())
    }

    /// Whether it is one product with quantised weights, which normalises its rows and opens gates itself.
    pub(crate) fn is_one_quantised(&self) -> bool {
        matches!(self.parts.as_slice(), [part] if matches!(part.weight.storage, Storage::Quant(_)))
    }

    /// `y = rms_norm(x) · Wᵀ + b` of the pass's `x`, or without a norm `y = x · Wᵀ + b`.
    pub(crate) fn forward_normed(
        &self,
        pass: &Pass<'_>,
        norm: Option<&Buffer>,
        y: Matrix,
    ) -> BackendResult<()> {
        let (a, hidden) = (pass.activations, pass.config.hidden);
        // Tensor cores normalise such a row in less time than an operation takes. Elsewhere each product has an operation
        // for it.
        let is_cheap = a.rows == 1 && a.dtype == DType::F16 && hidden <= MOST_NORMALISED;
        if let Some(norm) = norm.filter(|_| self.parts.len() == 1 || is_cheap) {
            // Queries and keys last, which are rotated next.
            let products: Option<Vec<_>> =
                self.parts.iter().rev().map(|part| part.normed(pass, norm, y)).collect();
            if let Some(products) = products {
                return products.iter().try_for_each(|desc| pass.backend.quant_matmul(desc));
            }
        }
        let x = input_of_block(pass, norm)?;
        self.forward(pass.backend, a.rows, x, y, Into::Assign)
    }

    /// The pass's `inner`, packed rows of `inner` numbers: a function of the first half of `rms_norm(x) · Wᵀ + b`, or without a
    /// norm of `x · Wᵀ + b`, times the second.
    pub(crate) fn forward_gated(
        &self,
        pass: &Pass<'_>,
        norm: Option<&Buffer>,
        gate: Gate,
        inner: usize,
    ) -> BackendResult<()> {
        let a = pass.activations;
        if let [part] = self.parts.as_slice() {
            let y = Matrix::new(a.inner.ptr(), a.dtype, inner);
            let desc = match (norm.and_then(|norm| part.normed(pass, norm, y)), part.weight.storage) {
                (None, Storage::Quant(format)) => {
                    let x = input_of_block(pass, norm)?;
                    Some(part.weight.quantised(format, a.rows, x, y, part.bias.as_ref()))
                }
                (desc, _) => desc,
            };
            if let Some(desc) = desc {
                return pass.backend.quant_matmul(&desc.with_gate(gate));
            }
        }
        // Activations for such a product have it.
        let Some(gate_up) = &a.gate_up else { return Ok(()) };
        self.forward_normed(pass, norm, Matrix::new(gate_up.ptr(), a.dtype, 2 * inner))?;
        let (shape, strides) = ([a.rows, inner], [2 * inner, 1]);
        let half = |column| TensorDesc::strided(gate_up.ptr(), a.dtype, &shape, &strides).with_offset(column);
        let gated = TensorDesc::packed(a.inner.ptr(), a.dtype, &shape);
        pass.backend.binary_ext(&BinaryDesc::new(gate.binary(), half(0), half(inner), gated))
    }
}

impl Part {
    /// The product with the pass's `x`, normalised; `None` as for [`Weight::normed`].
    fn normed(&self, pass: &Pass<'_>, norm: &Buffer, y: Matrix) -> Option<QuantMatmulDesc> {
        let a = pass.activations;
        self.weight.normed(
            pass,
            a.rows,
            &a.x,
            norm,
            y.with_offset(y.offset + self.column),
            self.bias.as_ref(),
        )
    }
}
