//! Launches of [random calls](super::calls) on devices of every kind: usual ones, one whose bindings are small, one that
//! is slow, one whose loops are short, and with each kernel that can be asked for.

use std::fmt::Write as _;

use backend_api::desc::{AttentionDesc, AttentionShape};
use backend_api::{BackendResult, ComputeBackend as _, DType, ErrorKind};

use super::bounds::Footprints;
use super::calls::{BYTES, Call, FAMILIES, Family, Ptrs};
use super::shapes::Shapes;
use super::{DEVICES, Plan, Pretended, bounds, digest};
use crate::WebGpuBackend;
use crate::ops::SelfTests;
use crate::ops::State;
use crate::ops::op_context::Launch;
use crate::ops::shared::iterations;

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
    device: DEVICES[0].with_barriers(),
    calls: 150,
    pace: (1.0, 0),
    iterations: None,
    is_right: true,
    forced: false,
};

pub(super) const RIGS: [Rig; 13] = [
    Rig { name: "H200", ..USUAL },
    Rig { name: "laptop GPU", device: DEVICES[1], ..USUAL },
    Rig { name: "integrated GPU", device: DEVICES[2], ..USUAL },
    Rig { name: "software adapter", device: DEVICES[3], ..USUAL },
    Rig {
        name: "small bindings",
        device: DEVICES[0].with_barriers().with_bindings(2 << 20, 1 << 28),
        calls: 60,
        ..USUAL
    },
    Rig { name: "small buffers", device: DEVICES[2].with_bindings(2 << 20, 8 << 20), calls: 60, ..USUAL },
    Rig { name: "slow device", pace: (1e4, 1), calls: 60, ..USUAL },
    Rig { name: "short loops", device: DEVICES[3], iterations: Some(60_000), ..USUAL },
    Rig { name: "each kernel", forced: true, ..USUAL },
    Rig {
        name: "each kernel in small workgroups",
        device: DEVICES[0].with_workgroup([16 << 10, 256]),
        calls: 80,
        forced: true,
        ..USUAL
    },
    Rig {
        name: "each kernel in workgroups of 512",
        device: DEVICES[0].with_workgroup([24 << 10, 512]),
        calls: 80,
        forced: true,
        ..USUAL
    },
    Rig { name: "each kernel, tensor cores being wrong", is_right: false, calls: 80, forced: true, ..USUAL },
    Rig { name: "each kernel without tensor cores", device: DEVICES[2], forced: true, ..USUAL },
];

