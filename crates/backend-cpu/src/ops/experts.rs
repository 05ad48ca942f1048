//! Products of rows with the matrices that indices choose for them.

use backend_api::BackendResult;
use backend_api::desc::ExpertMatmulDesc;
use backend_api::quant::QuantLayout;
use backend_api::support::checked_product;
use bytemuck::cast_slice_mut;

use super::gather::inside;
use super::quant::{GRAIN, PANEL_ROWS, Product};
use crate::access::Call;
use crate::bound::require_end;
use crate::element::{Element, widen, with_float};
use crate::math::apply_binary;
use crate::parallel::Cores;
use crate::room::{NoRoom, zeros};
use crate::strided::boxes;

/// Elements of rows of A, or of products, that are gathered at once.
const SHARE: usize = 1 << 24;

/// `C[i · used + u] = A[i] · Bₑᵀ` for `e = indices[i, u]`, or the weighted sums of these rows.
pub(crate) fn expert_matmul(call: Call<'_>, desc: &ExpertMatmulDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let layout = desc.b.layout(call.op)?;
    let [_, c_rows] = desc.rows_of(call.op)?;
    require_end(call.op, desc.flops())?;
    let elements = checked_product(call.op, "products", &[desc.rows, desc.used, desc.n()])?;
    call.try_access(&operands, |[a, b, indices, bias, weights, _], c| {
        let room = zeros(elements)?;
        let indices: &[u32] = indices.elements();
        let experts: Vec<_> = indices.iter().map(|&index| inside(index, desc.experts)).collect();
        let work = desc.flops() as usize / 2;
        Cores::try_run(work.max(c.len()), |cores| {
            let a = with_float!(desc.a.dtype, T => widen::<T>(cores, a)?);
            let stack =
                Stack { layout: &layout, planes: b.elements(), bias: desc.bias.map(|_| bias.elements()) };
            let products = products(cores, desc, &stack, &a, &experts, room)?;
            let weights = desc.weights.map(|_| weights.elements());
            let results = Results { desc, products: &products, experts: &experts, weights };
            with_float!(desc.c.dtype, T => results.store(cores, c_rows, cast_slice_mut::<u8, T>(c)));
            Ok(())
        })
    })
}

/// The matrices of all experts, and a number for each row of them.
struct Stack<'a> {
    layout: &'a QuantLayout,
    planes: &'a [u8],
    bias: Option<&'a [f32]>,
}

/// The products of all rows and experts, n numbers for each index: those of one expert together, so that its weights
/// are read once for as many rows as [`SHARE`] has room for. Zeros where there is no expert. `products` are as many zeros.
fn products(
    cores: Cores,
    desc: &ExpertMatmulDesc,
    stack: &Stack<'_>,
    a: &[f32],
    experts: &[Option<usize>],
    mut products: Vec<f32>,
) -> Result<Vec<f32>, NoRoom> {
    let (n, k) = (desc.n(), desc.k());
    let stacked = desc.b.rows / desc.experts;
    let chosen = experts.iter().enumerate().filter_map(|(pair, expert)| expert.map(|expert| (expert, pair)));
    let mut chosen: Vec<_> = chosen.collect();
    chosen.sort_unstable();
    let share = (SHARE / k.max(stacked).max(1)).max(1);
    let groups = chosen.chunk_by(|(one, _), (other, _)| one == other);
    for group in groups.flat_map(|group| group.chunks(share)) {
        let m = group.len();
        let expert = group.first().map_or(0, |&(expert, _)| expert);
        let mut rows = zeros(m * k)?;
        for (i, &(_, pair)) in group.iter().enumerate() {
            let row = if desc.per_expert { pair } else { pair / desc.used };
            // Without columns there are no elements, wherever rows would begin.
            let row = if k > 0 { &a[row * desc.a.ld..][..k] } else { &[] };
            rows[i * k..][..k].copy_from_slice(row);
        }
        let &Stack { layout, planes, bias } = stack;
        let product = Product::new(cores, layout, planes, (&rows, [m, k, k]), false)?;
        let mut transposed = zeros(stacked * m)?;
        let grain = (GRAIN / k.max(1)).max(1).next_multiple_of(PANEL_ROWS);
        cores.chunks(&mut transposed, m, grain * m, &|first, chunk| {
            product.rows(expert * stacked + first / m, chunk);
        });
        if let Some(bias) = bias {
            let bias = &bias[expert * stacked..][..stacked];
            for (products, bias) in transposed.chunks_exact_mut(m).zip(bias) {
                products.iter_mut().for_each(|product| *product += bias);
            }
        }
        for (i, &(_, pair)) in group.iter().enumerate() {
            let row = &mut products[pair * n..][..n];
            let column = |from: usize| transposed[from * m..].iter().skip(i).step_by(m).copied();
            row.iter_mut().zip(column(0)).for_each(|(x, product)| *x = product);
            if let Some(gate) = desc.gate {
                let opened: Vec<f32> = column(n).take(n).collect();
                apply_binary(gate.binary(), row, &opened);
            }
        }
    }
    Ok(products)
}

/// What C is made of.
struct Results<'a> {
    desc: &'a ExpertMatmulDesc,
    products: &'a [f32],
    experts: &'a [Option<usize>],
    weights: Option<&'a [f32]>,
}

impl Results<'_> {
    fn store<T: Element>(&self, cores: Cores, rows: usize, c: &mut [T]) {
        let (n, used, ld) = (self.desc.n(), self.desc.used, self.desc.c.ld);
        boxes(cores, &[(rows, ld), (n, 1)], c, GRAIN, &|ranges, c| {
            let (rows, columns) = (&ranges[0], &ranges[1]);
            let mut line = vec![0.0; columns.len()];
            for i in rows.clone() {
                let product = |pair: usize| &self.products[pair * n..][columns.clone()];
                match self.weights {
                    None => line.copy_from_slice(product(i)),
                    Some(weights) => {
                        line.fill(0.0);
                        for (pair, &weight) in weights.iter().enumerate().skip(i * used).take(used) {
                            if self.experts[pair].is_some() {
                                line.iter_mut().zip(product(pair)).for_each(|(x, p)| *x += weight * p);
                            }
                        }
                    }
                }
                let c = &mut c[(i - rows.start) * ld..][..columns.len()];
                if self.desc.accumulate {
                    line.iter_mut().zip(&*c).for_each(|(x, c)| *x += c.to_f32());
                }
                T::store(&line, c);
            }
        });
    }
}
