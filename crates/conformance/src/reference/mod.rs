//! What an operation must give, of its command and the bytes of its operands: the same oracles and bounds that
//! the cases are judged by, for operands that somebody else made.
//!
//! [`compare`] judges two results of one call. An element on which the two differ is accepted if both are
//! within the oracle's bound, or if they are no farther apart than two such results may be; the latter for
//! numbers at the ends of f32, where the oracle, which has f64, knows less than the two of them. Elements that
//! an operation moves, compares or draws must have the same bits, and so must everything that it doesn't name.

mod elementwise;
mod experts;
mod heads;
mod indices;
mod products;
mod rows;

use std::collections::HashMap;

use backend_api::support::{Access, Loop};
use backend_api::{BackendResult, Command, DType, Difference};

use crate::element::decode;
use crate::float::{min_normal, storage_rounding};
use crate::want::Want;

/// Memory as the host sees it: the bytes behind handles, from each handle's start on.
#[derive(Clone, Debug, Default)]
pub struct Bytes(HashMap<u64, Vec<u8>>);

impl Bytes {
    /// Sets the first bytes behind a handle.
    pub fn insert(&mut self, ptr: u64, bytes: Vec<u8>) {
        self.0.insert(ptr, bytes);
    }

    /// The first bytes behind a handle; none behind one that was never set.
    #[must_use]
    pub fn get(&self, ptr: u64) -> &[u8] {
        self.0.get(&ptr).map_or(&[], Vec::as_slice)
    }

    fn numbers(&self, ptr: u64, dtype: DType) -> Vec<f64> {
        decode(dtype, self.get(ptr))
    }

    /// Numbers behind an optional handle; none without one.
    fn optional(&self, ptr: Option<u64>, dtype: DType) -> Vec<f64> {
        ptr.map(|ptr| self.numbers(ptr, dtype)).unwrap_or_default()
    }

    /// A u64 in two words, low one first; 0 without a handle.
    fn word_pair(&self, ptr: Option<u64>) -> u64 {
        let bytes = ptr.map(|ptr| self.get(ptr)).unwrap_or_default();
        bytes.first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes))
    }
}

/// What must become of one output.
struct Expected {
    ptr: u64,
    dtype: DType,
    /// Whether elements that are not in `wants` are moved, to the bit of a NaN's payload.
    moved: bool,
    /// Elements that are computed, by their place after the handle's start.
    wants: Vec<(usize, Want)>,
}

impl Expected {
    /// An output of which some elements are computed, and the rest stays.
    const fn computed(ptr: u64, dtype: DType, wants: Vec<(usize, Want)>) -> Self {
        Self { ptr, dtype, moved: true, wants }
    }

    /// A packed output.
    fn packed(ptr: u64, dtype: DType, wants: impl IntoIterator<Item = Want>) -> Self {
        Self::computed(ptr, dtype, wants.into_iter().enumerate().collect())
    }

    /// An output whose bits are known, unless the element type changes on the way: then NaN is any NaN, and a
    /// subnormal number may be zero.
    const fn moved(ptr: u64, dtype: DType, from: DType) -> Self {
        Self {
            ptr,
            dtype,
            moved: dtype.size() == from.size() && dtype.is_float() == from.is_float(),
            wants: Vec::new(),
        }
    }

    /// An output of exact numbers.
    const fn exact(ptr: u64, dtype: DType) -> Self {
        Self { ptr, dtype, moved: false, wants: Vec::new() }
    }
}

