//! The plans of many shapes on devices that this machine doesn't have.
//!
//! A device is pretended: it runs nothing, has memory for nothing, and planners are told of a kind, features, limits and
//! compute units. So a machine's own adapters change nothing, and none is needed. Calls are dry runs, which only note the
//! kernels that they ask for.
//!
//! A plan that changes is a decision, so their digests are written down here, and those of their grids and
//! parameters. `PLANS=FILE cargo test --package backend-webgpu plans` writes the plans, one line each, to compare
//! those of two versions.

pub(in crate::ops) mod bounds;
mod calls;
mod digests;
mod expert_calls;
mod extras;
mod shapes;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use backend_api::desc::{
    AttentionDesc, AttentionShape, ConvDesc, ConvShape, ExpertMatmulDesc, ImageLayout, ImageShape,
    MatmulDesc, Matrix, QuantMatrix, Window,
};
use backend_api::quant::QuantFormat;
use backend_api::{
    BackendError, BackendResult, ComputeBackend as _, DType, DeviceInfo, DeviceKind, MathMode,
};

use bounds::Footprints;
pub(in crate::ops) use shapes::Shapes;

use super::State;
use super::op_context::{Launch, OpContext};
use super::shared::iterations;
use super::shared::verdicts::SelfTests;
use crate::WebGpuBackend;
use crate::context::Context;
use crate::device::{self, DeviceProfile, LEAST_BINDINGS, h200};
use crate::kernels::Variant;
use crate::opened::Opened;
use crate::unchecked::noop_adapter;

/// Shapes of each operation.
const SHAPES: usize = 500;

/// Bytes of an operand at most, which every device can bind by WebGPU's default limits.
const MAX_BYTES: usize = 1 << 27;

/// A device as planners see it.
#[derive(Clone, Copy)]
struct Pretended {
    name: &'static str,
    kind: DeviceKind,
    /// The interface, as wgpu calls it.
    api: &'static str,
    compute_units: usize,
    /// Bytes of workgroup memory, and invocations of a workgroup.
    workgroup: [u32; 2],
    /// Whether it has cooperative matrices, and takes SPIR-V.
    tensor_cores: bool,
    /// Invocations of a subgroup, where kernels may use subgroups.
    subgroup: Option<u32>,
    f16: bool,
    /// The most bytes of a binding, and of a buffer, where these are fewer than WebGPU's default limits.
    bindings: Option<[u64; 2]>,
    /// Whether its workgroups can tell each other something.
    barriers: bool,
}

const H200: Pretended = Pretended {
    name: "H200",
    kind: DeviceKind::DiscreteGpu,
    api: "Vulkan",
    compute_units: h200::COMPUTE_UNITS,
    workgroup: [48 << 10, 1024],
    tensor_cores: true,
    subgroup: Some(32),
    f16: true,
    bindings: None,
    barriers: true,
};

const LAPTOP: Pretended = Pretended { name: "laptop GPU", compute_units: 24, ..H200 };

const INTEGRATED: Pretended = Pretended {
    name: "integrated GPU",
    kind: DeviceKind::IntegratedGpu,
    compute_units: 16,
    workgroup: [32 << 10, 1024],
    tensor_cores: false,
    subgroup: None,
    ..H200
};

const SOFTWARE: Pretended = Pretended {
    name: "software adapter",
    kind: DeviceKind::SoftwareAdapter,
    compute_units: 1,
    workgroup: [16 << 10, 256],
    ..INTEGRATED
};

const DEVICES: [Pretended; 4] = [H200, LAPTOP, INTEGRATED, SOFTWARE];

impl Pretended {
    /// The device with other limits of a workgroup's memory and invocations.
    const fn with_workgroup(self, workgroup: [u32; 2]) -> Self {
        Self { workgroup, ..self }
    }

    /// The device with other limits of a binding and of a buffer.
    const fn with_bindings(self, binding: u64, buffer: u64) -> Self {
        Self { bindings: Some([binding, buffer]), ..self }
    }

