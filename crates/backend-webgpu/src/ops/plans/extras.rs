//! Launches of [random calls](super::calls) on pretended devices of every kind: usual ones, some whose bindings are small, one
//! that is slow, one whose loops are short, some without f16 or subgroups, and with each kernel that can be asked for. Each has room
//! for them, and their [digests](super::digests) are written down.

use std::fmt::Write as _;

use backend_api::desc::{AttentionDesc, AttentionShape};
use backend_api::{BackendResult, ComputeBackend as _, DType, ErrorKind};

use super::bounds::Footprints;
use super::calls::{BYTES, Call, FAMILIES, Family, Ptrs};
use super::digests::Digests;
use super::shapes::Shapes;
use super::{H200, INTEGRATED, LAPTOP, Plan, Pretended, SOFTWARE, bounds, fnv1a};
use crate::WebGpuBackend;
use crate::ops::State;
use crate::ops::op_context::Launch;
use crate::ops::shared::iterations;
use crate::ops::shared::verdicts::SelfTests;

/// A device, and what about it is out of the ordinary.
pub(super) struct Rig {
    pub(super) name: &'static str,
    device: Pretended,
    /// Calls of each family.
    calls: usize,
    /// By how much it is slower than its kind, and halvings of what can be divided.
    pace: (f64, u32),
    /// The most iterations of an invocation's loops.
    iterations: Option<usize>,
    /// Whether it passes its self-tests.
    is_right: bool,
    /// Whether each call is made by the next kernel that can be asked for.
    forced: bool,
}

const USUAL: Rig = Rig {
    name: "",
    device: H200,
    calls: 150,
    pace: (1.0, 0),
    iterations: None,
    is_right: true,
    forced: false,
};

pub(super) const RIGS: [Rig; 18] = [
    Rig { name: "H200", ..USUAL },
    Rig { name: "laptop GPU", device: LAPTOP, ..USUAL },
    Rig { name: "integrated GPU", device: INTEGRATED, ..USUAL },
    Rig { name: "software adapter", device: SOFTWARE, ..USUAL },
    Rig { name: "small bindings", device: H200.with_bindings(2 << 20, 1 << 28), calls: 60, ..USUAL },
    Rig { name: "small buffers", device: INTEGRATED.with_bindings(2 << 20, 8 << 20), calls: 60, ..USUAL },
    // Of a filter, or of a row, there is hardly room for one.
    Rig { name: "tiny bindings", device: H200.with_bindings(64 << 10, 1 << 28), calls: 30, ..USUAL },
    Rig { name: "tiny buffers", device: INTEGRATED.with_bindings(128 << 10, 1 << 20), calls: 30, ..USUAL },
    Rig {
        name: "Direct3D",
        device: Pretended { api: "Dx12", subgroup: Some(32), ..INTEGRATED },
        calls: 60,
        ..USUAL
    },
    Rig {
        name: "Metal",
        device: Pretended { api: "Metal", subgroup: Some(32), barriers: false, ..INTEGRATED },
        calls: 60,
        ..USUAL
    },
    Rig {
        name: "OpenGL",
        device: Pretended { api: "Gl", f16: false, barriers: false, ..INTEGRATED },
        calls: 60,
        ..USUAL
    },
    Rig { name: "slow device", pace: (1e4, 1), calls: 60, ..USUAL },
    Rig { name: "short loops", device: SOFTWARE, iterations: Some(60_000), ..USUAL },
    Rig { name: "each kernel", forced: true, ..USUAL },
    Rig {
        name: "each kernel in small workgroups",
        device: H200.with_workgroup([16 << 10, 256]),
        calls: 80,
        forced: true,
        ..USUAL
    },
    Rig {
        name: "each kernel in workgroups of 512",
        device: H200.with_workgroup([24 << 10, 512]),
        calls: 80,
        forced: true,
        ..USUAL
    },
    Rig { name: "each kernel, tensor cores being wrong", is_right: false, calls: 80, forced: true, ..USUAL },
    Rig { name: "each kernel without tensor cores", device: INTEGRATED, forced: true, ..USUAL },
];

impl Rig {
    pub(super) fn backend(&self) -> BackendResult<(WebGpuBackend, Ptrs)> {
        let state = State::with_self_tests(SelfTests::known(self.is_right, self.iterations));
        let backend = WebGpuBackend::over(self.device.open(state)?.dry_run());
        let (slowdown, halvings) = self.pace;
        backend.pretend(slowdown, halvings)?;
        let mut ptrs = Ptrs::default();
        for ptr in &mut ptrs[..7] {
            *ptr = backend.alloc(BYTES)?;
        }
        ptrs[7] = backend.view(ptrs[4], BYTES / 2, BYTES / 2)?;
        Ok((backend, ptrs))
    }

    /// The calls by family.
    pub(super) fn calls(&self, ptrs: Ptrs) -> [Vec<Call>; FAMILIES.len()] {
        let mut shapes = Shapes(fnv1a(self.name.bytes()));
        std::array::from_fn(|number| {
            let Family { call, rarity, .. } = FAMILIES[number];
            let mut calls: Vec<Call> = (0..self.calls / rarity).map(|_| call(&mut shapes, ptrs)).collect();
            if let Some(forced) = FORCED.get(number).filter(|_| self.forced) {
                calls = forced.each(calls);
            }
            calls
        })
    }

