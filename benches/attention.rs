//! Attention: many queries in f32 and f16, causal, longer vectors of heads; one query over a long cache of
//! keys.
//!
//! `cargo bench --bench attention`; `COMPUTE_BACKEND=webgpu:0` chooses a device. Each line comes twice: by
//! the host's clock, waiting included, and as `…/device` by the device's own where it has one. Throughput is
//! in operations of the whole, unmasked product, and for one query in bytes of keys and values. With
//! `BENCH_ATTENTION_VARIANTS` set, every kernel that can do it is measured, not only the one that the backend
//! chooses; with `BENCH_ATTENTION_KERNELS="decode/4+split16 decode/4+split16+fixup"`, these beside it.

use backend_api::desc::{AttentionDesc, AttentionShape, BlockTable};
use backend_api::kv::KvFormat;
use backend_api::{DType, DeviceKind};
use backend_webgpu::WebGpuBackend;
use benches::{Subject, criterion};
use criterion::{Criterion, Throughput};

/// One attention to be timed.
#[derive(Clone, Copy)]
struct Attention {
    name: &'static str,
    dtype: DType,
    batch: usize,
    heads: usize,
    kv_heads: usize,
    seq_q: usize,
    seq_kv: usize,
    head_dim: usize,
    causal: bool,
    /// Keys of each batch that are real, told on the device; `None` for all.
    real: Option<usize>,
    /// How keys and values are stored; in the type of the queries if `None`.
    stored: Option<KvFormat>,
    /// Positions of the blocks in which keys and values lie, if they do.
    block_size: Option<usize>,
}

impl Attention {
    const fn full(name: &'static str, dtype: DType, [batch, heads, seq, head_dim]: [usize; 4]) -> Self {
        Self {
            name,
            dtype,
            batch,
            heads,
            kv_heads: heads,
            seq_q: seq,
            seq_kv: seq,
            head_dim,
            causal: false,
            real: None,
            stored: None,
            block_size: None,
        }
    }

    const fn decode(name: &'static str, kv_heads: usize, seq_kv: usize, head_dim: usize) -> Self {
        let shape = [4, 32, 1, head_dim];
        Self { kv_heads, seq_kv, ..Self::full(name, DType::F16, shape) }
    }

    /// One query over the keys that a cache with room for `seq_kv` holds.
    const fn cache(name: &'static str, real: usize, seq_kv: usize) -> Self {
        Self { batch: 1, real: Some(real), ..Self::decode(name, 8, seq_kv, 128) }
    }

    fn cases() -> Vec<Self> {
        use DType::{F16, F32};
        let square = [4, 32, 2048, 64];
        let causal = |name, dtype| Self { causal: true, ..Self::full(name, dtype, square) };
        vec![
            Self::full("4x32x2048x64", F32, square),
            causal("4x32x2048x64/causal", F32),
            Self::full("1x32x4096x128", F32, [1, 32, 4096, 128]),
            Self::full("4x32x2048x64", F16, square),
            causal("4x32x2048x64/causal", F16),
            Self::full("1x32x4096x128", F16, [1, 32, 4096, 128]),
            Self::decode("decode/4x32/2048x64", 32, 2048, 64),
            Self::decode("decode/4x32/16384x64", 32, 16384, 64),
            Self::decode("decode/4x8of32/2048x64", 8, 2048, 64),
            Self::decode("decode/4x8of32/16384x64", 8, 16384, 64),
            Self::decode("decode/4x8of32/16384x128", 8, 16384, 128),
            Self::decode("decode/1x8of32/512x128", 8, 512, 128).of_one(),
            Self::cache("decode/1x8of32/512of768x128", 512, 768),
            Self::decode("decode/1x8of32/2048x128", 8, 2048, 128).of_one(),
            Self::cache("decode/1x8of32/512of16384x128", 512, 16384),
            Self::decode("decode/4x8of32/16384x128/q8_0", 8, 16384, 128).of_blocks(),
            Self::cache("decode/1x8of32/512of16384x128/q8_0", 512, 16384).of_blocks(),
            Self::decode("decode/4x8of32/16384x128/paged16", 8, 16384, 128).paged(16),
            Self::decode("decode/4x8of32/16384x128/paged64", 8, 16384, 128).paged(64),
            Self::decode("decode/4x8of32/16384x128/q8_0/paged16", 8, 16384, 128).of_blocks().paged(16),
            Self { seq_q: 2048, ..Self::decode("4x8of32x2048of4096x128/paged16", 8, 4096, 128).paged(16) },
        ]
    }

    const fn of_blocks(self) -> Self {
        Self { stored: Some(KvFormat::Q8_0), ..self }
    }

    const fn paged(self, block_size: usize) -> Self {
        Self { block_size: Some(block_size), ..self }
    }

    const fn of_one(self) -> Self {
        Self { batch: 1, ..self }
    }

