//! Writes `attend`, the body of attention/cooperative.
//!
//! Drivers keep fragments in registers only when each has a name of its own, so that the loops over them are
//! written out here. All indices stay in the functions of the shader's file, which this text calls.

use std::iter;

use super::alternating;
use super::cooperative::CooperativeTile;
use crate::kernels::{MAX_CONSTANTS, Target};
use crate::ops::shared::tensor_cores::FRAGMENT;
use crate::ops::shared::text::{lines, pairs};

/// Elements of a vector that the four invocations of a row, or of a key, read at once.
const READ: usize = 32;

/// Vec4s in the row of a fragment.
const VEC4S: usize = FRAGMENT / 4;

/// The function `attend`, given the kernel's constants.
///
/// What subgroups do with their fragments differs, but is the same for all invocations of a subgroup, which
/// WGSL doesn't know.
pub(super) fn attend(constants: &[u32; MAX_CONSTANTS], _: Target) -> String {
    let tile = CooperativeTile::from_constants(constants);
    let blocks = if tile.stages_alternately() { alternating::blocks(tile) } else { blocks(tile) };
    let results = lines((0..tile.parts).map(|part| results(tile, part)));
    let steps = if tile.keeps_column() {
        "  let step_k = BLOCK * (params.k.w / 8u);
  let step_v = BLOCK * (params.v.w / 8u);
  var at_k = first_group(tile.k, params.k.w, tile.first, index);
  var at_v = first_group(tile.v, params.v.w, tile.first, index);
"
    } else {
        ""
    };
    format!(
        "
@diagnostic(off, derivative_uniformity)
fn attend(tile: Tile, index: u32) {{
  let team = index / (SUBGROUP * DIM_SUBGROUPS);
  let range = index / SUBGROUP % DIM_SUBGROUPS;
  let lane = index % SUBGROUP;
  let row_in_keys = lane / 4u * KEY_STRIDE + lane % 4u;
  let fills_tile = head_dim() == DIM;
  let query = tile.query + team * QUERIES + lane / 4u;
  let seen = keys_of(tile, team);
  let seen_by_all = keys_of_all(tile, team);
  let is_natural = has(NATURAL);
{steps}{blocks}  var wrong = 0u;
{results}  mend(tile, index, wrong);
}}
"
    )
}

/// Loads the queries and adds up all blocks of keys and values.
///
/// While a block is worked on, the next is on its way into registers. Where scores are no more than scaled
/// products, the slices of a block are written out, so that the products of one don't wait for the weights of
/// the one before. The others pass through a loop: they are few, or wait for their masks. In a looped tile, all do.
fn blocks(tile: CooperativeTile) -> String {
    let (first, queries, sums) = (first(tile), queries(tile), sums(tile));
    let (stage, next) = (stage(tile), next(tile));
    let written_out = if tile.looped { 0 } else { tile.block };
    let whole: String = (0..written_out)
        .step_by(tile.slice)
        .map(|row| format!("{{\nlet row = {row}u;\n{}}}\n", slice(tile, false)))
        .collect();
    let other = slice(tile, true);
    format!(
        "{first}{queries}{sums}  for (var block = tile.first; block < tile.blocks; block++) {{
    workgroupBarrier();
{stage}    workgroupBarrier();
{next}    let begin = block * BLOCK;
    if LOOPED == 0u && !is_natural && begin >= seen_by_all.x && begin + BLOCK <= seen_by_all.y {{
{whole}    }} else {{
      let end = min(begin + BLOCK, seen.y);
      for (var key = max(begin, seen.x); key < end; key += SLICE) {{
        let row = key - begin;
{other}      }}
    }}
  }}
"
    )
}

