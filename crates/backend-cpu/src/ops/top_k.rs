//! The largest or smallest numbers of rows.

use backend_api::desc::{SoftmaxOver, TopKDesc};
use backend_api::{BackendResult, DType};
use bytemuck::{Pod, cast_slice_mut};
use half::f16;

use crate::access::{Call, Input};
use crate::element::{Element, with_float};
use crate::math::{exponentials, largest, scale};
use crate::parallel::Cores;

/// Numbers in the share of one thread.
const GRAIN: usize = 1 << 14;

/// The `k` largest or smallest numbers of each row, in order.
pub(crate) fn top_k(call: Call<'_>, desc: &TopKDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.access_two(&operands, |[input, ..], [indices, values]| {
        match desc.dtype {
            DType::F16 => rows(desc, input, indices, values, |x: f16| ascending(x.to_f32())),
            DType::I32 => rows(desc, input, indices, values, |x: i32| x.cast_unsigned() ^ SIGN),
            DType::U32 => rows(desc, input, indices, values, |x: u32| x),
            _ => rows(desc, input, indices, values, ascending),
        }
        if let Some(over) = desc.softmax
            && !values.is_empty()
        {
            with_float!(desc.dtype, T => probabilities::<T>(desc, over, input.elements(), cast_slice_mut(values)));
        }
    })
}

/// Makes probabilities of the numbers that were found.
fn probabilities<T: Element>(desc: &TopKDesc, over: SoftmaxOver, input: &[T], values: &mut [T]) {
    let (mut found, mut all) = (vec![0.0; desc.k], vec![0.0; desc.columns]);
    for (row, values) in values.chunks_exact_mut(desc.k).enumerate() {
        T::load(values, &mut found);
        let sum = match over {
            SoftmaxOver::Row => {
                T::load(&input[row * desc.columns..][..desc.columns], &mut all);
                let shift = largest(&all);
                exponentials(&mut found, shift);
                exponentials(&mut all, shift)
            }
            // And what a later version adds.
            _ => {
                let shift = largest(&found);
                exponentials(&mut found, shift)
            }
        };
        scale(&mut found, 1.0 / sum);
        T::store(&found, values);
    }
}

const SIGN: u32 = 1 << 31;

/// An integer with the order of the numbers: NaN is the largest, and the zeros are one.
pub(super) fn ascending(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    match bits {
        _ if x.is_nan() => u32::MAX,
        _ if bits & SIGN != 0 => !bits,
        _ => bits | SIGN,
    }
}

fn rows<T: Pod + Send + Sync>(
    desc: &TopKDesc,
    input: Input<'_>,
    indices: &mut [u8],
    values: &mut [u8],
    ascending: impl Fn(T) -> u32 + Sync,
) {
    let &TopKDesc { columns, k, largest, .. } = desc;
    let input: &[T] = input.elements();
    let indices: &mut [u32] = cast_slice_mut(indices);
    let key = |x: T| if largest { !ascending(x) } else { ascending(x) };
    Cores::run(input.len().saturating_mul(16), |cores| {
        cores.chunks(indices, k, GRAIN.div_ceil(columns) * k, &|first, chunk: &mut [u32]| {
            for (r, found) in chunk.chunks_exact_mut(k).enumerate() {
                let row = &input[(first / k + r) * columns..][..columns];
                let mut order: Vec<(u32, u32)> = row.iter().map(|&x| key(x)).zip(0..).collect();
                if k < columns {
                    order.select_nth_unstable(k - 1);
                    order.truncate(k);
                }
                order.sort_unstable();
                for (to, (_, index)) in found.iter_mut().zip(order) {
                    *to = index;
                }
            }
        });
    });
    // No bytes have no alignment either.
    if values.is_empty() {
        return;
    }
    let values: &mut [T] = cast_slice_mut(values);
    for (i, (to, &index)) in values.iter_mut().zip(&*indices).enumerate() {
        *to = input[i / k * columns + index as usize];
    }
}
