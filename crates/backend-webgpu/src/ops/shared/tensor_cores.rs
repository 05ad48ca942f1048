//! What the kernels on tensor cores share: sizes, and the text that makes a subgroup's part of a product,
//! fragments across and down, each with a name of its own.

use std::iter;

use super::text::{lines, pairs};

/// Rows and columns of a fragment.
pub(in crate::ops) const FRAGMENT: usize = 16;

/// Invocations of a subgroup.
pub(in crate::ops) const SUBGROUP: usize = 32;

/// Declares the sums of so many rows and columns of fragments.
pub(in crate::ops) fn declare_sums(fragments: [usize; 2]) -> String {
    lines(pairs(fragments).map(|(i, j)| format!("var sum_{i}_{j} = coop_mat16x16<f32, C>();")))
}

/// Adds products to the sums: the fragments of A are held while those of B pass. `load_a` loads that of a
/// row, `load_b` that of a column.
pub(in crate::ops) fn add_products(
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

/// Writes the sums out, a fragment of each subgroup at a time, through `shared` memory from `first` on: in a
/// loop, as what becomes of a sum is too much text to be repeated for each fragment. What `coopStoreT` takes
/// has to be named before.
pub(in crate::ops) fn write_sums(fragments: [usize; 2], shared: &str, first: &str, stride: &str) -> String {
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

/// Declares the elements of the fragments in row `i` of the sums: `v_0` and so on.
pub(in crate::ops) fn elements_of_row([rows, columns]: [usize; 2]) -> String {
    let declare = lines((0..columns).map(|j| format!("var v_{j}: Elements;")));
    let case = |i| {
        let elements = (0..columns).map(|j| format!("v_{j} = elements(sum_{i}_{j});"));
        format!("case {i}u: {{ {} }}", elements.collect::<Vec<_>>().join(" "))
    };
    let cases = lines((0..rows).map(case));
    format!("{declare}switch i {{\n{cases}default: {{}}\n}}\n")
}

/// Makes results of the sums in registers and writes them, by the functions of lib/results_in_registers: in a
/// loop over the rows of fragments. All of a row are made before the first is written, so that nothing waits
/// between conditions.
pub(in crate::ops) fn write_in_registers([rows, columns]: [usize; 2]) -> String {
    let each = |line: &dyn Fn(usize) -> String| lines((0..columns).map(line));
    let elements = elements_of_row([rows, columns]);
    let biases = each(&|j| format!("let bias_{j} = bias_of(part, {j}u);"));
    let scale = each(&|j| format!("v_{j} = scaled(v_{j}, bias_{j});"));
    let more = each(&|j| format!("v_{j} = with_more(part, i, {j}u, v_{j});"));
    let results = each(&|j| format!("let r_{j} = results(part, v_{j});"));
    let straight = each(&|j| format!("write_vector(row, {j}u, r_{j});"));
    let passed_on = each(&|j| format!("let p_{j} = passed_on(r_{j});"));
    let begun = each(&|j| {
        let before = j.saturating_sub(1);
        format!("let b_{j} = begun(row, select(p_{before}, p_{j}, part.right), r_{j});")
    });
    let whole = lines((1..columns).map(|j| format!("write_vector(row, {j}u, b_{j});")));
    let inside = each(&|j| format!("write_inside(part, row, {j}u, b_{j});"));
    let last = columns - 1;
    format!(
        "let part = part_in_registers(tile, index);
{biases}for (var i = 0u; i < {rows}u; i++) {{
{elements}{scale}if has_more() {{
{more}}}
{results}let row = row_of(part, i);
if part.straight {{
{straight}}} else {{
{passed_on}{begun}let end = ended(row, r_{last});
if part.whole {{
{whole}write_ends(part, row, {columns}u, b_0, end);
}} else {{
{inside}write_end_inside(part, row, {columns}u, end);
}}
}}
}}
"
    )
}
