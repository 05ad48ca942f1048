//! Writes `multiply`, the step of gemm/unstaged.
//!
//! A driver keeps fragments, and what is on its way to them, in registers only when each has a name of its
//! own. All indices stay in the functions of the shader's file, which this text calls.

use backend_api::Activation;

use crate::kernels::{Constant as _, Target, Values, constants};
use crate::ops::shared::tensor_cores::{FRAGMENT, add_products, declare_sums};
use crate::ops::shared::text::{lines, pairs};

constants! {
    /// The constants of gemm/unstaged.
    pub(super) struct Constants {
        tile_m: usize,
        tile_n: usize,
        subgroups_m: usize,
        subgroups_n: usize,
        subgroups_k: usize,
        prefetch: usize,
        trans_a: bool,
        trans_b: bool,
        trans_c: bool,
        activation: Activation,
    }
}

/// Vectors of a row of k that are read at once as two fragments.
const SLICES: usize = 2;

/// Rows of k of which an invocation reads a vector, where an operand's rows run across k.
const ROWS: usize = 8;

/// One operand of a subgroup's part.
#[derive(Clone, Copy)]
struct Operand {
    name: char,
    fragments: usize,
    /// Whether its rows run along k.
    k_major: bool,
}

impl Operand {
    /// Vectors that an invocation reads in a step.
    fn vectors(self) -> usize {
        if self.k_major { 2 * self.fragments } else { ROWS }
    }

    /// Where the vector `i` begins: the number of its start, and how much further along k it is.
    fn place(self, i: usize) -> (usize, usize) {
        if self.k_major { (i, 0) } else { (0, i) }
    }

    /// The type of a vector, whose numbers are of k or of so many fragments.
    fn alias(self) -> String {
        let words = if self.k_major { 4 } else { self.fragments };
        let ty = if words == 1 { "u32".to_owned() } else { format!("vec{words}<u32>") };
        format!("alias Vec{} = {ty};", self.name.to_ascii_uppercase())
    }

    fn starts(self) -> String {
        let (name, count) = (self.name, if self.k_major { self.vectors() } else { 1 });
        lines((0..count).map(|i| format!("let start_{name}_{i} = start_{name}(tile, {i}u);")))
    }

    /// Reads the vectors of a step, by the function `how` at `k`.
    fn fetch(self, step: usize, how: &str, k: &str) -> String {
        let name = self.name;
        lines((0..self.vectors()).map(|i| {
            let (start, further) = self.place(i);
            let (declare, rest) = if how == "first" { ("var ", ", pad") } else { ("", "") };
            format!(
                "{declare}{name}_{step}_{i} = {how}_{name}(start_{name}_{start}, {k} + {step}u * DEPTH + {further}u{rest});"
            )
        }))
    }

    /// An invocation's elements of a fragment of a step, whose k is one of two slices.
    fn elements(self, step: usize, slice: usize, fragment: usize) -> String {
        let name = format!("{}_{step}", self.name);
        if self.k_major {
            let (words, first) = (["xy", "zw"][slice % SLICES], 2 * fragment);
            return format!("elements_of({name}_{first}.{words}, {name}_{}.{words})", first + 1);
        }
        let word = if self.fragments == 1 { "" } else { [".x", ".y", ".z", ".w"][fragment % 4] };
        let rows: Vec<_> = (0..4).map(|i| format!("{name}_{}{word}", 4 * slice + i)).collect();
        format!("halves_across(vec4<u32>({}))", rows.join(", "))
    }
}

