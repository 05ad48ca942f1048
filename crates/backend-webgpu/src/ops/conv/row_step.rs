//! Writes `multiply`, the step of conv/rows, for the reason that ops/matmul/fragments.rs has: a driver keeps fragments
//! in registers only when each has a name of its own.

use super::rows::{FILTER_WIDTH, RowTile};
use crate::kernels::{MAX_CONSTANTS, Target};
use crate::ops::matmul::FRAGMENT;

/// The function `multiply`, given the kernel's constants.
///
/// While a step is multiplied, the pixels of the next are on their way into registers. The loop counts steps, so that a
/// compiler can tell how often it runs and schedules across its end.
pub(super) fn multiply(constants: &[u32; MAX_CONSTANTS], _: Target) -> String {
    let tile = RowTile::from_constants(constants);
    let [rows, columns] = tile.fragments();
    let turns = || 0..tile.turns();
    let places = || (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
    let sums = lines(places().map(|(i, j)| format!("var sum_{i}_{j} = coop_mat16x16<f32, C>();")));
    let starts =
        lines((0..FILTER_WIDTH).map(|tap| format!("let from_{tap} = start_of_pixels(subgroup, {tap});")));
    let first = lines(turns().map(|turn| format!("var next_{turn} = fetch(next, {turn}u);")));
    let stage = lines(turns().map(|turn| format!("stage(index, {turn}u, next_{turn});")));
    let next = lines(turns().map(|turn| format!("next_{turn} = fetch(next, {turn}u);")));
    let products = lines((0..FILTER_WIDTH).map(|tap| products(tap, rows, columns)));
    let results = results(rows, columns);
    format!(
        "
fn multiply(tile: Tile, index: u32) {{
let subgroup = index / SUBGROUP;
let blocks = tap_blocks();
var factors_at = start_of_factors(tile, subgroup);
{starts}{sums}var next = Step(0u, 0u);
{first}for (var step = 0u; step < params.steps; step++) {{
workgroupBarrier();
{stage}workgroupBarrier();
next = step_after(next);
{next}{products}factors_at += {FILTER_WIDTH}u * blocks;
}}
{results}}}
"
    )
}

/// What a tap adds: the fragments of the filters are held while those of the pixels pass.
fn products(tap: usize, rows: usize, columns: usize) -> String {
    let block = FRAGMENT * FRAGMENT / 4;
    let left = (0..rows).map(|i| {
        let at = format!("factors_at + {tap}u * blocks + {}u", i * block);
        format!("let a_{i} = coopLoadT<coop_mat16x16<f16, A>>(&factors[{at}], {}u);", FRAGMENT / 4)
    });
    let right = (0..columns).flat_map(|j| {
        let at = format!("from_{tap} + {}u * STRIDE", j * FRAGMENT);
        let load = format!("let b_{j} = coopLoad<coop_mat16x16<f16, B>>(&sh_pixels[{at}], STRIDE);");
        let sum = move |i| format!("sum_{i}_{j} = coopMultiplyAdd(a_{i}, b_{j}, sum_{i}_{j});");
        std::iter::once(load).chain((0..rows).map(sum))
    });
    format!("{{\n{}}}", lines(left.chain(right)))
}

/// Writes the sums out, a fragment of each subgroup at a time, in a loop: what becomes of a sum is too much text to be
/// repeated for each fragment.
fn results(rows: usize, columns: usize) -> String {
    let case = |(i, j)| {
        let number = i * columns + j;
        format!("case {number}u: {{ let sum = sum_{i}_{j}; coopStoreT(sum, &sh_sums[sums], stride); }}")
    };
    let cases = lines((0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))).map(case));
    let count = rows * columns;
    format!(
        "let sums = start_of_sums(subgroup);
let stride = FRAGMENT;
for (var i = 0u; i < {count}u; i++) {{
switch i {{
{cases}default: {{}}
}}
workgroupBarrier();
write_out(tile, index, vec2<u32>(i / {columns}u, i % {columns}u) * FRAGMENT);
workgroupBarrier();
}}
"
    )
}

fn lines(statements: impl Iterator<Item = String>) -> String {
    statements.map(|statement| statement + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_is_unrolled() {
        for tile in RowTile::ALL {
            let mut constants = [0; MAX_CONSTANTS];
            constants[..4].copy_from_slice(&tile.constants());
            let text = multiply(&constants, Target { immediates: true, unroll: true });
            let [rows, columns] = tile.fragments();
            assert_eq!(text.matches("coopMultiplyAdd(").count(), FILTER_WIDTH * rows * columns, "{tile}");
            assert_eq!(text.matches("coopStoreT(").count(), rows * columns, "{tile}");
            assert_eq!(text.matches("stage(").count(), tile.turns(), "{tile}");
        }
    }
}
