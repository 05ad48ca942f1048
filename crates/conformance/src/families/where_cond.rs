//! `where_cond`: every element type, tensors and numbers, with every way to broadcast; exact.

use backend_api::DType;
use backend_api::desc::{Value, WhereDesc};

use super::binary_ext::{BROADCASTS, Broadcast, aligned, input};
use super::layout::{Layout, SHAPES, Tensor, shape_name};
use crate::case::Case;
use crate::data::any_number;
use crate::grid::pairwise;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

pub(super) fn cases() -> Vec<Case> {
    let grids = ["where_cond 1", "where_cond 2"].map(|seed| pairwise(&[4, SHAPES.len(), 7, 8, 8, 5], seed));
    let covering = grids.into_iter().flatten().map(|row| {
        // The eighth way is a number.
        let values = [row[3], row[4]].map(|way| BROADCASTS.get(way).copied());
        case(DType::ALL[row[0]], SHAPES[row[1]], BROADCASTS[row[2]], values, Layout::ALL[row[5]])
    });
    let in_place = DType::ALL.into_iter().flat_map(|dtype| {
        Layout::ALL.into_iter().flat_map(move |layout| [0, 1].map(|side| in_place(dtype, layout, side)))
    });
    covering.chain(in_place).chain(DType::ALL.map(six_loops)).collect()
}

/// Mostly 0 and 1; anything but 0 chooses the first.
fn condition(rng: &mut Rng) -> f64 {
    rng.pick(&[0.0, 0.0, 1.0, 1.0, 2.0, f64::from(u32::MAX)])
}

fn case(
    dtype: DType,
    shape: &'static [usize],
    choice: Broadcast,
    values: [Option<Broadcast>; 2],
    layout: Layout,
) -> Case {
    let names = [Some(choice), values[0], values[1]].map(|broadcast| match broadcast {
        Some(broadcast) => broadcast.name(),
        None => "number".to_owned(),
    });
    let name = format!("{dtype}_{}_{}_{}", shape_name(shape), names.join("-"), layout.name());
    Case::new("where_cond", name, move |rng| {
        let output = Tensor::new(rng, shape, layout);
        let chosen = input(rng, shape, choice, Layout::Explicit);
        let [a, b] =
            values.map(|value| input(rng, shape, value.unwrap_or(Broadcast::Scalar), Layout::Packed));
        let chosen_data = chosen.store(|_| condition(rng));
        let [a_data, b_data] = [&a, &b].map(|tensor| tensor.store(|_| any_number(rng, dtype)));
        let [c_at, a_at, b_at] = [&chosen, &a, &b].map(|tensor| aligned(tensor, shape).offsets());
        let offsets = output.offsets().into_iter().enumerate();
        let places = offsets.map(|(i, place)| {
            let of_a = chosen_data[c_at[i]] != 0.0;
            (place, Want::Exact(if of_a { a_data[a_at[i]] } else { b_data[b_at[i]] }))
        });
        let places = places.collect();
        let mut trial = Trial::new();
        trial.input("condition", DType::U32, &chosen_data);
        trial.input("a", dtype, &a_data);
        trial.input("b", dtype, &b_data);
        trial.scattered("output", dtype, output.store(|_| f64::NAN), places);
        trial.calling(move |backend, p| {
            let condition = chosen.desc(p[0], DType::U32);
            let a = if values[0].is_some() { Value::from(a.desc(p[1], dtype)) } else { a_data[0].into() };
            let b = if values[1].is_some() { Value::from(b.desc(p[2], dtype)) } else { b_data[0].into() };
            backend.where_cond(&WhereDesc::new(condition, a, b, output.desc(p[3], dtype)))
        })
    })
}

/// The output is a or b, as `side` says; the other one is a row.
fn in_place(dtype: DType, layout: Layout, side: usize) -> Case {
    let name = format!("{dtype}_{}_onto_{}", layout.name(), ["a", "b"][side]);
    Case::new("where_cond", name, move |rng| {
        let shape = [6, 9, 16];
        let tensor = Tensor::new(rng, &shape, layout);
        let row = Tensor::new(rng, &[16], Layout::Packed);
        let chosen = Tensor::new(rng, &shape, Layout::Packed);
        let conditions: Vec<f64> = (0..tensor.elements()).map(|_| condition(rng)).collect();
        let row_data = row.store(|_| any_number(rng, dtype));
        let before = tensor.store(|_| any_number(rng, dtype));
        let places = tensor.offsets().into_iter().enumerate().map(|(i, place)| {
            let keeps = (conditions[i] != 0.0) == (side == 0);
            (place, Want::Exact(if keeps { before[place] } else { row_data[i % 16] }))
        });
        let places = places.collect();
        let mut trial = Trial::new();
        trial.input("condition", DType::U32, &conditions);
        trial.input("row", dtype, &row_data);
        trial.scattered("x", dtype, before, places);
        trial.calling(move |backend, p| {
            let condition = chosen.desc(p[0], DType::U32);
            let (row, x) = (row.desc(p[1], dtype), tensor.desc(p[2], dtype));
            let [a, b] = if side == 0 { [x, row] } else { [row, x] };
            backend.where_cond(&WhereDesc::new(condition, a, b, x))
        })
    })
}

/// As many loops as the contract takes: nothing can be merged.
fn six_loops(dtype: DType) -> Case {
    Case::new("where_cond", format!("{dtype}_six_loops"), move |rng| {
        let shape = [2, 3, 2, 3, 2, 4];
        let every_second = [true, false, true, false, true, false];
        let with_ones: Vec<usize> =
            shape.iter().zip(every_second).map(|(&extent, keep)| if keep { extent } else { 1 }).collect();
        let [full, other] = [&shape[..], &with_ones].map(|shape| Tensor::new(rng, shape, Layout::Packed));
        let conditions: Vec<f64> = (0..other.elements()).map(|_| condition(rng)).collect();
        let values = full.store(|_| any_number(rng, dtype));
        let at = aligned(&other, &shape).offsets();
        let fixed = any_number(rng, dtype);
        let wants = (0..full.elements())
            .map(|i| Want::Exact(if conditions[at[i]] != 0.0 { values[i] } else { fixed }))
            .collect();
        let mut trial = Trial::new();
        trial.input("condition", DType::U32, &conditions);
        trial.input("a", dtype, &values);
        trial.output("output", dtype, wants);
        trial.calling(move |backend, p| {
            let (condition, a) = (other.desc(p[0], DType::U32), full.desc(p[1], dtype));
            backend.where_cond(&WhereDesc::new(condition, a, fixed, full.desc(p[2], dtype)))
        })
    })
}
