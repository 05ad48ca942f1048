//! The mixture of experts of a decoder's layer for one token, some and a prompt, by operation and as a whole. Several layers'
//! weights come in turn, so that they are read from memory, as in a model, and not from a cache. Products take f16, the residual
//! stream is f32.
//!
//! `cargo bench --bench experts`; `COMPUTE_BACKEND=webgpu:0` chooses a device. The bytes are those of the router and of the matrices
//! that are chosen at least once.

use std::collections::BTreeSet;

use backend_api::desc::{
    ExpertMatmulDesc, MatmulDesc, Matrix, QuantMatrix, RmsNormDesc, SoftmaxOver, TopKDesc,
};
use backend_api::quant::QuantFormat;
use backend_api::{BackendResult, BackendTranspose, ComputeBackend, DType, Gate};
use benches::Subject;
use benches::rows::Bench;

const DTYPE: DType = DType::F16;

/// Of what layers add to.
const RESIDUAL: DType = DType::F32;

/// Layers whose weights come in turn.
const LAYERS: usize = 4;

/// Sizes of a mixture.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    format: QuantFormat,
    hidden: usize,
    experts: usize,
    used: usize,
    /// Numbers inside of an expert.
    inner: usize,
    gate: Gate,
    has_bias: bool,
}

/// Handles of a layer.
struct Layer {
    norm: u64,
    router: u64,
    gate_up: u64,
    down: u64,
    bias: u64,
}

/// Layers, and what they share.
struct Mixture {
    shape: Shape,
    rows: usize,
    layers: Vec<Layer>,
    x: u64,
    normed: u64,
    logits: u64,
    /// What `top_k` writes.
    found: u64,
    /// What products read, each time the same experts, and how many different ones these are.
    indices: u64,
    chosen: usize,
    weights: u64,
    inner: u64,
}

/// An operation of a layer.
#[derive(Clone, Copy)]
enum Step {
    Norm,
    Router,
    TopK,
    GateUp,
    Down,
}

/// What a model calls, in its order.
const WHOLE: [Step; 5] = [Step::Norm, Step::Router, Step::TopK, Step::GateUp, Step::Down];

const STEPS: [(&str, &[Step]); 6] = [
    ("norm", &[Step::Norm]),
    ("router", &[Step::Router]),
    ("top_k", &[Step::TopK]),
    ("gate_up", &[Step::GateUp]),
    ("down", &[Step::Down]),
    ("whole", &WHOLE),
];

/// What is captured, as models run it: operations that follow each other may be one launch there.
const REPLAYED: [(&str, &[Step]); 2] =
    [("choice_replayed", &[Step::Norm, Step::Router, Step::TopK]), ("replayed", &WHOLE)];

impl Mixture {
    fn new(subject: &Subject, shape: Shape, rows: usize) -> Self {
        let Shape { format, hidden, experts, used, inner, .. } = shape;
        let planes = |n: usize, k| {
            let bytes = format.bytes(experts * n, k).expect("whole blocks");
            subject.operand(DType::F32, bytes.div_ceil(DType::F32.size()))
        };
        let layers = (0..LAYERS)
            .map(|_| Layer {
                norm: subject.operand(RESIDUAL, hidden),
                router: subject.operand(DTYPE, experts * hidden),
                gate_up: planes(2 * inner, hidden),
                down: planes(hidden, inner),
                bias: subject.operand(DType::F32, experts * hidden.max(2 * inner)),
            })
            .collect();
        let pairs = rows * used;
        // Experts of a row are neighbours of a random one.
        let first = |row: usize| (row as u32).wrapping_mul(0x9e37_79b9) as usize >> 8;
        let chosen: Vec<u32> =
            (0..pairs).map(|pair| ((first(pair / used) + pair % used) % experts) as u32).collect();
        let different: BTreeSet<_> = chosen.iter().collect();
        let indices = subject.words(0, pairs);
        subject.backend().copy_htod(indices, bytemuck::cast_slice(&chosen)).expect("the indices fit");
        Self {
            shape,
            rows,
            layers,
            x: subject.operand(RESIDUAL, rows * hidden),
            normed: subject.operand(DTYPE, rows * hidden),
            logits: subject.operand(DType::F32, rows * experts),
            found: subject.words(0, pairs),
            indices,
            chosen: different.len(),
            weights: subject.operand(DType::F32, pairs),
            inner: subject.operand(DTYPE, pairs * inner),
        }
    }

    /// Elements as large as the weights that all layers' steps read, which are what takes the time.
    fn elements(&self, steps: &[Step]) -> usize {
        let Shape { format, hidden, experts, inner, .. } = self.shape;
        let planes = |n, k| format.bytes(self.chosen * n, k).expect("whole blocks") / DTYPE.size();
        let elements = steps.iter().map(|step| match step {
            Step::Router => experts * hidden,
            Step::GateUp => planes(2 * inner, hidden),
            Step::Down => planes(hidden, inner),
            Step::Norm | Step::TopK => 0,
        });
        LAYERS * elements.sum::<usize>()
    }

