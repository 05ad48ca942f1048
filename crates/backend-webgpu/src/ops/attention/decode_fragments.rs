//! Writes `attend`, the body of attention/decode_cooperative, as `fragments` does that of
//! attention/cooperative.

use super::decode_cooperative::Tile;
use crate::kernels::{MAX_CONSTANTS, Target};
use crate::ops::shared::tensor_cores::FRAGMENT;
use crate::ops::shared::text::{lines, pairs};

/// Elements of a vector that the four invocations of a row, or of a key, read at once.
const ROW: usize = 32;
/// Columns of the values that eight invocations read together.
const COLUMNS: usize = 64;

/// Where an invocation's keys and values lie in a fragment, from its first of each.
const KEYS: [usize; 2] = [0, 8];
const VALUES: [usize; 4] = [0, 1, 8, 9];

/// The function `attend`, given the kernel's constants.
///
/// While keys and values are worked on, the next are on their way into registers.
///
/// What subgroups do with their scores differs, but is the same for all invocations of a subgroup, which WGSL
/// doesn't know.
pub(super) fn attend(constants: &[u32; MAX_CONSTANTS], _: Target) -> String {
    let tile = Tile::from_constants(constants);
    let starts = starts(tile);
    let (first_keys, first_values) = (fetch_keys(tile, "var ", "key"), fetch_values(tile, "var ", "key"));
    let (next_keys, next_values) = (fetch_keys(tile, "", "next"), fetch_values(tile, "", "next"));
    let queries = queries(tile);
    let sums = lines((0..tile.dim / FRAGMENT).map(|c| format!("var o_{c} = Sums();")));
    let (trimmed, products, scores) = (trimmed(tile), products(tile), scores(tile));
    let (raise, weights, values) = (raise(tile), weights(tile), values(tile));
    let results = ["low", "high"].map(|half| results(tile, half));
    let [low, high] = results;
    format!(
        "
@diagnostic(off, derivative_uniformity)
fn attend(tile: Tile, subgroup: u32, lane: u32, group: vec3<u32>, groups: vec3<u32>) {{
  let index = subgroup * SUBGROUP + lane;
  let row = lane / 4u;
  let part = lane % 4u;
  let last = max(tile.end, 1u) - 1u;
  let used = head_dim() / 8u;
  let k_stride = params.k.w / 8u;
  let v_stride = params.v.w / 8u;
  let is_plain = params.seq_q == 1u && !has(NATURAL);
  let unit = score_unit();
  var key = tile.begin + subgroup * KEYS;
{starts}{first_keys}{queries}{first_values}{sums}  var references = vec2<f32>(LOWEST);
  var totals = vec2<f32>();
  let blocks = (tile.end - tile.begin + BLOCK - 1u) / BLOCK;
  for (var block = 0u; block < blocks; block++) {{
    let next = key + BLOCK;
    let is_last = block + 1u == blocks;
    if head_dim() < DIM {{
{trimmed}    }}
{products}    if !is_last {{
{next_keys}    }}
    if !is_plain || key + KEYS > tile.end {{
{scores}    }}
{raise}{weights}{values}    if !is_last {{
{next_values}    }}
    key = next;
  }}
  let wholes = sum_of_rows(totals);
{low}  if ROWS > HALF {{
    workgroupBarrier();
{high}  }}
}}
"
    )
}

/// Where an invocation's vec8s of each vector begin; those behind a vector's end are its last.
fn starts(tile: Tile) -> String {
    let start = |of: char, place: &'static str, step: usize| {
        move |t: usize| {
            let first = t * step / 8;
            format!("let {of}_{t} = tile.{of} / 8u + min({place} + {first}u, used - 1u);")
        }
    };
    lines((0..tile.dim / ROW).map(start('k', "part", ROW)))
        + &lines((0..tile.dim / COLUMNS).map(start('v', "row", COLUMNS)))
}

/// Each fragment of keys, part of their vectors, and place of a key.
fn keys(tile: Tile) -> impl Iterator<Item = (usize, usize, usize)> {
    pairs([tile.columns(), tile.dim / ROW]).flat_map(|(j, t)| (0..KEYS.len()).map(move |i| (j, t, i)))
}

fn fetch_keys(tile: Tile, declare: &str, from: &str) -> String {
    lines(keys(tile).map(|(j, t, i)| {
        let beyond = j * FRAGMENT + KEYS[i];
        format!("{declare}k_{j}_{t}_{i} = fetch_k(k_{t}, {from} + row + {beyond}u, last, k_stride);")
    }))
}

fn fetch_values(tile: Tile, declare: &str, from: &str) -> String {
    let values = pairs([tile.columns(), tile.dim / COLUMNS])
        .flat_map(|(j, t)| (0..VALUES.len()).map(move |i| (j, t, i)));
    lines(values.map(|(j, t, i)| {
        let beyond = j * FRAGMENT + VALUES[i];
        format!("{declare}v_{j}_{t}_{i} = fetch_v(v_{t}, {from} + 2u * part + {beyond}u, last, v_stride);")
    }))
}

