//! Writes `attend`, the body of attention/cooperative.
//!
//! Drivers keep fragments in registers only when each has a name of its own, so that the loops over them are written out
//! here. All indices stay in the functions of the shader's file, which this text calls.

use std::iter;

use super::cooperative::{BLOCK, CooperativeTile};
use crate::kernels::{MAX_CONSTANTS, Target};
use crate::ops::matrix_units::FRAGMENT;
use crate::ops::text::{lines, pairs};

/// Columns of fragments in a block of keys.
const COLUMNS: usize = BLOCK / FRAGMENT;

/// Fours in the row of a fragment.
const FOURS: usize = FRAGMENT / 4;

/// The function `attend`, given the kernel's constants.
///
/// While a block is worked on, the next is on its way into registers; what is fetched behind the last is not used.
pub(super) fn attend(constants: &[u32; MAX_CONSTANTS], _: Target) -> String {
    let tile = CooperativeTile::from_constants(constants);
    let (queries, sums, first) = (queries(tile), sums(tile), fetch(tile, "var ", "tile.first"));
    let (stage, next) = (stage(tile), fetch(tile, "", "block + 1u"));
    let (products, weights) = (products(tile), lines((0..tile.parts).map(|part| weights(tile, part))));
    let (values, results) = (values(tile), lines((0..tile.parts).map(|part| results(tile, part))));
    format!(
        "
fn attend(tile: Tile, index: u32) {{
  let subgroup = index / SUBGROUP;
  let from_p = subgroup * FRAGMENT * STRIDE_P;
  let from_s = subgroup * FRAGMENT * STRIDE_S;
  let beside_s = from_s + {FOURS}u;
  let stride_s = STRIDE_S;
  if index == 0u {{
    sh_raise = 0u;
  }}
{queries}{sums}{first}  for (var block = tile.first; block < tile.blocks; block++) {{
    workgroupBarrier();
{stage}    workgroupBarrier();
{next}    let whole = is_whole(tile, block);
{products}{weights}{values}  }}
{results}}}
"
    )
}

/// Loads the fragments of the queries, 32 numbers at a time.
fn queries(tile: CooperativeTile) -> String {
    let chunk = |(part, chunk): (usize, usize)| {
        let load = |column: usize| {
            let (number, across) = (chunk * COLUMNS + column, column * FOURS);
            format!(
                "let q_{part}_{number} = coopLoadT<coop_mat16x16<f16, A>>(&sh_p[from_p + {across}u], STRIDE_P);"
            )
        };
        let stage = [
            "workgroupBarrier();".to_owned(),
            format!("stage_q(tile, index, {part}u, {chunk}u);"),
            "workgroupBarrier();".to_owned(),
        ];
        lines(stage.into_iter().chain((0..COLUMNS).map(load)))
    };
    pairs([tile.parts, tile.dim / BLOCK]).map(chunk).collect()
}

/// The output's fragments, and each part's reference and sum.
fn sums(tile: CooperativeTile) -> String {
    let fragments = pairs([tile.parts, tile.dim / FRAGMENT])
        .map(|(part, j)| format!("var o_{part}_{j} = coop_mat16x16<f32, C>();"));
    let rows = (0..tile.parts).map(|part| format!("var reference_{part} = FLOOR;\nvar total_{part} = 0.0;"));
    lines(fragments.chain(rows))
}

/// Fetches an invocation's groups of a block of keys and values.
fn fetch(tile: CooperativeTile, declare: &str, block: &str) -> String {
    lines(
        groups(tile).map(|(of, turn)| {
            format!("{declare}next_{of}_{turn} = fetch_{of}(tile, index, {block}, {turn}u);")
        }),
    )
}

/// Puts them into workgroup memory.
fn stage(tile: CooperativeTile) -> String {
    lines(groups(tile).map(|(of, turn)| {
        let first = if of == 'k' { "0u" } else { "BLOCK" };
        format!("stage(index, {first}, {turn}u, next_{of}_{turn});")
    }))
}

/// Keys or values, and the number of each group that an invocation fetches.
fn groups(tile: CooperativeTile) -> impl Iterator<Item = (char, usize)> {
    ['k', 'v'].into_iter().flat_map(move |of| (0..tile.fetches()).map(move |turn| (of, turn)))
}

/// Multiplies the queries with a block of keys. Staged keys are columns, which `coopLoad` reads one by one.
fn products(tile: CooperativeTile) -> String {
    let declared =
        pairs([tile.parts, COLUMNS]).map(|(part, j)| format!("var s_{part}_{j} = coop_mat16x16<f32, C>();"));
    let product = |(l, j): (usize, usize)| {
        let (down, across) = (j * FRAGMENT, l * FOURS);
        let load = format!(
            "let k_{l}_{j} = coopLoad<coop_mat16x16<f16, B>>(&sh_kv[{down}u * STRIDE + {across}u], STRIDE);"
        );
        let add =
            move |part| format!("s_{part}_{j} = coopMultiplyAdd(q_{part}_{l}, k_{l}_{j}, s_{part}_{j});");
        lines(iter::once(load).chain((0..tile.parts).map(add)))
    };
    let products = pairs([tile.dim / FRAGMENT, COLUMNS]).map(product);
    lines(declared) + &products.collect::<String>()
}

