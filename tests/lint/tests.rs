//! The lint on shaders that keep to its rules and on shaders that don't.

use naga::valid::{Capabilities, ValidationFlags, Validator};

use super::{Limits, Rule, lint};

/// What every snippet may use.
const PRELUDE: &str = "
    struct Params { n: u32, limit: array<vec4<u32>, 2> }
    @group(0) @binding(0) var<uniform> p: Params;
    @group(0) @binding(1) var<storage, read> table: array<u32>;
    @group(0) @binding(2) var<storage, read_write> out: array<u32>;
    var<immediate> pushed: u32;
    var<workgroup> tile: array<u32, 64>;
";

fn rules_within(body: &str, limits: Limits) -> Vec<Rule> {
    let source = format!("{PRELUDE}{body}");
    let module =
        naga::front::wgsl::parse_str(&source).unwrap_or_else(|e| panic!("{}", e.emit_to_string(&source)));
    let info = Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES | Capabilities::SUBGROUP)
        .validate(&module)
        .unwrap_or_else(|e| panic!("{}", e.emit_to_string(&source)));
    lint(&module, &info, limits).iter().map(|v| v.rule).collect()
}

/// The rules that `body` breaks, as the body of an entry point with the usual built-in values.
fn rules(body: &str) -> Vec<Rule> {
    rules_of(&format!("{ENTRY} {{ {body} }}"))
}

fn rules_of(text: &str) -> Vec<Rule> {
    rules_within(text, Limits::PORTABLE)
}

const ENTRY: &str = "@compute @workgroup_size(64) fn main(
    @builtin(local_invocation_index) lid: u32, @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>, @builtin(global_invocation_id) gid: vec3<u32>)";

#[test]
fn a_tile_loop_is_uniform() {
    let body = "var sum = 0u;
        for (var k = 0u; k < p.n; k += 64u) {
            if k + lid < p.n { tile[lid] = table[k + lid]; } else { tile[lid] = 0u; }
            workgroupBarrier();
            for (var i = 0u; i < 64u; i++) { sum += tile[i]; }
            workgroupBarrier();
        }
        if gid.x < p.n { out[gid.x] = sum; }";
    assert_eq!(rules(body), []);
}

#[test]
fn a_tree_reduction_is_uniform() {
    let body = "tile[lid] = table[gid.x];
        workgroupBarrier();
        for (var half = 32u; half > 0u; half >>= 1u) {
            if lid < half { tile[lid] += tile[lid + half]; }
            workgroupBarrier();
        }
        if lid == 0u { out[group.x] = tile[0]; }";
    assert_eq!(rules(body), []);
}

#[test]
fn a_grid_stride_loop_over_workgroups_is_uniform() {
    let body = "for (var block = group.x; block < p.n / 64u; block += groups.x) {
            tile[lid] = table[block * 64u + lid];
            workgroupBarrier();
            out[block * 64u + lid] = tile[63u - lid];
            workgroupBarrier();
        }";
    assert_eq!(rules(body), []);
}

#[test]
fn bounds_from_uniforms_immediates_and_read_only_storage_are_uniform() {
    for bound in ["p.limit[group.y].z", "pushed", "table[group.x + 1u]", "arrayLength(&table)"] {
        let body = format!("for (var i = 0u; i < {bound}; i++) {{ workgroupBarrier(); }}");
        assert_eq!(rules(&body), [], "{bound}");
    }
}

#[test]
fn an_early_return_on_the_workgroup_is_uniform() {
    assert_eq!(rules("if group.x * 64u >= p.n { return; } workgroupBarrier();"), []);
}

#[test]
fn a_value_through_workgroup_uniform_load_is_uniform() {
    let text = format!(
        "var<workgroup> done: u32; {ENTRY} {{
            if lid == 0u {{ done = out[0]; }}
            if workgroupUniformLoad(&done) > 3u {{ workgroupBarrier(); }}
        }}"
    );
    assert_eq!(rules_of(&text), []);
}

#[test]
fn a_barrier_in_a_non_uniform_branch_is_flagged() {
    for condition in [
        "lid < 32u",
        "gid.x < p.n",
        "table[lid] > 0u",
        "out[0] > 0u",
        "tile[0] > 0u",
        "group.x > 0u && lid > 0u",
    ] {
        let body = format!("if {condition} {{ workgroupBarrier(); }}");
        assert_eq!(rules(&body), [Rule::NonUniformBarrier], "{condition}");
    }
    assert_eq!(rules("switch lid { case 0u: { storageBarrier(); } default: {} }"), [Rule::NonUniformBarrier]);
}

#[test]
fn a_barrier_after_a_non_uniform_return_is_flagged() {
    assert_eq!(rules("if gid.x >= p.n { return; } workgroupBarrier();"), [Rule::NonUniformBarrier]);
}

#[test]
fn a_barrier_in_a_loop_of_non_uniform_length_is_flagged() {
    let flagged = [Rule::NonUniformBarrier];
    assert_eq!(rules("for (var i = lid; i < p.n; i += 64u) { workgroupBarrier(); }"), flagged);
    assert_eq!(rules("for (var i = 0u; i < lid; i++) { workgroupBarrier(); }"), flagged);
    // The barrier comes before the break, but also after it, in the next iteration.
    let body = "for (var i = 0u; i < p.n; i++) { workgroupBarrier(); if table[lid] == i { break; } }";
    assert_eq!(rules(body), flagged);
    let body = "for (var i = 0u; i < p.n; i++) { if table[lid] == i { continue; } workgroupBarrier(); }";
    assert_eq!(rules(body), flagged);
    let body = "var i = 0u; loop { workgroupBarrier(); if lid > 99u { return; } i++; if i > p.n { break; } }";
    assert_eq!(rules(body), flagged);
}

