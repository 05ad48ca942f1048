//! A random token of each row of logits.

use crate::operand::{Access, Operand};
use crate::{BackendResult, Bound, DType, checked_product};

use super::{require, require_float};

/// Tokens in a window of the repetition penalty, at most.
const MAX_WINDOW: usize = 32_768;

/// A token of each row of logits, drawn at random, as language models continue a text. With a row's logits
/// l, in f32, of which NaN counts as −∞:
///
/// 1. The logit of each token in the row's window is divided by the repetition penalty if it is positive, else
///    multiplied with it (Keskar et al., "CTRL", 2019).
/// 2. The tokens are sorted by descending logit, the lower index first among equals, and the first `top_k` of
///    them are kept.
/// 3. Token i gets the weight wᵢ = exp((lᵢ − l₀) / temperature), which is 1 for the first.
/// 4. The fewest tokens in this order are kept whose weights sum up to `top_p` of all (Holtzman et al., "The
///    curious case of neural text degeneration", 2020), the first one always, and of these the ones with wᵢ ≥
///    `min_p`.
/// 5. With u, number `offset + row` of the stream of uniform [`random`](crate::random) numbers that `seed` names,
///    the token is the first at which the sum of the weights exceeds u times that of all tokens kept.
///
/// A temperature that isn't positive, and a largest logit that isn't finite, give the first token. Positive
/// temperatures and penalties beyond 2¹²⁶ or below 2⁻¹²⁶, +∞ too, are taken for these. A penalty that isn't
/// positive and NaN among the other numbers are without effect. Sums are f32, in any order: where u is that near
/// to a boundary, a device may take the token next to it, but never one of weight 0.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SampleDesc {
    /// Handle of the logits, `[rows, columns]`.
    pub logits: u64,
    /// Handle of the tokens, i32 `[rows]`.
    pub tokens: u64,
    /// Element type of the logits, floating-point.
    pub dtype: DType,
    /// Number of rows.
    pub rows: usize,
    /// Logits in a row: the tokens that there are; at least 1.
    pub columns: usize,
    /// What differences of logits are divided by; 0 always takes the largest.
    pub temperature: f64,
    /// How many tokens are kept at most; 0 and more than there are mean all.
    pub top_k: usize,
    /// The share of the weights that is kept; 1 and more mean all.
    pub top_p: f64,
    /// The smallest weight that is kept, beside that of the first token.
    pub min_p: f64,
    /// Recent tokens of each row, if they are punished.
    pub repetition: Option<RepetitionPenalty>,
    /// Which stream of random numbers.
    pub seed: u64,
    /// The first random number to use, counted from the start of the stream.
    pub offset: u64,
    /// Handle of a u64 that is added to `offset` when the call runs, modulo 2⁶⁴: two u32, the lower half first.
    pub offset_ptr: Option<u64>,
}

handles!(SampleDesc: logits, tokens, repetition, offset_ptr);

/// A window of tokens that are made less likely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RepetitionPenalty {
    /// Handle of the tokens, i32 `[rows, window]`; those that there are not, negative ones too, are left out.
    pub window: u64,
    /// Tokens of a row, at most 32,768.
    pub len: usize,
    /// What positive logits are divided by.
    pub penalty: f64,
}

impl SampleDesc {
    /// Draws from all tokens with a temperature of 1.
    #[must_use]
    pub const fn new(dtype: DType, logits: u64, tokens: u64, rows: usize, columns: usize, seed: u64) -> Self {
        Self {
            logits,
            tokens,
            dtype,
            rows,
            columns,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition: None,
            seed,
            offset: 0,
            offset_ptr: None,
        }
    }

    setters! {
        /// Divides differences of logits by a temperature.
        pub fn with_temperature(temperature: f64);

        /// Keeps the `top_k` likeliest tokens.
        pub fn with_top_k(top_k: usize);

        /// Keeps the tokens that make up this share of the weights.
        pub fn with_top_p(top_p: f64);

        /// Keeps the tokens that are at least so likely, beside the first.
        pub fn with_min_p(min_p: f64);

        /// Makes tokens of a window less likely.
        pub fn with_repetition(Some(repetition): RepetitionPenalty);

        /// Takes the random numbers from another place on.
        pub fn with_offset(offset: u64);

        /// Takes the random numbers from a place on that lies in device memory, so that replays of a
        /// [captured](crate::ComputeBackend::capture) call needn't draw with the same numbers.
        pub fn with_offset_ptr(Some(offset_ptr): u64);
    }

    /// How many tokens of a row are sorted out.
    #[must_use]
    pub fn kept(&self) -> usize {
        let [temperature, ..] = self.numbers();
        if temperature == 0.0 {
            1
        } else if self.top_k == 0 || self.top_k > self.columns {
            self.columns
        } else {
            self.top_k
        }
    }

    /// Temperature, `top_p`, `min_p` and penalty in f32, such that none is out of its range: a temperature of 0
    /// takes the first token, and a penalty of 1 is none.
    #[must_use]
    pub fn numbers(&self) -> [f32; 4] {
        let [top_p, min_p] = [self.top_p, self.min_p].map(|x| x as f32);
        let penalty = self.repetition.map_or(1.0, |repetition| repetition.penalty);
        // The divisors for which WGSL bounds a quotient's error.
        let [least, most] = [f32::MIN_POSITIVE, 1.0 / f32::MIN_POSITIVE];
        let positive = |x: f64| (x > 0.0).then(|| (x as f32).clamp(least, most));
        [
            positive(self.temperature).unwrap_or(0.0),
            if top_p.is_nan() { 1.0 } else { top_p.clamp(0.0, 2.0) },
            if min_p.is_nan() { 0.0 } else { min_p.clamp(0.0, 1.0) },
            positive(penalty).unwrap_or(1.0),
        ]
    }

    /// Checks types and shapes. Returns logits, tokens, window and offset.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 4]> {
        require_float(op, "logits", self.dtype)?;
        let window = self.repetition.map(|repetition| repetition.window);
        let window_len = self.repetition.map_or(0, |repetition| repetition.len);
        require(op, "window", Bound::AtMost(MAX_WINDOW), window_len, window_len <= MAX_WINDOW)?;
        if self.rows > 0 {
            require(op, "columns", Bound::AtLeast(1), self.columns, self.columns >= 1)?;
        }
        let logits = checked_product(op, "logits", &[self.rows, self.columns])?;
        let windows = checked_product(op, "window", &[self.rows, window_len])?;
        let words = if self.rows == 0 { 0 } else { 2 };
        Ok([
            Operand::new(op, "logits", self.logits, self.dtype, logits, Access::Read)?,
            Operand::new(op, "tokens", self.tokens, DType::I32, self.rows, Access::Write)?,
            Operand::optional(op, "window", window, DType::I32, windows, Access::Read)?,
            Operand::optional(op, "offset_ptr", self.offset_ptr, DType::U32, words, Access::Read)?,
        ])
    }
}
