//! Rotary position embedding.

use backend_api::BackendResult;
use backend_api::desc::{RopeDesc, RopeStyle};
use bytemuck::{cast_slice_mut, try_cast_slice};

use crate::access::{Call, Input};
use crate::element::{Element, with_float};
use crate::parallel::Cores;
use crate::strided::boxes;

/// Numbers in the share of one thread.
const GRAIN: usize = 1 << 13;

/// Rotates pairs of numbers by their token's position.
pub(crate) fn rope(call: Call<'_>, desc: &RopeDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.access(&operands, |[input, _, cos, sin, positions], output| {
        let rotation = Rotation { desc, angles: Angles::new([cos, sin, positions]) };
        let numbers = desc.batch * desc.heads * desc.seq * desc.head_dim;
        Cores::run(numbers.saturating_mul(2), |cores| {
            with_float!(desc.dtype, T => {
                with_float!(desc.output_dtype, Y => {
                    rotation.run::<T, Y>(cores, input.separate(), cast_slice_mut(output));
                });
            });
        });
    })
}

struct Rotation<'a> {
    desc: &'a RopeDesc,
    angles: Angles<'a>,
}

impl Rotation<'_> {
    /// Without an `input`, it is the output.
    fn run<T: Element, Y: Element>(&self, cores: Cores, input: Option<&[T]>, output: &mut [Y]) {
        let desc = self.desc;
        let [from, to] = desc.layouts();
        let dims = [(desc.batch, to.batch), (desc.heads, to.head), (desc.seq, to.token)];
        boxes(cores, &dims, output, GRAIN.div_ceil(desc.head_dim), &|ranges, output| {
            let [batches, heads, tokens] = ranges else { return };
            let mut x = vec![0.0; desc.head_dim];
            let mut y = vec![0.0; desc.rotary_dim];
            for b in batches.clone() {
                for h in heads.clone() {
                    for t in tokens.clone() {
                        let at = (b - batches.start) * to.batch
                            + (h - heads.start) * to.head
                            + (t - tokens.start) * to.token;
                        let vector = &mut output[at..at + desc.head_dim];
                        match input {
                            Some(input) => {
                                let at = b * from.batch + h * from.head + t * from.token;
                                T::load(&input[at..at + desc.head_dim], &mut x);
                            }
                            None => Y::load(vector, &mut x),
                        }
                        self.angles.rotate(desc.style, self.position(b, t), &x, &mut y);
                        Y::store(&y, &mut vector[..desc.rotary_dim]);
                        // The rest is copied, as bits if the type stays.
                        let rest = &mut vector[desc.rotary_dim..];
                        if let Some(input) = input {
                            let at = b * from.batch + h * from.head + t * from.token;
                            let input = &input[at + desc.rotary_dim..at + desc.head_dim];
                            match try_cast_slice(input) {
                                Ok(same) if desc.dtype == desc.output_dtype => rest.copy_from_slice(same),
                                _ => Y::store(&x[desc.rotary_dim..], rest),
                            }
                        }
                    }
                }
            }
        });
    }

    fn position(&self, batch: usize, token: usize) -> usize {
        let position = match self.desc.positions {
            Some(_) => self.angles.positions[batch * self.desc.seq + token] as usize,
            // Without pairs to rotate, the start may be any number.
            None => self.desc.start.saturating_add(token),
        };
        position.min(self.desc.max_position.saturating_sub(1))
    }
}

/// The cosines and sines of positions, and the positions of tokens.
pub(super) struct Angles<'a> {
    cos: &'a [f32],
    sin: &'a [f32],
    pub(super) positions: &'a [u32],
}

impl<'a> Angles<'a> {
    pub(super) fn new([cos, sin, positions]: [Input<'a>; 3]) -> Self {
        Self { cos: cos.elements(), sin: sin.elements(), positions: positions.elements() }
    }

    /// The pairs that `y` has room for, rotated by the angles of a position.
    pub(super) fn rotate(&self, style: RopeStyle, position: usize, x: &[f32], y: &mut [f32]) {
        let pairs = y.len() / 2;
        let row = position * pairs..(position + 1) * pairs;
        if pairs > 0 {
            rotate(style, &self.cos[row.clone()], &self.sin[row], x, y);
        }
    }
}

/// The pairs of `x`, rotated by angles with these cosines and sines.
fn rotate(style: RopeStyle, cos: &[f32], sin: &[f32], x: &[f32], y: &mut [f32]) {
    let pairs = cos.len();
    for (i, (&cos, &sin)) in cos.iter().zip(sin).enumerate() {
        let (first, second) = match style {
            RopeStyle::Half => (i, i + pairs),
            RopeStyle::Interleaved => (2 * i, 2 * i + 1),
        };
        let (a, b) = (f64::from(x[first]), f64::from(x[second]));
        let (cos, sin) = (f64::from(cos), f64::from(sin));
        y[first] = (a * cos - b * sin) as f32;
        y[second] = (a * sin + b * cos) as f32;
    }
}
