//! Writes `multiply`, the step of gemm/cooperative and conv/cooperative.
//!
//! A driver keeps fragments in registers only when each has a name of its own: the same loops over arrays of
//! 4 × 4 fragments ran at a sixth of the speed. So a part of these kernels is written by a program. All
//! indices stay in the functions of the shader's file, which this text calls.

use std::iter;

use crate::kernels::{Constant as _, Target, Values, constants};
use crate::ops::shared::cooperative_tile::{CooperativeConstants, CooperativeTile};
use crate::ops::shared::tensor_cores::{
    FRAGMENT, add_products, declare_sums, write_in_registers, write_sums,
};
use crate::ops::shared::text::lines;

/// What the text depends on.
struct Step {
    /// Fragments of a subgroup's part, across m and n, and of its share of a step across k.
    fragments: [usize; 2],
    depth: usize,
    /// Steps whose operands are in registers or on their way there.
    prefetch: usize,
    /// Groups of A and of B that each invocation fetches.
    fetches: [usize; 2],
    trans_a: bool,
    trans_b: bool,
    /// The function that puts B into workgroup memory, and whether its steps may be less than whole.
    stage_b: &'static str,
    has_head: bool,
}

impl Step {
    fn new(constants: &CooperativeConstants) -> Self {
        let tile = CooperativeTile::from_constants(constants);
        Self {
            fragments: tile.fragments(),
            depth: tile.depth(),
            prefetch: tile.prefetch(),
            fetches: tile.fetches(),
            trans_a: constants.trans_a,
            trans_b: constants.trans_b,
            stage_b: "stage_b",
            has_head: true,
        }
    }
}

constants! {
    /// The first constants of products.
    struct ProductConstants { tile: CooperativeConstants, in_registers: bool }
}

/// The function `multiply` of gemm/cooperative, given its constants.
pub(super) fn product(values: &Values, _: Target) -> String {
    let constants = ProductConstants::of(values);
    let step = Step::new(&constants.tile);
    written(&step, &results(&step, constants.in_registers))
}

/// The function `multiply` of quant/cooperative, given its constants: B is dequantised when it is staged, and
/// all of its steps are whole.
pub(in crate::ops) fn quant_product(values: &Values, _: Target) -> String {
    let constants = ProductConstants::of(values);
    let step = Step { stage_b: "stage_packed_b", has_head: false, ..Step::new(&constants.tile) };
    written(&step, &results(&step, constants.in_registers))
}

/// What becomes of the sums of a matrix product.
fn results(step: &Step, in_registers: bool) -> String {
    if in_registers { write_in_registers(step.fragments) } else { write_staged(step) }
}

fn write_staged(step: &Step) -> String {
    write_sums(step.fragments, "sh_c", "start_c(subgroup)", "STRIDE_C")
}

/// The function `multiply` of a kernel that writes its sums by way of workgroup memory.
pub(in crate::ops) fn multiply(values: &Values, _: Target) -> String {
    let step = Step::new(&CooperativeConstants::of(values));
    written(&step, &write_staged(&step))
}

/// The function, given what becomes of the sums.
///
/// While a step is multiplied, the operands of the next are on their way into registers. The loop counts
/// rounds of as many steps as are ahead, so that a compiler can tell how often it runs and schedules across
/// its end. What the last round fetches is not used, and steps beyond the last are multiplied as zeros.
fn written(step: &Step, results: &str) -> String {
    let prefetch = step.prefetch;
    let sums = declare_sums(step.fragments);
    let first = fetch(step, 0, "var ");
    let others: String = (1..prefetch).map(|slot| fetch(step, slot, "var ") + &advance("TILE_K")).collect();
    let keep = if step.has_head { keep(step) } else { String::new() };
    let advance_head = advance("tile.head");
    let steps: String = (0..prefetch).map(|slot| one_step(step, slot)).collect();
    format!(
        "
fn multiply(tile: Tile, index: u32) {{
  let subgroup = index / SUBGROUP;
  let from_a = start_a(subgroup);
  let from_b = start_b(subgroup);
  let to_a = slot(index, VEC8S_A, STRIDE_A);
  let to_b = slot(index, VEC8S_B, STRIDE_B);
  var at_a = start(tile.a, index, VEC8S_A);
  var at_b = start(tile.b, index, VEC8S_B);
{sums}{first}{keep}{advance_head}{others}  let rounds = (tile.steps + {prefetch}u - 1u) / {prefetch}u;
  for (var round = 0u; round < rounds; round++) {{
{steps}  }}
{results}}}
"
    )
}

/// Stages the operands that were fetched for a step, fetches others in their place, and multiplies.
///
/// Where many loads decide, they are asked for first. Else the sums of their addresses keep what is
/// multiplied waiting, unless that has begun; where B's rows run along k, it has to wait for more of them,
/// and beginning late costs more.
fn one_step(step: &Step, slot: usize) -> String {
    const BARRIER: &str = "workgroupBarrier();\n";
    let stage = stage(step, slot);
    let fetch = fetch(step, slot, "") + &advance("TILE_K");
    let mut slices: Vec<String> = (0..step.depth).map(|l| slice(step, l)).collect();
    let first = slices.remove(0);
    let products = slices.concat();
    if step.prefetch > 1 {
        format!("{BARRIER}{stage}{fetch}{BARRIER}{first}{products}")
    } else if step.trans_b {
        format!("{BARRIER}{stage}{BARRIER}{fetch}{first}{products}")
    } else {
        format!("{BARRIER}{stage}{BARRIER}{first}{fetch}{products}")
    }
}