/// Loads the fragments of the queries, of which each eight has two.
fn queries(tile: Tile) -> String {
    lines((0..tile.dim / ROW).map(|t| {
        let (first, [even, odd]) = (t * ROW, [2 * t, 2 * t + 1]);
        format!(
            "let low_{t} = fetch_q(tile, row, 8u * part + {first}u);
let high_{t} = fetch_high_q(tile, row, 8u * part + {first}u);
let q_{even} = left_operand_of(elements_of(low_{t}.xy, high_{t}.xy));
let q_{odd} = left_operand_of(elements_of(low_{t}.zw, high_{t}.zw));"
        )
    }))
}

/// Lets keys be 0 beyond a vector's end.
fn trimmed(tile: Tile) -> String {
    lines(keys(tile).map(|(j, t, i)| {
        let first = t * ROW / 8;
        format!("k_{j}_{t}_{i} = select(vec4<u32>(), k_{j}_{t}_{i}, part + {first}u < used);")
    }))
}

/// Multiplies the queries with the keys.
fn products(tile: Tile) -> String {
    let declared = (0..tile.columns()).map(|j| format!("var s_{j} = Sums();"));
    let product = |(j, c): (usize, usize)| {
        let (t, words) = (c / 2, ["xy", "zw"][c % 2]);
        format!(
            "s_{j} = coopMultiplyAdd(q_{c}, right_operand_of(elements_of(k_{j}_{t}_0.{words}, k_{j}_{t}_1.{words})), s_{j});"
        )
    };
    let named = (0..tile.columns()).map(|j| format!("var x_{j} = elements(s_{j});"));
    lines(declared) + &lines(pairs([tile.columns(), tile.dim / FRAGMENT]).map(product)) + &lines(named)
}

/// Makes scores of products where these don't do.
fn scores(tile: Tile) -> String {
    lines((0..tile.columns()).map(|j| {
        let beyond = j * FRAGMENT;
        format!("x_{j} = scores(tile, x_{j}, row, key + 2u * part + {beyond}u);")
    }))
}

/// Raises the references to the largest scores.
fn raise(tile: Tile) -> String {
    let top =
        (1..tile.columns()).fold("largest(x_0)".to_owned(), |top, j| format!("max({top}, largest(x_{j}))"));
    let rescaled =
        (0..tile.dim / FRAGMENT).map(|c| format!("o_{c} = sums_of(times_rows(elements(o_{c}), rescale));"));
    format!(
        "let raised = max(references, largest_of_rows({top} * unit));
let rescale = factors(references - raised);
references = raised;
totals *= rescale;
"
    ) + &lines(rescaled)
}

/// Makes weights of the scores, and adds them up.
fn weights(tile: Tile) -> String {
    lines((0..tile.columns()).map(|j| {
        format!(
            "let w_{j} = weigh(x_{j}, unit, references);
totals += sum(w_{j});
let p_{j} = left_operand_of(to_halves(w_{j}));"
        )
    }))
}

/// Adds the values by their weights.
fn values(tile: Tile) -> String {
    lines(pairs([tile.columns(), tile.dim / FRAGMENT]).map(|(j, c)| {
        let (t, word) = (c / 4, ["x", "y", "z", "w"][c % 4]);
        let words = [0, 1, 2, 3].map(|i| format!("v_{j}_{t}_{i}.{word}")).join(", ");
        format!("o_{c} = coopMultiplyAdd(p_{j}, right_operand_of(columns_of({words})), o_{c});")
    }))
}

/// Adds up what the subgroups have of the upper or the lower rows, and writes it.
fn results(tile: Tile, half: &str) -> String {
    let (lane, first) = if half == "low" { ("x", 0) } else { ("y", 8) };
    let put = |t: usize| {
        let sums = [0, 1, 2, 3].map(|i| format!("elements(o_{}).{half}", 4 * t + i)).join(", ");
        let beyond = t * COLUMNS / 4;
        format!("put_sums(at + {beyond}u, {sums});")
    };
    let put = lines((0..tile.dim / COLUMNS).map(put));
    format!(
        "{{
let at = (subgroup * HALF + row) * STRIDE + 4u * part;
{put}if part == 0u {{
sh_states[subgroup * HALF + row] = vec2<f32>(references.{lane}, wholes.{lane});
}}
workgroupBarrier();
write_parts(tile, index, {first}u, group, groups);
}}
"
    )
}

#[cfg(test)]
mod tests {
    use crate::kernels::{Target, filled_up};

    #[test]
    fn the_block_is_unrolled() {
        let constants = filled_up([8, 128, 64]);
        let text = super::attend(&constants, Target { immediates: true, unroll: true });
        // Two columns of keys by four of the vectors, and the same for values.
        assert_eq!(text.matches("coopMultiplyAdd(").count(), 2 * (2 * 4));
        // 32 keys of 128 bytes, at first and in each block, by 32 invocations.
        assert_eq!(["= fetch_k(", "= fetch_v("].map(|fetch| text.matches(fetch).count()), [2 * 8; 2]);
    }
}
