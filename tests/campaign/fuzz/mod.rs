//! What parses, fed with mutated inputs and random bytes: no panic, no hang. What `minilm` parses is in its
//! own tests.

mod kernels;

use std::time::{Duration, Instant};

use backend_api::desc::{ConvDesc, CumSumDesc, ReduceDesc, TensorDesc};
use backend_api::{DType, DeviceKind, ReduceOp, Registry};
use conformance::mutate::{mutated, sizes};
use conformance::program::Program;

use crate::deadline::{self, Steps};
use crate::fake::FakeFactory;
use crate::options::Options;

use kernels::Kernels;

/// One input must be dealt with by then, compiling a kernel included.
const LIMIT: Duration = Duration::from_secs(60);

/// Inputs in CI of what needs no device, and of what does.
const FEW: u64 = 5_000;
const FEW_ON_A_DEVICE: u64 = 60;

/// What needs no device, and on an adapter what does.
pub(crate) fn run(selector: &str, options: &Options) -> Result<(), String> {
    let (selector, options) = (selector.to_owned(), options.clone());
    deadline::within(LIMIT, move |steps| match selector.strip_prefix("webgpu:") {
        Some(adapter) => on_device(adapter, &selector, &options, steps),
        None => on_host(&selector, &options, steps),
    })?
}

/// What is parsed, a valid text of it, and whether a text is taken.
type Parser = (&'static str, &'static str, fn(&str) -> bool);

fn on_host(selector: &str, options: &Options, steps: &Steps) -> Result<(), String> {
    let start = Instant::now();
    let program = "0 {\"call\":\"alloc\",\"to\":\"s1\",\"bytes\":8}\n1 {\"call\":\"trim\"}\n";
    let parsers: [Parser; 2] =
        [("a selector", "many:1", select), ("a program", program, |text| text.parse::<Program>().is_ok())];
    let (mut inputs, mut taken) = (0, 0);
    for case in options.cases(FEW) {
        let (name, valid, parse) = parsers[case as usize % parsers.len()];
        let input = mutated(&format!("{name} {} {case}", options.seed), valid.as_bytes());
        let text = String::from_utf8_lossy(&input);
        steps.begin(&format!("{name}: {text:?}; again: {}", options.command("fuzz", selector, case)));
        taken += usize::from(parse(&text));
        shapes(&format!("shapes {} {case}", options.seed));
        inputs += 1;
    }
    println!(
        "{selector}: {inputs} mutated selectors and programs, {taken} of them taken, {:.1?}",
        start.elapsed()
    );
    Ok(())
}

fn on_device(adapter: &str, selector: &str, options: &Options, steps: &Steps) -> Result<(), String> {
    let told = |error| format!("{error:?}");
    let (start, mut inputs) = (Instant::now(), 0);
    let kernels = Kernels::open(adapter).map_err(told)?;
    let texts = kernels.texts().map_err(told)?;
    for case in options.cases(FEW_ON_A_DEVICE) {
        let valid = &texts[(case as usize).wrapping_mul(7919) % texts.len()];
        let text = mutated(&format!("a text {} {case}", options.seed), valid.as_bytes());
        let text = String::from_utf8_lossy(&text).into_owned();
        steps.begin(&format!("{text:?}"));
        let again = || options.command("fuzz", selector, case);
        kernels.use_text(&text).map_err(|why| format!("{text:?}: {why}\n  again: {}", again()))?;
        inputs += 1;
    }
    println!("{selector}: {inputs} mutated names of kernels and tunings, {:.1?}", start.elapsed());
    Ok(())
}

/// A registry of backends that are quick to open; the adapters' own selectors are in the suite `registry`.
fn select(text: &str) -> bool {
    let mut registry = Registry::new();
    registry.register(FakeFactory::new("many", &[DeviceKind::DiscreteGpu, DeviceKind::Cpu]));
    registry.register(FakeFactory::new("none", &[]).with_broken("0"));
    registry.create(text).is_ok()
}

/// Descriptors made of lists of any length: an error or a descriptor, never a panic.
fn shapes(seed: &str) {
    let [input, filter, output, stride, padding] =
        ["input", "filter", "output", "stride", "padding"].map(|what| sizes(&format!("{seed} {what}")));
    let conv = ConvDesc::from_slices("t", 1, &input, 2, &filter, 3, &output, &stride, &padding);
    _ = conv.and_then(|desc| desc.operands("t"));
    for &axis in &stride {
        _ = CumSumDesc::along(DType::F32, 1, 2, &input, axis).and_then(|desc| desc.operands("t"));
    }
    let tensor = TensorDesc::packed(1, DType::I32, &input).with_strides(Some(&filter));
    _ = ReduceDesc::new(ReduceOp::Sum, tensor, &stride, 2).operands("t");
}
