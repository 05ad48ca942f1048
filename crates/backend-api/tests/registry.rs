//! The choice of a backend, and what a backend answers that has nothing but the required methods.

use std::ffi::OsStr;
use std::future::Future;
#[cfg(unix)]
use std::os::unix::ffi::OsStrExt as _;
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Poll, Waker};

use backend_api::desc::*;
use backend_api::quant::QuantFormat;
use backend_api::*;

/// A backend that knows its device and no operation.
#[derive(Debug)]
struct Bare(DeviceInfo);

impl ComputeBackend for Bare {
    fn name(&self) -> &str {
        "bare"
    }
    fn init(&mut self) -> BackendResult<()> {
        Ok(())
    }
    fn is_initialized(&self) -> bool {
        true
    }
    fn synchronize(&self) -> BackendResult<()> {
        Err(self.unsupported("synchronize"))
    }
    fn alloc(&self, _: usize) -> BackendResult<u64> {
        Err(self.unsupported("alloc"))
    }
    fn free(&self, _: u64) -> BackendResult<()> {
        Err(self.unsupported("free"))
    }
    fn copy_htod(&self, _: u64, _: &[u8]) -> BackendResult<()> {
        Err(self.unsupported("copy_htod"))
    }
    fn copy_dtoh(&self, dst: &mut [u8], _: u64) -> BackendResult<()> {
        dst.fill(7);
        Err(self.unsupported("copy_dtoh"))
    }
    fn capabilities(&self) -> BackendResult<Capabilities> {
        Ok(Capabilities::host())
    }
    fn device_info(&self) -> BackendResult<DeviceInfo> {
        Ok(self.0.clone())
    }
}

