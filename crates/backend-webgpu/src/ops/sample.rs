//! Tokens drawn at random from rows of logits: the logits in f32 with their penalty, sorted, then drawn.

use backend_api::desc::SampleDesc;
use backend_api::{BackendResult, DType};

use super::shared::iterations;
use super::shared::long_work::{Run, in_parts};
use super::top_k::{Sort, row_bytes, rows_at_a_time};
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::ops::op_context::{OpContext, WORKGROUP, dim, dims, invocation_grid, linear_grid};
use crate::recorder::Window;

static SAMPLE_LOGITS: KernelSource = kernel!(
    "tokens/sample_logits", libs: [INVOCATION_OUTPUTS, SPECIAL],
    types: ["T"], constants: [], params: LogitsParams, reads: ["x: T", "window: u32"], writes: ["y: f32"],
);

params! {
    struct LogitsParams {
        total: u32,
        columns: u32,
        window_len: u32,
        x: u32,
        window: u32,
        y: u32,
        penalty: f32,
    }
}

constants! { struct Constants { has_offset: bool } }

static SAMPLE: KernelSource = kernel!(
    "tokens/sample", libs: [GRID, SPECIAL, PHILOX],
    types: [], constants: Constants, params: Params,
    reads: ["x: f32", "order: u32", "offsets: u32"], writes: ["y: u32"],
);

params! {
    struct Params {
        rows: u32,
        columns: u32,
        // Tokens that are sorted of each row.
        kept: u32,
        // Of the first row.
        row: u32,
        x: u32,
        order: u32,
        y: u32,
        // 0: the first token.
        temperature: f32,
        top_p: f32,
        min_p: f32,
        seed_low: u32,
        seed_high: u32,
        // Where in the stream the numbers are.
        start_low: u32,
        start_high: u32,
        offset: u32,
        // Always 0, which a compiler doesn't know.
        zero: u32,
    }
}

/// Iterations of `tokens/sample` for 256 tokens.
const ITERATIONS: usize = 24;

pub(super) fn variants() -> Vec<Variant> {
    let logits = [DType::F32, DType::F16].map(logits_variant);
    logits.into_iter().chain([false, true].map(variant)).collect()
}

fn logits_variant(dtype: DType) -> Variant {
    Variant::new(&SAMPLE_LOGITS, [dtype], [])
}

fn variant(has_offset: bool) -> Variant {
    Variant::new(&SAMPLE, [], Constants { has_offset })
}

/// A token of each row.
pub(crate) fn sample(ctx: &OpContext, op: &'static str, desc: &SampleDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [Some(logits), Some(tokens), window, offset] = ctx.resolve(op, &operands)? else { return Ok(()) };
    ctx.require_dtype(op, desc.dtype)?;
    let (columns, kept) = (desc.columns, desc.kept());
    iterations::require(ctx, op, "tokens that are kept", kept.div_ceil(WORKGROUP), ITERATIONS)?;
    let tokens = ctx.output(&tokens, DType::I32);
    let logits = ctx.input(op, &logits, desc.dtype, &tokens)?;
    let has_offset = offset.is_some();
    let call = Draw {
        ctx,
        op,
        desc,
        logits,
        window: ctx.optional_input(op, window.as_ref(), DType::I32, &tokens)?,
        offset: ctx.optional_input(op, offset.as_ref(), DType::U32, &tokens)?,
        has_offset,
        tokens,
    };
    let window_len =
        if window.is_some() { desc.repetition.map_or(0, |repetition| repetition.len) } else { 0 };
    let bytes = row_bytes(columns, kept) + (columns * window_len) as f64 * SHARED_TOKEN;
    in_parts(ctx, op, Run::of_bytes(desc.rows, bytes), |run| {
        // Of a row, the window may have more bytes than the entries.
        let most = rows_at_a_time(ctx, columns).min(call.window.most_items(window_len)).max(1);
        (run.first..run.end)
            .step_by(most)
            .try_for_each(|first| call.rows(first, most.min(run.end - first), window_len))
    })
}

/// Bytes of memory that it takes as long to read as a logit takes to look at a token of the window.
const SHARED_TOKEN: f64 = 1.0;

/// A call with its operands.
struct Draw<'a> {
    ctx: &'a OpContext,
    op: &'static str,
    desc: &'a SampleDesc,
    logits: Window,
    window: Window,
    offset: Window,
    has_offset: bool,
    tokens: Window,
}

impl Draw<'_> {
    /// Draws the tokens of `rows` rows from row `first` on.
    fn rows(&self, first: usize, rows: usize, window_len: usize) -> BackendResult<()> {
        let Self { ctx, op, desc, .. } = *self;
        let _part = ctx.begin_part();
        let (columns, kept) = (desc.columns, desc.kept());
        let [temperature, top_p, min_p, penalty] = desc.numbers();
        let scratch = |elements: usize| -> BackendResult<Window> {
            let scratch = ctx.scratch(op, elements * 4)?;
            Ok(ctx.output(&scratch, DType::F32))
        };
        let (penalised, order) = (scratch(rows * columns)?, scratch(rows * kept)?);
        let logits = self.logits.advanced(first * columns).truncated(rows * columns);
        let window = self.window.advanced(first * window_len).truncated(rows * window_len);
        let total = rows * columns;
        let params = LogitsParams {
            total: dim(op, "logits", total)?,
            columns: dim(op, "columns", columns)?,
            window_len: dim(op, "window", window_len)?,
            x: logits.offset,
            window: window.offset,
            y: penalised.offset,
            penalty,
        };
        let grid = invocation_grid(op, total)?;
        let reads = [&logits, &window];
        ctx.launch(op, &logits_variant(desc.dtype), &reads, &penalised, &params, grid)?;

        Sort { ctx, op, rows, k: kept, largest: true }.run(&penalised, DType::F32, columns, &order)?;

        let tokens = self.tokens.advanced(first).truncated(rows);
        let [count, row] = dims(op, "rows", [rows, first])?;
        let params = Params {
            rows: count,
            columns: dim(op, "columns", columns)?,
            kept: dim(op, "k", kept)?,
            row,
            x: penalised.offset,
            order: order.offset,
            y: tokens.offset,
            temperature,
            top_p,
            min_p,
            seed_low: desc.seed as u32,
            seed_high: (desc.seed >> 32) as u32,
            start_low: desc.offset as u32,
            start_high: (desc.offset >> 32) as u32,
            offset: self.offset.offset,
            zero: 0,
        };
        let reads = [&penalised, &order, &self.offset];
        ctx.launch(op, &variant(self.has_offset), &reads, &tokens, &params, linear_grid(op, rows)?)
    }
}