/// Makes weights of a part's scores, raising references if some have to be.
fn weights(tile: CooperativeTile, part: usize) -> String {
    let store = store_pair(&format!("s_{part}_0"), &format!("s_{part}_1"));
    let rescaled: String = (0..tile.dim / BLOCK)
        .map(|chunk| {
            let [left, right] = [0, 1].map(|column| format!("o_{part}_{}", chunk * COLUMNS + column));
            let store = store_pair(&left, &right);
            format!(
                "{store}workgroupBarrier();
rescale(index, factor);
workgroupBarrier();
{left} = coopLoadT<coop_mat16x16<f32, C>>(&sh_s[from_s], STRIDE_S);
{right} = coopLoadT<coop_mat16x16<f32, C>>(&sh_s[beside_s], STRIDE_S);
workgroupBarrier();
"
            )
        })
        .collect();
    let loads = lines((0..COLUMNS).map(|column| {
        let across = column * FOURS;
        format!(
            "let p_{part}_{column} = coopLoadT<coop_mat16x16<f16, A>>(&sh_p[from_p + {across}u], STRIDE_P);"
        )
    }));
    format!(
        "{store}workgroupBarrier();
let scores_{part} = scores(tile, index, {part}u, block, whole);
var sum_{part} = weigh(index, scores_{part}, reference_{part});
let raise_{part} = workgroupUniformLoad(&sh_raise);
if raise_{part} == 1u {{
let raised = max(reference_{part}, largest_of_both(index));
let factor = weight(reference_{part} - raised);
reference_{part} = raised;
total_{part} *= factor;
workgroupBarrier();
sum_{part} = weigh(index, scores_{part}, raised);
if index == 0u {{
sh_raise = 0u;
}}
workgroupBarrier();
{rescaled}}}
total_{part} += sum_{part};
{loads}"
    )
}

/// Adds the block's part of the output.
fn values(tile: CooperativeTile) -> String {
    let product = |(j, l): (usize, usize)| {
        let (down, across) = (BLOCK + l * FRAGMENT, j * FOURS);
        let load = format!(
            "let v_{l}_{j} = coopLoadT<coop_mat16x16<f16, B>>(&sh_kv[{down}u * STRIDE + {across}u], STRIDE);"
        );
        let add =
            move |part| format!("o_{part}_{j} = coopMultiplyAdd(p_{part}_{l}, v_{l}_{j}, o_{part}_{j});");
        lines(iter::once(load).chain((0..tile.parts).map(add)))
    };
    pairs([tile.dim / FRAGMENT, COLUMNS]).map(product).collect()
}

/// Divides a part of the output by its sums and writes it. A query that sees no key has a sum of 0 and gives zeros.
fn results(tile: CooperativeTile, part: usize) -> String {
    let written: String = (0..tile.dim / BLOCK)
        .map(|chunk| {
            let [left, right] = [0, 1].map(|column| format!("o_{part}_{}", chunk * COLUMNS + column));
            let store = store_pair(&left, &right);
            format!(
                "{store}workgroupBarrier();
write_out(tile, index, {part}u, {chunk}u, inverse_{part});
workgroupBarrier();
"
            )
        })
        .collect();
    format!(
        "workgroupBarrier();
sh_each[index] = total_{part};
workgroupBarrier();
let whole_{part} = sum_of_both(index);
let inverse_{part} = select(1.0 / whole_{part}, 0.0, whole_{part} == 0.0);
write_lse(tile, index, {part}u, reference_{part}, whole_{part});
{written}"
    )
}

/// Stores two fragments side by side. What `coopStoreT` takes has to be named before.
fn store_pair(left: &str, right: &str) -> String {
    format!(
        "{{
let left = {left};
let right = {right};
coopStoreT(left, &sh_s[from_s], stride_s);
coopStoreT(right, &sh_s[beside_s], stride_s);
}}
"
    )
}

#[cfg(test)]
mod tests {
    use crate::kernels::Target;

    #[test]
    fn the_block_is_unrolled() {
        let text = super::attend(&[4, 2, 64, 0, 0, 0, 0, 0, 0, 0], Target { immediates: true, unroll: true });
        // Two parts of queries by two columns of keys by four of the vectors, and the same for values.
        assert_eq!(text.matches("coopMultiplyAdd(").count(), 2 * (2 * 2 * 4));
        assert_eq!(text.matches("= fetch_k(").count(), 2 * 2);
        assert_eq!(text.matches("stage_q(").count(), 2 * 2);
    }
}