    /// A backend whose calls plan for the device and launch nothing. All variants are right there.
    fn backend(&self) -> BackendResult<WebGpuBackend> {
        let state = State::with_self_tests(SelfTests::passed());
        Ok(WebGpuBackend::over(self.open(state)?.dry_run()))
    }

    fn limits(&self) -> wgpu::Limits {
        let max_storage_buffers_per_shader_stage = LEAST_BINDINGS as u32;
        let mut limits = wgpu::Limits { max_storage_buffers_per_shader_stage, ..wgpu::Limits::default() };
        if let Some([binding, buffer]) = self.bindings {
            (limits.max_storage_buffer_binding_size, limits.max_buffer_size) = (binding, buffer);
        }
        let [bytes, invocations] = self.workgroup;
        limits.max_compute_workgroup_storage_size = bytes;
        limits.max_compute_invocations_per_workgroup = invocations;
        limits.max_compute_workgroup_size_x = invocations;
        limits
    }

    /// The device, of which nothing is the machine's.
    fn open(&self, state: State) -> BackendResult<Opened> {
        let mut features = wgpu::Features::IMMEDIATES;
        features.set(wgpu::Features::SHADER_F16, self.f16);
        let (instance, adapter) = noop_adapter(features, self.limits());
        let info = DeviceInfo {
            selector: "webgpu:0".to_owned(),
            name: self.name.to_owned(),
            api: self.api.to_owned(),
            driver: String::new(),
            kind: self.kind,
        };
        let mut gpu = pollster::block_on(device::open(instance, adapter, info, self.limits(), false))?;
        gpu.profile = match self.kind {
            // Not as many as the machine has.
            DeviceKind::SoftwareAdapter => DeviceProfile::of_cores(2),
            kind => DeviceProfile::of(kind, self.tensor_cores),
        };
        gpu.profile.compute_units = self.compute_units;
        gpu.cooperative_matrices = self.tensor_cores;
        gpu.takes_spirv = self.tensor_cores;
        gpu.device_scope_barriers = self.barriers;
        gpu.subgroup = self.subgroup;
        gpu.packed_dots = true;
        let context = Context::new(gpu)?;
        context.memory.pool().make_hollow();
        Ok(Opened::with_state(context, state))
    }
}

/// A backend whose calls plan for an H200 and launch nothing.
pub(in crate::ops) fn of_h200() -> WebGpuBackend {
    H200.backend().expect("a device that runs nothing")
}

/// A backend like [`of_h200`] with other limits: bytes of a binding, and bytes of a buffer.
pub(in crate::ops) fn of_h200_with_bindings(binding: u64, buffer: u64) -> WebGpuBackend {
    H200.with_bindings(binding, buffer).backend().expect("a device that runs nothing")
}

/// The plan for a shape.
struct Plan {
    /// The device, the operation, the words of `explain_…` where there are, and the kernels.
    line: String,
    launches: Vec<Launch>,
}

