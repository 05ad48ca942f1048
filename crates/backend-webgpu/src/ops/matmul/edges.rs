//! Products on tensor cores whose m or n exceeds whole tiles by up to 16: the edge is made by skinny products
//! of its own, as another wave of large tiles would take longer.

use backend_api::desc::{BiasAxis, MatmulDesc};

use super::cost::Cost;
use super::kernel::{Family, Kernel};
use super::pack::Prep;
use super::plan::{Plan, Problem};
use super::shapes::{Gemv, Skinny};
use super::strategy::Strategy;
use super::{Call, Windows};
use crate::device::h200;
use crate::ops::op_context::OpContext;
use crate::ops::shared::cooperative_tile::CooperativeTile;
use crate::ops::shared::tensor_cores::FRAGMENT;
use crate::recorder::Window;

/// A part of a product's result: the first row and column, and how many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    row: usize,
    column: usize,
    m: usize,
    n: usize,
}

impl Part {
    fn of(self, desc: &MatmulDesc) -> MatmulDesc {
        let mut part = *desc;
        (part.m, part.n) = (self.m, self.n);
        part
    }

    fn windows(self, desc: &MatmulDesc, windows: &Windows) -> Windows {
        let further = |window: &Window, elements: usize| {
            let mut window = window.clone();
            window.offset += elements as u32;
            window
        };
        let bias = match desc.bias.map(|bias| bias.axis) {
            None => 0,
            Some(BiasAxis::Column) => self.column,
            Some(BiasAxis::Row) => self.row,
        };
        Windows {
            a: further(&windows.a, self.row * if desc.trans_a.is_transposed() { 1 } else { desc.a.ld }),
            b: further(&windows.b, self.column * if desc.trans_b.is_transposed() { desc.b.ld } else { 1 }),
            bias: further(&windows.bias, bias),
            c: further(&windows.c, self.row * desc.c.ld + self.column),
        }
    }
}

/// The part of whole tiles, and what is left over: columns, and rows without these. Empty unless that is
/// little.
fn parts(desc: &MatmulDesc, [tile_m, tile_n]: [usize; 2]) -> Vec<Part> {
    let [m, n] = [desc.m - desc.m % tile_m, desc.n - desc.n % tile_n];
    let [rows, columns] = [desc.m - m, desc.n - n];
    if m == 0 || n == 0 || rows + columns == 0 || rows.max(columns) > FRAGMENT {
        return Vec::new();
    }
    let parts = [
        Part { row: 0, column: 0, m, n },
        Part { row: 0, column: n, m: desc.m, n: columns },
        Part { row: m, column: 0, m: rows, n },
    ];
    parts.into_iter().filter(|part| part.m > 0 && part.n > 0).collect()
}

/// A part of a product, and the plan for it if it isn't the whole tiles'.
pub(super) struct PlannedPart {
    pub(super) desc: MatmulDesc,
    pub(super) windows: Windows,
    pub(super) plan: Option<Plan>,
}

/// The parts in the order in which they are made, of operands that need no copies. What is left over comes first: if
/// the operands were copied for it, the copies are still in the cache.
pub(super) fn parts_with_plans(call: Call<'_>, plan: &Plan) -> Vec<PlannedPart> {
    let Call { ctx, desc, windows, .. } = call;
    let parts = parts(desc, plan.tile()).into_iter().enumerate().rev();
    let planned = parts.map(|(number, part)| {
        let (desc, windows) = (part.of(desc), part.windows(desc, windows));
        let plan = if number == 0 { None } else { edge(ctx, &desc, &windows) };
        PlannedPart { desc, windows, plan }
    });
    planned.collect()
}

/// The plan with the edge that its tiles leave over peeled off, if that can be done.
pub(super) fn peeled(ctx: &OpContext, desc: &MatmulDesc, plan: Plan) -> Plan {
    let can_be_peeled = time_in_parts(ctx, desc, &plan).is_some();
    if can_be_peeled { Plan { strategy: Strategy::PeelEdges, ..plan } } else { plan }
}