#[test]
fn flow_is_uniform_again_after_a_loop_or_switch_that_some_left_early() {
    let body = "for (var i = 0u; i < p.n; i++) { if table[lid] == i { break; } }
        switch lid { case 0u: { out[0] = 1u; } default: { if lid > 2u { break; } out[1] = 2u; } }
        workgroupBarrier();";
    assert_eq!(rules(body), []);
}

#[test]
fn a_variable_set_in_non_uniform_flow_is_not_uniform() {
    assert_eq!(
        rules(
            "var steps = 4u; if lid == 0u { steps = 8u; } for (var i = 0u; i < steps; i++) { workgroupBarrier(); }"
        ),
        [Rule::NonUniformBarrier]
    );
}

#[test]
fn calls_are_followed_with_their_arguments() {
    let helper = "fn sum(n: u32) -> u32 { for (var i = 0u; i < n; i++) { workgroupBarrier(); } return n; }
        fn early(lid: u32) -> u32 { if lid > 3u { return 1u; } return 2u; }
        fn assign(to: ptr<function, u32>, value: u32) { *to = value; }";
    let flagged = [Rule::NonUniformBarrier];
    let of = |body: &str| rules_of(&format!("{helper} {ENTRY} {{ {body} }}"));
    assert_eq!(of("out[lid] = sum(p.n);"), []);
    assert_eq!(of("out[lid] = sum(lid);"), flagged);
    assert_eq!(of("if lid > 0u { out[lid] = sum(p.n); }"), flagged);
    assert_eq!(of("let ignored = early(lid); out[lid] = sum(p.n);"), [], "a callee's return is its own");
    assert_eq!(of("out[lid] = sum(early(lid));"), flagged);
    assert_eq!(of("var x = 0u; assign(&x, group.x); out[lid] = sum(x);"), []);
    assert_eq!(of("var x = 0u; assign(&x, lid); out[lid] = sum(x);"), flagged);
}

/// What is loaded counts as uniform, so it has to be one place.
#[test]
fn a_uniform_load_of_a_place_that_varies_is_flagged() {
    let flagged = [Rule::NonUniformPointer];
    assert_eq!(rules("if workgroupUniformLoad(&tile[p.n]) > 5u { workgroupBarrier(); }"), []);
    assert_eq!(rules("if workgroupUniformLoad(&tile[lid]) > 5u { workgroupBarrier(); }"), flagged);
    assert_eq!(
        rules("var at = 0u; at = lid; out[0] = workgroupUniformLoad(&tile[at]);"),
        flagged,
        "a variable that varies"
    );
    let helper = "fn load(at: u32) -> u32 { return workgroupUniformLoad(&tile[at]); }";
    let of = |body: &str| rules_of(&format!("{helper} {ENTRY} {{ {body} }}"));
    assert_eq!(of("out[0] = load(group.x);"), []);
    assert_eq!(of("out[0] = load(lid);"), flagged);
}

#[test]
fn built_in_values_in_a_structure_are_told_apart() {
    let entry =
        "struct In { @builtin(local_invocation_index) lid: u32, @builtin(workgroup_id) group: vec3<u32> }
        @compute @workgroup_size(64) fn main(in: In)";
    assert_eq!(rules_of(&format!("{entry} {{ if in.group.x > 0u {{ workgroupBarrier(); }} }}")), []);
    assert_eq!(
        rules_of(&format!("{entry} {{ if in.lid > 0u {{ workgroupBarrier(); }} }}")),
        [Rule::NonUniformBarrier]
    );
}

#[test]
fn a_subgroup_operation_in_a_non_uniform_branch_is_flagged() {
    assert_eq!(rules("out[lid] = subgroupAdd(lid);"), []);
    assert_eq!(rules("if lid > 3u { out[lid] = subgroupAdd(lid); }"), [Rule::NonUniformSubgroup]);
}

#[test]
fn resources_are_counted() {
    let shared =
        "var<workgroup> big: array<f32, 8192>; @compute @workgroup_size(64) fn main() { big[0] = 1.0; }";
    assert_eq!(rules_of(shared), [Rule::WorkgroupMemory]);
    let unused = "var<workgroup> big: array<f32, 8192>; @compute @workgroup_size(64) fn main() {}";
    assert_eq!(rules_of(unused), []);
    let rounded = "var<workgroup> a: array<f32, 4095>; var<workgroup> b: f32;
        @compute @workgroup_size(64) fn main() { a[0] = 1.0; b = 1.0; }";
    assert_eq!(rules_of(rounded), [Rule::WorkgroupMemory], "16,380 + 4 bytes count as 16,384 + 16");
    assert_eq!(rules_of("@compute @workgroup_size(32, 32) fn main() {}"), [Rule::Invocations]);
    let limits = Limits { storage_buffers: 1, ..Limits::PORTABLE };
    let two = "@compute @workgroup_size(1) fn main() { out[0] = table[0]; }";
    assert_eq!(rules_within(two, limits), [Rule::StorageBuffers]);
}
