//! Writes `attend`, the body of attention/decode_cooperative, as `fragments` does that of attention/cooperative.

use super::decode_cooperative::{SUBGROUPS, Tile};
use crate::kernels::{MAX_CONSTANTS, Target};
use crate::ops::matrix_units::FRAGMENT;
use crate::ops::text::lines;

/// Fours in the row of a fragment.
const FOURS: usize = FRAGMENT / 4;

/// The function `attend`, given the kernel's constants.
///
/// While a block is worked on, the next is on its way into registers; what is fetched behind the last is not used.
pub(super) fn attend(constants: &[u32; MAX_CONSTANTS], _: Target) -> String {
    let tile = Tile::from_constants(constants);
    let each = |count: usize, line: &dyn Fn(usize) -> String| lines((0..count).map(line));
    let fetch = |of: char, block: &str, declare: &str| {
        each(tile.fetches(), &|turn| {
            format!("{declare}next_{of}_{turn} = fetch_{of}(tile, index, {block}, {turn}u);")
        })
    };
    let stage = |of: char| each(tile.fetches(), &|turn| format!("stage(index, {turn}u, next_{of}_{turn});"));
    let (first_k, first_v) = (fetch('k', "tile.begin", "var "), fetch('v', "tile.begin", "var "));
    let (next_k, next_v) = (fetch('k', "next", ""), fetch('v', "next", ""));
    let (stage_k, stage_v) = (stage('k'), stage('v'));

    let depth = tile.products();
    let queries = each(depth, &|l| {
        let across = l * FOURS;
        format!("let q_{l} = coopLoadT<coop_mat16x16<f16, A>>(&sh_kv[from_layer + {across}u], STRIDE);")
    });
    // Staged keys are columns, which `coopLoad` reads one by one.
    let products = each(depth, &|l| {
        let across = l * FOURS;
        format!(
            "let k_{l} = coopLoad<coop_mat16x16<f16, B>>(&sh_kv[from_key + {across}u], STRIDE);
s = coopMultiplyAdd(q_{l}, k_{l}, s);"
        )
    });
    let columns = tile.dim / FRAGMENT / SUBGROUPS;
    let values = each(tile.block / FRAGMENT, &|l| {
        let (down, across) = (l * FRAGMENT, l * FOURS);
        let product = |j: usize| {
            let beside = j * FOURS;
            format!(
                "let v_{l}_{j} = coopLoadT<coop_mat16x16<f16, B>>(&sh_kv[{down}u * STRIDE + from_value + {beside}u], STRIDE);
part_{j} = coopMultiplyAdd(p_{l}, v_{l}_{j}, part_{j});"
            )
        };
        let load = format!("let p_{l} = coopLoadT<coop_mat16x16<f16, A>>(&sh_p[{across}u], STRIDE_P);\n");
        load + &lines((0..columns).map(product))
    });
    let parts = each(columns, &|j| format!("var part_{j} = coop_mat16x16<f32, C>();"));
    // What `coopStoreT` takes has to be named before.
    let store_parts = each(columns, &|j| {
        let beside = j * FOURS;
        format!(
            "let whole_{j} = part_{j};
let to_part_{j} = from_value + {beside}u;
coopStoreT(whole_{j}, &sh_s[to_part_{j}], stride_o);"
        )
    });

    let fours = tile.fours();
    let scores = each(fours, &|i| format!("let score_{i} = score(tile, index, {i}u, block, plain);"));
    let top = (1..fours).fold("score_0".to_owned(), |top, i| format!("max({top}, score_{i})"));
    let weights =
        (0..fours).map(|i| format!("weigh(index, {i}u, score_{i}, raised)")).collect::<Vec<_>>().join(" + ");
    let sums = tile.sums();
    let outs = each(sums, &|i| format!("var out_{i} = vec4<f32>();"));
    let summed = each(sums, &|i| format!("out_{i} = summed(index, {i}u, out_{i});"));
    let write = each(sums, &|i| format!("write_four(tile, index, {i}u, split, splits, out_{i});"));
    format!(
        "
fn attend(tile: Tile, index: u32, split: u32, splits: u32) {{
  let subgroup = index / SUBGROUP;
  let layer = subgroup / COLUMNS;
  let column = subgroup % COLUMNS;
  let from_layer = layer * (DIM / LAYERS / 4u);
  let from_key = column * FRAGMENT * STRIDE + from_layer;
  let from_value = subgroup * (DIM / SUBGROUPS / 4u);
  let to_score = layer * FRAGMENT * STRIDE_S + column * {FOURS}u;
  let stride_s = STRIDE_S;
  let stride_o = STRIDE_O;
  let is_plain = params.seq_q == 1u && !has(HAS_MASK);
{first_k}{first_v}  stage_q(tile, index);
  workgroupBarrier();
{queries}{outs}  var peak = FLOOR;
  var total = 0.0;
  let blocks = (tile.end - tile.begin + BLOCK - 1u) / BLOCK;
  for (var step = 0u; step < blocks; step++) {{
    let block = tile.begin + step * BLOCK;
    let next = block + BLOCK;
    let plain = is_plain && next <= tile.end;
    workgroupBarrier();
{stage_k}    workgroupBarrier();
{next_k}    var s = coop_mat16x16<f32, C>();
{products}    let whole = s;
    coopStoreT(whole, &sh_s[to_score], stride_s);
    workgroupBarrier();
{stage_v}{next_v}{scores}    sh_each[index] = largest({top});
    workgroupBarrier();
    let raised = max(peak, largest_of_row(index));
    let factor = weight(peak - raised);
    share_factor(index, factor);
    total = total * factor + {weights};
    peak = raised;
    workgroupBarrier();
{parts}{values}{store_parts}    workgroupBarrier();
{summed}  }}
  workgroupBarrier();
  sh_each[index] = total;
  workgroupBarrier();
  write_state(tile, index, split, splits, peak, sum_of_row(index));
{write}}}
"
    )
}