/// Adds the slice of keys from `row` of the block on: `key` and its neighbours, if they may have to be
/// scored.
fn slice(tile: CooperativeTile, scored: bool) -> String {
    let (products, weights, values) = (products(tile), weights(tile), values(tile));
    let scores = if scored {
        format!(
            "let unit = score_unit();
if is_natural || key < seen_by_all.x || key + SLICE > seen_by_all.y {{
{}}}
",
            scores(tile)
        )
    } else {
        "let unit = params.scale;\n".to_owned()
    };
    format!("{products}{scores}{}{weights}{values}", raise(tile))
}

/// Loads the fragments of the queries.
pub(super) fn queries(tile: CooperativeTile) -> String {
    if tile.wide_keys {
        return wide_queries(tile);
    }
    let fragments: Vec<usize> = (0..tile.range() / FRAGMENT).collect();
    let pass = |(part, pass): (usize, usize)| {
        let columns = fragments.chunks(tile.pass_fragments()).nth(pass).unwrap_or_default();
        let load = |(number, column): (usize, &usize)| {
            let across = column_of_pass(tile, number);
            format!(
                "let q_{part}_{column} = coopLoadT<coop_mat16x16<f16, A>>(&sh[team * FRAGMENT * OUT_STRIDE + {across}], OUT_STRIDE);"
            )
        };
        let stage = format!("stage_q(tile, index, {part}u, {pass}u);");
        let stage = ["workgroupBarrier();".to_owned(), stage, "workgroupBarrier();".to_owned()];
        lines(stage.into_iter().chain(columns.iter().enumerate().map(load)))
    };
    pairs([tile.parts, fragments.len().div_ceil(tile.pass_fragments())]).map(pass).collect()
}

/// Where a fragment of the subgroup's range begins in a row of keys or values, in vec4s.
fn column(tile: CooperativeTile, fragment: usize) -> String {
    let across = fragment * VEC4S;
    if tile.dim_subgroups > 1 { format!("range * (RANGE / 4u) + {across}u") } else { format!("{across}u") }
}

/// Where a fragment of the subgroup's range begins in a row of a pass, in vec4s.
fn column_of_pass(tile: CooperativeTile, fragment: usize) -> String {
    let across = fragment * VEC4S;
    if tile.dim_subgroups > 1 {
        format!("range * (2u * RANGE_VEC8S) + {across}u")
    } else {
        format!("{across}u")
    }
}

/// Loads the fragments of queries whose elements are in the order of wide keys'.
fn wide_queries(tile: CooperativeTile) -> String {
    let load = |(part, t): (usize, usize)| {
        let (d, [even, odd]) = (t * READ, [2 * t, 2 * t + 1]);
        let [low, high] = [0, 8].map(|below| part * FRAGMENT + below);
        format!(
            "let low_{part}_{t} = fetch_q(tile, query + {low}u, {d}u + lane % 4u * 8u);
let high_{part}_{t} = fetch_q(tile, query + {high}u, {d}u + lane % 4u * 8u);
let q_{part}_{even} = left_operand_of(elements_of(low_{part}_{t}.xy, high_{part}_{t}.xy));
let q_{part}_{odd} = left_operand_of(elements_of(low_{part}_{t}.zw, high_{part}_{t}.zw));"
        )
    };
    lines(pairs([tile.parts, tile.dim / READ]).map(load))
}

/// The output's fragments, and the references and sums of an invocation's rows of each part.
pub(super) fn sums(tile: CooperativeTile) -> String {
    let fragments =
        pairs([tile.parts, tile.range() / FRAGMENT]).map(|(part, j)| format!("var o_{part}_{j} = Sums();"));
    let rows = (0..tile.parts)
        .map(|part| format!("var reference_{part} = vec2<f32>(LOWEST);\nvar total_{part} = vec2<f32>();"));
    lines(fragments.chain(rows))
}

/// Fetches an invocation's groups of the first block of keys and values.
fn first(tile: CooperativeTile) -> String {
    lines(groups(tile).map(|(of, iteration)| {
        format!("var next_{of}_{iteration} = fetch_{of}(tile, index, tile.first, {iteration}u);")
    }))
}

