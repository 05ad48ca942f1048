//! Reductions.

use backend_api::desc::{MAX_RANK, ReduceDesc};
use backend_api::support::Access;
use backend_api::{DType, ReduceOp};

use crate::judge::{Call, Dims, Named, OP, addresses, dtype, is_small, limit, listed_twice, shape, volume};
use crate::random::{Gen, Tensor};
use crate::walk::{loops_needed, visited, walks};

pub(crate) fn reduce(g: &mut Gen) -> bool {
    use ReduceOp::{ArgMax, ArgMin, LogSumExp, Mean, NormL1, NormL2};
    let (op, of, extents) = (g.pick(ReduceOp::ALL), g.dtype(), g.shape());
    let input = g.tensor(1, of, &extents);
    let mut axes = g.permutation(extents.len());
    axes.truncate(g.below(extents.len() + 1));
    if g.one_in(15) {
        axes.push(g.extent());
    }
    let kept: Vec<usize> = (0..extents.len()).filter(|k| !axes.contains(k)).collect();
    let to: Vec<usize> = kept.iter().map(|&k| extents[k]).collect();
    let index = [ArgMax, ArgMin].contains(&op);
    let usual = if index { DType::I32 } else { of };
    let output = g.tensor(2, usual, &to);
    let output = Tensor { dtype: g.like(usual), ..output };

    let mut call = Call::default();
    if [Mean, NormL1, NormL2, LogSumExp].contains(&op) {
        call.require_float("input", of);
    }
    let widened = !index && (of, output.dtype) == (DType::F16, DType::F32);
    call.fault_if(output.dtype != usual && !widened, dtype("output", output.dtype));
    for (i, &axis) in axes.iter().enumerate() {
        call.require_at_least(1, extents.len());
        call.fault_if(axis >= extents.len(), shape(extents.len(), axis));
        call.fault_if(axes[..i].contains(&axis), listed_twice(axis));
    }
    [&input, &output].into_iter().for_each(|tensor| call.strides_of(tensor));
    call.require_countable(&extents);
    let (from, to_dims) = (input.dims(), output.dims());
    let kept: Dims = kept.iter().filter_map(|&k| from.get(k).copied()).collect();
    let reduced: Dims = (0..from.len()).filter(|k| axes.contains(k)).map(|k| from[k]).collect();
    let is_sound = !call.is_refused();
    call.name(Named::tensor("input", &input, Access::Read));
    call.name(Named::tensor("output", &output, Access::Write));
    if is_sound {
        let loops = loops_needed([&kept, &to_dims]) + loops_needed([&reduced]);
        call.fault_if(loops > MAX_RANK, limit(loops, MAX_RANK));
        let most = if index { (1u128 << 31) - 1 } else { (1 << 32) - 1 };
        let length = volume(&reduced);
        call.fault_if(length > most && volume(&kept) > 0, limit(length as usize, most as usize));
    }
    let mut desc = ReduceDesc::new(op, input.desc(), &axes, 2);
    assert_eq!((desc.output_dtype, op.is_index()), (usual, index));
    desc.output_dtype = output.dtype;
    desc.output_strides = output.strides.as_deref();
    let Some(loops) = call.judge(desc.operands(OP)) else { return false };
    walks(&loops.kept, [&kept, &to_dims]);
    walks(&loops.reduced, [&reduced]);
    assert_eq!((loops.outputs as u128, loops.length as u128), (volume(&kept), volume(&reduced)));
    assert_eq!(loops.reads(), loops.outputs as f64 * loops.length as f64);
    // Together they read every number once.
    if is_small(&from) {
        let outer = visited(&loops.kept);
        let inner = visited(&loops.reduced);
        let mut read: Vec<usize> =
            outer.iter().flat_map(|[at, _]| inner.iter().map(move |[i]| at + i)).collect();
        let mut all = addresses(&from);
        read.sort_unstable();
        all.sort_unstable();
        assert_eq!(read, all);
    }
    true
}