impl Rig {
    pub(super) fn backend(&self) -> BackendResult<(WebGpuBackend, Ptrs)> {
        let self_tests = SelfTests::known(self.is_right, self.iterations);
        let state = State { self_tests, ..State::default() };
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
        let mut shapes = Shapes(2);
        std::array::from_fn(|number| {
            let Family { call, rarity } = FAMILIES[number];
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
            let of = [variant.source.reads, variant.source.writes];
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
        let kernels =
            (0..).map(|i| format!("{}{}", names[i % names.len()], self.suffixes[i % self.suffixes.len()]));
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

/// Digests of what is said of calls, of their kernels, grids, parameters and bindings: for each rig, those of each family.
const DIGESTS: [[u64; FAMILIES.len()]; RIGS.len()] = [
    [
        0x4fed_37d1_1ded_5ba1,
        0x15ff_f8ae_5a6f_5330,
        0x2600_f90f_5d82_235e,
        0xd9e9_ed58_2f47_081b,
        0x9937_0ef7_6116_4f55,
        0x6181_8b13_f7e7_52f7,
        0x9dc4_de76_eb17_65c9,
    ],
    [
        0xe4ed_0770_d7f7_a2ba,
        0xc854_7bff_9309_e648,
        0x6c23_9027_1aa6_db45,
        0x8d1a_0175_ca81_4bd3,
        0x527f_a26a_15bc_3da3,
        0x4e49_58d2_8835_4fc4,
        0xffdd_72f4_c7ba_500b,
    ],
    [
        0x5d6c_3e9e_f1aa_309a,
        0x32ad_65c0_b506_74a8,
        0x7560_a3de_880c_b6e5,
        0x4013_bb8a_5df2_2b35,
        0x2f53_72dc_18e7_015b,
        0xf75a_b227_c86c_433d,
        0xc825_7ec0_0ffa_7163,
    ],
    [
        0x2347_97b1_380c_bb05,
        0x1123_98f7_d563_6032,
        0x231e_5ebb_8090_6ec4,
        0x0a4b_556a_f4de_258d,
        0xf971_cd87_9ab6_c285,
        0x05f2_92a9_3ac7_9a42,
        0xab26_c8a6_afe9_d873,
    ],
    [
        0x6381_ecfb_ab90_412d,
        0xeaad_af0f_8ed7_362c,
        0xf628_7c9d_a953_b2be,
        0xd8f5_a976_0da3_a965,
        0xb668_592b_3d17_a53d,
        0x05db_3396_f0da_b3cf,
        0xaeb7_3a7a_e4ae_edf7,
    ],
    [
        0xa6a5_0ea7_1483_59e2,
        0xdc16_81ad_e9ce_a186,
        0x8d58_9793_4453_67c3,
        0x5927_5aa6_3b26_5f89,
        0x6966_58bb_55ea_818c,
        0x1261_997e_b53d_3282,
        0xfa8c_0fef_15ce_48e4,
    ],
    [
        0xf443_9bda_6eb4_0ba2,
        0x9bb2_2e6f_468e_c72c,
        0xf449_859c_8317_a196,
        0xbcec_063f_74c5_374e,
        0xfb94_2b17_9071_9979,
        0xaa49_fb38_f935_f7d4,
        0xd8df_fdea_cf16_3e58,
    ],
    [
        0x1162_5bea_4e9d_d8ad,
        0xbd63_46f4_849a_e1c8,
        0x7ac4_9bca_56ff_51ad,
        0xbc9b_81a9_5cc2_be1b,
        0x5d09_0d67_8d5e_7aad,
        0x0b30_fc40_f173_6c58,
        0xc8c3_12cf_5b85_468b,
    ],
    [
        0xca89_a634_f445_89d9,
        0x5992_a54f_8da0_7172,
        0x2ae7_dcf6_1948_f3da,
        0x96ce_656f_f2e2_74c5,
        0x343c_dbad_b835_f613,
        0x0821_1c2f_5dee_9af5,
        0xba2b_7fa7_fbdc_73ec,
    ],
    [
        0x6a85_3cc2_4232_10a1,
        0xb17f_551a_df64_e754,
        0x2538_a0f2_e766_68eb,
        0xc8ba_b4ff_9700_8627,
        0x0caf_3485_4335_a1c4,
        0xcf48_3720_7989_7461,
        0x29c0_e2bf_0871_6064,
    ],
    [
        0x1468_7bb9_1030_a228,
        0xdb80_764f_b819_5ddd,
        0x6a68_cf41_d5a6_fa82,
        0x700a_479c_00f0_8b0d,
        0x658f_301e_0839_0dba,
        0x91fd_88a9_e10e_f9b3,
        0x4a9e_92bb_0128_d8f4,
    ],
    [
        0x8a74_1ac3_d213_684d,
        0xc8e9_4435_5c92_7c54,
        0xea7a_8f87_4985_ea71,
        0x9b72_2ac8_ba26_a203,
        0x3aa1_6437_ed78_3ebe,
        0x550b_7762_84ca_bb69,
        0x6b30_7942_c97a_bbfc,
    ],
    [
        0x7a57_a7f3_2bb5_fec2,
        0x350b_3aac_1e85_2efc,
        0x7eb5_9555_0c74_def5,
        0x482d_6988_d60a_18dd,
        0xf22f_6e06_e2c5_68b5,
        0x891a_08e8_deb7_07ad,
        0x4cdf_58a1_5872_c5a6,
    ],
];

#[test]
#[ignore = "the digests are to be written down by a run of it"]
fn every_call_is_planned_on_every_device() {
    let mut footprints = Footprints::default();
    let digests = RIGS.each_ref().map(|rig| {
        let (backend, ptrs) = rig.backend().unwrap();
        rig.calls(ptrs).map(|calls| {
            let plans: Vec<Plan> = calls.iter().map(|call| rig.plan(&backend, ptrs, call).unwrap()).collect();
            bounds::check(&rig.device, &plans, &mut footprints);
            let mut launches = plans.iter().flat_map(|plan| &plan.launches);
            let trusts = |launch: &Launch| launch.variant.requires().cooperative_matrices;
            assert!(
                rig.is_right || !launches.any(trusts),
                "{}: a kernel that failed its self-test",
                rig.name
            );
            let lines = plans.iter().map(|plan| format!("{}; launches {}", plan.line, plan.launched()));
            digest(&lines.collect::<Vec<_>>())
        })
    });
    assert_eq!(digests, DIGESTS, "launches have changed: write down {digests:#x?}");
}

/// Of the iterations that a device's loops may make, some are kept for loops that nobody counts.
#[test]
fn loops_are_too_long_past_what_is_left_of_their_limit() {
    let ctx_of = |device: &Pretended, limit| {
        let state = State { self_tests: SelfTests::known(true, limit), ..State::default() };
        WebGpuBackend::over(device.open(state).unwrap().dry_run())
    };
    let exceeded = |device, limit, wanted| {
        let backend = ctx_of(device, limit);
        let call = backend.context("test").unwrap();
        iterations::exceeded(&call.context, wanted)
    };
    let software = &DEVICES[3];
    assert_eq!([65_904, 65_905].map(|n| exceeded(software, Some(70_000), n)), [None, Some(65_904)]);
    assert_eq!(exceeded(software, None, usize::MAX), None, "a device without a limit");
    assert_eq!(exceeded(&DEVICES[0], Some(70_000), 1 << 20), None, "a GPU");
    assert_eq!(exceeded(software, Some(10_000), 55_904), None, "what every device makes");
}

/// The longest vectors that there are kernels for.
#[test]
fn longer_vectors_of_attention_are_refused() {
    let backend = DEVICES[0].backend().unwrap();
    let [q, o] = [(); 2].map(|()| backend.alloc(1 << 20).unwrap());
    let attend = |head_dim, v_head_dim| {
        let shape = AttentionShape { batch: 1, heads: 1, seq_q: 4, seq_kv: 4, head_dim };
        let desc = AttentionDesc::new(DType::F32, q, q, q, o, shape).with_v_head_dim(v_head_dim);
        backend.attention_ext(&desc).map_err(|error| error.kind())
    };
    assert_eq!([attend(1024, 512), attend(512, 512)], [Ok(()); 2]);
    assert_eq!([attend(1028, 512), attend(1024, 516)], [Err(ErrorKind::Limit); 2]);
}