/// Fetches an invocation's groups of the next block of keys and values.
fn next(tile: CooperativeTile) -> String {
    let other = lines(groups(tile).map(|(of, iteration)| {
        format!("next_{of}_{iteration} = fetch_{of}(tile, index, block + 1u, {iteration}u);")
    }));
    if !tile.keeps_column() {
        return other;
    }
    let whole =
        lines(groups(tile).map(|(of, iteration)| {
            format!("next_{of}_{iteration} = fetch_whole_{of}(at_{of}, {iteration}u);")
        }));
    format!("at_k += step_k;\nat_v += step_v;\n{}", whole_or_other(&whole, &other))
}

/// A fetch of the next block: without comparisons, where none is needed.
pub(super) fn whole_or_other(whole: &str, other: &str) -> String {
    format!(
        "if fills_tile && (block + 2u) * BLOCK <= tile.end {{
{whole}}} else if block + 1u < tile.blocks {{
{other}}}
"
    )
}

/// Puts an invocation's groups of keys and values into workgroup memory.
fn stage(tile: CooperativeTile) -> String {
    lines(
        groups(tile)
            .map(|(of, iteration)| format!("stage_{of}(index, {iteration}u, next_{of}_{iteration});")),
    )
}

/// Keys or values, and the number of each group that an invocation fetches.
fn groups(tile: CooperativeTile) -> impl Iterator<Item = (char, usize)> {
    ['k', 'v'].into_iter().flat_map(move |of| (0..tile.fetches()).map(move |iteration| (of, iteration)))
}

/// Each part of the queries, and each column of keys in a slice.
pub(super) fn columns(tile: CooperativeTile) -> impl Iterator<Item = (usize, usize)> {
    pairs([tile.parts, tile.slice / FRAGMENT])
}

/// Loads the fragment `(l, j)` of `right`, and adds the products of each part's fragment `l` of `left` with it to the
/// part's fragment `j` of `sums`.
fn add_products(
    tile: CooperativeTile,
    [sums, left, right]: [char; 3],
    (l, j): (usize, usize),
    fragment: &str,
) -> String {
    let load = format!("let {right}_{l}_{j} = {fragment};");
    let add = |part| {
        format!("{sums}_{part}_{j} = coopMultiplyAdd({left}_{part}_{l}, {right}_{l}_{j}, {sums}_{part}_{j});")
    };
    lines(iter::once(load).chain((0..tile.parts).map(add)))
}

/// Multiplies the queries with a slice of keys: with the subgroup's range of them, if a team shares these.
pub(super) fn products(tile: CooperativeTile) -> String {
    let declared = columns(tile).map(|(part, j)| format!("var s_{part}_{j} = Sums();"));
    let product = |(l, j): (usize, usize)| {
        let (down, across) = (j * FRAGMENT, column(tile, l));
        let keys =
            format!("coopLoad<coop_mat16x16<f16, B>>(&sh[(row + {down}u) * STRIDE + {across}], STRIDE)");
        add_products(tile, ['s', 'q', 'k'], (l, j), &keys)
    };
    let products: String = if tile.wide_keys {
        pairs([tile.dim / READ, tile.slice / FRAGMENT]).map(|(t, j)| wide_product(tile, t, j)).collect()
    } else {
        pairs([tile.range() / FRAGMENT, tile.slice / FRAGMENT]).map(product).collect()
    };
    let named = columns(tile).map(|(part, j)| format!("var x_{part}_{j} = elements(s_{part}_{j});"));
    lines(declared) + &products + &lines(named)
}

