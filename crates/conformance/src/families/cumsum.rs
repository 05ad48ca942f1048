//! `cumsum`: along every axis, exclusive and in reverse, in place, of every element type.

use backend_api::DType;
use backend_api::desc::CumSumDesc;

use super::layout::shape_name;
use crate::case::Case;
use crate::data::{Data, uniform};
use crate::grid::pairwise;
use crate::oracle::cumsum::cumsum;
use crate::rng::Rng;
use crate::trial::Trial;

/// Shapes with an axis.
const SHAPES: [(&[usize], usize); 19] = [
    (&[1], 0),
    (&[2], 0),
    (&[5], 0),
    (&[257], 0),
    (&[1025], 0),
    (&[0], 0),
    (&[3, 0], 1),
    (&[3, 0], 0),
    (&[7, 13], 0),
    (&[7, 13], 1),
    (&[2, 64], 1),
    (&[300, 5], 0),
    (&[300, 5], 1),
    (&[2, 33, 40], 1),
    (&[5, 1, 7], 1),
    (&[20_000], 0),
    (&[2, 9001], 1),
    (&[9000, 4], 0),
    (&[2, 8196, 3], 1),
];

#[derive(Clone, Copy, Debug)]
struct Sum {
    dtype: DType,
    shape: &'static [usize],
    axis: usize,
    exclusive: bool,
    reverse: bool,
    in_place: bool,
}

pub(super) fn cases() -> Vec<Case> {
    let grid = ["cumsum 1", "cumsum 2"].map(|seed| pairwise(&[4, SHAPES.len(), 2, 2, 2], seed));
    let sum = |row: Vec<usize>| Sum {
        dtype: DType::ALL[row[0]],
        shape: SHAPES[row[1]].0,
        axis: SHAPES[row[1]].1,
        exclusive: row[2] == 1,
        reverse: row[3] == 1,
        in_place: row[4] == 1,
    };
    grid.into_iter().flatten().map(|row| sum(row).case()).collect()
}

impl Sum {
    fn case(self) -> Case {
        let Self { dtype, shape, axis, .. } = self;
        let kind = super::flag(self.exclusive, "exclusive", "inclusive");
        let direction = super::flag(self.reverse, "reverse", "forward");
        let place = super::flag(self.in_place, "in_place", "apart");
        let name = format!("{dtype}_{}_axis{axis}_{kind}_{direction}_{place}", shape_name(shape));
        Case::new("cumsum", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { dtype, shape, axis, exclusive, reverse, .. } = self;
        let n: usize = shape.iter().product();
        let input = match dtype {
            DType::I32 => (0..n).map(|_| rng.uniform(-2e9, 2e9).floor()).collect(),
            DType::U32 => (0..n).map(|_| rng.uniform(0.0, 4e9).floor()).collect(),
            // Sums that no f16 can hold would say little.
            DType::F16 => Data::Uniform.values(rng, dtype, n),
            _ => uniform(rng, dtype, n, -1.0, 1.0),
        };
        let length = shape[axis];
        let inner = shape[axis + 1..].iter().product();
        let wants = cumsum(dtype, &input, [length, inner], exclusive, reverse);
        let mut trial = Trial::new();
        trial.in_and_out(self.in_place, dtype, input, wants);
        trial.calling(move |backend, p| {
            let mut desc = CumSumDesc::along(dtype, p[0], p[p.len() - 1], shape, axis)?;
            (desc.exclusive, desc.reverse) = (exclusive, reverse);
            backend.cumsum(&desc)
        })
    }
}