/// The plan with its edge peeled off, if that is estimated to be faster.
pub(super) fn peeled_if_cheaper(ctx: &OpContext, desc: &MatmulDesc, plan: Plan) -> Plan {
    let Kernel::Cooperative(tile) = plan.kernel else { return plan };
    let whole = tile.time([desc.m, desc.n, desc.k, desc.batch], ctx.profile().compute_units);
    let is_cheaper = time_in_parts(ctx, desc, &plan).is_some_and(|time| time < whole);
    if is_cheaper { Plan { strategy: Strategy::PeelEdges, ..plan } } else { plan }
}

/// The nanoseconds that the parts are estimated to take, if they can be made: of operands, or copies of them, that
/// are read by whole vectors, as an edge's plan takes them to be.
fn time_in_parts(ctx: &OpContext, desc: &MatmulDesc, plan: &Plan) -> Option<usize> {
    let Kernel::Cooperative(tile) = plan.kernel else { return None };
    if !plan.signature.vectors {
        return None;
    }
    let parts = parts(desc, plan.tile());
    let (main, rest) = parts.split_first().filter(|_| plan.split().is_whole())?;
    let mut time = tile.time([main.m, main.n, desc.k, desc.batch], ctx.profile().compute_units);
    for part in rest {
        time = time.saturating_add(few(ctx, &part.of(desc))?.1 + h200::DEPENDENT_LAUNCH);
    }
    Some(time)
}

/// The plan for an edge of operands that need no copies: one that takes the time of reading them, or one on tensor cores.
fn edge(ctx: &OpContext, desc: &MatmulDesc, windows: &Windows) -> Option<Plan> {
    let problem = &Problem { ctx, desc, windows };
    let mut reading = Gemv::candidates(problem).chain(Skinny::candidates(problem));
    reading
        .find(|candidate| matches!(candidate.cost, Cost::Traffic(_)))
        .map(|candidate| candidate.plan)
        .or_else(|| {
            let (tile, _) = few(ctx, desc)?;
            Plan::new(ctx, desc, Kernel::Cooperative(tile), 1)?.aligned([Prep::AsIs; 2]).verified(ctx)
        })
}

/// The fastest tile for a few rows or columns, and the nanoseconds that it is estimated to take.
fn few(ctx: &OpContext, desc: &MatmulDesc) -> Option<(CooperativeTile, usize)> {
    let sizes = [desc.m, desc.n, desc.k, desc.batch];
    let times = CooperativeTile::FEW.map(|tile| (tile, tile.time(sizes, ctx.profile().compute_units)));
    times.into_iter().min_by_key(|&(_, time)| time)
}

#[cfg(test)]
mod tests {
    use backend_api::DType;
    use backend_api::desc::Matrix;

    use super::*;

    fn places(m: usize, n: usize) -> Vec<[usize; 4]> {
        let matrix = |ld| Matrix::new(0, DType::F16, ld);
        let desc = MatmulDesc::new(m, n, 64, matrix(64), matrix(n), matrix(n));
        parts(&desc, [128, 128]).into_iter().map(|part| [part.row, part.column, part.m, part.n]).collect()
    }

    #[test]
    fn a_little_more_than_whole_tiles_is_made_in_parts() {
        assert_eq!(places(257, 386), [[0, 0, 256, 384], [0, 384, 257, 2], [256, 0, 1, 384]]);
        assert_eq!(places(256, 385), [[0, 0, 256, 384], [0, 384, 256, 1]]);
        assert_eq!(places(144, 128), [[0, 0, 128, 128], [128, 0, 16, 128]]);
        for (m, n) in [(256, 384), (255, 384), (257, 401), (1, 128)] {
            assert!(places(m, n).is_empty(), "{m}x{n}");
        }
    }
}
