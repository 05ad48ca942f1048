//! SPIR-V, for what WGSL can't say to a driver.

use std::collections::{HashMap, HashSet};

use naga::Module;
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use spirv::{Capability, GlslStd450Op, LoopControl, Op, StorageClass};

use crate::unchecked::Spirv;

/// The SPIR-V of a kernel's text whose loops the driver is asked to keep as they are, and whose halves that are
/// made of bits by way of f32 are bitcasts. With `elements`, the functions of lib/fragment_elements reach the
/// elements of cooperative matrices. It has no run-time checks.
///
/// Needs Vulkan 1.2, as cooperative matrices do.
///
/// # Errors
/// What the compiler says of the text.
pub(super) fn with_rolled_loops(text: &str, elements: bool) -> Result<Spirv, String> {
    of_module(&parse(text)?, text, elements)
}

fn parse(text: &str) -> Result<Module, String> {
    naga::front::wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))
}

/// The SPIR-V of a parsed kernel, as of its text by [`with_rolled_loops`].
pub(super) fn of_module(module: &Module, text: &str, elements: bool) -> Result<Spirv, String> {
    let mut spirv = translate(module, text)?;
    roll_loops(&mut spirv.words);
    cast_halves(&mut spirv.words);
    if elements {
        reach_elements(&mut spirv.words);
    }
    Ok(spirv)
}

/// Validates a kernel for a device that has everything.
pub(crate) fn validate(module: &Module, text: &str) -> Result<ModuleInfo, String> {
    let capabilities = Capabilities::COOPERATIVE_MATRIX
        | Capabilities::IMMEDIATES
        | Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SUBGROUP
        | Capabilities::SUBGROUP_BARRIER;
    Validator::new(ValidationFlags::all(), capabilities)
        .validate(module)
        .map_err(|error| error.emit_to_string(text))
}

fn translate(module: &Module, text: &str) -> Result<Spirv, String> {
    let info = validate(module, text)?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = spv::Options {
        lang_version: (1, 5),
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..Default::default()
    };
    let mut words = spv::write_vec(module, &info, &options, None).map_err(|error| error.to_string())?;
    declare_device_scope(&mut words);
    let [x, y, z] = module.entry_points.first().map_or([1; 3], |main| main.workgroup_size);
    Ok(Spirv { words, workgroup_size: (x, y, z) })
}

/// Words before the first instruction.
const HEADER: usize = 5;

/// Calls `visit` for every instruction that is known. An instruction's first word has its length above its code.
fn for_each_instruction(words: &mut [u32], mut visit: impl FnMut(Op, &mut [u32])) {
    let mut rest = words.get_mut(HEADER..).unwrap_or_default();
    while let Some(&first) = rest.first() {
        let length = (first >> 16).max(1) as usize;
        let Some((instruction, next)) = rest.split_at_mut_checked(length) else { return };
        if let Some(op) = Op::from_u32(first & 0xffff) {
            visit(op, instruction);
        }
        rest = next;
    }
}

/// Declares that the scope of barriers and atomics may be the device, which naga gives those of storage buffers and
/// which Vulkan's memory model, that of cooperative matrices, has as a capability of its own. wgpu enables both together.
fn declare_device_scope(words: &mut Vec<u32>) {
    let mut has_model = false;
    for_each_instruction(words, |op, instruction| {
        has_model |= declares(op, instruction, Capability::VulkanMemoryModel);
    });
    if has_model {
        let declaration = [2 << 16 | Op::Capability as u32, Capability::VulkanMemoryModelDeviceScope as u32];
        words.splice(HEADER..HEADER, declaration);
    }
}

/// Whether an instruction declares that the module needs a capability.
fn declares(op: Op, instruction: &[u32], capability: Capability) -> bool {
    op == Op::Capability && instruction.get(1) == Some(&(capability as u32))
}

/// Where [`Op::LoopMerge`], which is at the head of a loop, has what is asked of it.
const LOOP_CONTROL: usize = 3;

/// Asks for every loop not to be unrolled.
fn roll_loops(words: &mut [u32]) {
    for_each_instruction(words, |op, instruction| {
        if op == Op::LoopMerge
            && let Some(control) = instruction.get_mut(LOOP_CONTROL)
        {
            *control = LoopControl::DONT_UNROLL.bits();
        }
    });
}