/// The plans for a device, one for each shape.
fn plans(device: &Pretended) -> BackendResult<Vec<Plan>> {
    let backend = device.backend()?;
    let mut ptrs = [0; 4];
    for ptr in &mut ptrs {
        *ptr = backend.alloc(MAX_BYTES)?;
    }
    let mut plans = Vec::new();
    let mut note = |what: String, words: String| -> BackendResult<()> {
        let mut line = format!("{}: {what}: {words}", device.name);
        let launches = backend.context("plans")?.context.take_launches();
        for Launch { variant, .. } in &launches {
            _ = write!(line, "; {} {variant}", variant.kernel());
        }
        plans.push(Plan { line, launches });
        Ok(())
    };
    let mut shapes = Shapes(1);
    for _ in 0..SHAPES {
        let desc = shapes.matmul(ptrs);
        let words = backend.explain_matmul(&desc)?;
        backend.matmul(&desc)?;
        let sizes = [desc.m, desc.n, desc.k, desc.batch, desc.a.ld, desc.b.ld];
        let types = [desc.a.dtype, desc.b.dtype, desc.c.dtype];
        note(format!("matmul {sizes:?} {types:?} {:?}", [desc.trans_a, desc.trans_b]), words)?;
    }
    for _ in 0..SHAPES {
        let desc = shapes.attention(ptrs);
        let words = backend.explain_attention(&desc)?;
        backend.attention_ext(&desc)?;
        let sizes = [desc.batch, desc.heads, desc.kv_heads, desc.seq_q, desc.seq_kv, desc.head_dim];
        note(format!("attention {sizes:?} {} causal {}", desc.dtype, desc.causal), words)?;
    }
    for _ in 0..SHAPES {
        let (forward, backward) = shapes.conv(ptrs);
        backend.conv2d(&forward)?;
        note(format!("conv2d {} {:?}", forward.dtype, forward.shape), String::new())?;
        backend.conv2d_backward_data(&backward)?;
        note(format!("conv2d_backward_data {} {:?}", backward.dtype, backward.shape), String::new())?;
    }
    for _ in 0..SHAPES {
        let desc = shapes.quant_matmul(ptrs);
        let words = backend.explain_quant_matmul(&desc)?;
        backend.quant_matmul(&desc)?;
        let sizes = [desc.m, desc.b.rows, desc.b.columns, desc.a.ld];
        let extras = [desc.bias.is_some(), desc.residual.is_some(), desc.norm.is_some(), desc.gate.is_some()];
        let what = format!("{} {sizes:?} {:?} {:?}", desc.b.format, [desc.a.dtype, desc.c.dtype], desc.math);
        note(format!("quant_matmul {what} {extras:?}"), words)?;
    }
    Ok(plans)
}

/// Digests of the plans for each device: of matrix products, of attention, of convolutions with their
/// gradients, of products with a quantised matrix.
const DIGESTS: [[u64; 4]; 4] = [
    [0x2bf9_6fa9_fd0d_b05d, 0x081e_a574_d655_56c2, 0xe1f6_0f3e_ea99_c987, 0x6857_80fe_3d90_a51c],
    [0xb103_f2e5_5ccb_98b2, 0x3ce0_e7a3_a925_77be, 0x9c03_ba04_d6b5_aad8, 0xfd2f_711d_b18b_7c10],
    [0xb2a7_f47a_2cea_83c2, 0x9490_7a0e_2057_d931, 0x1d43_f32b_9563_deb7, 0x6399_8591_7ea7_d4ac],
    [0x1feb_fabc_40a6_77d2, 0x8530_3f8b_f068_752d, 0x563a_c0e2_3deb_5aa8, 0xcaee_05e2_bbbf_0609],
];

/// Digests of the grids and parameters of their launches.
const LAUNCH_DIGESTS: [[u64; 4]; 4] = [
    [0xcf4f_caf6_defd_f6ff, 0x5fca_7a33_d93d_f5d4, 0x3b2d_a60b_875c_fe92, 0x799d_48ea_0a36_2123],
    [0x6c76_47fc_2f36_3d35, 0x49b9_07c0_82cd_27d5, 0x2041_6f2d_12b4_166f, 0x198a_946a_4a9b_2fd3],
    [0xfe50_8d00_9045_84da, 0x3ca6_b3db_6611_1419, 0x5dfe_c5c6_2da4_a79d, 0x3839_4723_7999_a8c9],
    [0xc836_4fe5_51c7_67be, 0x85b8_fc30_94ae_282a, 0x0433_9828_d898_b2f4, 0xefb7_80b4_5ea5_20a3],
];

/// The FNV-1a hash of lines.
fn digest(lines: &[String]) -> u64 {
    fnv1a(lines.iter().flat_map(|line| line.bytes().chain([b'\n'])))
}

fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl Plan {
    /// The hash of grids and parameters, in words.
    fn launched(&self) -> String {
        let of = |launch: &Launch| {
            [bytemuck::bytes_of(&launch.grid), &launch.params, bytemuck::cast_slice(&launch.bound)].concat()
        };
        format!("{:016x}", fnv1a(self.launches.iter().flat_map(of)))
    }
}

#[test]
fn every_device_has_a_plan_for_every_shape() {
    let mut all = String::new();
    let (mut of_devices, mut footprints) = (Vec::new(), Footprints::default());
    let (mut digests, mut launch_digests) = (Vec::new(), Vec::new());
    for device in &DEVICES {
        let plans = plans(device).unwrap();
        assert_eq!(plans.len(), 5 * SHAPES);
        bounds::check(device, &plans, &mut footprints);
        bounds::check_splits(device, &plans);
        let mut launches = plans.iter().flat_map(|plan| &plan.launches);
        let has_tensor_cores = launches.any(|launch| launch.variant.requires().cooperative_matrices);
        let launched: Vec<String> = plans.iter().map(Plan::launched).collect();
        let plans: Vec<String> = plans.into_iter().map(|plan| plan.line).collect();
        assert_eq!(has_tensor_cores, device.tensor_cores, "{}", device.name);
        for (plan, launched) in plans.iter().zip(&launched) {
            assert!(plan.contains("; "), "no kernel: {plan}");
            _ = writeln!(all, "{plan}; launches {launched}");
        }
        for (lines, digests) in [(&plans, &mut digests), (&launched, &mut launch_digests)] {
            let (products, rest) = lines.split_at(SHAPES);
            let (attention, rest) = rest.split_at(SHAPES);
            let (convolutions, quantised) = rest.split_at(2 * SHAPES);
            digests.push([products, attention, convolutions, quantised].map(digest));
        }
        of_devices.push(plans.into_iter().map(|plan| plan.replacen(device.name, "", 1)).collect::<Vec<_>>());
    }
    // Waves are counted in the device's own compute units.
    let differing = of_devices[0].iter().zip(&of_devices[1]).filter(|(large, small)| large != small).count();
    assert!(differing > SHAPES / 10, "{differing} plans differ between an H200 and a laptop GPU");
    if let Ok(path) = std::env::var("PLANS") {
        std::fs::write(path, all).unwrap();
    }
    let is_as_written = digests == DIGESTS && launch_digests == LAUNCH_DIGESTS;
    assert!(
        is_as_written,
        "plans, or their grids or parameters, have changed: compare them by PLANS=FILE, then write down {digests:#x?} and \
         {launch_digests:#x?}"
    );
}

/// Parts are made of f32; what is f16 already needs none.
#[test]
fn only_products_of_f32_are_emulated() {
    let backend = H200.backend().unwrap();
    let [a, b, c] = [(); 3].map(|()| backend.alloc(MAX_BYTES).unwrap());
    let matrix = |ptr, dtype| Matrix::new(ptr, dtype, 2048);
    for (of_a, of_b) in [DType::F32, DType::F16].into_iter().flat_map(|a| [(a, DType::F32), (a, DType::F16)])
    {
        let c = matrix(c, DType::F32);
        let desc = MatmulDesc::new(2048, 2048, 2048, matrix(a, of_a), matrix(b, of_b), c);
        let words = backend.explain_matmul(&desc.with_math(MathMode::EmulatedF32)).unwrap();
        let is_of_f32 = [of_a, of_b] == [DType::F32; 2];
        assert_eq!(words.contains("emulated"), is_of_f32, "{of_a} by {of_b}: {words}");
        assert!(is_of_f32 || words == backend.explain_matmul(&desc).unwrap(), "{of_a} by {of_b}: {words}");
    }
}

