//! Writes `multiply`, the step of conv/halo.

use backend_api::Activation;

use crate::kernels::{Constant as _, Target, Values, constants};
use crate::ops::shared::tensor_cores::{FRAGMENT, SUBGROUP, declare_sums, elements_of_row};
use crate::ops::shared::text::{lines, pairs};

constants! {
    /// The constants of conv/halo.
    pub(super) struct Constants {
        tile_p: usize,
        tile_f: usize,
        parts_p: usize,
        parts_f: usize,
        cells: usize,
        planes: bool,
        activation: Activation,
    }
}

/// Rows and columns of a filter.
pub(super) const SIDE: usize = 3;

/// Channels of a step.
pub(super) const CHANNELS: usize = FRAGMENT;

/// The function `multiply`: the sums of a subgroup's part, over all channels, and what becomes of them. While a
/// tap is multiplied, the weights of the next are on their way into registers.
pub(super) fn multiply(values: &Values, _: Target) -> String {
    let Constants { tile_p, tile_f, parts_p, parts_f, cells, planes, .. } = Constants::of(values);
    let down = tile_p / parts_p / FRAGMENT;
    let across = tile_f / parts_f / FRAGMENT;
    let fetches = (2 * cells).div_ceil(parts_p * parts_f * SUBGROUP);
    let each_fetch = |line: &dyn Fn(usize) -> String| lines((0..fetches).map(line));
    let each = |line: &dyn Fn(usize) -> String| lines((0..across).map(line));
    let sources = each_fetch(&|t| format!("let source_{t} = source_of(tile, index, {t}u);"));
    let fetch = each_fetch(&|t| format!("let group_{t} = fetch(source_{t}, 2u * step);"));
    let stage = each_fetch(&|t| format!("stage(index, {t}u, group_{t});"));
    let weights = each(&|j| {
        format!(
            "let weights_{j} = weights_at(tile, part.y, lane, {j}u);\n\
             var next_{j} = weights[weights_{j}];"
        )
    });
    let sums = declare_sums([down, across]);
    let taps: String = (0..SIDE).map(|s| tap(s, [down, across], planes)).collect();
    let biases = each(&|j| {
        format!(
            "let low_{j} = bias_low(lane, first + {j}u * FRAGMENT);\n\
             let high_{j} = bias_high(lane, first + {j}u * FRAGMENT, low_{j});"
        )
    });
    let elements = elements_of_row([down, across]);
    let results = each(&|j| format!("let r_{j} = results(lane, v_{j}, low_{j}, high_{j});"));
    let write = each(&|j| format!("write_out(row, {j}u, r_{j});"));
    format!(
        "
fn multiply(tile: Tile, index: u32) {{
let subgroup = index / SUBGROUP;
let lane = index % SUBGROUP;
let part = vec2<u32>(subgroup / PARTS_F, subgroup % PARTS_F);
let fragment = params.fragment_step * STRIDE;
let part_cells = part.x * {down}u * fragment;
let to_next = tap_step();
let to_channels = SUBGROUP - {taps_but_one}u * to_next;
{sources}{weights}{sums}var at = 0u;
for (var step = 0u; step < params.channels / {CHANNELS}u; step++) {{
{fetch}workgroupBarrier();
{stage}workgroupBarrier();
for (var r = 0u; r < {SIDE}u; r++) {{
let line = part_cells + r * params.pitch * STRIDE;
{taps}}}
}}
let first = tile.filter_index + part.y * PART_F;
{biases}for (var i = 0u; i < {down}u; i++) {{
{elements}let row = row_of(tile, part, lane, i);
{results}{write}}}
}}
",
        taps_but_one = SIDE * SIDE - 1,
    )
}

/// Multiplies by the weights of column `s` of the filter, and asks for those of the next tap.
fn tap(s: usize, fragments: [usize; 2], planes: bool) -> String {
    let [down, across] = fragments;
    let (of_weights, of_pixels, load) =
        if planes { ("left", 'B', "coopLoad") } else { ("right", 'A', "coopLoadT") };
    let held = lines(
        (0..across)
            .map(|j| format!("let w_{j} = {of_weights}_operand_of(elements_of(next_{j}.xy, next_{j}.zw));")),
    );
    let advance = if s + 1 < SIDE {
        "at += to_next;\n".to_owned()
    } else {
        format!("at += select(to_next, to_channels, r == {}u);\n", SIDE - 1)
    };
    let next = lines((0..across).map(|j| format!("next_{j} = weights[weights_{j} + at];")));
    let pixels = lines((0..down).map(|i| {
        format!(
            "let p_{i} = {load}<coop_mat16x16<f16, {of_pixels}>>(&sh[line + {i}u * fragment + {s}u * STRIDE], STRIDE);"
        )
    }));
    let products = lines(pairs(fragments).map(|(i, j)| {
        let (a, b) =
            if planes { (format!("w_{j}"), format!("p_{i}")) } else { (format!("p_{i}"), format!("w_{j}")) };
        format!("sum_{i}_{j} = coopMultiplyAdd({a}, {b}, sum_{i}_{j});")
    }));
    format!("{{\n{held}{advance}{next}{pixels}{products}}}\n")
}
