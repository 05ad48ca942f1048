//! What the kernels on matrix units share: sizes, and the text that makes a subgroup's part of a product, fragments
//! across and down, each with a name of its own.

use std::iter;

use super::text::{lines, pairs};

/// Rows and columns of a fragment.
pub(super) const FRAGMENT: usize = 16;

/// Invocations of a subgroup.
pub(super) const SUBGROUP: usize = 32;

/// Declares the sums of so many rows and columns of fragments.
pub(super) fn declare_sums(fragments: [usize; 2]) -> String {
    lines(pairs(fragments).map(|(i, j)| format!("var sum_{i}_{j} = coop_mat16x16<f32, C>();")))
}

/// Adds products to the sums: the fragments of A are held while those of B pass. `load_a` loads that of a row, `load_b`
/// that of a column.
pub(super) fn add_products(
    [rows, columns]: [usize; 2],
    load_a: impl Fn(usize) -> String,
    load_b: impl Fn(usize) -> String,
) -> String {
    let left = (0..rows).map(|i| format!("let a_{i} = {};", load_a(i)));
    let right = (0..columns).flat_map(|j| {
        let load = format!("let b_{j} = {};", load_b(j));
        let sum = move |i| format!("sum_{i}_{j} = coopMultiplyAdd(a_{i}, b_{j}, sum_{i}_{j});");
        iter::once(load).chain((0..rows).map(sum))
    });
    format!("{{\n{}}}", lines(left.chain(right)))
}

/// Writes the sums out, a fragment of each subgroup at a time, through `shared` memory from `first` on: in a loop, as
/// what becomes of a sum is too much text to be repeated for each fragment. What `coopStoreT` takes has to be named
/// before.
pub(super) fn write_sums(fragments: [usize; 2], shared: &str, first: &str, stride: &str) -> String {
    let [rows, columns] = fragments;
    let store = |(i, j)| {
        let number = i * columns + j;
        format!("case {number}u: {{ let sum = sum_{i}_{j}; coopStoreT(sum, &{shared}[from_c], stride); }}")
    };
    let cases = lines(pairs(fragments).map(store));
    let count = rows * columns;
    format!(
        "let from_c = {first};
let stride = {stride};
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