/// Two halves of a word as two of f32: an instruction of the only extended set that naga uses.
const UNPACK_HALF: u32 = GlslStd450Op::UnpackHalf2x16 as u32;

/// Makes `vec2<f16>(unpack2x16float(x))` a bitcast of x. Of NaN, it keeps the bits.
fn cast_halves(words: &mut [u32]) {
    let (mut half, mut pairs) = (None, HashSet::new());
    let mut unpacked = HashMap::new();
    for_each_instruction(words, |op, instruction| match (op, &mut *instruction) {
        (Op::TypeFloat, &mut [_, ty, 16, ..]) => half = Some(ty),
        (Op::TypeVector, &mut [_, ty, of, 2]) if half == Some(of) => _ = pairs.insert(ty),
        (Op::ExtInst, &mut [_, _, result, _, UNPACK_HALF, bits]) => _ = unpacked.insert(result, bits),
        (Op::FConvert, [first, ty, _, operand]) => {
            if let (true, Some(bits)) = (pairs.contains(ty), unpacked.get(operand)) {
                *first = *first & !0xffff | Op::Bitcast as u32;
                *operand = *bits;
            }
        }
        _ => {}
    });
}

/// Where [`Op::AccessChain`] has what it accesses.
const BASE: usize = 3;
/// The storage class of a function's variables.
const OF_FUNCTION: u32 = StorageClass::Function as u32;

