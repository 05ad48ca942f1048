//! The second block of a layer: a gated network, or a mixture of such networks.

use backend_api::desc::{
    AffineDesc, BinaryDesc, ExpertMatmulDesc, Matrix, QuantMatrix, SoftmaxOver, TensorDesc, TopKDesc,
    UnaryDesc,
};
use backend_api::owned::Buffer;
use backend_api::{BackendResult, BinaryOp, ComputeBackend, DType, Gate, UnaryOp};

use crate::activations::ExpertActivations;
use crate::config::ExpertConfig;
use crate::layer::{Pass, input_of_block};
use crate::linear::{Into, Linear};
use crate::precision::RESIDUAL;
use crate::weights::{Loader, Weight};
use crate::{Architecture, Config, Result};

/// What a layer has after its attention.
#[derive(Debug)]
pub(crate) enum FeedForward {
    Dense(Network),
    Experts(Box<Experts>),
}

/// A gated network.
#[derive(Debug)]
pub(crate) struct Network {
    gate_up: Linear,
    pub(crate) down: Linear,
    /// Numbers inside.
    inner: usize,
}

/// Networks of which each token uses those that the router chooses.
#[derive(Debug)]
pub(crate) struct Experts {
    /// With the model's factor of what a block adds in that of the weights.
    config: ExpertConfig,
    router: Linear,
    /// Of each expert, the gate's rows and then those that it opens.
    gate_up: Stack,
    down: Stack,
    shared: Option<Shared>,
}

/// A network that all tokens use.
#[derive(Debug)]
struct Shared {
    network: Network,
    /// The row whose product with a token says how much of it, if that isn't all.
    gate: Option<Weight>,
}

/// The matrices of all experts, one after the other.
#[derive(Debug)]
pub(crate) struct Stack {
    /// With the rows of all.
    pub(crate) matrix: QuantMatrix,
    /// The memory of `matrix`, which ends with it.
    pub(crate) _planes: Buffer,
    /// Of f32, a number for each row.
    pub(crate) bias: Option<Buffer>,
}

impl FeedForward {
    /// The block of layer `index` of the file.
    pub(crate) fn load(loader: &mut Loader<'_>, config: &Config, index: usize) -> Result<Self> {
        let name = |part: &str| format!("blk.{index}.{part}");
        match config.experts {
            Some(experts)
                if config.architecture == Architecture::GptOss
                    || loader.has(&name("ffn_gate_inp.weight")) =>
            {
                let experts = Experts::load(loader, config, experts, index)?;
                Ok(Self::Experts(Box::new(experts)))
            }
            _ => Network::load(loader, config, config.intermediate, &name, "").map(Self::Dense),
        }
    }

    /// Whether gate and up projections are written before the gate is opened.
    pub(crate) fn has_gates_apart(&self) -> bool {
        self.network().is_some_and(|network| !network.gate_up.is_one_quantised())
    }

    /// The network that all tokens use.
    fn network(&self) -> Option<&Network> {
        match self {
            Self::Dense(network) => Some(network),
            Self::Experts(experts) => experts.shared.as_ref().map(|shared| &shared.network),
        }
    }

    /// The weights of all products whose arithmetic can be chosen.
    pub(crate) fn weights_mut(&mut self) -> impl Iterator<Item = &mut Weight> {
        let network = match self {
            Self::Dense(network) => Some(network),
            Self::Experts(experts) => experts.shared.as_mut().map(|shared| &mut shared.network),
        };
        network
            .into_iter()
            .flat_map(|Network { gate_up, down, .. }| gate_up.weights_mut().chain(down.weights_mut()))
    }
}

impl Network {
    /// Matrices whose names end in `suffix`.
    fn load(
        loader: &mut Loader<'_>,
        config: &Config,
        inner: usize,
        name: &dyn Fn(&str) -> String,
        suffix: &str,
    ) -> Result<Self> {
        let part = |part: &str| name(&format!("{part}{suffix}"));
        let (hidden, scale) = (config.hidden, config.residual_scale);
        let gate_up = if loader.has(&format!("{}.weight", part("ffn_gate"))) {
            vec![(part("ffn_gate"), inner), (part("ffn_up"), inner)]
        } else {
            vec![(part("ffn_up"), 2 * inner)]
        };
        let gate_up = Linear::load(loader, &gate_up, hidden)?;
        let down = Linear::into_residual(loader, &part("ffn_down"), hidden, inner, scale)?;
        Ok(Self { gate_up, down, inner })
    }

    /// What is inside for the pass's `x`, normalised if there is a norm: packed rows of `activations.inner`.
    pub(crate) fn forward_inner(
        &self,
        pass: &Pass<'_>,
        norm: Option<&Buffer>,
        gate: Gate,
    ) -> BackendResult<Matrix> {
        self.gate_up.forward_gated(pass, norm, gate, self.inner)?;
        Ok(Matrix::new(pass.activations.inner.ptr(), pass.activations.dtype, self.inner))
    }
}

