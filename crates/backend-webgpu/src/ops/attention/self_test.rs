//! Whether a tile on cooperative matrices gives right results on this device.

use backend_api::desc::{AttentionDesc, AttentionShape};
use backend_api::{BackendError, BackendResult, DType, Diagnostic};
use half::f16;

use super::cooperative::CooperativeTile;
use super::pieces::{Output, bytes_of_parts, combine_variant};
use super::{Problem, Windows, decode_cooperative, fixup, params, types};
use crate::ops::op_context::{OpContext, linear_grid};
use crate::ops::shared::self_test::{OP, SelfTest};
use crate::recorder::Window;

impl CooperativeTile {
    /// Whether it gives right results on this device; found out at its first use.
    pub(super) fn is_verified(self, ctx: &OpContext) -> bool {
        ctx.is_right(&self.variant(), move |ctx| check(ctx, self))
    }
}

impl decode_cooperative::Tile {
    /// Whether it gives right results on this device, with this output; found out at its first use.
    pub(super) fn is_verified(self, ctx: &OpContext, output: Output) -> bool {
        ctx.is_right(&self.variant(output), move |ctx| check_decode(ctx, self, output))
    }
}

/// How far a result may be off: weights are rounded to f16, and so is the result, of numbers up to 1.
const BOUND: f64 = 2e-3;

/// More than one tile of queries with a causal mask, and more than two blocks of keys, whole ones and others,
/// of which the later ones have far larger scores, so that references are raised. Most tiles fetch blocks
/// in another way where vectors fill the tile.
fn check(ctx: &OpContext, tile: CooperativeTile) -> BackendResult<()> {
    let (seq_q, seq_kv) = (tile.queries() + 5, tile.queries() + tile.block + 43);
    let head_dims: &[usize] = if tile.keeps_column() { &[tile.dim - 8, tile.dim] } else { &[tile.dim - 8] };
    head_dims.iter().try_for_each(|&head_dim| {
        compare(ctx, [1, 1, seq_q, seq_kv, head_dim], |test, problem| {
            let params = params(problem, 2, 1)?;
            let Windows { q, k, v, mask, lengths, sinks, lse, o, .. } = problem.windows;
            test.launch(
                &tile.variant(),
                &[q, k, v, mask, lengths, sinks, lse, o],
                &params,
                linear_grid(OP, 2)?,
            )
        })
    })
}

/// Two queries of as many heads as fill the rows, and more pieces than the last workgroup reads in an iteration.
fn check_decode(ctx: &OpContext, tile: decode_cooperative::Tile, output: Output) -> BackendResult<()> {
    let shape = [1, tile.rows / 2, 2, 3 * tile.block + 5, tile.dim - 8];
    compare(ctx, shape, |test, problem| {
        let Problem { desc, windows, .. } = problem;
        let pieces = tile.pieces(desc, 2 * fixup::PIECES_PER_ITERATION);
        let Windows { q, k, v, mask, lengths, sinks, lse, o, .. } = windows;
        let first = params(problem, pieces.length, pieces.count)?;
        let (variant, grid) = (tile.variant(output), pieces.grid(desc));
        if output == Output::FixedUp {
            let fixup = ctx.fixup()?;
            return test.launch(&variant, &[q, k, v, mask, lengths, sinks, &fixup, o], &first, grid);
        }
        let bytes = vec![0xff; bytes_of_parts(OP, desc, pieces.count)?];
        let parts = ctx.output(&test.upload(&bytes)?, DType::F32);
        test.launch(&variant, &[q, k, v, mask, lengths, sinks, &parts], &first, grid)?;
        let rows = desc.heads * desc.seq_q;
        let second = params(problem, rows, pieces.count)?;
        let combine = combine_variant(types(desc), desc.head_dim, pieces.count);
        test.launch(&combine, &[&parts, q, k, v, mask, lengths, lse, o], &second, linear_grid(OP, rows)?)
    })
}