/// Devices by name and kind; the first `broken` of them can't be opened.
#[derive(Debug)]
struct Factory(&'static str, Vec<DeviceKind>, usize);

impl BackendFactory for Factory {
    fn name(&self) -> &str {
        self.0
    }
    fn devices(&self) -> Vec<DeviceInfo> {
        let (api, driver) = (String::new(), String::new());
        let device = |(i, &kind): (usize, &DeviceKind)| {
            let selector = format!("{}:{i}", self.0);
            DeviceInfo {
                name: selector.to_uppercase(),
                selector,
                api: api.clone(),
                driver: driver.clone(),
                kind,
            }
        };
        self.1.iter().enumerate().map(device).collect()
    }
    fn create(&self, selector: &str) -> BackendResult<Box<dyn ComputeBackend>> {
        let index = if selector.is_empty() { Some(0) } else { selector.parse().ok() };
        match index.and_then(|index: usize| self.devices().into_iter().nth(index).filter(|_| index >= self.2))
        {
            Some(device) => Ok(Box::new(Bare(device))),
            None => Err(BackendError::NoAdapter { tried: vec![selector.to_owned()] }),
        }
    }
}

fn registry() -> Registry {
    use DeviceKind::{Cpu, DiscreteGpu, IntegratedGpu, SoftwareAdapter};
    let mut registry = Registry::new();
    registry.register(Factory("webgpu", vec![SoftwareAdapter], 0));
    registry.register(Factory("cpu", vec![Cpu], 0));
    registry.register(Factory("other", vec![DiscreteGpu], 0));
    // Of the same name: it takes the first one's place.
    registry.register(Factory("webgpu", vec![DiscreteGpu, SoftwareAdapter, IntegratedGpu, DiscreteGpu], 1));
    registry
}

/// The result of a future that has nothing to wait for.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

fn opened(selection: BackendResult<Selection>) -> String {
    match selection {
        Ok(selection) => selection.device.selector,
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// What `names` opens, with the environment variable as it is in this process.
fn choices() -> Vec<String> {
    let registry = registry();
    let created = |name: &str| registry.create(name).and_then(|backend| backend.device_info());
    let mut all: Vec<String> = ["auto", "webgpu:2", "webgpu", "cpu", "tpu", "cpu:9"]
        .into_iter()
        .map(|name| {
            let selected = opened(registry.select(name));
            assert_eq!(created(name).map_or_else(|e| format!("{:?}", e.kind()), |d| d.selector), selected);
            selected
        })
        .collect();
    for preference in [BackendPreference::Auto, BackendPreference::WebGpu, BackendPreference::Cpu] {
        all.push(opened(registry.create_preferred(preference)));
    }
    all
}

/// What the environment variable is in the process of a child, and what is chosen there.
const EXPECTED: [(Option<&str>, &str); 5] = [
    (None, "webgpu:3 webgpu:2 NoAdapter cpu:0 UnknownBackend NoAdapter webgpu:3 NoAdapter cpu:0"),
    (Some(""), "webgpu:3 webgpu:2 NoAdapter cpu:0 UnknownBackend NoAdapter webgpu:3 NoAdapter cpu:0"),
    (Some("auto"), "webgpu:3 webgpu:2 NoAdapter cpu:0 UnknownBackend NoAdapter webgpu:3 webgpu:3 webgpu:3"),
    (Some("cpu"), "cpu:0 webgpu:2 NoAdapter cpu:0 UnknownBackend NoAdapter cpu:0 cpu:0 cpu:0"),
    (
        Some("tpu"),
        "UnknownBackend webgpu:2 NoAdapter cpu:0 UnknownBackend NoAdapter UnknownBackend UnknownBackend UnknownBackend",
    ),
];

#[test]
fn selection_follows_names_ranks_and_the_environment() {
    let mut all: Vec<(Option<&OsStr>, &str)> =
        EXPECTED.iter().map(|&(value, expected)| (value.map(OsStr::new), expected)).collect();
    // What isn't Unicode is no name, and isn't passed over.
    #[cfg(unix)]
    all.push((Some(OsStr::from_bytes(b"tp\xffu")), EXPECTED[4].1));
    for (value, expected) in all {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", "in_a_process_of_its_own"]).env_remove(OVERRIDE_VARIABLE);
        child.envs(value.map(|value| (OVERRIDE_VARIABLE, value)));
        let output = child.env("EXPECTED_CHOICES", expected).output().unwrap();
        assert!(output.status.success(), "{value:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
#[ignore = "the test above runs it with an environment"]
fn in_a_process_of_its_own() {
    if let Ok(expected) = std::env::var("EXPECTED_CHOICES") {
        assert_eq!(choices().join(" "), expected);
        if expected.starts_with("Unknown") {
            let said = registry().create("auto").unwrap_err().to_string();
            let names = ["\"tpu\"", "\"tp\u{fffd}u\""];
            let asks = "which the environment variable COMPUTE_BACKEND asks for";
            assert!(names.iter().any(|name| said.contains(&format!("{name}, {asks}"))), "{said}");
            assert!(!registry().create("tpu").unwrap_err().to_string().contains("COMPUTE_BACKEND"));
        }
    }
}

#[test]
fn names_devices_and_reasons() {
    let registry = registry();
    assert_eq!(registry.names(), ["webgpu", "cpu", "other"]);
    let all: Vec<String> = registry.available().into_iter().map(|device| device.selector).collect();
    assert_eq!(all, ["webgpu:0", "webgpu:1", "webgpu:2", "webgpu:3", "cpu:0", "other:0"]);
    // The best device fails, so the next discrete one is chosen, which no integrated one is.
    let auto = now(registry.select_async("auto")).unwrap();
    assert_eq!(auto.device.selector, "webgpu:3");
}

#[test]
fn a_choice_says_what_it_passed_over() {
    let mut registry = Registry::new();
    registry.register(Factory("a", vec![DeviceKind::Cpu, DeviceKind::DiscreteGpu, DeviceKind::Other], 0));
    let auto = now(registry.select_async("auto")).unwrap();
    assert_eq!(auto.device.selector, "a:1");
    assert_eq!(
        auto.reason,
        "the best device for \"auto\"; preferred to a:2 (A:2, Other); preferred to a:0 (A:0, Cpu)"
    );
    assert_eq!(now(registry.select_async("a:2")).unwrap().device.selector, "a:2");
    let missing = now(registry.select_async("b:1")).unwrap_err();
    assert_eq!(
        missing,
        BackendError::UnknownBackend { name: "b:1".into(), variable: None, known: vec!["a".into()] }
    );
    assert_eq!(missing.to_string(), "no backend is called \"b:1\" (known: auto, a)");
    registry.register(Factory("a", vec![DeviceKind::Cpu, DeviceKind::DiscreteGpu], 2));
    let BackendError::NoAdapter { tried } = now(registry.select_async("auto")).unwrap_err() else {
        panic!("another error");
    };
    let starts = ["a:1 failed", "a:0 failed"];
    assert!(
        tried.len() == 2 && tried.iter().zip(starts).all(|(got, start)| got.starts_with(start)),
        "{tried:?}"
    );
    registry.register(Factory("a", vec![DeviceKind::Cpu, DeviceKind::Cpu], 1));
    let second = now(registry.select_async("auto")).unwrap();
    assert_eq!(second.device.selector, "a:1");
    assert!(
        second.reason.starts_with("the best device for \"auto\"; a:0 failed: no adapter found"),
        "{}",
        second.reason
    );
}

#[test]
fn kinds_are_ranked_and_a_processor_can_do_f16() {
    use DeviceKind::{Cpu, DiscreteGpu, IntegratedGpu, Other, SoftwareAdapter, VirtualGpu};
    let ranked = [DiscreteGpu, IntegratedGpu, VirtualGpu, Other, Cpu, SoftwareAdapter];
    assert!(ranked.is_sorted_by(|a, b| a.rank() < b.rank()));
    let host = Capabilities::host();
    assert!(host.f16 && host.blocking && !host.timestamps && !host.cooperative_matrix);
}

#[test]
fn an_operation_without_an_implementation_is_unsupported() {
    let b = Bare(Factory("bare", vec![DeviceKind::Cpu], 0).devices().remove(0));
    let t = TensorDesc::packed(1, DType::F32, &[]);
    let m = Matrix::new(1, DType::F32, 1);
    let q = QuantMatrix::new(1, QuantFormat::Q4_0, 1, 32);
    let of = DType::F32;
    let soft = SoftmaxDesc::rows(of, 1, 2, 1, 1);
    let norm = NormBackwardDesc::rms_norm(of, 1, 1, 1, 1, 1);
    let conv = ConvShape::new(ImageShape::nchw([1; 4]), 1, Window::new([1, 1]));
    let pool = PoolDesc::new(
        PoolOp::Max,
        of,
        1,
        2,
        PoolShape::new(ImageShape::nchw([1; 4]), [1; 2], Window::new([1, 1])),
    );
    macro_rules! unsupported {
        ($($method:ident($($arg:expr),*);)+) => {$(
            let error = b.$method($($arg),*).unwrap_err();
            let BackendError::Unsupported { op, need } = error else { panic!("{error}") };
            assert_eq!(op, stringify!($method));
            assert!(need.contains("bare"), "{need}");
        )+};
    }
    unsupported! {
        view(1, 0, 0);
        copy_dtod(1, 2, 4);
        fill(1, of, 1, 0.0);
        matmul(&MatmulDesc::new(1, 1, 1, m, m, m));
        quant_matmul(&QuantMatmulDesc::new(1, m, q, m));
        expert_matmul(&ExpertMatmulDesc::new([1, 1, 1], m, q, 1, m));
        quant_gather(&QuantGatherDesc::new(of, q, 1, 1, 1));
        dequantize(&DequantizeDesc::new(q, m));
        quantize_rows(&QuantizeRowsDesc::new(m, 1, 1, 32, 1));
        attention_ext(&AttentionDesc::new(of, 1, 1, 1, 1, AttentionShape { batch: 1, heads: 1, seq_q: 1, seq_kv: 1, head_dim: 1 }));
        unary_ext(&UnaryDesc::new(UnaryOp::Exp, t, t));
        binary_ext(&BinaryDesc::new(BinaryOp::Add, t, t, t));
        compare(&CompareDesc::new(CompareOp::Eq, t, t, t));
        where_cond(&WhereDesc::new(t, t, t, t));
        clamp(&ClampDesc::new(t, t, 0.0, 1.0));
        affine(&AffineDesc::new(t, t, 1.0, 0.0));
        copy(&CopyDesc::new(t, t));
        permute(&PermuteDesc::new(t, t, &[]));
        slice(&SliceDesc::new(t, t, &[]));
        concat(&ConcatDesc::new(&[], t, 0));
        pad(&PadDesc::new(t, t, &[], 0.0));
        repeat(&RepeatDesc::new(t, t));
        reduce_ext(&ReduceDesc::new(ReduceOp::Sum, t, &[], 1));
        softmax(&soft);
        layer_norm(&LayerNormDesc::new(of, 1, 2, 1, 1));
        rms_norm(&RmsNormDesc::new(of, 1, 2, 1, 1));
        group_norm(&GroupNormDesc::new(of, 1, 2, ChannelShape { batch: 1, channels: 1, spatial: 1 }, 1));
        batch_norm(&BatchNormDesc::new(of, 1, 1, 1, 1, ChannelShape { batch: 1, channels: 1, spatial: 1 }));
        cumsum(&CumSumDesc::rows(of, 1, 2, 1, 1));
        softmax_backward(&SoftmaxBackwardDesc::of(&soft, 1, 2));
        norm_backward(&norm);
        norm_backward_weight(&NormBackwardWeightDesc::of(&norm, 1));
        conv2d(&ConvDesc::new(of, 1, 1, 1, conv));
        conv_transpose2d(&ConvTransposeDesc::new(of, 1, 1, 1, conv));
        conv2d_backward_data(&ConvBackwardDataDesc::new(of, 1, 1, 1, conv));
        conv2d_backward_filter(&ConvBackwardFilterDesc::new(of, 1, 1, 1, conv));
        pool2d(&pool);
        pool2d_backward(&PoolBackwardDesc::of(&pool, 1, 1));
        rope(&RopeDesc::new(of, 1, 1, RopeTables { cos: 1, sin: 1, max_position: 1 }, RopeShape { batch: 1, heads: 1, seq: 1, head_dim: 1 }, RopeStyle::Half));
        rope_append(&RopeAppendDesc::new(m, m, RopeTables { cos: 1, sin: 1, max_position: 1 }, RopeAppendShape { rows: 1, heads: 1, kv_heads: 1, head_dim: 1, cache_rows: 1 }, 1, 1).with_rotary_dim(0));
        gather(&GatherDesc::new(of, 1, 1, 1, IndexShape { rows: 1, columns: 1, count: 1 }));
        scatter(&ScatterDesc::new(ScatterOp::Add, of, 1, 1, 1, IndexShape { rows: 1, columns: 1, count: 1 }));
        random(&RandomDesc::new(1, of, 1, 0, Distribution::Uniform { low: 0.0, high: 1.0 }));
        set_memory_budget(None);
        capture(&mut |_| Ok(()));
        replay(1);
        free_graph(1);
    }
    // The asynchronous forms call the others.
    let mut bytes = [0];
    assert_eq!(now(b.copy_dtoh_async(&mut bytes, 1)), b.copy_dtoh(&mut [0], 1));
    assert_eq!(bytes, [7]);
    assert_eq!(now(b.synchronize_async()), b.synchronize());
    assert_eq!(now(b.warm_up_async(&[&|b| b.synchronize()])), Ok(()));
    assert_eq!((b.memory_stats(), b.trim()), (MemoryStats::default(), Ok(0)));
}