/// Goes on along k.
fn advance(k: &str) -> String {
    format!("at_a += along_k(tile.a, {k}, TRANS_A == 1u);\nat_b += along_k(tile.b, {k}, TRANS_B == 0u);\n")
}

/// Fetches an invocation's groups of the step at `at_a` and `at_b`.
fn fetch(step: &Step, slot: usize, declare: &str) -> String {
    let one = |(of, i)| format!("{declare}next_{of}_{i}_{slot} = fetch_{of}(tile, at_{of}, {i}u);");
    lines(groups(step).map(one))
}

/// Makes 0 of what the first step has no room for.
fn keep(step: &Step) -> String {
    let one = |(of, i)| format!("next_{of}_{i}_0 = keep_{of}(tile, index, {i}u, next_{of}_{i}_0);");
    format!("  if tile.head < TILE_K {{\n{}  }}\n", lines(groups(step).map(one)))
}

/// Puts the fetched groups of both operands into workgroup memory.
fn stage(step: &Step, slot: usize) -> String {
    let prefetch = step.prefetch;
    let one = |(of, i)| {
        let stage = if of == 'a' { "stage_a" } else { step.stage_b };
        match slot {
            0 => format!("{stage}(to_{of}, {i}u, next_{of}_{i}_0);"),
            _ => {
                let exists = format!("round * {prefetch}u + {slot}u < tile.steps");
                format!("{stage}(to_{of}, {i}u, select(vec4<u32>(), next_{of}_{i}_{slot}, {exists}));")
            }
        }
    };
    lines(groups(step).map(one))
}

/// The matrix and the number of each group that an invocation fetches.
fn groups(step: &Step) -> impl Iterator<Item = (char, usize)> {
    let [a, b] = step.fetches;
    iter::repeat_n('a', a).zip(0..).chain(iter::repeat_n('b', b).zip(0..))
}

/// Multiplies one fragment's depth of the staged operands.
fn slice(step: &Step, l: usize) -> String {
    add_products(step.fragments, |i| load_a(step, i, l), |j| load_b(step, l, j)) + "\n"
}

/// The fragment of A in row `i` and column `l` of fragments. Staged rows are rows of A, or columns if it is
/// stored transposed; `coopLoadT` reads row by row.
fn load_a(step: &Step, i: usize, l: usize) -> String {
    let (load, row, column) = if step.trans_a { ("coopLoad", l, i) } else { ("coopLoadT", i, l) };
    load_fragment(load, 'a', row, column)
}

/// The fragment of B in row `l` and column `j` of fragments.
fn load_b(step: &Step, l: usize, j: usize) -> String {
    let (load, row, column) = if step.trans_b { ("coopLoad", j, l) } else { ("coopLoadT", l, j) };
    load_fragment(load, 'b', row, column)
}

/// Loads from the given row and column of fragments in workgroup memory, whose elements are vectors of four.
fn load_fragment(load: &str, of: char, row: usize, column: usize) -> String {
    let role = of.to_ascii_uppercase();
    let (down, across) = (row * FRAGMENT, column * FRAGMENT / 4);
    format!(
        "{load}<coop_mat16x16<f16, {role}>>(&sh_{of}[from_{of} + {down}u * STRIDE_{role} + {across}u], STRIDE_{role})"
    )
}

#[cfg(test)]
mod tests {
    use backend_api::Activation;

    use super::*;

    fn text(sizes: [usize; 3], parts: [usize; 2], trans_b: bool, in_registers: bool) -> String {
        let tile = CooperativeTile::divided(sizes, parts, 0, 0);
        let tile = tile.constants([false, trans_b], Activation::Identity);
        let values = ProductConstants { tile, in_registers }.values();
        product(&values, Target { immediates: true, unroll: true })
    }

    #[test]
    fn the_step_is_unrolled() {
        let text = text([128, 128, 32], [2, 2], true, false);
        assert_eq!(text.matches("coopMultiplyAdd(").count(), 2 * 4 * 4);
        assert_eq!(text.matches("coopStoreT(").count(), 4 * 4);
        assert_eq!(text.matches("= fetch_a(").count(), 2 * 4);
        assert_eq!(text.matches("stage_b(").count(), 4);
        assert!(text.contains(
            "let a_3 = coopLoadT<coop_mat16x16<f16, A>>(&sh_a[from_a + 48u * STRIDE_A + 4u], STRIDE_A);"
        ));
        assert!(text.contains(
            "let b_2 = coopLoad<coop_mat16x16<f16, B>>(&sh_b[from_b + 32u * STRIDE_B + 0u], STRIDE_B);"
        ));
    }

    #[test]
    fn results_in_registers_need_no_workgroup_memory() {
        let text = text([128, 64, 64], [4, 2], false, true);
        assert_eq!(text.matches("elements(sum_").count(), 2 * 2);
        assert_eq!(text.matches("results(part, ").count(), 2);
        assert!(!text.contains("sh_c"));
    }
}
