//! `permute`, `slice`, `repeat`, `pad` and `concat`, over strided tensors; exact.

use backend_api::DType;
use backend_api::desc::{ConcatDesc, PadDesc, PermuteDesc, RepeatDesc, SliceDesc, TensorDesc};

use super::layout::{Layout, Tensor, shape_name};
use crate::case::Case;
use crate::data::any_number;
use crate::grid::pairwise;
use crate::oracle::convert::want;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

const SHAPES: [&[usize]; 10] = [
    &[],
    &[9],
    &[16],
    &[4, 0, 3],
    &[5, 7],
    &[36, 20],
    &[3, 68, 40],
    &[33, 5, 17],
    &[2, 17, 3, 19],
    &[2, 3, 4, 5],
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let kinds = [permute, slice, repeat, pad, concat];
    for (k, kind) in kinds.into_iter().enumerate() {
        let seed = ["permute", "slice", "repeat", "pad", "concat"][k];
        for row in pairwise(&[4, SHAPES.len(), 5, 5, 4], seed) {
            let layouts = [Layout::ALL[row[2]], Layout::ALL[row[3]]];
            cases.push(kind(DType::ALL[row[0]], SHAPES[row[1]], layouts, row[4]));
        }
    }
    cases
}

/// The indices of every element of a shape, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &extent in shape {
        let next = all.iter().flat_map(|index: &Vec<usize>| {
            (0..extent).map(move |i| index.iter().copied().chain([i]).collect())
        });
        all = next.collect();
    }
    all
}

/// The row-major number of an index.
fn number_of(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |number, (&i, &extent)| number * extent + i)
}

/// A trial with one input; `source` gives the index of the input's element for one of the output's, or what
/// else it is.
fn moved(
    dtype: DType,
    [input, output]: [&Tensor; 2],
    rng: &mut Rng,
    source: impl Fn(&[usize]) -> Result<Vec<usize>, f64>,
) -> Trial {
    let values: Vec<f64> = (0..input.elements()).map(|_| any_number(rng, dtype)).collect();
    let wants = indices(&output.shape).into_iter().map(|index| match source(&index) {
        Ok(from) => Want::Exact(values[number_of(&from, &input.shape)]),
        Err(value) => want(dtype, value),
    });
    let places = output.offsets().into_iter().zip(wants).collect();
    let mut trial = Trial::new();
    trial.input("input", dtype, &input.store(|i| values[i]));
    trial.scattered("output", dtype, output.store(|_| f64::NAN), places);
    trial
}

fn name(dtype: DType, shape: &[usize], [from, to]: [Layout; 2], way: usize) -> String {
    format!("{dtype}_{}_{}_to_{}_{way}", shape_name(shape), from.name(), to.name())
}

fn permute(dtype: DType, shape: &'static [usize], layouts: [Layout; 2], way: usize) -> Case {
    Case::new("permute", name(dtype, shape, layouts, way), move |rng| {
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        match way {
            // The last two exchanged, reversed, and two random orders.
            0 if shape.len() > 1 => axes.swap(shape.len() - 2, shape.len() - 1),
            1 => axes.reverse(),
            _ => (1..axes.len()).rev().for_each(|i| axes.swap(i, rng.below(i + 1))),
        }
        let target: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
        let input = Tensor::new(rng, shape, layouts[0]);
        let output = Tensor::new(rng, &target, layouts[1]);
        let trial = moved(dtype, [&input, &output], rng, |index| {
            let mut from = vec![0; index.len()];
            axes.iter().zip(index).for_each(|(&axis, &i)| from[axis] = i);
            Ok(from)
        });
        trial.calling(move |backend, p| {
            backend.permute(&PermuteDesc::new(input.desc(p[0], dtype), output.desc(p[1], dtype), &axes))
        })
    })
}

fn slice(dtype: DType, shape: &'static [usize], layouts: [Layout; 2], way: usize) -> Case {
    Case::new("slice", name(dtype, shape, layouts, way), move |rng| {
        let steps: Vec<usize> = shape.iter().map(|_| if way == 0 { 1 } else { 1 + rng.below(way) }).collect();
        let starts: Vec<usize> = shape.iter().map(|&extent| rng.below(extent / 2 + 1)).collect();
        let counts = shape.iter().zip(&steps).zip(&starts).map(|((&extent, &step), &start)| {
            let most = (extent - start).div_ceil(step);
            most - rng.below(most / 3 + 1)
        });
        let target: Vec<usize> = counts.collect();
        let input = Tensor::new(rng, shape, layouts[0]);
        let output = Tensor::new(rng, &target, layouts[1]);
        let trial = moved(dtype, [&input, &output], rng, |index| {
            Ok(index.iter().enumerate().map(|(k, &i)| starts[k] + i * steps[k]).collect())
        });
        trial.calling(move |backend, p| {
            let desc = SliceDesc::new(input.desc(p[0], dtype), output.desc(p[1], dtype), &starts);
            backend.slice(&if way == 0 { desc } else { desc.with_steps(&steps) })
        })
    })
}