/// Before a warm-up tests variants on tensor cores one after the other, it compiles all of them side by side.
#[test]
fn variants_may_be_planned_for_before_they_are_tested() {
    let opened = H200.open(State::default()).unwrap();
    let backend = WebGpuBackend::over(opened.untested_dry_run());
    let [a, b, c] = [(); 3].map(|()| backend.alloc(MAX_BYTES).unwrap());
    let matrix = |ptr| Matrix::new(ptr, DType::F16, 1024);
    backend.matmul(&MatmulDesc::new(1024, 1024, 1024, matrix(a), matrix(b), matrix(c))).unwrap();
    let image = ImageShape::nchw([16, 64, 56, 56]);
    let shape = ConvShape::new(image, 64, Window::new([3; 2]).with_padding([1; 2]));
    backend.conv2d(&ConvDesc::new(DType::F16, a, b, c, shape)).unwrap();

    let context = backend.context("plans").unwrap().context;
    let untested: Vec<Variant> = context.take_untested().into_keys().collect();
    let launched = context.take_variants();
    for kernel in ["gemm/cooperative", "conv/cooperative"] {
        let is_of_it = |variant: &Variant| variant.kernel() == kernel;
        assert!(launched.iter().any(is_of_it), "{kernel} isn't planned for: {launched:?}");
        assert!(untested.iter().any(is_of_it), "{kernel} was tested: {untested:?}");
    }
    // Nothing was found out about them.
    assert!(untested.iter().all(|variant| opened.state().self_tests.is_open(variant)));
}

/// A warm-up's threads make the self-tests that planning has put off.
#[test]
fn self_tests_that_were_put_off_decide_about_their_variants() {
    for passes in [true, false] {
        let opened = H200.open(State::default()).unwrap();
        let backend = WebGpuBackend::over(opened.untested_dry_run());
        let context = backend.context("plans").unwrap().context;
        let variant = iterations::variants()[0];
        let made = Arc::new(AtomicUsize::new(0));
        let check = || {
            let made = Arc::clone(&made);
            move |_: &OpContext| {
                made.fetch_add(1, Ordering::Relaxed);
                let wrong = BackendError::Unsupported { op: "plans", need: "another result".to_owned() };
                if passes { Ok(()) } else { Err(wrong) }
            }
        };
        let is_right = || context.is_right(&variant, check());
        assert!(is_right() && is_right(), "what isn't tested is taken for right");
        assert_eq!(made.load(Ordering::Relaxed), 0);
        let trials = context.take_untested();
        assert_eq!(trials.len(), 1);
        thread::scope(|scope| {
            for (variant, trial) in trials {
                let opened = &opened;
                scope.spawn(move || assert!(opened.try_variant(&variant, trial)));
            }
        });
        assert_eq!((made.load(Ordering::Relaxed), is_right()), (1, passes));
        assert!(context.take_untested().is_empty() && !opened.state().self_tests.is_open(&variant));
    }
}

/// An invocation that makes a whole sum alone takes a quarter of a microsecond for each tap.
#[test]
fn long_sums_of_few_filters_are_shared() {
    let backend = H200.backend().unwrap();
    let [input, filter, output] = [(); 3].map(|()| backend.alloc(MAX_BYTES).unwrap());
    let kernels = |input_shape: [usize; 4], filters: usize, side: usize, layout: ImageLayout| {
        let shape = ConvShape::new(ImageShape::nchw(input_shape), filters, Window::new([side; 2]))
            .with_layout(layout);
        backend.conv2d(&ConvDesc::new(DType::F32, input, filter, output, shape)).unwrap();
        let variants = backend.context("plans").unwrap().context.take_variants();
        variants.iter().map(|variant| variant.kernel()).collect::<Vec<_>>()
    };
    for layout in [ImageLayout::Nchw, ImageLayout::Nhwc] {
        assert!(kernels([3, 688, 32, 32], 1, 3, layout).contains(&"conv/combine"));
        assert!(kernels([11, 282, 27, 27], 1, 7, layout).contains(&"conv/combine"));
        assert!(!kernels([8, 32, 50, 50], 2, 7, layout).contains(&"conv/direct"));
        assert!(kernels([16, 3, 224, 224], 2, 3, layout).contains(&"conv/few_filters"));
    }
}