/// In each function with a variable of an array and one of a cooperative matrix, makes what accesses the
/// array's elements access the matrix's.
fn reach_elements(words: &mut [u32]) {
    let (mut arrays, mut matrices) = (HashSet::new(), HashSet::new());
    let (mut array, mut matrix) = (None, None);
    for_each_instruction(words, |op, instruction| match (op, &mut *instruction) {
        (Op::TypeArray, &mut [_, ty, ..]) => _ = arrays.insert(ty),
        (Op::TypeCooperativeMatrixKHR, &mut [_, ty, ..]) => _ = matrices.insert(ty),
        (Op::TypePointer, &mut [_, pointer, OF_FUNCTION, ty]) => {
            // A pointer is known by what it points to.
            for set in [&mut arrays, &mut matrices] {
                if set.contains(&ty) {
                    set.insert(pointer);
                }
            }
        }
        (Op::Function, _) => (array, matrix) = (None, None),
        (Op::Variable, &mut [_, pointer, variable, OF_FUNCTION, ..]) => {
            if arrays.contains(&pointer) {
                array = Some(variable);
            } else if matrices.contains(&pointer) {
                matrix = Some(variable);
            }
        }
        (Op::AccessChain, words) => {
            if let (Some(matrix), Some(base)) = (matrix, words.get_mut(BASE))
                && array == Some(*base)
            {
                *base = matrix;
            }
        }
        _ => {}
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Target, Variant, compose};
    use crate::ops::all_variants;

    fn translate(text: &str) -> Result<Spirv, String> {
        super::translate(&parse(text)?, text)
    }

    #[test]
    fn only_a_module_of_vulkans_memory_model_declares_the_scope_of_the_device() {
        let count = |text: &str| {
            let mut words = translate(text).unwrap().words;
            let mut declared = 0;
            for_each_instruction(&mut words, |op, instruction| {
                let scope = Capability::VulkanMemoryModelDeviceScope;
                declared += u32::from(declares(op, instruction, scope));
            });
            declared
        };
        let body = "
            @group(0) @binding(0) var<storage, read_write> x: array<f32>;
            @compute @workgroup_size(32) fn main() { x[0] = 1.0; storageBarrier(); ";
        assert_eq!(count(&format!("{body} }}")), 0);
        let matrices = "enable wgpu_cooperative_matrix;";
        assert_eq!(
            count(&format!("{matrices}{body} var sum = coop_mat8x8<f32, C>(); sum = sum + sum; }}")),
            1
        );
    }

    /// What wgpu or this module makes of a kernel, on a device that few have.
    #[test]
    fn every_kernel_on_tensor_cores_becomes_spirv() {
        let on_tensor_cores = |variant: &Variant| variant.requires().cooperative_matrices;
        let cooperative: Vec<_> = all_variants().into_iter().filter(on_tensor_cores).collect();
        assert!(cooperative.iter().any(Variant::has_rolled_loops));
        for (i, variant) in cooperative.into_iter().enumerate() {
            let target = Target { immediates: i % 2 == 0, unroll: true };
            if let Err(error) = translate(&compose(&variant, target)) {
                panic!("{variant:?}:\n{error}");
            }
        }
    }

    const TWO_LOOPS: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main() {
    for (var i = 0u; i < x[0]; i++) {
        for (var j = 0u; j < x[1]; j++) { x[2] += j; }
    }
}";

    fn loop_controls(words: &[u32]) -> Vec<u32> {
        let mut controls = Vec::new();
        for_each_instruction(&mut words.to_vec(), |op, instruction| {
            if op == Op::LoopMerge {
                controls.push(instruction[LOOP_CONTROL]);
            }
        });
        controls
    }

    #[test]
    fn every_loop_is_to_be_kept_and_nothing_else_changes() {
        let before = translate(TWO_LOOPS).unwrap().words;
        assert_eq!(loop_controls(&before), [0, 0]);
        let after = with_rolled_loops(TWO_LOOPS, false).unwrap().words;
        assert_eq!(loop_controls(&after), [LoopControl::DONT_UNROLL.bits(); 2]);
        assert_eq!(before.iter().zip(&after).filter(|(before, after)| before != after).count(), 2);
    }

    const TWO_ELEMENTS: &str = "
enable wgpu_cooperative_matrix;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
fn first(matrix: coop_mat16x16<f32, C>) -> f32 {
    var copy = matrix;
    var elements: array<f32, 8>;
    elements[1] = 2.0;
    return elements[0];
}
fn other() -> f32 {
    var numbers: array<f32, 8>;
    return numbers[u32(x[1])];
}
@compute @workgroup_size(32) fn main() {
    x[0] = first(coopLoad<coop_mat16x16<f32, C>>(&x[0], 16u)) + other();
}";

    #[test]
    fn only_arrays_beside_a_matrix_stand_for_its_elements() {
        let before = translate(TWO_ELEMENTS).unwrap().words;
        let after = with_rolled_loops(TWO_ELEMENTS, true).unwrap().words;
        assert_eq!(before.iter().zip(&after).filter(|(before, after)| before != after).count(), 2);
    }

    const HALVES: &str = "
enable f16;
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<vec2<f16>>;
@compute @workgroup_size(1) fn main() {
    y[0] = vec2<f16>(unpack2x16float(x[0]));
    y[1] = vec2<f16>(2.0 * unpack2x16float(x[1]));
    y[2] = vec2<f16>(unpack2x16snorm(x[2]));
}";

    #[test]
    fn only_bits_of_halves_are_cast() {
        let before = translate(HALVES).unwrap().words;
        let after = with_rolled_loops(HALVES, false).unwrap().words;
        let codes = |words: &[u32]| {
            let mut codes = Vec::new();
            for_each_instruction(&mut words.to_vec(), |op, _| codes.push(op));
            codes
        };
        let changed: Vec<_> =
            codes(&before).into_iter().zip(codes(&after)).filter(|(before, after)| before != after).collect();
        assert_eq!(changed, [(Op::FConvert, Op::Bitcast)]);
        assert_eq!(before.iter().zip(&after).filter(|(before, after)| before != after).count(), 2);
    }

    #[test]
    fn a_text_that_is_wrong_is_refused_with_its_place() {
        let error = with_rolled_loops("fn main() { y = 1; }", false).unwrap_err();
        assert!(error.contains('y'), "{error}");
    }

    #[test]
    fn words_that_are_no_spirv_are_left_alone() {
        for words in [vec![], vec![0; 3], vec![0; 9], vec![u32::MAX; 9], vec![Op::LoopMerge as u32; 9]] {
            let mut after = words.clone();
            roll_loops(&mut after);
            cast_halves(&mut after);
            reach_elements(&mut after);
            assert_eq!(after, words);
        }
    }
}
