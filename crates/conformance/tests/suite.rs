//! The suite itself: a backend with one fault is caught, and waiting without blocking finds the same.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use backend_api::{
    BackendResult, BackendTranspose, BinaryOp, Capabilities, ComputeBackend, DeviceInfo, ReduceOp, UnaryOp,
};
use backend_cpu::CpuBackend;
use conformance::{Outcome, cases};

/// What is wrong with `gemm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// One element is off by 2⁻¹² of itself.
    Perturb,
    /// The element behind the first row is written, which is padding or a neighbour.
    Padding,
    /// The byte before C is written.
    GuardBefore,
    /// The byte behind C is written.
    GuardBehind,
    /// A is written.
    Input,
    /// Nothing is done.
    Skip,
    /// C is read although beta is 0.
    ReadsC,
    /// A product over no terms leaves C.
    EmptySum,
    /// B is taken for untransposed whenever its leading dimension allows it.
    Transpose,
}

/// The CPU with a fault.
#[derive(Debug)]
struct Faulty {
    inner: CpuBackend,
    fault: Fault,
    /// The parent of each view, and its offset and length in it.
    views: Mutex<HashMap<u64, (u64, usize, usize)>>,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        let mut inner = CpuBackend::new();
        inner.init().expect("the CPU is always there");
        Self { inner, fault, views: Mutex::default() }
    }

    /// Changes the byte at `offset` of `ptr`'s parent, counted from the start of `ptr`'s view.
    fn flip(&self, ptr: u64, offset: impl Fn(usize) -> isize) -> BackendResult<()> {
        let (parent, start, len) = self.views.lock().expect("no thread panics")[&ptr];
        let at = start.wrapping_add_signed(offset(len));
        let byte = self.inner.view(parent, at, 1)?;
        let mut value = [0];
        self.inner.copy_dtoh(&mut value, byte)?;
        self.inner.copy_htod(byte, &[value[0] ^ 0x10])?;
        self.inner.free(byte)
    }
}

impl ComputeBackend for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn init(&mut self) -> BackendResult<()> {
        self.inner.init()
    }

    fn is_initialized(&self) -> bool {
        self.inner.is_initialized()
    }

    fn gemm(
        &self,
        trans_a: BackendTranspose,
        trans_b: BackendTranspose,
        m: usize,
        n: usize,
        k: usize,
        alpha: f64,
        a_ptr: u64,
        lda: usize,
        b_ptr: u64,
        ldb: usize,
        beta: f64,
        c_ptr: u64,
        ldc: usize,
    ) -> BackendResult<()> {
        let mut trans_b = trans_b;
        let mut beta = beta;
        match self.fault {
            Fault::Skip => return Ok(()),
            Fault::EmptySum if k == 0 => return Ok(()),
            Fault::Transpose if n == k => trans_b = BackendTranspose::NoTrans,
            Fault::ReadsC if beta == 0.0 => beta = f64::from(f32::MIN_POSITIVE),
            _ => {}
        }
        self.inner.gemm(trans_a, trans_b, m, n, k, alpha, a_ptr, lda, b_ptr, ldb, beta, c_ptr, ldc)?;
        if m * n * k == 0 {
            return Ok(());
        }
        match self.fault {
            // Byte 1 of a little-endian f32 holds bits 8 to 15 of its fraction.
            Fault::Perturb => self.flip(c_ptr, |_| 1),
            Fault::Padding if ldc > n && m > 1 => self.flip(c_ptr, |_| n as isize * 4),
            Fault::GuardBefore => self.flip(c_ptr, |_| -1),
            Fault::GuardBehind => self.flip(c_ptr, |len| len as isize),
            Fault::Input => self.flip(a_ptr, |_| 2),
            _ => Ok(()),
        }
    }

    fn batched_gemm(
        &self,
        _: BackendTranspose,
        _: BackendTranspose,
        _: usize,
        _: usize,
        _: usize,
        _: f64,
        _: u64,
        _: usize,
        _: usize,
        _: u64,
        _: usize,
        _: usize,
        _: f64,
        _: u64,
        _: usize,
        _: usize,
        _: usize,
    ) -> BackendResult<()> {
        Err(self.unsupported("batched_gemm"))
    }

    fn conv2d_forward(
        &self,
        _: u64,
        _: &[usize],
        _: u64,
        _: &[usize],
        _: u64,
        _: &[usize],
        _: &[usize],
        _: &[usize],
    ) -> BackendResult<()> {
        Err(self.unsupported("conv2d_forward"))
    }

    fn attention(
        &self,
        _: u64,
        _: u64,
        _: u64,
        _: u64,
        _: usize,
        _: usize,
        _: usize,
        _: usize,
        _: usize,
        _: f64,
        _: bool,
    ) -> BackendResult<()> {
        Err(self.unsupported("attention"))
    }

    fn reduce(&self, _: ReduceOp, _: u64, _: u64, _: &[usize], _: usize) -> BackendResult<()> {
        Err(self.unsupported("reduce"))
    }

    fn unary(&self, _: UnaryOp, _: u64, _: u64, _: usize) -> BackendResult<()> {
        Err(self.unsupported("unary"))
    }

    fn binary(&self, _: BinaryOp, _: u64, _: u64, _: u64, _: usize) -> BackendResult<()> {
        Err(self.unsupported("binary"))
    }

    fn synchronize(&self) -> BackendResult<()> {
        self.inner.synchronize()
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        self.inner.alloc(bytes)
    }

    fn free(&self, ptr: u64) -> BackendResult<()> {
        self.inner.free(ptr)
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        self.inner.copy_htod(dst, src)
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        self.inner.copy_dtoh(dst, src)
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        let view = self.inner.view(ptr, byte_offset, byte_len)?;
        let place = (ptr, byte_offset, byte_len);
        self.views.lock().expect("no thread panics").insert(view, place);
        Ok(view)
    }

    fn fill(&self, dst: u64, dtype: backend_api::DType, n: usize, value: f64) -> BackendResult<()> {
        self.inner.fill(dst, dtype, n, value)
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        let mut capabilities = self.inner.capabilities()?;
        capabilities.f16 = false;
        Ok(capabilities)
    }

    fn device_info(&self) -> BackendResult<DeviceInfo> {
        self.inner.device_info()
    }
}

