//! What is counted of kernels that access what they shouldn't, on every adapter.

use backend_api::support::{Access, Operand};
use backend_api::{BackendError, BackendFactory, BackendResult, ComputeBackend, DType};

use super::instrument::instrument;
use crate::kernels::{Field, KernelSource, Target, Variant, compose, validate};
use crate::{WebGpuBackend, WebGpuFactory};

/// Numbers of the kernels' operands, which begin this many bytes into their buffers.
const N: u32 = 10;
const BEFORE: usize = 12;

/// Invocations of the kernels.
const INVOCATIONS: u32 = 4;

const FIELDS: &[Field] = &[
    Field { name: "x", offset: 0, size: 4, wgsl: "u32" },
    Field { name: "y", offset: 4, size: 4, wgsl: "u32" },
    Field { name: "n", offset: 8, size: 4, wgsl: "u32" },
];

/// A kernel with an input and an output, whose invocations do `body`.
macro_rules! kernel {
    ($body:literal) => {{
        static SOURCE: KernelSource = KernelSource {
            name: "test",
            text: concat!(
                "var<workgroup> sh: array<f32, 8>;\n",
                "@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {\n",
                "let last = params.n - 1u;\n",
                $body,
                "\n}\n"
            ),
            libs: &[],
            types: &[],
            constants: &[],
            reads: &["x: f32"],
            writes: &["y: f32"],
            params: FIELDS,
            unrolled: None,
            cooperative: false,
            subgroups: false,
            mixes_outputs: false,
        };
        &SOURCE
    }};
}

/// What is found of a kernel on each adapter: nothing, or the text of the error.
fn found(source: &'static KernelSource) -> Vec<String> {
    let devices = WebGpuFactory.devices();
    assert!(
        !devices.is_empty(),
        "no WebGPU adapter; on Debian and Ubuntu: apt-get install mesa-vulkan-drivers libvulkan1"
    );
    let run = |selector: &str| -> BackendResult<()> {
        let mut backend = WebGpuBackend::select(selector.trim_start_matches("webgpu:"));
        backend.init()?;
        let bytes = 4 * N as usize;
        let [x, y] = [backend.alloc(256)?, backend.alloc(256)?];
        let [x, y] = [backend.view(x, BEFORE, bytes)?, backend.view(y, BEFORE, bytes)?];
        let call = backend.context("test")?;
        let context = &call.context;
        let operand = |arg, ptr, access| Operand { arg, ptr, offset: 0, bytes, align: 4, access };
        let operands = [operand("x", x, Access::Read), operand("y", y, Access::Write)];
        let [Some(x), Some(y)] = context.resolve("test", &operands)? else { panic!("no operands") };
        let output = context.output(&y, DType::F32);
        let input = context.input("test", &x, DType::F32, &output)?;
        let params = [input.offset, output.offset, N];
        context.launch("test", &Variant::new(source, [], []), &[&input], &output, &params, [1; 3])?;
        context.commit("test")?;
        drop(call);
        backend.synchronize()
    };
    let text = |outcome| match outcome {
        Ok(()) => String::new(),
        Err(BackendError::Driver { source, .. }) => source.reason,
        Err(error) => panic!("{error}"),
    };
    devices.into_iter().map(|device| text(run(&device.selector))).collect()
}

#[track_caller]
fn expect(source: &'static KernelSource, wanted: &[(u32, &str, u32)]) {
    let lines = wanted.iter().map(|(count, place, largest)| {
        format!("\n{count} accesses outside {place} of test (), the largest index is {largest}")
    });
    let wanted: String = lines.collect();
    for found in found(source) {
        assert_eq!(found, wanted);
    }
}

/// The first element of the operands.
const FIRST: u32 = BEFORE as u32 / 4;

#[test]
fn what_lies_inside_is_not_counted() {
    expect(
        kernel!("y[params.y + i] = x[params.x + i]; y[params.y + last] = x[params.x + last]; sh[i] = 1.0;"),
        &[],
    );
}

#[test]
fn loads_beyond_an_operand_are_counted_though_the_buffer_is_larger() {
    expect(
        kernel!("y[params.y + i] = x[params.x + last + i];"),
        &[(INVOCATIONS - 1, "binding 0", FIRST + N + INVOCATIONS - 2)],
    );
}

#[test]
fn loads_before_an_operand_are_counted() {
    expect(kernel!("y[params.y + i] = x[params.x - 1u];"), &[(INVOCATIONS, "binding 0", FIRST - 1)]);
    expect(kernel!("y[params.y + i] = x[1];"), &[(INVOCATIONS, "binding 0", 1)]);
}

#[test]
fn the_first_element_of_an_input_may_be_loaded_and_that_of_an_output_may_not() {
    expect(kernel!("y[params.y + i] = x[0];"), &[]);
    expect(kernel!("y[0] = x[params.x];"), &[(INVOCATIONS, "binding 1", 0)]);
}

#[test]
fn indices_below_zero_are_counted() {
    expect(
        kernel!("y[params.y + i] = x[i32(i) - 1000];"),
        &[(INVOCATIONS, "binding 0", 0u32.wrapping_sub(997))],
    );
}

#[test]
fn stores_are_counted() {
    expect(kernel!("if i == 2u { y[params.y + params.n + 1u] = 1.0; }"), &[(1, "binding 1", FIRST + N + 1)]);
}

#[test]
fn every_iteration_of_a_loop_counts() {
    expect(
        kernel!("for (var k = 0u; k < 2u * params.n; k++) { y[params.y + i] += x[params.x + k]; }"),
        &[(INVOCATIONS * N, "binding 0", FIRST + 2 * N - 1)],
    );
}

#[test]
fn what_is_not_reached_does_not_count() {
    expect(
        kernel!(
            "if i < params.n || x[params.x + params.n] > 0.0 { y[params.y + i] = select(1.0, 2.0, i > 9u); }"
        ),
        &[],
    );
}

#[test]
fn what_a_function_accesses_and_what_is_not_used_counts() {
    expect(
        kernel!(
            "_ = far(params.n); y[params.y + i] = 0.0; } fn far(k: u32) -> f32 { return x[params.x + k];"
        ),
        &[(INVOCATIONS, "binding 0", FIRST + N)],
    );
}

#[test]
fn arrays_of_known_length_count() {
    expect(
        kernel!(
            "var own: array<f32, 3>; var v = vec4<f32>(); v[i + 1u] = 1.0;
            sh[i + 6u] = 1.0; own[i] = 2.0; y[params.y + i] = own[0] + v.x;"
        ),
        &[(2, "an array in workgroup memory", 9), (2, "an array of an invocation", 4)],
    );
}

/// Variants on tensor cores, which few devices can run, and some of the others.
#[test]
fn every_kernel_can_be_counted() {
    let variants = crate::ops::all_variants();
    let chosen = variants
        .iter()
        .enumerate()
        .filter(|(i, variant)| i % 9 == 0 || variant.requires().cooperative_matrices);
    for (i, variant) in chosen {
        let text = compose(variant, Target { immediates: i % 2 == 0, unroll: i % 3 == 0 });
        let counted = instrument(variant, &text, 1).and_then(|module| validate(&module, ""));
        if let Err(why) = counted {
            panic!("{variant:?}: {why}");
        }
    }
}
