//! Kernels that name elements of cooperative matrices, for tests on devices that have none.

use super::Variant;
use super::libs::FRAGMENT_ELEMENTS;

const FRAGMENTS: &str = include_str!("emulated_fragments.wgsl");

/// Where a kernel begins.
const ENTRY: &str = "@builtin(local_invocation_index) index: u32) {\n";

/// The text of a variant, with its fragments in workgroup memory where the device has no cooperative matrices. Its
/// workgroups have to be of one subgroup of 32.
pub(super) fn fragments(variant: &Variant, text: String, features: wgpu::Features) -> String {
    let is_emulated = variant.requires().element_access
        && !features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX);
    if !is_emulated {
        return text;
    }
    // Declarations of elements are the library's own, which come before the first function of a fragment.
    let (declarations, _) =
        FRAGMENT_ELEMENTS.text.split_once("fn elements(").expect("a function of fragments");
    let emulated = declarations.replace("alias Sums = coop_mat16x16<f32, C>;", "") + FRAGMENTS;
    let replaced = [
        ("enable wgpu_cooperative_matrix; ", ""),
        (FRAGMENT_ELEMENTS.text, emulated.as_str()),
        ("coopMultiplyAdd(", "multiply_add("),
        // Of one subgroup, so that barriers are in uniform flow.
        ("index / SUBGROUP", "0u"),
        (ENTRY, &format!("{ENTRY}  lane_of_fragments = index;\n")),
    ];
    replaced.into_iter().fold(text, |text, (native, emulated)| {
        assert!(text.contains(native), "{variant:?} has no `{native}`");
        text.replace(native, emulated)
    })
}