/// How many cases of `family` pass on a backend with `fault`, and what the others say. Only each `step`th
/// case is run.
fn run(family: &str, fault: Fault, step: usize) -> (usize, Vec<String>) {
    let backend = Faulty::new(fault);
    let (mut passed, mut failures) = (0, Vec::new());
    for case in cases().iter().filter(|case| case.family == family).step_by(step) {
        match case.run(&backend) {
            Ok(_) => passed += 1,
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    (passed, failures)
}

#[test]
fn no_fault_passes() {
    let (passed, failures) = run("gemm", Fault::None, 1);
    assert!(passed > 900, "only {passed} cases");
    assert_eq!(failures, Vec::<String>::new());
}

#[test]
fn each_fault_is_caught_and_named() {
    let faults = [
        (Fault::Perturb, "`c` are wrong"),
        (Fault::Padding, "which the call doesn't name"),
        (Fault::GuardBefore, "byte -1 of `c`, outside its view"),
        (Fault::GuardBehind, "of `c`, outside its view"),
        (Fault::Input, "a[0] has changed"),
        (Fault::Skip, "NaN, want"),
        (Fault::ReadsC, "NaN, want"),
        (Fault::EmptySum, "_k0_"),
        (Fault::Transpose, "elements of `c` are wrong"),
    ];
    for (fault, message) in faults {
        let (_, failures) = run("gemm", fault, 5);
        assert!(!failures.is_empty(), "{fault:?} went unnoticed");
        let named = failures.iter().filter(|failure| failure.contains(message)).count();
        assert!(named > 0, "{fault:?} is not named: {}", failures[0]);
        assert!(failures[0].contains("rerun: CASE=gemm/"), "{}", failures[0]);
    }
}

#[test]
fn a_fault_everywhere_is_caught_everywhere() {
    for fault in [Fault::GuardBefore, Fault::GuardBehind] {
        let (passed, failures) = run("gemm", fault, 5);
        // Products over nothing are left alone.
        assert!(failures.len() > 4 * passed, "{fault:?}: {passed} cases passed");
    }
}

/// Without f16 a call on f16 must be refused; `Faulty` obeys it no more than it must.
#[test]
fn f16_without_the_capability_must_be_refused() {
    let (passed, failures) = run("fill", Fault::None, 1);
    assert!(passed > 50, "only {passed} cases");
    assert!(!failures.is_empty(), "f16 was accepted");
    for failure in &failures {
        assert!(failure.contains("fill/f16") && failure.contains("want Unsupported"), "{failure}");
    }
}

#[test]
fn refusing_f16_counts_as_such() {
    let backend = Faulty::new(Fault::None);
    let all = cases();
    let outcomes = all.iter().filter(|case| case.family == "matmul").map(|case| case.run(&backend));
    // `matmul` is not delegated: f16 is refused as documented, f32 fails.
    let refused = outcomes.filter(|outcome| matches!(outcome, Ok(Outcome::Refused))).count();
    assert!(refused > 100, "only {refused} refused");
}

#[test]
fn asynchronous_runs_pass_as_well() {
    let mut backend = CpuBackend::new();
    backend.init().expect("the CPU is always there");
    for case in cases().iter().filter(|case| matches!(case.family, "memory" | "order" | "fill" | "rope")) {
        let future = pin!(case.run_async(&backend));
        // The CPU has nothing to wait for.
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => assert!(outcome.is_ok(), "{outcome:?}"),
            Poll::Pending => panic!("{} is pending", case.path()),
        }
    }
}