impl Experts {
    fn load(loader: &mut Loader<'_>, model: &Config, config: ExpertConfig, index: usize) -> Result<Self> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let hidden = model.hidden;
        let ExpertConfig { count, intermediate: inner, shared_intermediate, .. } = config;
        let router = Linear::into_type(loader, &[(name("ffn_gate_inp"), count)], hidden, DType::F32)?;
        let gate_up = [name("ffn_gate_exps"), name("ffn_up_exps")];
        let gate_up = loader.experts(&gate_up, [count, inner, hidden])?;
        let down = loader.experts(&[name("ffn_down_exps")], [count, hidden, inner])?;
        let shared = if shared_intermediate > 0 {
            let network = Network::load(loader, model, shared_intermediate, &name, "_shexp")?;
            let is_gated = model.architecture == Architecture::Qwen2Moe;
            let gate = is_gated.then(|| loader.row(&name("ffn_gate_inp_shexp.weight"), hidden));
            Some(Shared { network, gate: gate.transpose()? })
        } else {
            None
        };
        let config = ExpertConfig { scale: config.scale * model.residual_scale, ..config };
        Ok(Self { config, router, gate_up, down, shared })
    }

    /// Adds to the pass's `x` what the experts make of it, normalised if there is a norm.
    pub(crate) fn forward(&self, pass: &Pass<'_>, norm: Option<&Buffer>, gate: Gate) -> BackendResult<()> {
        let Pass { backend, config, activations: a, .. } = *pass;
        // Activations for a model with experts have it.
        let Some(experts) = &a.experts else { return Ok(()) };
        let (rows, hidden) = (a.rows, config.hidden);
        let ExpertConfig { count, used, intermediate, .. } = self.config;
        let normed = input_of_block(pass, norm)?;
        self.choose(backend, rows, normed, experts)?;

        let (inner, x) = (
            Matrix::new(experts.inner.ptr(), a.dtype, intermediate),
            Matrix::new(a.x.ptr(), RESIDUAL, hidden),
        );
        let (indices, shape) = (experts.indices.ptr(), [rows, used, count]);
        let mut gate_up = ExpertMatmulDesc::new(shape, normed, self.gate_up.matrix, indices, inner);
        gate_up.bias = self.gate_up.bias();
        backend.expert_matmul(&gate_up.with_gate(gate))?;

        // Both networks read `x` before anything is added to it.
        if let Some(Shared { network, gate: of }) = &self.shared {
            let share = Matrix::new(experts.share.ptr(), a.dtype, 1);
            if let Some(of) = of {
                of.product(backend, rows, normed, share, None, Into::Assign)?;
                let packed = [rows, 1];
                let tensor = TensorDesc::packed(share.ptr, a.dtype, &packed);
                backend.unary_ext(&UnaryDesc::new(UnaryOp::Sigmoid, tensor, tensor))?;
            }
            let inside = network.forward_inner(pass, norm, gate)?;
            if of.is_some() {
                let shape = [rows, network.inner];
                let part = TensorDesc::strided(share.ptr, a.dtype, &shape, &[1, 0]);
                let inside_tensor = TensorDesc::packed(inside.ptr, a.dtype, &shape);
                backend.binary_ext(&BinaryDesc::new(BinaryOp::Mul, inside_tensor, part, inside_tensor))?;
            }
            network.down.forward(backend, rows, inside, x, Into::Add)?;
        }
        let mut down = ExpertMatmulDesc::new(shape, inner, self.down.matrix, indices, x)
            .with_per_expert(true)
            .with_weights(experts.weights.ptr())
            .with_accumulate(true);
        down.bias = self.down.bias();
        backend.expert_matmul(&down)
    }

    /// The experts of each row, and their weights: the largest probabilities.
    fn choose(
        &self,
        backend: &dyn ComputeBackend,
        rows: usize,
        x: Matrix,
        experts: &ExpertActivations,
    ) -> BackendResult<()> {
        let ExpertConfig { count, used, normalised, scale, .. } = self.config;
        let [logits, weights, indices] =
            [&experts.logits, &experts.weights, &experts.indices].map(Buffer::ptr);
        self.router.forward(
            backend,
            rows,
            x,
            Matrix::new(experts.logits.ptr(), DType::F32, count),
            Into::Assign,
        )?;
        // The largest logits have the largest probabilities.
        let over = if normalised { SoftmaxOver::Found } else { SoftmaxOver::Row };
        let top = TopKDesc::new(DType::F32, logits, indices, rows, count, used);
        backend.top_k(&top.with_values(weights).with_softmax(over))?;
        if scale == 1.0 {
            return Ok(());
        }
        let shape = [rows, used];
        let weights = TensorDesc::packed(weights, DType::F32, &shape);
        backend.affine(&AffineDesc::new(weights, weights, scale, 0.0))
    }
}

impl Stack {
    fn bias(&self) -> Option<u64> {
        self.bias.as_ref().map(Buffer::ptr)
    }
}