/// Adds the products with the `t`-th part of a column of wide keys, which is two fragments.
fn wide_product(tile: CooperativeTile, t: usize, j: usize) -> String {
    let place = format!("(row + {}u) * KEY_STRIDE + {}u", j * FRAGMENT, t * READ / 8);
    let keys = format!(
        "let low_{t}_{j} = sh_keys[row_in_keys + {place}];
let high_{t}_{j} = sh_keys[row_in_keys + 8u * KEY_STRIDE + {place}];"
    );
    let fragment = |(l, words): (usize, &str)| {
        let keys = format!("right_operand_of(elements_of(low_{t}_{j}.{words}, high_{t}_{j}.{words}))");
        add_products(tile, ['s', 'q', 'k'], (l, j), &keys)
    };
    let fragments = [(2 * t, "xy"), (2 * t + 1, "zw")].map(fragment).concat();
    format!("{keys}\n{fragments}")
}

/// Makes scores of products where these don't do.
pub(super) fn scores(tile: CooperativeTile) -> String {
    lines(columns(tile).map(|(part, j)| {
        let (below, beside) = (part * FRAGMENT, j * FRAGMENT);
        format!(
            "x_{part}_{j} = scores(tile, x_{part}_{j}, query + {below}u, key + {beside}u + lane % 4u * 2u);"
        )
    }))
}

/// Raises the references of all rows of the subgroup, if some row's has to be.
pub(super) fn raise(tile: CooperativeTile) -> String {
    let tops = (0..tile.parts).map(|part| {
        let first = format!("largest(x_{part}_0)");
        let top =
            (1..tile.slice / FRAGMENT).fold(first, |top, j| format!("max({top}, largest(x_{part}_{j}))"));
        format!("let top_{part} = {top} * unit;")
    });
    let is_far = (0..tile.parts).map(|part| format!("any(top_{part} > reference_{part} + HEADROOM)"));
    let raise = |part: usize| {
        let raised = format!(
            "let raised_{part} = max(reference_{part}, largest_of_rows(top_{part}));
let factor_{part} = vec2<f32>(weight(reference_{part}.x - raised_{part}.x), weight(reference_{part}.y - raised_{part}.y));
reference_{part} = raised_{part};
total_{part} *= factor_{part};"
        );
        let rescaled = (0..tile.range() / FRAGMENT).map(move |j| {
            format!("o_{part}_{j} = sums_of(times_rows(elements(o_{part}_{j}), factor_{part}));")
        });
        lines(iter::once(raised).chain(rescaled))
    };
    let condition = is_far.collect::<Vec<_>>().join(" || ");
    let raises: String = (0..tile.parts).map(raise).collect();
    lines(tops) + &format!("if subgroupAny({condition}) {{\n{raises}}}\n")
}

/// Makes weights of the scores, and adds them up.
pub(super) fn weights(tile: CooperativeTile) -> String {
    lines(columns(tile).map(|(part, j)| {
        format!(
            "let w_{part}_{j} = weigh(x_{part}_{j}, unit, reference_{part});
total_{part} += sum(w_{part}_{j});
let p_{part}_{j} = left_operand_of(to_halves(w_{part}_{j}));"
        )
    }))
}

/// Adds the slice's part of the output.
pub(super) fn values(tile: CooperativeTile) -> String {
    let product = |(j, l): (usize, usize)| {
        let (down, across) = (l * FRAGMENT, column(tile, j));
        let values = format!(
            "coopLoadT<coop_mat16x16<f16, B>>(&sh[(VALUES + row + {down}u) * STRIDE + {across}], STRIDE)"
        );
        add_products(tile, ['o', 'p', 'v'], (l, j), &values)
    };
    pairs([tile.range() / FRAGMENT, tile.slice / FRAGMENT]).map(product).collect()
}

/// Stores the partial products of a slice for the rest of the team.
pub(super) fn store_partials(tile: CooperativeTile) -> String {
    exchange(tile, |number, product| format!("store_partial(index, {number}u, {product});"))
}

/// Makes products with whole keys of the partial ones that the subgroups of a team have stored.
pub(super) fn sum_partials(tile: CooperativeTile) -> String {
    exchange(tile, |number, product| format!("{product} = sum_of_partials(index, {number}u);"))
}