/// The outputs of a command on memory as it was before the call.
fn expected(op: &'static str, command: &Command<'_>, memory: &Bytes) -> BackendResult<Vec<Expected>> {
    Ok(match command {
        Command::Unary(desc) => vec![elementwise::unary(op, desc, memory)?],
        Command::Binary(desc) => vec![elementwise::binary(op, desc, memory)?],
        Command::Compare(desc) => vec![elementwise::compare(op, desc, memory)?],
        Command::Clamp(desc) => vec![elementwise::clamp(op, desc, memory)?],
        Command::Affine(desc) => vec![elementwise::affine(op, desc, memory)?],
        Command::Softmax(desc) => vec![rows::softmax(desc, memory)],
        Command::LayerNorm(desc) => rows::layer_norm(desc, memory),
        Command::RmsNorm(desc) => rows::rms_norm(desc, memory),
        Command::GroupNorm(desc) => vec![rows::group_norm(desc, memory)],
        Command::BatchNorm(desc) => vec![rows::batch_norm(desc, memory)],
        Command::SoftmaxBackward(desc) => vec![rows::softmax_backward(desc, memory)],
        Command::NormBackward(desc) => vec![rows::norm_backward(desc, memory)],
        Command::NormBackwardWeight(desc) => vec![rows::norm_backward_weight(desc, memory)],
        Command::CumSum(desc) => vec![rows::cumsum(desc, memory)],
        Command::Reduce(desc) => vec![rows::reduce(op, desc, memory)?],
        Command::Matmul(desc) => vec![products::matmul(desc, memory)],
        Command::QuantMatmul(desc) => vec![products::quant_matmul(op, desc, memory)?],
        Command::ExpertMatmul(desc) => vec![experts::expert_matmul(op, desc, memory)?],
        Command::Conv(desc) => vec![products::conv(desc, memory)],
        Command::ConvTranspose(desc) => vec![products::conv_transpose(op, desc, memory)?],
        Command::ConvBackwardData(desc) => vec![products::conv_backward_data(desc, memory)],
        Command::ConvBackwardFilter(desc) => vec![products::conv_backward_filter(desc, memory)],
        Command::Pool(desc) => vec![rows::pool(desc, memory)],
        Command::PoolBackward(desc) => vec![rows::pool_backward(desc, memory)],
        Command::Attention(desc) => heads::attention(desc, memory),
        Command::Rope(desc) => vec![heads::rope(desc, memory)],
        Command::RopeAppend(desc) => heads::rope_append(desc, memory),
        Command::Scatter(desc) => vec![indices::scatter(desc, memory)],
        Command::Sample(desc) => vec![indices::sample(desc, memory)],
        Command::QuantGather(desc) => vec![Expected::exact(desc.output, desc.dtype)],
        Command::Dequantize(desc) => vec![Expected::exact(desc.output.ptr, desc.output.dtype)],
        Command::Where(desc) => vec![Expected::moved(desc.output.ptr, desc.output.dtype, desc.output.dtype)],
        Command::Copy(desc) => vec![Expected::moved(desc.dst.ptr, desc.dst.dtype, desc.src.dtype)],
        Command::Permute(desc) => {
            vec![Expected::moved(desc.output.ptr, desc.output.dtype, desc.input.dtype)]
        }
        Command::Slice(desc) => vec![Expected::moved(desc.output.ptr, desc.output.dtype, desc.input.dtype)],
        Command::Pad(desc) => vec![Expected::moved(desc.output.ptr, desc.output.dtype, desc.input.dtype)],
        Command::Repeat(desc) => vec![Expected::moved(desc.output.ptr, desc.output.dtype, desc.input.dtype)],
        Command::Concat(desc) => {
            let to = desc.output.dtype;
            let from = desc.inputs.iter().map(|input| input.dtype).find(|&from| from != to).unwrap_or(to);
            vec![Expected::moved(desc.output.ptr, to, from)]
        }
        Command::Gather(desc) => vec![Expected::moved(desc.output, desc.dtype, desc.dtype)],
        Command::TopK(desc) => {
            let values = desc.values.map(|ptr| Expected::moved(ptr, desc.dtype, desc.dtype));
            values.into_iter().chain([Expected::exact(desc.indices, DType::I32)]).collect()
        }
        Command::Random(desc) => vec![Expected::exact(desc.output, desc.dtype)],
        &Command::Fill { dst, dtype, .. } => vec![Expected::moved(dst, dtype, dtype)],
        // Bytes, and what a later version adds: bit by bit.
        _ => Vec::new(),
    })
}