    /// Makes a call; the plan.
    pub(super) fn plan(&self, backend: &WebGpuBackend, ptrs: Ptrs, call: &Call) -> BackendResult<Plan> {
        let said = match call(backend) {
            Ok(said) => said,
            // Which is part of what a device promises.
            Err(error) => format!("{error:?}"),
        };
        // Handles are other ones each time.
        let said = ptrs.iter().fold(said, |said, ptr| said.replace(&ptr.to_string(), "_"));
        let launches = backend.context("plans")?.context.take_launches();
        let mut line = format!("{}: {said}", self.name);
        for Launch { variant, asked, .. } in &launches {
            let of = [variant.source.reads.len(), variant.source.writes.len()];
            _ = write!(line, "; {} {variant} {of:?} {asked:?}", variant.kernel());
        }
        Ok(Plan { line, launches })
    }
}

/// The kernels of a family that can be asked for.
struct Forced {
    names: fn() -> Vec<String>,
    /// What may stand behind a name.
    suffixes: &'static [&'static str],
    force: fn(&WebGpuBackend, Option<&str>) -> BackendResult<()>,
}

/// Of the first families.
const FORCED: [Forced; 3] = [
    Forced {
        names: WebGpuBackend::matmul_kernels,
        suffixes: &["", "+split3", "+packed", "+edges"],
        force: WebGpuBackend::force_matmul,
    },
    Forced {
        names: WebGpuBackend::attention_kernels,
        suffixes: &["", "+split3", "+split5+fixup"],
        force: WebGpuBackend::force_attention,
    },
    Forced { names: WebGpuBackend::conv_kernels, suffixes: &[""], force: WebGpuBackend::force_conv },
];

impl Forced {
    /// The calls, each by the next kernel, which takes the next suffix.
    fn each(&self, calls: Vec<Call>) -> Vec<Call> {
        let (names, force) = ((self.names)(), self.force);
        // Each name with another suffix the next time.
        let suffix = |i: usize| self.suffixes[(i + i / names.len()) % self.suffixes.len()];
        let kernels = (0..).map(|i| format!("{}{}", names[i % names.len()], suffix(i)));
        let forced = calls.into_iter().zip(kernels).map(|(call, kernel)| {
            Box::new(move |backend: &WebGpuBackend| {
                force(backend, Some(&kernel))?;
                let said = call(backend);
                force(backend, None)?;
                said
            }) as Call
        });
        forced.collect()
    }
}

#[test]
fn every_call_has_its_plan_and_room_on_every_device() {
    let (mut footprints, mut digests) = (Footprints::default(), Digests::default());
    for rig in &RIGS {
        let (backend, ptrs) = rig.backend().unwrap();
        for (family, calls) in FAMILIES.iter().zip(rig.calls(ptrs)) {
            let plans: Vec<Plan> = calls.iter().map(|call| rig.plan(&backend, ptrs, call).unwrap()).collect();
            bounds::check(&rig.device, &plans, &mut footprints);
            let mut launches = plans.iter().flat_map(|plan| &plan.launches);
            let trusts = |launch: &Launch| launch.variant.requires().cooperative_matrices;
            let is_safe = rig.is_right || !launches.any(trusts);
            assert!(is_safe, "{}: a kernel that failed its self-test", rig.name);
            let lines: Vec<String> =
                plans.iter().map(|plan| format!("{}; launches {}", plan.line, plan.launched())).collect();
            digests.note(&format!("{}, {}", rig.name, family.name), &lines);
        }
    }
    digests.require_as_written();
}

/// Of the iterations that a device's loops may make, some are kept for loops that nobody counts.
#[test]
fn loops_are_too_long_past_what_is_left_of_their_limit() {
    let ctx_of = |device: &Pretended, limit| {
        let state = State::with_self_tests(SelfTests::known(true, limit));
        WebGpuBackend::over(device.open(state).unwrap().dry_run())
    };
    let exceeded = |device, limit, wanted| {
        let backend = ctx_of(device, limit);
        let call = backend.context("test").unwrap();
        iterations::exceeded(&call.context, wanted)
    };
    let software = &SOFTWARE;
    assert_eq!([65_904, 65_905].map(|n| exceeded(software, Some(70_000), n)), [None, Some(65_904)]);
    assert_eq!(exceeded(software, None, usize::MAX), None, "a device without a limit");
    assert_eq!(exceeded(&H200, Some(70_000), 1 << 20), None, "a GPU");
    assert_eq!(exceeded(software, Some(10_000), 55_904), None, "what every device makes");
}

/// The longest vectors that there are kernels for.
#[test]
fn longer_vectors_of_attention_are_refused() {
    let backend = H200.backend().unwrap();
    let [q, o] = [(); 2].map(|()| backend.alloc(1 << 20).unwrap());
    let attend = |head_dim, v_head_dim| {
        let shape = AttentionShape { batch: 1, heads: 1, seq_q: 4, seq_kv: 4, head_dim };
        let desc = AttentionDesc::new(DType::F32, q, q, q, o, shape).with_v_head_dim(v_head_dim);
        backend.attention_ext(&desc).map_err(|error| error.kind())
    };
    assert_eq!([attend(1024, 512), attend(512, 512)], [Ok(()); 2]);
    assert_eq!([attend(1028, 512), attend(1024, 516)], [Err(ErrorKind::Limit); 2]);
}