fn exchange(tile: CooperativeTile, line: impl Fn(usize, &str) -> String) -> String {
    lines(columns(tile).enumerate().map(|(number, (part, j))| line(number, &format!("x_{part}_{j}"))))
}

/// Divides a part of the output by its denominators and writes it.
fn results(tile: CooperativeTile, part: usize) -> String {
    let first = part * FRAGMENT;
    let store = |(number, j): (usize, &usize)| {
        let across = column_of_pass(tile, number);
        // What `coopStoreT` takes has to be named before.
        format!(
            "let halves_{part}_{j} = halves_of(times_rows(elements(o_{part}_{j}), factor_{part}));
coopStoreT(halves_{part}_{j}, &sh[team * FRAGMENT * OUT_STRIDE + {across}], OUT_STRIDE);"
        )
    };
    let fragments: Vec<usize> = (0..tile.range() / FRAGMENT).collect();
    let passes = fragments.chunks(tile.pass_fragments()).enumerate().map(|(pass, fragments)| {
        let stored = lines(fragments.iter().enumerate().map(store));
        format!("{stored}workgroupBarrier();\nwrong |= write_out(tile, index, {part}u, {pass}u);\n")
    });
    let passes = passes.collect::<Vec<_>>().join("workgroupBarrier();\n");
    format!(
        "let whole_{part} = sum_of_rows(total_{part});
let low_{part} = denominator_of(tile, reference_{part}.x, whole_{part}.x);
let high_{part} = denominator_of(tile, reference_{part}.y, whole_{part}.y);
let factor_{part} = vec2<f32>(low_{part}.factor, high_{part}.factor);
if lane % 4u == 0u && range == 0u {{
write_lse(tile, query + {first}u, low_{part}.log_sum);
write_lse(tile, query + {first}u + 8u, high_{part}.log_sum);
}}
workgroupBarrier();
if lane % 4u == 0u && range == 0u {{
sh_totals[team * FRAGMENT + lane / 4u] = low_{part}.total;
sh_totals[team * FRAGMENT + lane / 4u + 8u] = high_{part}.total;
}}
{passes}"
    )
}

#[cfg(test)]
mod tests {
    use crate::kernels::{Target, filled_up};

    #[test]
    fn the_slice_is_unrolled() {
        let constants = filled_up([4, 2, 64, 64, 32, 0, 1, 0]);
        let text = super::attend(&constants, Target { immediates: true, unroll: true });
        // Two parts of queries by two columns of keys by four of the vectors, and the same for values; for
        // two slices of a block, and once more in a loop.
        assert_eq!(text.matches("coopMultiplyAdd(").count(), 3 * 2 * (2 * 2 * 4));
        assert_eq!(text.matches("= fetch_k(").count(), 2 * 4);
        assert_eq!(text.matches("stage_q(").count(), 2);
    }

    #[test]
    fn a_looped_tile_has_its_slice_once() {
        let constants = filled_up([4, 2, 64, 64, 32, 0, 1, 1]);
        let text = super::attend(&constants, Target { immediates: true, unroll: true });
        assert_eq!(text.matches("coopMultiplyAdd(").count(), 2 * (2 * 2 * 4));
    }

    #[test]
    fn wide_keys_are_two_fragments() {
        let constants = filled_up([4, 2, 64, 64, 32, 1, 1, 0]);
        let text = super::attend(&constants, Target { immediates: true, unroll: true });
        assert_eq!(text.matches("coopMultiplyAdd(").count(), 3 * 2 * (2 * 2 * 4));
        // Two halves of two columns of keys, in two reads each.
        assert_eq!(text.matches("= sh_keys[").count(), 3 * (2 * 2 * 2));
        assert_eq!(["= fetch_k(", "= fetch_whole_k("].map(|fetch| text.matches(fetch).count()), [2 * 4, 4]);
        assert_eq!(text.matches("= fetch_q(").count(), 2 * 2 * 2);
    }
}
