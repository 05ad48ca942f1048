//! A layer of a decoder for one token, by operation and as a whole, and the logits that follow the last. Several layers'
//! weights come in turn, so that they are read from memory, as in a model, and not from a cache. Products and attention take f16,
//! the residual stream is f32.
//!
//! `cargo bench --bench layer`; `COMPUTE_BACKEND=webgpu:0` chooses a device.

use backend_api::desc::{
    AttentionDesc, AttentionShape, HeadLayout, Matrix, QuantMatmulDesc, QuantMatrix, RmsNorm, RmsNormDesc,
    RopeAppendDesc, RopeAppendShape, RopeStyle, RopeTables,
};
use backend_api::quant::QuantFormat;
use backend_api::{BackendResult, ComputeBackend, DType, Gate};
use benches::Subject;
use benches::rows::Bench;

const DTYPE: DType = DType::F16;

/// Of what layers add to.
const RESIDUAL: DType = DType::F32;

/// Layers whose weights come in turn.
const LAYERS: usize = 6;

/// Sizes of a decoder.
#[derive(Clone, Copy)]
struct Shape {
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    inner: usize,
    /// Keys in the cache, and room for keys.
    keys: [usize; 2],
}

impl Shape {
    const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    const fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    const fn qkv_width(&self) -> usize {
        self.query_width() + 2 * self.kv_width()
    }
}

/// The weights of a layer.
#[derive(Clone, Copy)]
enum Weights {
    /// Queries and keys, and values if they are of one format with them.
    Qkv,
    /// Values of another format.
    Values,
    Output,
    GateUp,
    Down,
}

impl Weights {
    const ALL: [Self; 5] = [Self::Qkv, Self::Values, Self::Output, Self::GateUp, Self::Down];
}

/// The formats of a layer's weights.
#[derive(Clone, Copy)]
struct Formats {
    most: QuantFormat,
    values_and_down: QuantFormat,
}

impl Formats {
    const fn all(format: QuantFormat) -> Self {
        Self { most: format, values_and_down: format }
    }

    /// Half of the layers of a Q4_K_M.
    const MIXED: Self = Self { most: QuantFormat::Q4_K, values_and_down: QuantFormat::Q6_K };

    fn name(self) -> &'static str {
        if self.are_mixed() { "q4_k_m" } else { self.most.name() }
    }

    fn are_mixed(self) -> bool {
        self.most != self.values_and_down
    }

    const fn of(self, weights: Weights) -> QuantFormat {
        match weights {
            Weights::Values | Weights::Down => self.values_and_down,
            Weights::Qkv | Weights::Output | Weights::GateUp => self.most,
        }
    }
}

/// Handles of a layer.
struct Layer {
    weights: [u64; Weights::ALL.len()],
    norm: u64,
    cache: u64,
}

/// Layers, and what they share.
struct Decoder {
    shape: Shape,
    formats: Formats,
    layers: Vec<Layer>,
    /// Activations: of the hidden size twice, queries with keys and values, and the inner ones.
    x: u64,
    update: u64,
    qkv: u64,
    inner: u64,
    tables: RopeTables,
    position: u64,
    length: u64,
}

/// An operation of a layer.
#[derive(Clone, Copy)]
enum Step {
    Qkv,
    RopeAppend,
    Attention,
    Output,
    Norm,
    GateUp,
    NormGateUp,
    Down,
}

/// What a model calls, in its order.
const WHOLE: [Step; 6] =
    [Step::Qkv, Step::RopeAppend, Step::Attention, Step::Output, Step::NormGateUp, Step::Down];

const STEPS: [(&str, &[Step]); 9] = [
    ("norm_qkv", &[Step::Qkv]),
    ("rope_append", &[Step::RopeAppend]),
    ("attention", &[Step::Attention]),
    ("output", &[Step::Output]),
    ("norm", &[Step::Norm]),
    ("gate_up", &[Step::GateUp]),
    ("norm_gate_up", &[Step::NormGateUp]),
    ("down", &[Step::Down]),
    ("whole", &WHOLE),
];

impl Decoder {
    fn new(subject: &Subject, shape: Shape, formats: Formats) -> Self {
        let words = |weights| weight_bytes(shape, formats, weights).div_ceil(DType::F32.size());
        let [_, room] = shape.keys;
        let layers = (0..LAYERS)
            .map(|_| Layer {
                weights: Weights::ALL.map(|weights| subject.operand(DType::F32, words(weights))),
                norm: subject.operand(RESIDUAL, shape.hidden),
                cache: subject.operand(DTYPE, room * 2 * shape.kv_width()),
            })
            .collect();
        let table = || subject.operand(DType::F32, room * shape.head_dim / 2);
        let keys = shape.keys[0] as u32;
        Self {
            shape,
            formats,
            layers,
            x: subject.operand(RESIDUAL, shape.hidden),
            update: subject.operand(DTYPE, shape.hidden.max(shape.query_width())),
            qkv: subject.operand(DTYPE, shape.qkv_width()),
            inner: subject.operand(DTYPE, shape.inner),
            tables: RopeTables { cos: table(), sin: table(), max_position: room },
            position: subject.words(keys - 1, 1),
            length: subject.words(keys, 1),
        }
    }

