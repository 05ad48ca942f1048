//! Writes `multiply`, the step of conv/rows, for the reason that ops/matmul/fragments.rs has: a driver keeps fragments
//! in registers only when each has a name of its own.

use super::rows::{FILTER_WIDTH, RowTile};
use crate::kernels::{MAX_CONSTANTS, Target};
use crate::ops::matrix_units::{FRAGMENT, add_products, declare_sums, write_sums};
use crate::ops::text::lines;

/// The function `multiply`, given the kernel's constants.
///
/// While a step is multiplied, the pixels of the next are on their way into registers. The loop counts steps, so that a
/// compiler can tell how often it runs and schedules across its end.
pub(super) fn multiply(constants: &[u32; MAX_CONSTANTS], _: Target) -> String {
    let tile = RowTile::from_constants(constants);
    let fragments = tile.fragments();
    let turns = || 0..tile.turns();
    let sums = declare_sums(fragments);
    let starts =
        lines((0..FILTER_WIDTH).map(|tap| format!("let from_{tap} = start_of_pixels(subgroup, {tap});")));
    let first = lines(turns().map(|turn| format!("var next_{turn} = fetch(next, {turn}u);")));
    let stage = lines(turns().map(|turn| format!("stage(index, {turn}u, next_{turn});")));
    let next = lines(turns().map(|turn| format!("next_{turn} = fetch(next, {turn}u);")));
    let products = lines((0..FILTER_WIDTH).map(|tap| products(tap, fragments)));
    let results = write_sums(fragments, "sh_sums", "start_of_sums(subgroup)", "FRAGMENT");
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

/// What a tap adds.
fn products(tap: usize, fragments: [usize; 2]) -> String {
    let block = FRAGMENT * FRAGMENT / 4;
    let load_a = |i| {
        let at = format!("factors_at + {tap}u * blocks + {}u", i * block);
        format!("coopLoadT<coop_mat16x16<f16, A>>(&factors[{at}], {}u)", FRAGMENT / 4)
    };
    let load_b = |j| {
        let at = format!("from_{tap} + {}u * STRIDE", j * FRAGMENT);
        format!("coopLoad<coop_mat16x16<f16, B>>(&sh_pixels[{at}], STRIDE)")
    };
    add_products(fragments, load_a, load_b)
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
