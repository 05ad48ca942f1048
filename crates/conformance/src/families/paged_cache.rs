//! Keys and values of several sequences in blocks of one pool: prefill, appended rows and captured decode steps, whose
//! block table grows and changes between replays.

use backend_api::desc::{
    AttentionAlignment, AttentionDesc, AttentionShape, BlockTable, HeadLayout, IndexShape, Matrix,
    QuantizeRowsDesc, ScatterDesc,
};
use backend_api::kv::KvFormat;
use backend_api::{BackendResult, ComputeBackend, DType, ScatterOp};

use super::copy_dtod::{free, free_with_graph, text, upload};
use crate::case::Case;
use crate::data::uniform;
use crate::device::Device;
use crate::element::{decode, encode};
use crate::oracle::attention::{Scores, Seen, attend};
use crate::oracle::q8_0;
use crate::rng::Rng;

const F32: DType = DType::F32;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 32;
/// Elements of a token's keys, or of its values; a row of the pool has both.
const WIDTH: usize = KV_HEADS * DIM;
/// Positions of a block, blocks of the pool, and those that a sequence may have.
const BLOCK: usize = 16;
const POOL: usize = 9;
const MAX_BLOCKS: usize = 4;
const SEQUENCES: usize = 3;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::script("capture", "paged_caches", |device| Box::pin(generate(device, F32.into()))),
        Case::script("capture", "paged_caches_of_q8_0", |device| Box::pin(generate(device, KvFormat::Q8_0))),
    ]
}

/// A sequence on the host: its blocks, and the row of each of its tokens as the pool has it.
#[derive(Clone, Debug, Default)]
struct Sequence {
    blocks: Vec<usize>,
    rows: Vec<Vec<f64>>,
}

impl Sequence {
    /// The row of the pool that a position has.
    fn row(&self, position: usize) -> u32 {
        (self.blocks[position / BLOCK] * BLOCK + position % BLOCK) as u32
    }
}

/// The handles of a step over some tokens of some sequences.
#[derive(Clone, Copy, Debug)]
struct Step {
    pool: u64,
    q: u64,
    /// New rows, and the rows of the pool that they go to.
    new: u64,
    rows: u64,
    table: u64,
    lengths: u64,
    o: u64,
    format: KvFormat,
    batch: usize,
    /// Tokens of each sequence.
    tokens: usize,
}

impl Step {
    /// Appends a row for each token, and attends from all of them to what is cached.
    fn run(&self, backend: &dyn ComputeBackend) -> BackendResult<()> {
        let (rows, columns, count) = (POOL * BLOCK, 2 * WIDTH, self.batch * self.tokens);
        if self.format == KvFormat::Q8_0 {
            let from = Matrix::new(self.new, F32, columns);
            let append = QuantizeRowsDesc::new(from, self.pool, rows, columns, count);
            backend.quantize_rows(&append.with_indices(self.rows))?;
        } else {
            let shape = IndexShape { rows, columns, count };
            let assign = ScatterOp::Assign;
            backend.scatter(&ScatterDesc::new(assign, F32, self.pool, self.rows, self.new, shape))?;
        }
        let (batch, seq_q, seq_kv) = (self.batch, self.tokens, MAX_BLOCKS * BLOCK);
        let shape = AttentionShape { batch, heads: HEADS, seq_q, seq_kv, head_dim: DIM };
        let keys = HeadLayout { offset: 0, batch: BLOCK * columns, head: DIM, token: columns };
        let queries = HeadLayout { offset: 0, batch: seq_q * HEADS * DIM, head: DIM, token: HEADS * DIM };
        let desc = AttentionDesc::new(F32, self.q, self.pool, self.pool, self.o, shape)
            .with_kv_format(self.format)
            .with_kv_heads(KV_HEADS)
            .with_block_table(BlockTable::new(self.table, MAX_BLOCKS, BLOCK, POOL))
            .with_key_lengths(self.lengths)
            .with_alignment(AttentionAlignment::KeyLengths)
            .with_causal(true)
            .with_q_layout(queries)
            .with_k_layout(keys)
            .with_v_layout(HeadLayout { offset: WIDTH, ..keys })
            .with_o_layout(queries);
        backend.attention_ext(&desc)
    }
}

/// Everything on the device and its copy on the host.
struct Caches<'a> {
    device: &'a Device<'a>,
    rng: Rng,
    step: Step,
    /// Memory for as many tokens as a step has at most.
    sequences: Vec<Sequence>,
    queries: Vec<f64>,
}