    /// Elements as large as the weights of all layers' steps, which are what takes the time.
    fn elements(&self, steps: &[Step]) -> usize {
        let bytes = |weights| weight_bytes(self.shape, self.formats, weights);
        let bytes = steps.iter().map(|step| match step {
            Step::Qkv => bytes(Weights::Qkv) + bytes(Weights::Values),
            Step::Output => bytes(Weights::Output),
            Step::GateUp | Step::NormGateUp => bytes(Weights::GateUp),
            Step::Down => bytes(Weights::Down),
            Step::RopeAppend | Step::Attention | Step::Norm => 0,
        });
        bytes.map(|bytes| LAYERS * bytes / DTYPE.size()).sum()
    }

    fn product(&self, layer: &Layer, weights: Weights, [input, output]: [u64; 2]) -> QuantMatmulDesc {
        let [rows, columns] = size(self.shape, self.formats, weights);
        let b = QuantMatrix::new(layer.weights[weights as usize], self.formats.of(weights), rows, columns);
        let matrix = |ptr, columns| Matrix::new(ptr, if ptr == self.x { RESIDUAL } else { DTYPE }, columns);
        QuantMatmulDesc::new(1, matrix(input, columns), b, matrix(output, rows))
    }

    /// Queries, keys and values of a row that is normalised: in one product, or with values of another format in two and an
    /// operation for the norm.
    fn qkv(&self, backend: &dyn ComputeBackend, layer: &Layer) -> BackendResult<()> {
        let Self { shape, x, update, qkv, .. } = *self;
        if !self.formats.are_mixed() {
            let norm = RmsNorm::new(layer.norm, 1e-5).with_output_dtype(DTYPE);
            return backend.quant_matmul(&self.product(layer, Weights::Qkv, [x, qkv]).with_norm(norm));
        }
        self.norm(backend, layer)?;
        let mut values = self.product(layer, Weights::Values, [update, qkv]);
        values.c = values.c.with_offset(shape.qkv_width() - shape.kv_width());
        backend.quant_matmul(&values)?;
        backend.quant_matmul(&self.product(layer, Weights::Qkv, [update, qkv]))
    }

    fn norm(&self, backend: &dyn ComputeBackend, layer: &Layer) -> BackendResult<()> {
        let desc = RmsNormDesc::new(RESIDUAL, self.x, self.update, 1, self.shape.hidden);
        backend.rms_norm(&desc.with_output_dtype(DTYPE).with_weight(layer.norm))
    }

    fn call(&self, backend: &dyn ComputeBackend, layer: &Layer, step: Step) -> BackendResult<()> {
        let Self { shape, x, update, inner, .. } = *self;
        let norm = RmsNorm::new(layer.norm, 1e-5).with_output_dtype(DTYPE);
        let residual = Matrix::new(x, RESIDUAL, shape.hidden);
        let gate_up = |input| {
            let mut desc = self.product(layer, Weights::GateUp, [input, inner]).with_gate(Gate::Swiglu);
            desc.c = Matrix::new(inner, DTYPE, shape.inner);
            desc
        };
        match step {
            Step::Qkv => self.qkv(backend, layer),
            Step::RopeAppend => self.rope_append(backend, layer),
            Step::Attention => self.attention(backend, layer),
            Step::Output => backend
                .quant_matmul(&self.product(layer, Weights::Output, [update, x]).with_residual(residual)),
            Step::Norm => self.norm(backend, layer),
            Step::GateUp => backend.quant_matmul(&gate_up(update)),
            Step::NormGateUp => backend.quant_matmul(&gate_up(x).with_norm(norm)),
            Step::Down => {
                backend.quant_matmul(&self.product(layer, Weights::Down, [inner, x]).with_residual(residual))
            }
        }
    }

    fn rope_append(&self, backend: &dyn ComputeBackend, layer: &Layer) -> BackendResult<()> {
        let Shape { heads, kv_heads, head_dim, keys: [_, cache_rows], .. } = self.shape;
        let shape = RopeAppendShape { rows: 1, heads, kv_heads, head_dim, cache_rows };
        let qkv = Matrix::new(self.qkv, DTYPE, self.shape.qkv_width());
        let cache = Matrix::new(layer.cache, DTYPE, 2 * self.shape.kv_width());
        let desc = RopeAppendDesc::new(qkv, cache, self.tables, shape, self.position, self.position);
        backend.rope_append(&desc.with_style(RopeStyle::Interleaved))
    }