/// Kernels that fetch a key before they know whether there is one would read what isn't bound.
#[test]
fn without_keys_no_kernel_fetches_one() {
    let backend = H200.backend().unwrap();
    let [q, o] = [(); 2].map(|()| backend.alloc(MAX_BYTES).unwrap());
    let shape = |seq_q, seq_kv| AttentionShape { batch: 2, heads: 8, seq_q, seq_kv, head_dim: 64 };
    let plan = |dtype, seq_q, seq_kv| {
        let desc = AttentionDesc::new(dtype, q, q, q, o, shape(seq_q, seq_kv)).with_kv_heads(2);
        backend.explain_attention(&desc).unwrap()
    };
    for kernel in WebGpuBackend::attention_kernels() {
        backend.force_attention(Some(&kernel)).unwrap();
        for (dtype, seq_q) in
            [DType::F32, DType::F16].into_iter().flat_map(|dtype| [1, 3, 64].map(|n| (dtype, n)))
        {
            let used = plan(dtype, seq_q, 0);
            assert!(
                used.starts_with("flash/"),
                "{used} for {seq_q} queries of {dtype}, {kernel} being forced"
            );
        }
    }
    backend.force_attention(None).unwrap();
    assert!(plan(DType::F16, 64, 64).starts_with("cooperative/"), "with keys");
}

/// As many experts as there may be, none of which is used, are bound in one launch.
#[test]
fn experts_without_use_are_one_launch() {
    let backend = INTEGRATED.backend().unwrap();
    let [a, weights, c] = [(); 3].map(|()| backend.alloc(MAX_BYTES).unwrap());
    let (experts, k) = (1 << 24, 1 << 31);
    let format = QuantFormat::U4 { group: 128, zero_points: true };
    let b = QuantMatrix::new(a, format, 2 * experts, k);
    let [a, c] = [Matrix::new(a, DType::F32, k), Matrix::new(c, DType::F32, 2)];
    let desc = ExpertMatmulDesc::new([3, 0, experts], a, b, 0, c).with_per_expert(true).with_weights(weights);
    backend.expert_matmul(&desc).unwrap();
    assert_eq!(backend.context("plans").unwrap().context.take_launches().len(), 1);
}

/// An explanation may copy an operand for the plan's sake, as a call would, which isn't to be recorded.
#[test]
fn explanations_take_no_part_in_what_is_recorded() {
    let backend = WebGpuBackend::open().expect("a WebGPU adapter");
    let all = backend.alloc(1 << 16).unwrap();
    let [x, y, z] = [0, 1, 2].map(|i| backend.view(all, i << 14, 1 << 14).unwrap());
    let matrix = |ptr| Matrix::new(ptr, DType::F32, 16);
    let product = MatmulDesc::new(16, 16, 16, matrix(x), matrix(y), matrix(z));
    let shape = AttentionShape { batch: 1, heads: 1, seq_q: 16, seq_kv: 16, head_dim: 16 };
    let attention = AttentionDesc::new(DType::F32, x, y, y, z, shape);
    let shape = ConvShape::new(ImageShape::nchw([1, 2, 8, 8]), 2, Window::new([3; 2]));
    let conv = ConvDesc::new(DType::F32, x, y, z, shape);
    let explained: [&dyn Fn() -> BackendResult<String>; 3] =
        [&|| backend.explain_matmul(&product), &|| backend.explain_attention(&attention), &|| {
            backend.explain_conv(&conv)
        }];
    let state = backend.context("plans").unwrap().context.state.clone();
    for explain in explained {
        // The next launch is to begin a submission.
        [0.2; 2].into_iter().for_each(|seconds| state.pace.add(seconds));
        let words = explain().unwrap();
        assert!(state.pace.take_due(), "{words}");
    }
}