/// What the results of two backends for one call differ in, beyond what rounding explains. `before` has every
/// operand as it was, `after` the outputs of the two.
///
/// # Errors
/// What the descriptor's checks refuse; nothing where the call has succeeded.
pub fn compare(
    op: &'static str,
    command: &Command<'_>,
    before: &Bytes,
    after: [&Bytes; 2],
) -> BackendResult<Option<Difference>> {
    let operands = command.operands(op)?;
    let outputs = operands.iter().filter(|operand| operand.access == Access::Write && operand.bytes > 0);
    let mut expected_outputs = None;
    for output in outputs {
        let bytes = after.map(|memory| memory.get(output.ptr));
        if bytes[0] == bytes[1] {
            continue;
        }
        let all = match &expected_outputs {
            Some(all) => all,
            None => expected_outputs.insert(expected(op, command, before)?),
        };
        let bitwise = Expected::moved(output.ptr, DType::U32, DType::U32);
        let expected = all.iter().find(|expected| expected.ptr == output.ptr).unwrap_or(&bitwise);
        if let Some(difference) = expected.judge(output.arg, bytes) {
            return Ok(Some(difference));
        }
    }
    Ok(None)
}

impl Expected {
    fn judge(&self, arg: &'static str, bytes: [&[u8]; 2]) -> Option<Difference> {
        let size = self.dtype.size();
        let numbers = bytes.map(|bytes| decode(self.dtype, bytes));
        let mut wants: HashMap<usize, &Want> = self.wants.iter().map(|(at, want)| (*at, want)).collect();
        let total = if wants.is_empty() { numbers[0].len() } else { wants.len() };
        let mut wrong = 0;
        let mut worst: Option<(f64, usize, [f64; 2], Option<&Want>)> = None;
        let elements = bytes[0].chunks(size).zip(bytes[1].chunks(size)).enumerate();
        for (at, _) in elements.filter(|(_, (a, b))| a != b) {
            let pair = numbers.each_ref().map(|numbers| numbers.get(at).copied().unwrap_or(f64::NAN));
            let want = wants.remove(&at);
            let miss = match want {
                Some(want) => miss_of(want, pair, self.dtype),
                None if !self.moved && is_alike(pair, self.dtype) => 0.0,
                None => f64::INFINITY,
            };
            if miss > 1.0 {
                wrong += 1;
                if worst.as_ref().is_none_or(|&(most, ..)| miss > most) {
                    worst = Some((miss, at, pair, want));
                }
            }
        }
        let (_, index, values, want) = worst?;
        let shown = |which: usize| {
            let bits = bytes[which].get(index * size..).unwrap_or_default();
            let bits: String = bits.iter().take(size).rev().map(|byte| format!("{byte:02x}")).collect();
            format!("{:e} (0x{bits})", values[which])
        };
        let accepted = want.map_or_else(|| "the same bits".to_owned(), ToString::to_string);
        Some(Difference::Elements { arg, wrong, total, index, values: [shown(0), shown(1)], accepted })
    }
}

/// How far off the worse of two results is, as a multiple of what is accepted.
fn miss_of(want: &Want, pair: [f64; 2], dtype: DType) -> f64 {
    let worse = pair.map(|got| want.miss(got, dtype)).into_iter().fold(0.0, f64::max);
    if worse <= 1.0 || is_together(want, pair, dtype) { 0.0 } else { worse }
}

/// Whether two results are no farther apart than two within the bound may be.
fn is_together(want: &Want, [a, b]: [f64; 2], dtype: DType) -> bool {
    match want {
        Want::AnyOf(all) => all.iter().any(|want| is_together(want, [a, b], dtype)),
        Want::Near { bound, .. } if bound.is_finite() && *bound > 0.0 => {
            let stored = storage_rounding(dtype, a) + storage_rounding(dtype, b);
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 2.0 * bound + stored
        }
        _ => a == b || (a.is_nan() && b.is_nan()),
    }
}

/// Whether exact numbers are equal: NaN is any NaN, and a subnormal number may be zero.
fn is_alike([a, b]: [f64; 2], dtype: DType) -> bool {
    let vanishes = |x: f64| dtype.is_float() && x.abs() < min_normal(dtype);
    (a.is_nan() && b.is_nan()) || a == b || (vanishes(a) && vanishes(b) && (a == 0.0 || b == 0.0))
}

/// Every place of nested loops, in order: for each tensor the elements from its first one.
fn walk<const N: usize>(loops: &[Loop<N>]) -> Vec<[usize; N]> {
    let mut places = vec![[0; N]];
    for &(extent, strides) in loops {
        let along = |place: &[usize; N]| {
            let place = *place;
            (0..extent).map(move |i| std::array::from_fn(|t| place[t] + i * strides[t]))
        };
        places = places.iter().flat_map(along).collect();
    }
    places
}

#[cfg(test)]
mod tests;