fn repeat(dtype: DType, shape: &'static [usize], layouts: [Layout; 2], way: usize) -> Case {
    Case::new("repeat", name(dtype, shape, layouts, way), move |rng| {
        // Doubled dimensions are many loops: few are repeated.
        let which = rng.below(shape.len().max(1));
        let mut target: Vec<usize> = shape.to_vec();
        if let Some(extent) = target.get_mut(which) {
            *extent *= [1, 2, 3, 0][way];
        }
        let missing = usize::from(way == 2);
        if missing == 1 {
            target.insert(0, 2);
        }
        let interleaved = way == 1;
        let times = shape.get(which).map_or(1, |_| [1, 2, 3, 1][way]);
        let input = Tensor::new(rng, shape, layouts[0]);
        let output = Tensor::new(rng, &target, layouts[1]);
        let trial = moved(dtype, [&input, &output], rng, |index| {
            let of = |(k, &i): (usize, &usize)| match k == which {
                true if interleaved => i / times,
                true => i % shape[k],
                false => i,
            };
            Ok(index[missing..].iter().enumerate().map(of).collect())
        });
        trial.calling(move |backend, p| {
            let desc = RepeatDesc::new(input.desc(p[0], dtype), output.desc(p[1], dtype));
            backend.repeat(&if interleaved { desc.with_interleaved() } else { desc })
        })
    })
}

fn pad(dtype: DType, shape: &'static [usize], layouts: [Layout; 2], way: usize) -> Case {
    Case::new("pad", name(dtype, shape, layouts, way), move |rng| {
        let before: Vec<usize> = shape.iter().map(|_| rng.below(way + 1)).collect();
        let target: Vec<usize> =
            shape.iter().zip(&before).map(|(&e, &b)| e + b + rng.below(way + 1)).collect();
        let value = [0.0, -2.75, 1e6, 0.1][way];
        let input = Tensor::new(rng, shape, layouts[0]);
        let output = Tensor::new(rng, &target, layouts[1]);
        let trial = moved(dtype, [&input, &output], rng, |index| {
            let inside =
                index.iter().enumerate().map(|(k, &i)| i.checked_sub(before[k]).filter(|&i| i < shape[k]));
            inside.collect::<Option<Vec<usize>>>().ok_or(value)
        });
        trial.calling(move |backend, p| {
            let (input, output) = (input.desc(p[0], dtype), output.desc(p[1], dtype));
            backend.pad(&PadDesc::new(input, output, &before, value))
        })
    })
}

fn concat(dtype: DType, shape: &'static [usize], layouts: [Layout; 2], way: usize) -> Case {
    // A scalar has no axis.
    let shape: &'static [usize] = if shape.is_empty() { &[1] } else { shape };
    Case::new("concat", name(dtype, shape, layouts, way), move |rng| {
        let axis = rng.below(shape.len());
        let extents: Vec<usize> = (0..way + 1).map(|_| rng.below(shape[axis] + 2)).collect();
        let mut target = shape.to_vec();
        target[axis] = extents.iter().sum();
        let output = Tensor::new(rng, &target, layouts[1]);
        let inputs: Vec<Tensor> = extents
            .iter()
            .map(|&extent| {
                let mut own = shape.to_vec();
                own[axis] = extent;
                Tensor::new(rng, &own, layouts[0])
            })
            .collect();
        let data: Vec<Vec<f64>> = inputs
            .iter()
            .map(|tensor| (0..tensor.elements()).map(|_| any_number(rng, dtype)).collect())
            .collect();
        let wants = indices(&target).into_iter().map(|mut index| {
            let mut which = 0;
            while index[axis] >= extents[which] {
                index[axis] -= extents[which];
                which += 1;
            }
            Want::Exact(data[which][number_of(&index, &inputs[which].shape)])
        });
        let places = output.offsets().into_iter().zip(wants).collect();
        let mut trial = Trial::new();
        for (tensor, values) in inputs.iter().zip(&data) {
            trial.input("inputs", dtype, &tensor.store(|i| values[i]));
        }
        trial.scattered("output", dtype, output.store(|_| f64::NAN), places);
        trial.calling(move |backend, p| {
            let tensors: Vec<TensorDesc<'_>> =
                inputs.iter().zip(p).map(|(tensor, &ptr)| tensor.desc(ptr, dtype)).collect();
            backend.concat(&ConcatDesc::new(&tensors, output.desc(p[inputs.len()], dtype), axis))
        })
    })
}
