//! The operator tests of ONNX on every backend: a test for each case that the operations can express.
//!
//! The cases are in `cases.json` and `tensors.bin`, which `export.py` wrote. What can't be expressed is
//! listed with its reason in `unmapped.rs`. `CASE=softmax` restricts the run to the cases whose name contains
//! that text.

mod data;
mod device;
mod node;
mod operators;
mod unmapped;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use suites::{BackendUnderTest, Filter, backends};

use data::{Array, Case, Kind, Suite};
use device::Device;
use node::Node;
use unmapped::UNMAPPED;

/// The bounds of ONNX's own runner: how far a number may be off, as a part of what it should be and besides.
const RELATIVE: f64 = 1e-3;
const ABSOLUTE: f64 = 1e-7;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let suite = match Suite::load() {
        Ok(suite) => Arc::new(suite),
        Err(error) => {
            let trial = Trial::test("onnx/load", move || Err(error));
            return suites::run(&arguments, vec![trial]).exit_code();
        }
    };
    let reasons: HashMap<&str, &str> =
        UNMAPPED.iter().flat_map(|&(reason, names)| names.iter().map(move |&name| (name, reason))).collect();
    let filter = Filter::from_environment();
    if let Err(why) = filter.check(suite.cases.iter().map(|case| &case.name)) {
        println!("{why}");
        return ExitCode::FAILURE;
    }
    let mut trials = vec![table(&suite)];
    for backend in backends() {
        let backend = Arc::new(backend);
        if let Err(reason) = backend.backend() {
            let reason = reason.to_owned();
            trials.push(Trial::test(format!("onnx/{}/open", backend.slug), || Err(Failed::from(reason))));
            continue;
        }
        let mapped = (0..suite.cases.len()).filter(|&i| !reasons.contains_key(suite.cases[i].name.as_str()));
        for i in mapped.filter(|&i| filter.has(&suite.cases[i].name)) {
            let (suite, backend) = (suite.clone(), backend.clone());
            let name = format!("onnx/{}/{}", backend.slug, suite.cases[i].name);
            trials.push(Trial::test(name, move || check(&suite, &suite.cases[i], &backend)));
        }
    }
    // Hundreds of names say little.
    if arguments.format.is_none() && !arguments.list {
        arguments.format = Some(libtest_mimic::FormatSetting::Terse);
    }
    let conclusion = suites::run(&arguments, trials);
    if !arguments.list {
        summary(&suite, &reasons);
    }
    conclusion.exit_code()
}

/// How many cases there are of each kind.
fn summary(suite: &Suite, reasons: &HashMap<&str, &str>) {
    let mapped = suite.cases.len() - reasons.len();
    println!("{}: {mapped} of {} cases are run on each backend", suite.source, suite.cases.len());
    for (reason, names) in UNMAPPED {
        println!("{} not run: {reason}", names.len());
    }
    let mut others: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for other in &suite.others {
        *others.entry((&other.operator, other.types.join(", "))).or_default() += 1;
    }
    for ((operator, types), count) in others {
        println!("{count} not run: {operator} of {types}");
    }
}

/// What is listed is there, once.
fn table(suite: &Arc<Suite>) -> Trial {
    let suite = suite.clone();
    Trial::test("onnx/table", move || {
        let known: HashSet<&str> = suite.cases.iter().map(|case| case.name.as_str()).collect();
        let mut seen = HashSet::new();
        let listed = UNMAPPED.iter().flat_map(|(_, names)| names.iter());
        let wrong: Vec<&str> =
            listed.copied().filter(|name| !known.contains(name) || !seen.insert(*name)).collect();
        let twice: Vec<&str> = suite
            .others
            .iter()
            .map(|other| other.name.as_str())
            .filter(|name| known.contains(name))
            .collect();
        if wrong.is_empty() && twice.is_empty() {
            return Ok(());
        }
        Err(format!("listed, but not there or twice: {}", [wrong, twice].concat().join(", ")).into())
    })
}

fn check(suite: &Suite, case: &Case, backend: &BackendUnderTest) -> Result<(), Failed> {
    let backend = backend.backend()?;
    let halves = case.inputs.iter().chain(&case.outputs).flatten().any(|array| array.dtype == Kind::F16);
    let device = Device::new(backend);
    let outputs = Node::new(suite, case, &device).and_then(|node| operators::run(&node));
    if halves && !backend.capabilities()?.f16 {
        return if outputs.is_err() { Ok(()) } else { Err("f16 was not refused".into()) };
    }
    let outputs = outputs?;
    if outputs.len() != case.outputs.len() {
        return Err(format!("{} outputs instead of {}", outputs.len(), case.outputs.len()).into());
    }
    for (i, (output, wanted)) in outputs.iter().zip(&case.outputs).enumerate() {
        let Some(wanted) = wanted else { continue };
        if output.dtype != wanted.dtype.on_device() || output.shape != wanted.shape {
            return Err(format!("output {i} is {output:?} instead of {wanted:?}").into());
        }
        if let Some(why) = difference(wanted, &suite.numbers(wanted)?, &device.download(output)?) {
            return Err(format!("output {i}{why}").into());
        }
    }
    Ok(())
}

/// What is wrong with the numbers of an output.
fn difference(array: &Array, wanted: &[f64], got: &[f64]) -> Option<String> {
    let exact = !matches!(array.dtype, Kind::F32 | Kind::F16);
    let near = |got: f64, want: f64| {
        got == want
            || got.is_nan() && want.is_nan()
            || !exact && want.is_finite() && (got - want).abs() <= ABSOLUTE + RELATIVE * want.abs()
    };
    let mut wrong = wanted.iter().zip(got).enumerate().filter(|&(_, (&want, &got))| !near(got, want));
    let (i, (want, got)) = wrong.next()?;
    Some(format!("[{i}] is {got:e} instead of {want:e}, and {} more are off", wrong.count()))
}