    fn attention(&self, backend: &dyn ComputeBackend, layer: &Layer) -> BackendResult<()> {
        let Shape { heads, kv_heads, head_dim, keys: [_, room], .. } = self.shape;
        let shape = AttentionShape { batch: 1, heads, seq_q: 1, seq_kv: room, head_dim };
        let kv_width = self.shape.kv_width();
        let layout = |offset| HeadLayout { offset, batch: 0, head: head_dim, token: 2 * kv_width };
        let desc = AttentionDesc::new(DTYPE, self.qkv, layer.cache, layer.cache, self.update, shape)
            .with_kv_heads(kv_heads)
            .with_key_lengths(self.length)
            .with_k_layout(layout(0))
            .with_v_layout(layout(kv_width));
        backend.attention_ext(&desc)
    }

    fn free(&self, subject: &Subject) {
        for layer in &self.layers {
            subject.free(&layer.weights);
            subject.free(&[layer.norm, layer.cache]);
        }
        let RopeTables { cos, sin, .. } = self.tables;
        subject.free(&[self.x, self.update, self.qkv, self.inner, cos, sin, self.position, self.length]);
    }
}

/// Rows and columns of a layer's weights.
fn size(shape: Shape, formats: Formats, weights: Weights) -> [usize; 2] {
    let Shape { hidden, inner, .. } = shape;
    let values = if formats.are_mixed() { shape.kv_width() } else { 0 };
    match weights {
        Weights::Qkv => [shape.qkv_width() - values, hidden],
        Weights::Values => [values, hidden],
        Weights::Output => [hidden, shape.query_width()],
        Weights::GateUp => [2 * inner, hidden],
        Weights::Down => [hidden, inner],
    }
}

fn weight_bytes(shape: Shape, formats: Formats, weights: Weights) -> usize {
    let [rows, columns] = size(shape, formats, weights);
    formats.of(weights).bytes(rows, columns).expect("whole blocks")
}

/// Logits, by a product of one row.
fn logits(bench: &mut Bench, hidden: usize, format: QuantFormat) {
    let vocabulary = bench.size(128_256, 4096);
    let bytes = format.bytes(vocabulary, hidden).expect("whole blocks");
    let weights = bench.subject.operand(DType::F32, bytes.div_ceil(DType::F32.size()));
    let (x, output) = (bench.subject.operand(DTYPE, hidden), bench.subject.operand(DType::F32, vocabulary));
    let b = QuantMatrix::new(weights, format, vocabulary, hidden);
    let (a, c) = (Matrix::new(x, DTYPE, hidden), Matrix::new(output, DType::F32, vocabulary));
    let desc = QuantMatmulDesc::new(1, a, b, c);
    bench
        .measure("logits", format.name(), DTYPE, bytes / DTYPE.size(), |backend| backend.quant_matmul(&desc));
    bench.subject.free(&[weights, x, output]);
}

fn main() {
    let mut bench = Bench::open();
    if !bench.supports(DTYPE) {
        return bench.finish();
    }
    let shape = Shape {
        hidden: bench.size(4096, 256),
        heads: bench.size(32, 4),
        kv_heads: bench.size(8, 2),
        head_dim: bench.size(128, 64),
        inner: bench.size(14336, 512),
        keys: [bench.size(512, 32), bench.size(640, 64)],
    };
    let formats =
        [QuantFormat::Q4_0, QuantFormat::IQ4_NL, QuantFormat::Q4_K, QuantFormat::Q6_K, QuantFormat::Q8_0];
    for formats in formats.map(Formats::all).into_iter().chain([Formats::MIXED]) {
        let decoder = Decoder::new(&bench.subject, shape, formats);
        for (name, steps) in STEPS {
            let elements = decoder.elements(steps);
            bench.measure("layers_of_6", &format!("{}_{name}", formats.name()), DTYPE, elements, |backend| {
                let mut calls =
                    decoder.layers.iter().flat_map(|layer| steps.iter().map(move |&step| (layer, step)));
                calls.try_for_each(|(layer, step)| decoder.call(backend, layer, step))
            });
        }
        // As models run it.
        let graph = bench.subject.backend().capture(&mut |backend| {
            let mut calls = decoder.layers.iter().flat_map(|layer| WHOLE.map(|step| (layer, step)));
            calls.try_for_each(|(layer, step)| decoder.call(backend, layer, step))
        });
        let graph = graph.expect("operations can be captured");
        bench.measure(
            "layers_of_6",
            &format!("{}_replayed", formats.name()),
            DTYPE,
            decoder.elements(&WHOLE),
            |backend| backend.replay(graph),
        );
        bench.subject.backend().free_graph(graph).expect("the graph is there");
        decoder.free(&bench.subject);
        if !formats.are_mixed() {
            logits(&mut bench, shape.hidden, formats.most);
        }
    }
    bench.finish();
}