/// Compares causal attention of heads that share keys, of which those from the 40th on have far larger
/// scores, with the host's.
fn compare(
    ctx: &OpContext,
    shape: [usize; 5],
    launch: impl FnOnce(&mut SelfTest, Problem<'_>) -> BackendResult<()>,
) -> BackendResult<()> {
    let [batch, heads, seq_q, seq_kv, head_dim] = shape;
    let shape = AttentionShape { batch, heads, seq_q, seq_kv, head_dim };
    let mut desc = AttentionDesc::new(DType::F16, 0, 0, 0, 0, shape);
    (desc.kv_heads, desc.scale, desc.causal) = (1, 1.0, true);
    let q = numbers(1, heads * seq_q * head_dim, |_| 0.25);
    let k = numbers(2, seq_kv * head_dim, |i| if i / head_dim < 40 { 0.25 } else { 1.0 });
    let v = numbers(3, seq_kv * head_dim, |_| 0.25);

    let mut test = SelfTest::new(ctx);
    let mut bytes = vec![0xff; (heads * seq_q * head_dim * 2).next_multiple_of(4)];
    let o = test.upload(&bytes)?;
    let mut operand = |numbers: &[f16]| -> BackendResult<Window> {
        let slice = test.upload(bytemuck::cast_slice(numbers))?;
        Ok(ctx.output(&slice, DType::F16))
    };
    let windows = Windows {
        q: operand(&q)?,
        k: operand(&k)?,
        v: operand(&v)?,
        mask: ctx.null(),
        table: ctx.null(),
        lengths: ctx.null(),
        sinks: ctx.null(),
        lse: ctx.sink(),
        o: ctx.output(&o, DType::F16),
    };
    launch(&mut test, Problem { ctx, op: OP, desc: &desc, windows: &windows })?;
    test.read(&o, &mut bytes)?;

    for (row, found) in bytes.chunks_exact(2 * head_dim).enumerate() {
        let wanted = attend(&desc, row % seq_q, &q[row * head_dim..][..head_dim], &k, &v);
        for (d, (bytes, wanted)) in found.chunks_exact(2).zip(wanted).enumerate() {
            let found = f16::from_le_bytes([bytes[0], bytes[1]]).to_f64();
            // False for NaN.
            let is_right = (found - wanted).abs() <= BOUND;
            if !is_right {
                let what = format!("number {d} of row {row} is {found}, not {wanted}");
                return Err(BackendError::Driver { op: OP, source: Diagnostic::new(what) });
            }
        }
    }
    Ok(())
}

/// The output of one query, whose vector is `q`.
fn attend(desc: &AttentionDesc, query: usize, q: &[f16], k: &[f16], v: &[f16]) -> Vec<f64> {
    let vector = |of: &[f16], i: usize| -> Vec<f64> {
        of[i * desc.head_dim..][..desc.head_dim].iter().map(|x| x.to_f64()).collect()
    };
    let q = vector(q, 0);
    let keys = desc.visible(query, desc.seq_kv);
    let scores: Vec<f64> =
        keys.clone().map(|key| q.iter().zip(vector(k, key)).map(|(q, k)| q * k).sum()).collect();
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights = scores.iter().map(|score| (score - top).exp());
    let total: f64 = weights.clone().sum();
    let mut sums = vec![0.0; desc.head_dim];
    for (weight, key) in weights.zip(keys) {
        sums.iter_mut().zip(vector(v, key)).for_each(|(sum, v)| *sum += weight / total * v);
    }
    sums
}

/// Multiples of `step` from −3 to 3 of them, without a pattern.
fn numbers(seed: u32, count: usize, step: impl Fn(usize) -> f32) -> Vec<f16> {
    let mix = |i: u32| (i ^ (i >> 15)).wrapping_mul(0x2c1b_3c6d) >> 16;
    let number = |i: usize| (mix((i as u32).wrapping_mul(0x9e37_79b9) ^ seed) % 7) as f32 - 3.0;
    (0..count).map(|i| f16::from_f32(number(i) * step(i))).collect()
}
