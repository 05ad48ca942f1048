//! Writes `tile_product`, the loop over k of lib/tile_product.
//!
//! A driver keeps sums in registers and reads ahead of their use when each has a name of its own; the same
//! loops over arrays ran at three quarters of the speed. All indices stay in the functions of the shader's
//! file, which this text calls.

use std::iter;

use super::{Tile, TileConstants};
use crate::kernels::{Constant as _, Target, Values};
use crate::ops::shared::text::{lines, pairs};

/// The function `tile_product`, given a kernel's constants, of which a tile's come first: the product of a
/// tile over `length` values of k from `first` on, passed to `write_out` four by four.
///
/// The first step takes what k leaves over of whole steps, so that there is nothing to be checked in the
/// loop. While a step is multiplied, the blocks of the next are on their way into registers; those that the
/// last one fetches aren't used.
pub(crate) fn tile_product(values: &Values, target: Target) -> String {
    written(values, target, Vec4s::Across)
}

/// How results are passed to `write_out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vec4s {
    /// Results in four columns of a row.
    Across,
    /// Results in four rows of a column.
    Down,
}

/// The unrolled inner step of a tile, with results written across or down.
pub(crate) fn written(values: &Values, target: Target, vec4s: Vec4s) -> String {
    let tile = Tile::from_constants(TileConstants::of(values));
    let (rows, columns) = (tile.thread_m, tile.thread_n / 4);
    let blocks = || groups('a', tile.fetches(tile.m)).chain(groups('b', tile.fetches(tile.n)));
    let fetch = |declare, from| {
        let next = move |(of, iteration)| {
            format!("{declare}next_{of}_{iteration} = fetch_{of}(tile, index, {iteration}u, {from});")
        };
        lines(blocks().map(next))
    };
    let stage = |(of, iteration)| format!("stage_{of}(index, {iteration}u, next_{of}_{iteration});");
    let sums = lines(pairs([rows, columns]).map(|(i, j)| format!("var sum_{i}_{j} = vec4<f32>();")));
    let (first, next) = (fetch("var ", "first, head"), fetch("", "at, TILE_K"));
    let stage = lines(blocks().map(stage));
    let products = match target.unroll {
        true => lines((0..tile.k / tile.slices()).map(|k| products(&format!("{k}u"), rows / 4, columns))),
        false => format!("for (var k = 0u; k < SLICE; k++) {}\n", products("k", rows / 4, columns)),
    };
    let results = match vec4s {
        Vec4s::Across if tile.slices() > 1 => results_of_slices(rows, columns),
        Vec4s::Across => results(rows, columns),
        Vec4s::Down => results_down(rows, columns),
    };
    format!(
        "
fn tile_product(tile: Tile, index: u32, first: u32, length: u32) {{
let lane = lane_of(index);
let steps = (length + TILE_K - 1u) / TILE_K;
let head = min(length - (steps - 1u) * TILE_K, length);
var at = first + head;
{sums}{first}for (var step = 0u; step < steps; step++) {{
workgroupBarrier();
{stage}workgroupBarrier();
{next}at += TILE_K;
{products}}}
{results}}}
"
    )
}

/// The matrix and the number of each block that an invocation fetches of it.
fn groups(of: char, count: usize) -> impl Iterator<Item = (char, usize)> {
    iter::repeat_n(of, count).zip(0..)
}

/// What one value of k adds to the sums.
fn products(k: &str, rows4: usize, columns4: usize) -> String {
    let left = (0..rows4).map(|i| format!("let a_{i} = staged_a(lane, {k}, {i}u);"));
    let right = (0..columns4).map(|j| format!("let b_{j} = staged_b(lane, {k}, {j}u);"));
    let sums = (0..rows4).flat_map(|i| {
        "xyzw".chars().zip(4 * i..).flat_map(move |(element, row)| {
            (0..columns4).map(move |j| format!("sum_{row}_{j} += a_{i}.{element} * b_{j};"))
        })
    });
    format!("{{\n{}}}", lines(left.chain(right).chain(sums)))
}

/// Passes the sums on, in a loop: what becomes of a sum is too much text to be repeated for each.
fn results(rows: usize, columns4: usize) -> String {
    let cases = cases(rows, columns4);
    format!(
        "for (var i = 0u; i < RESULTS; i++) {{
var sum = vec4<f32>();
switch i {{
{cases}default: {{}}
}}
let row = tile.row + result_row(lane, i / THREAD_N4);
write_out(tile, row, tile.column + result_column(lane, i % THREAD_N4), sum);
}}
"
    )
}

/// What makes `sum` the result of a number.
fn cases(rows: usize, columns4: usize) -> String {
    let case = |(i, j)| format!("case {}u: {{ sum = sum_{i}_{j}; }}", i * columns4 + j);
    lines(pairs([rows, columns4]).map(case))
}

/// Adds the sums of slices, whose invocations share the results.
fn results_of_slices(rows: usize, columns4: usize) -> String {
    let cases = cases(rows, columns4);
    format!(
        "for (var round = 0u; round < RESULTS; round += ROUND) {{
workgroupBarrier();
for (var i = 0u; i < ROUND; i++) {{
var sum = vec4<f32>();
switch round + i {{
{cases}default: {{}}
}}
sh_a[i * THREADS + index] = sum;
}}
workgroupBarrier();
for (var i = index / LANES; i < ROUND; i += SLICES) {{
let row = tile.row + result_row(lane, (round + i) / THREAD_N4);
let column = tile.column + result_column(lane, (round + i) % THREAD_N4);
write_out(tile, row, column, sum_of_slices(index, i));
}}
}}
"
    )
}

/// Writes the results four rows of a column at a time.
fn results_down(rows: usize, columns4: usize) -> String {
    let case = |(column, row4): (usize, usize)| {
        let (j, element) = (column / 4, ["x", "y", "z", "w"][column % 4]);
        let elements = [0, 1, 2, 3].map(|row| format!("sum_{}_{j}.{element}", 4 * row4 + row));
        format!("case {}u: {{ sums = vec4<f32>({}); }}", column * rows / 4 + row4, elements.join(", "))
    };
    let cases = lines(pairs([4 * columns4, rows / 4]).map(case));
    format!(
        "for (var i = 0u; i < RESULTS; i++) {{
var sums = vec4<f32>();
switch i {{
{cases}default: {{}}
}}
let row = tile.row + result_row(lane, i % THREAD_M4 * 4u);
let column = i / THREAD_M4;
write_out(tile, row, tile.column + result_column(lane, column / 4u) + column % 4u, sums);
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sum_has_a_name() {
        for tile in Tile::ALL.into_iter().chain([Tile::SLICED]) {
            let text = tile_product(&tile.constants().values(), Target { immediates: true, unroll: true });
            let sums = tile.thread_m * tile.thread_n / 4;
            assert_eq!(text.matches(" += a_").count(), tile.k / tile.slices() * sums, "{tile}");
            assert_eq!(text.matches("var sum_").count(), sums, "{tile}");
            assert_eq!(text.matches("stage_a(").count(), tile.fetches(tile.m), "{tile}");
        }
    }
}