    fn call(&self, backend: &dyn ComputeBackend, layer: &Layer, step: Step) -> BackendResult<()> {
        let Shape { format, hidden, experts, used, inner, gate, has_bias, .. } = self.shape;
        let &Self { rows, x, normed, logits, found, indices, weights, .. } = self;
        let operand = Matrix::new(normed, DTYPE, hidden);
        let shape = [rows, used, experts];
        match step {
            Step::Norm => {
                let desc = RmsNormDesc::new(RESIDUAL, x, normed, rows, hidden);
                backend.rms_norm(&desc.with_output_dtype(DTYPE).with_weight(layer.norm))
            }
            Step::Router => {
                let b = Matrix::new(layer.router, DTYPE, hidden);
                let c = Matrix::new(logits, DType::F32, experts);
                let desc = MatmulDesc::new(rows, experts, hidden, operand, b, c);
                backend.matmul(&desc.with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans))
            }
            Step::TopK => {
                let desc = TopKDesc::new(DType::F32, logits, found, rows, experts, used);
                backend.top_k(&desc.with_values(weights).with_softmax(SoftmaxOver::Found))
            }
            Step::GateUp => {
                let b = QuantMatrix::new(layer.gate_up, format, experts * 2 * inner, hidden);
                let c = Matrix::new(self.inner, DTYPE, inner);
                let mut desc = ExpertMatmulDesc::new(shape, operand, b, indices, c).with_gate(gate);
                desc.bias = has_bias.then_some(layer.bias);
                backend.expert_matmul(&desc)
            }
            Step::Down => {
                let b = QuantMatrix::new(layer.down, format, experts * hidden, inner);
                let a = Matrix::new(self.inner, DTYPE, inner);
                let mut desc = ExpertMatmulDesc::new(shape, a, b, indices, Matrix::new(x, RESIDUAL, hidden))
                    .with_per_expert(true)
                    .with_weights(weights)
                    .with_accumulate(true);
                desc.bias = has_bias.then_some(layer.bias);
                backend.expert_matmul(&desc)
            }
        }
    }

    /// The steps of each layer.
    fn run(&self, backend: &dyn ComputeBackend, steps: &[Step]) -> BackendResult<()> {
        let mut calls = self.layers.iter().flat_map(|layer| steps.iter().map(move |&step| (layer, step)));
        calls.try_for_each(|(layer, step)| self.call(backend, layer, step))
    }

    fn free(&self, subject: &Subject) {
        for &Layer { norm, router, gate_up, down, bias } in &self.layers {
            subject.free(&[norm, router, gate_up, down, bias]);
        }
        let &Self { x, normed, logits, found, indices, weights, inner, .. } = self;
        subject.free(&[x, normed, logits, found, indices, weights, inner]);
    }
}

fn main() {
    let mut bench = Bench::open();
    if !bench.supports(DTYPE) {
        return bench.finish();
    }
    let swiglu = |name, format, [hidden, inner]: [usize; 2], experts, used| Shape {
        name,
        format,
        hidden,
        experts,
        used,
        inner,
        gate: Gate::Swiglu,
        has_bias: false,
    };
    let narrow = [bench.size(2048, 256), bench.size(768, 256)];
    let wide = [bench.size(4096, 256), bench.size(14_336, 512)];
    let oss = bench.size(2880, 96);
    let shapes = [
        swiglu("q4_0_30b_a3b", QuantFormat::Q4_0, narrow, bench.size(128, 16), 8),
        swiglu("q4_k_30b_a3b", QuantFormat::Q4_K, narrow, bench.size(128, 16), 8),
        swiglu("q4_0_8x7b", QuantFormat::Q4_0, wide, 8, 2),
        Shape {
            gate: Gate::SwigluOai,
            has_bias: true,
            ..swiglu("mxfp4_20b", QuantFormat::Mxfp4, [oss, oss], bench.size(32, 8), 4)
        },
    ];
    for shape in shapes {
        for rows in [1, 16, bench.size(512, 40)] {
            let mixture = Mixture::new(&bench.subject, shape, rows);
            for (name, steps) in STEPS {
                let (name, elements) = (format!("{}_{rows}_{name}", shape.name), mixture.elements(steps));
                bench.measure("experts_of_4_layers", &name, DTYPE, elements, |backend| {
                    mixture.run(backend, steps)
                });
            }
            for (name, steps) in REPLAYED {
                let graph = bench.subject.backend().capture(&mut |backend| mixture.run(backend, steps));
                let graph = graph.expect("operations can be captured");
                let (name, elements) = (format!("{}_{rows}_{name}", shape.name), mixture.elements(steps));
                bench.measure("experts_of_4_layers", &name, DTYPE, elements, |backend| backend.replay(graph));
                bench.subject.backend().free_graph(graph).expect("the graph is there");
            }
            mixture.free(&bench.subject);
        }
    }
    bench.finish();
}
