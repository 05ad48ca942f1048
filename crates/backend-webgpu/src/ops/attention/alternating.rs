//! Writes the blocks of attention/cooperative where the output leaves registers for only one of keys and values
//! on their way.

use super::cooperative::CooperativeTile;
use super::fragments::{
    products, queries, raise, scores, store_partials, sum_partials, sums, values, weights, whole_or_other,
};
use crate::ops::shared::text::lines;

/// Loads the queries and adds up all blocks of keys and values.
///
/// A block's values are fetched after the products with those of the block before, and staged after its
/// scores' products; the next keys are on their way during the weights alone, and staged as soon as all
/// subgroups have multiplied with these. A block is one slice, and what its queries don't see is masked, so that
/// its code is there once: branches around products would move the output between registers. Teams exchange their
/// products as soon as all subgroups have multiplied.
pub(super) fn blocks(tile: CooperativeTile) -> String {
    let (first_keys, first_values) = (first(tile, "var ", 'k'), first(tile, "", 'v'));
    let (stage_keys, stage_values) = (stage(tile, 'k'), stage(tile, 'v'));
    let (next_keys, next_values) = (next(tile, 'k'), next(tile, 'v'));
    let (queries, sums) = (queries(tile), sums(tile));
    let (products, scores, raise) = (products(tile), scores(tile), raise(tile));
    let (weights, values) = (weights(tile), values(tile));
    const BARRIER: &str = "workgroupBarrier();\n";
    let (stored, summed, multiplied) = if tile.dim_subgroups > 1 {
        (store_partials(tile), BARRIER.to_owned() + &sum_partials(tile), "")
    } else {
        (String::new(), String::new(), BARRIER)
    };
    format!(
        "{first_keys}{queries}  workgroupBarrier();
{stage_keys}{first_values}{sums}  let unit = score_unit();
  const row = 0u;
  for (var block = tile.first; block < tile.blocks; block++) {{
    let key = block * BLOCK;
    workgroupBarrier();
{products}{stored}{stage_values}{next_keys}{summed}    if is_natural || key < seen_by_all.x || key + BLOCK > seen_by_all.y {{
{scores}    }}
{raise}{weights}{multiplied}{stage_keys}{values}{next_values}  }}
"
    )
}

fn each_iteration(tile: CooperativeTile, line: impl Fn(usize) -> String) -> String {
    lines((0..tile.fetches()).map(line))
}

/// Fetches an invocation's groups of the first block of keys or values.
fn first(tile: CooperativeTile, declare: &str, of: char) -> String {
    each_iteration(tile, |iteration| {
        format!("{declare}next_{iteration} = fetch_{of}(tile, index, tile.first, {iteration}u);")
    })
}

/// Fetches an invocation's groups of the next block of keys or values.
fn next(tile: CooperativeTile, of: char) -> String {
    let whole = each_iteration(tile, |iteration| {
        format!("next_{iteration} = fetch_whole_{of}(at_{of}, {iteration}u);")
    });
    let other = each_iteration(tile, |iteration| {
        format!("next_{iteration} = fetch_{of}(tile, index, block + 1u, {iteration}u);")
    });
    format!("at_{of} += step_{of};\n{}", whole_or_other(&whole, &other))
}

/// Puts an invocation's groups of keys or values into workgroup memory.
fn stage(tile: CooperativeTile, of: char) -> String {
    each_iteration(tile, |iteration| format!("stage_{of}(index, {iteration}u, next_{iteration});"))
}

#[cfg(test)]
mod tests {
    use super::super::fragments::attend;
    use crate::kernels::{Target, filled_up};

    #[test]
    fn a_block_is_written_once_and_keys_and_values_share_registers() {
        let text = attend(&filled_up([8, 1, 256, 32, 32, 0, 1]), Target { immediates: true, unroll: true });
        // Two columns of keys by sixteen fragments of their depth, and as many products with values.
        assert_eq!(text.matches("coopMultiplyAdd(").count(), 2 * (2 * 16));
        assert_eq!(text.matches("var next_").count(), 32 * 256 / 8 / (8 * 32));
        // The queries pass through workgroup memory in two halves.
        assert_eq!(text.matches("stage_q(").count(), 2);
    }

    #[test]
    fn teams_exchange_products_with_their_ranges_of_the_keys() {
        let text = attend(&filled_up([8, 1, 512, 16, 16, 0, 2]), Target { immediates: true, unroll: true });
        // One column of keys by half of the depth, and half of the values' columns.
        assert_eq!(text.matches("coopMultiplyAdd(").count(), 2 * (512 / 2 / 16));
        assert_eq!(["= sum_of_partials(", "store_partial("].map(|call| text.matches(call).count()), [1, 1]);
        assert_eq!(text.matches("stage_q(").count(), 2);
    }
}