    /// A small problem, for a CPU that poses as a GPU.
    fn small(self) -> Self {
        let fewer = |n: usize| n.div_ceil(32);
        Self {
            batch: 1,
            heads: 4,
            kv_heads: fewer(4 * self.kv_heads),
            seq_q: fewer(self.seq_q),
            seq_kv: fewer(self.seq_kv),
            real: self.real.map(fewer),
            ..self
        }
    }

    fn throughput(&self) -> Throughput {
        let keys = self.batch * self.real.unwrap_or(self.seq_kv) * self.head_dim;
        if self.seq_q == 1 {
            let elements = 2 * keys * self.kv_heads;
            let bytes = self.stored.unwrap_or(self.dtype.into()).bytes("attention", elements);
            Throughput::Bytes(bytes.unwrap_or_default() as u64)
        } else {
            Throughput::Elements((4 * keys * self.heads * self.seq_q) as u64)
        }
    }
}

/// Times one attention with the kernel that is in force.
fn measure(criterion: &mut Criterion, subject: &Subject, case: &Attention, kernel: Option<&str>) {
    let &Attention { dtype, batch, heads, kv_heads, seq_q, seq_kv, head_dim, .. } = case;
    let elements = [heads * seq_q, kv_heads * seq_kv, kv_heads * seq_kv, heads * seq_q];
    let ptrs = elements.map(|n| subject.operand(dtype, batch * n * head_dim));
    let mut desc = AttentionDesc::new(
        dtype,
        ptrs[0],
        ptrs[1],
        ptrs[2],
        ptrs[3],
        AttentionShape { batch, heads, seq_q, seq_kv, head_dim },
    );
    (desc.kv_heads, desc.causal) = (kv_heads, case.causal);
    // Blocks take less memory than elements of f16, and any bytes are blocks.
    desc.kv_format = case.stored.unwrap_or(desc.kv_format);
    if let Some(block_size) = case.block_size {
        let blocks = seq_kv.div_ceil(block_size);
        let table = subject.block_table(batch, blocks);
        desc.block_table = Some(BlockTable::new(table, blocks, block_size, batch * blocks));
    }
    if let Some(real) = case.real {
        // At most u32::MAX, as every dimension.
        desc.key_lengths = Some(subject.words(real as u32, batch));
    }
    if let (Some(backend), Some(kernel)) = (subject.webgpu(), kernel) {
        let plan = backend.explain_attention(&desc).expect("the operation is possible");
        if !plan.starts_with(kernel) {
            subject.free(&ptrs);
            free_tables(subject, &desc);
            return;
        }
    }
    let name = kernel.map_or_else(|| case.name.to_owned(), |kernel| format!("{}/{kernel}", case.name));
    let group = format!("attention/{dtype}");
    subject.measure(criterion, &group, &name, case.throughput(), |backend| backend.attention_ext(&desc));
    subject.free(&ptrs);
    free_tables(subject, &desc);
}

/// Gives back what says where keys and values are, and how many.
fn free_tables(subject: &Subject, desc: &AttentionDesc) {
    let tables = desc.key_lengths.into_iter().chain(desc.block_table.map(|table| table.ptr));
    subject.free(&tables.collect::<Vec<u64>>());
}

/// Every kernel that does this case, by name.
fn kernels(case: &Attention) -> Vec<String> {
    let all = WebGpuBackend::attention_kernels();
    let pieces = if case.seq_q == 1 {
        ["", "+split2", "+split4", "+split8", "+split16", "+split32"].as_slice()
    } else {
        &[""]
    };
    let is_split = |name: &String| name.starts_with("split/") || name.starts_with("decode/");
    let names = all.into_iter().filter(|name| is_split(name) == (case.seq_q == 1));
    let names = names.flat_map(|name| pieces.iter().map(move |pieces| format!("{name}{pieces}")));
    names.collect()
}

fn main() {
    let subject = Subject::open();
    let mut criterion = criterion(1);
    let is_large = subject.device().kind == DeviceKind::DiscreteGpu;
    let every = std::env::var_os("BENCH_ATTENTION_VARIANTS").is_some();
    let named = std::env::var("BENCH_ATTENTION_KERNELS").unwrap_or_default();
    for case in Attention::cases() {
        let case = if is_large { case } else { case.small() };
        if !subject.supports(case.dtype) {
            eprintln!(
                "attention/{}: {} is not supported by {}",
                case.name,
                case.dtype,
                subject.device().name
            );
            continue;
        }
        measure(&mut criterion, &subject, &case, None);
        let Some(backend) = subject.webgpu() else { continue };
        let every = if every { kernels(&case) } else { Vec::new() };
        for kernel in named.split_whitespace().map(str::to_owned).chain(every) {
            backend.force_attention(Some(&kernel)).expect("the kernel exists");
            measure(&mut criterion, &subject, &case, Some(&kernel));
        }
        backend.force_attention(None).expect("the backend is open");
    }
    criterion.final_summary();
}