/// The function, given the kernel's constants.
///
/// Of a k-block, each step's vectors are multiplied, and those of the next k-block fetched in their place.
pub(super) fn multiply(values: &Values, _: Target) -> String {
    let Constants { tile_m, tile_n, subgroups_m, subgroups_n, prefetch, trans_a, trans_b, .. } =
        Constants::of(values);
    let fragments = [tile_m / subgroups_m.max(1) / FRAGMENT, tile_n / subgroups_n.max(1) / FRAGMENT];
    let a = Operand { name: 'a', fragments: fragments[0], k_major: !trans_a };
    let b = Operand { name: 'b', fragments: fragments[1], k_major: trans_b };
    let both = |text: &dyn Fn(Operand) -> String| text(a) + &text(b);
    let aliases = lines([a, b].into_iter().map(Operand::alias));
    let starts = both(&Operand::starts);
    let first: String = (0..prefetch).map(|step| both(&|of| of.fetch(step, "first", "k"))).collect();
    let steps: String = (0..prefetch)
        .map(|step| {
            let products: String =
                (0..SLICES).map(|slice| products(fragments, [a, b], step, slice)).collect();
            let fetch = both(&|of| of.fetch(step, "fetch", "at"));
            format!("{products}if k_block < k_blocks {{\n{fetch}}}\n")
        })
        .collect();
    let (sums, stores) = (declare_sums(fragments), stores(fragments));
    format!(
        "
{aliases}
fn multiply(tile: Tile, index: u32, flat: u32) {{
let k_blocks = (tile.k + K_BLOCK - 1u) / K_BLOCK;
let pad = k_blocks * K_BLOCK - tile.k;
let k = tile.share * STEP + tile.lane % 4u * WIDTH;
{starts}{first}{sums}var next = first_place(flat, k_blocks);
for (var k_block = 1u; k_block <= k_blocks; k_block++) {{
let at = (1u + next) * K_BLOCK + k - pad;
{steps}next = select(next + 1u, 0u, next + 2u == k_blocks);
}}
{stores}}}
"
    )
}

/// Adds the products of a step's slice.
fn products(fragments: [usize; 2], [a, b]: [Operand; 2], step: usize, slice: usize) -> String {
    let load_a = |i| format!("left_operand_of({})", a.elements(step, slice, i));
    let load_b = |j| format!("right_operand_of({})", b.elements(step, slice, j));
    add_products(fragments, load_a, load_b) + "\n"
}

/// Writes the sums out, eight rows of each part at a time: in a loop, as what becomes of a sum is too much
/// text to be repeated for each fragment.
fn stores([rows, columns]: [usize; 2]) -> String {
    let case = |(i, half): (usize, usize)| {
        let part = ["low", "high"][half % 2];
        let store = |j| format!("sh[to + {j}u * SUBGROUP] = elements(sum_{i}_{j}).{part};");
        format!("case {}u: {{\n{}}}", 2 * i + half, lines((0..columns).map(store)))
    };
    let cases = lines(pairs([rows, 2]).map(case));
    format!(
        "let to = index / SUBGROUP * FRAGMENTS_N * SUBGROUP + tile.lane;
for (var i = 0u; i < {}u; i++) {{
switch i {{
{cases}default: {{}}
}}
workgroupBarrier();
write_out(tile, index, i);
workgroupBarrier();
}}
",
        2 * rows
    )
}

#[cfg(test)]
mod tests {
    use backend_api::Activation;

    use super::{Constants, Target, multiply};
    use crate::kernels::Constant as _;

    #[test]
    fn the_step_is_unrolled() {
        let constants = Constants {
            tile_m: 64,
            tile_n: 32,
            subgroups_m: 1,
            subgroups_n: 1,
            subgroups_k: 8,
            prefetch: 2,
            trans_a: false,
            trans_b: false,
            trans_c: false,
            activation: Activation::Identity,
        };
        let text = multiply(&constants.values(), Target { immediates: true, unroll: true });
        assert_eq!(text.matches("coopMultiplyAdd(").count(), 2 * 2 * 4 * 2);
        assert_eq!(text.matches("= fetch_a(").count(), 2 * 8);
        assert_eq!(text.matches("= first_b(").count(), 2 * 8);
        assert!(text.contains("alias VecB = vec2<u32>;"));
        assert!(text.contains("left_operand_of(elements_of(a_1_6.zw, a_1_7.zw))"));
        assert!(
            text.contains("right_operand_of(halves_across(vec4<u32>(b_0_4.y, b_0_5.y, b_0_6.y, b_0_7.y)))")
        );
    }
}
