//! The suite itself: a backend with one fault is caught, and waiting without blocking finds the same.
//!
//! What needs every case is tested here: a unit test that does would have the whole crate compiled and optimised twice.

mod reference;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use backend_api::desc::MatmulDesc;
use backend_api::{BackendResult, BackendTranspose, Capabilities, Command, ComputeBackend, forward};
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

    fn gemm(&self, op: &'static str, mut desc: MatmulDesc) -> BackendResult<()> {
        match self.fault {
            Fault::Skip => return Ok(()),
            Fault::EmptySum if desc.k == 0 => return Ok(()),
            Fault::Transpose if desc.n == desc.k => desc.trans_b = BackendTranspose::NoTrans,
            Fault::ReadsC if desc.beta == 0.0 => desc.beta = f64::from(f32::MIN_POSITIVE),
            _ => {}
        }
        self.inner.execute(op, Command::Matmul(&desc))?;
        if desc.m * desc.n * desc.k == 0 {
            return Ok(());
        }
        let c = desc.c.ptr;
        match self.fault {
            // Byte 1 of a little-endian f32 holds bits 8 to 15 of its fraction.
            Fault::Perturb => self.flip(c, |_| 1),
            Fault::Padding if desc.c.ld > desc.n && desc.m > 1 => self.flip(c, |_| desc.n as isize * 4),
            Fault::GuardBefore => self.flip(c, |_| -1),
            Fault::GuardBehind => self.flip(c, |len| len as isize),
            Fault::Input => self.flip(desc.a.ptr, |_| 2),
            _ => Ok(()),
        }
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
    forward!(this => this.inner; name, init, is_initialized, synchronize, alloc, free, copy_htod, copy_dtoh);
    forward!(this => this.inner; device_info);

    /// Makes the fault in products; of the other operations, there is only `fill`.
    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        match command {
            Command::Matmul(desc) if op == "gemm" => self.gemm(op, *desc),
            Command::Fill { .. } => self.inner.execute(op, command),
            _ => Err(self.unsupported(op)),
        }
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        let view = self.inner.view(ptr, byte_offset, byte_len)?;
        let place = (ptr, byte_offset, byte_len);
        self.views.lock().expect("no thread panics").insert(view, place);
        Ok(view)
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        let mut capabilities = self.inner.capabilities()?;
        capabilities.f16 = false;
        Ok(capabilities)
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
fn there_are_thousands_of_cases_with_names_that_a_shell_takes() {
    let all = cases();
    assert!(all.len() >= 3000, "{} cases", all.len());
    let takes = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
    for case in &all {
        assert!(case.path().chars().all(takes), "{}", case.path());
    }
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