impl Caches<'_> {
    fn write(&self, ptr: u64, bytes: &[u8]) -> Result<(), String> {
        self.device.backend.copy_htod(ptr, bytes).map_err(text)
    }

    /// New queries and rows for the next tokens of sequences from `first` on, and where all of it lies.
    fn prepare(&mut self, first: usize, step: Step) -> Result<(), String> {
        let (mut new, mut rows) = (Vec::new(), Vec::new());
        for sequence in &mut self.sequences[first..first + step.batch] {
            for _ in 0..step.tokens {
                let row = uniform(&mut self.rng, F32, 2 * WIDTH, -1.0, 1.0);
                rows.extend(sequence.row(sequence.rows.len()).to_le_bytes());
                new.extend(&row);
                sequence.rows.push(stored(step.format, row));
            }
        }
        self.queries = uniform(&mut self.rng, F32, step.batch * step.tokens * HEADS * DIM, -1.0, 1.0);
        self.write(step.q, &encode(F32, &self.queries))?;
        self.write(step.new, &encode(F32, &new))?;
        self.write(step.rows, &rows)?;
        self.write(step.o, &encode(F32, &vec![f64::NAN; self.queries.len()]))?;
        let words = |numbers: Vec<u32>| numbers.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
        let sequences = &self.sequences[first..first + step.batch];
        self.write(step.lengths, &words(sequences.iter().map(|s| s.rows.len() as u32).collect()))?;
        // Entries that no key needs are outside the pool.
        let entry = |s: &Sequence, i: usize| s.blocks.get(i).map_or(u32::MAX, |&block| block as u32);
        let table = sequences.iter().flat_map(|s| (0..MAX_BLOCKS).map(move |i| entry(s, i)));
        self.write(step.table, &words(table.collect()))
    }

    /// Compares a step's outputs with those of the oracle.
    async fn check(&self, what: &str, first: usize, step: Step) -> Result<(), String> {
        let bytes = self.device.read(step.o, 4 * self.queries.len()).await.map_err(text)?;
        let got = decode(F32, &bytes);
        for (i, (q, got)) in self.queries.chunks(DIM).zip(got.chunks(DIM)).enumerate() {
            let (head, token, b) = (i % HEADS, i / HEADS % step.tokens, i / HEADS / step.tokens);
            let sequence = &self.sequences[first + b];
            let at = head / (HEADS / KV_HEADS) * DIM;
            let keys = sequence.rows.len() - step.tokens + token + 1;
            let seen: Vec<Seen<'_>> = sequence.rows[..keys]
                .iter()
                .map(|row| Seen { key: &row[at..][..DIM], value: &row[WIDTH + at..][..DIM], mask: 0.0 })
                .collect();
            let wants = attend(q, &seen, DIM, Scores::scaled(1.0 / (DIM as f64).sqrt()));
            if let Some(d) = (0..DIM).find(|&d| wants[d].miss(got[d], F32) > 1.0) {
                let (got, want) = (got[d], &wants[d]);
                return Err(format!(
                    "{what}: number {d} of head {head}, token {token} of {b}: {got}, not {want:?}"
                ));
            }
        }
        Ok(())
    }
}

/// A row as the pool has it.
fn stored(format: KvFormat, row: Vec<f64>) -> Vec<f64> {
    if format != KvFormat::Q8_0 {
        return row;
    }
    let bytes: Vec<u8> = q8_0::words(&row).iter().flat_map(|&word| (word as u32).to_le_bytes()).collect();
    q8_0::numbers(&bytes)
}

async fn generate(device: &Device<'_>, format: KvFormat) -> Result<(), String> {
    // What nobody wrote is NaN: bytes of 255 are so as f32, and as the scale of a block.
    let block_bytes = format.bytes("pool", BLOCK * 2 * WIDTH).map_err(text)?;
    let pool = upload(device, &vec![0xff; POOL * block_bytes])?;
    let most = 23;
    let memory = |words: usize| upload(device, &vec![0xff; 4 * words]);
    let step = Step {
        pool,
        q: memory(most * HEADS * DIM)?,
        new: memory(most * 2 * WIDTH)?,
        rows: memory(most)?,
        table: memory(SEQUENCES * MAX_BLOCKS)?,
        lengths: memory(SEQUENCES)?,
        o: memory(most * HEADS * DIM)?,
        format,
        batch: 1,
        tokens: BLOCK,
    };
    let sequences = vec![Sequence { blocks: vec![5], rows: Vec::new() }];
    let rng = Rng::from_name("paged caches");
    let mut caches = Caches { device, rng, step, sequences, queries: Vec::new() };
    let backend = device.backend;

    // A prefix of one block, which all sequences have in common.
    caches.prepare(0, step)?;
    step.run(backend).map_err(text)?;
    caches.check("the prefix", 0, step).await?;
    caches.sequences = vec![caches.sequences[0].clone(); SEQUENCES];
    // Prompts of their own: many tokens, few, and as many as fill a block.
    for (i, (tokens, blocks)) in [(23, vec![2, 7]), (3, vec![0]), (16, vec![8])].into_iter().enumerate() {
        caches.sequences[i].blocks.extend(blocks);
        let step = Step { tokens, ..step };
        caches.prepare(i, step)?;
        step.run(backend).map_err(text)?;
        caches.check("a prompt", i, step).await?;
    }

    let step = Step { batch: SEQUENCES, tokens: 1, ..caches.step };
    let graph = backend.capture(&mut |backend| step.run(backend)).map_err(text)?;
    for turn in 0..4 {
        match turn {
            // The next token of the last sequence needs a block.
            0 => caches.sequences[2].blocks.push(1),
            // A sequence moves to another block.
            2 => {
                let [from, to] = [0, 4].map(|block| (block * block_bytes, block_bytes));
                let [from, to] = [backend.view(pool, from.0, from.1), backend.view(pool, to.0, to.1)];
                let (from, to) = (from.map_err(text)?, to.map_err(text)?);
                backend.copy_dtod(to, from, block_bytes).map_err(text)?;
                backend.copy_htod(from, &vec![0xff; block_bytes]).map_err(text)?;
                free(device, &[from, to])?;
                caches.sequences[1].blocks[1] = 4;
            }
            _ => {}
        }
        caches.prepare(0, step)?;
        backend.replay(graph).map_err(text)?;
        caches.check(&format!("replay {turn}"), 0, step).await?;
    }
    free_with_graph(
        device,
        graph,
        &[step.pool, step.q, step.new, step.rows, step.table, step.lengths, step.o],
    )
}
