//! Cumulative sums, additions to a table and averages of windows, over small whole numbers but 0.

use backend_api::desc::{
    CumSumDesc, ImageShape, IndexShape, PoolDesc, PoolOp, PoolShape, ScatterDesc, Window,
};
use backend_api::{DType, ScatterOp};

use super::{Exact, Model, Recipe, along, balanced};
use crate::data::Data;
use crate::families::{flag, layout::shape_name};
use crate::float::sum_error;
use crate::oracle::pool::forward;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

/// The lengths of the other cases of cumulative sums, and those around which the kernel changes.
const LENGTHS: [usize; 22] = [
    1, 2, 3, 5, 7, 13, 33, 64, 255, 257, 300, 1024, 1025, 4096, 8196, 9000, 9001, 16_385, 20_000, 32_772,
    33_000, 65_537,
];
const COUNTS: [usize; 9] = [1, 2, 3, 64, 129, 256, 257, 1100, 5000];
const WINDOWS: [[usize; 2]; 8] = [[1, 2], [2, 2], [3, 3], [4, 3], [7, 5], [16, 16], [33, 31], [65, 64]];

pub(super) fn recipes() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for (i, length) in LENGTHS.into_iter().enumerate() {
            recipes.push(cumsum(dtype, [2, length, 1], i % 2 == 1, i % 4 >= 2));
            recipes.push(cumsum(dtype, [1, length, 3], i % 4 >= 2, i % 2 == 1));
        }
        for count in COUNTS {
            recipes.push(scatter(dtype, [1, 4, count], false));
            recipes.push(scatter(dtype, [3, 5, count], true));
        }
        for window in WINDOWS {
            recipes.push(pool(dtype, PoolOp::Average, window));
        }
    }
    recipes
}

fn cumsum(dtype: DType, shape: [usize; 3], exclusive: bool, reverse: bool) -> Recipe {
    let (kind, direction) = (flag(exclusive, "exclusive", "inclusive"), flag(reverse, "reverse", "forward"));
    let name = format!("{dtype}_{}_{kind}_{direction}", shape_name(&shape));
    Recipe::new("cumsum", name, move |rng| {
        let [outer, length, inner] = shape;
        let slices: Vec<Vec<f64>> = (0..outer * inner).map(|_| balanced(rng, length)).collect();
        let input = along(shape, |s| slices[s].clone(), 0.0);
        // Elements are counted in the direction of the sum.
        let sums = move |times: &dyn Fn(usize) -> f64| {
            let scan = |s: usize| {
                let (mut sum, mut sums) = (0.0, vec![0.0; length]);
                for step in 0..length {
                    let i = if reverse { length - 1 - step } else { step };
                    let next = sum + times(step) * slices[s][i];
                    sums[i] = if exclusive { sum } else { next };
                    sum = next;
                }
                sums
            };
            along(shape, scan, 0.0)
        };
        let wants = sums(&|_| 1.0).into_iter().map(|sum| Want::near(sum, 0.0)).collect();
        let mut trial = Trial::new();
        trial.input("input", dtype, &input);
        trial.output("output", dtype, wants);
        let trial = trial.calling(move |backend, p| {
            let mut desc = CumSumDesc::along(dtype, p[0], p[1], &shape, 1)?;
            (desc.exclusive, desc.reverse) = (exclusive, reverse);
            backend.cumsum(&desc)
        });
        let model: Model = Box::new(sums);
        // The last one is in no exclusive sum.
        Exact { trial, length: length - usize::from(exclusive), models: vec![model] }
    })
}

/// All rows of the source arrive in one row of the table.
fn scatter(dtype: DType, [rows, columns, count]: [usize; 3], per_element: bool) -> Recipe {
    let name = format!(
        "add_{dtype}_rows{rows}_columns{columns}_count{count}_{}",
        flag(per_element, "elements", "rows")
    );
    Recipe::new("scatter", name, move |rng| {
        let target = rows / 2;
        let whole = |rng: &mut Rng, n: usize| Data::Whole.values(rng, dtype, n);
        let (table, source) = (whole(rng, rows * columns), whole(rng, count * columns));
        let column = |c: usize| source.iter().skip(c).step_by(columns).copied();
        let places = (0..columns).map(|c| {
            let terms = std::iter::once(table[target * columns + c]).chain(column(c));
            (target * columns + c, Want::near(terms.clone().sum(), sum_error(terms)))
        });
        let places: Vec<(usize, Want)> = places.collect();
        let indices = vec![target as f64; if per_element { count * columns } else { count }];
        let mut trial = Trial::new();
        trial.scattered("table", dtype, table.clone(), places);
        trial.input("indices", DType::U32, &indices);
        trial.input("source", dtype, &source);
        let trial = trial.calling(move |backend, p| {
            let desc = ScatterDesc::new(
                ScatterOp::Add,
                dtype,
                p[0],
                p[1],
                p[2],
                IndexShape { rows, columns, count },
            );
            backend.scatter(&if per_element { desc.with_per_element() } else { desc })
        });
        let model: Model = Box::new(move |times| {
            let mut table = table.clone();
            for (at, x) in source.iter().enumerate() {
                table[target * columns + at % columns] += times(at / columns) * x;
            }
            table
        });
        Exact { trial, length: count, models: vec![model] }
    })
}

/// Two windows beside each other on each of three channels.
fn pool(dtype: DType, op: PoolOp, [height, width]: [usize; 2]) -> Recipe {
    Recipe::new("pool2d", format!("{}_{dtype}_{height}x{width}", op.name()), move |rng| {
        let (channels, window) = (3, Window::new([height, width]).with_stride([1, width]));
        let shape = PoolShape::new(ImageShape::nchw([1, channels, height, 2 * width]), [1, 2], window);
        let planes: Vec<Vec<f64>> = (0..channels).map(|_| balanced(rng, height * 2 * width)).collect();
        let input = planes.concat();
        let mut trial = Trial::new();
        trial.input("input", dtype, &input);
        trial.output("output", dtype, forward(&shape, op, &input));
        let trial =
            trial.calling(move |backend, p| backend.pool2d(&PoolDesc::new(op, dtype, p[0], p[1], shape)));
        let length = height * width;
        let model: Model = Box::new(move |times| {
            let result = |output: usize| {
                let (plane, side) = (&planes[output / 2], output % 2);
                let number = |i: usize| plane[i / width * 2 * width + side * width + i % width];
                (0..length).map(|i| times(i) * number(i)).sum::<f64>() / length as f64
            };
            (0..2 * channels).map(result).collect()
        });
        Exact { trial, length, models: vec![model] }
    })
}
