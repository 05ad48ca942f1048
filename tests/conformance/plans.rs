//! A case for each plan of an operation: for each sequence of kernels that one call launches.
//!
//! Plans differ by what an operation divides, copies beforehand or sums afterwards. A sample of one case in 48 has no case of two
//! plans in three. To find them, no kernel is launched, but each case's operands and expected results are made, a minute's work
//! for all cases: the choice is kept in tests/plans.txt.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use backend_webgpu::WebGpuBackend;
use conformance::Case;
use suites::{Sample, backends, is_first};

/// The environment variable that has the cases chosen again.
pub(crate) const VARIABLE: &str = "SAMPLE";

/// For people: how to choose again.
pub(crate) const COMMAND: &str = "`SAMPLE=write cargo test -p suites --test conformance`";

/// Where they are kept.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/plans.txt");

/// The kernels that a case launches, and the time that it took to find them.
struct Planned<'a> {
    case: &'a Case,
    /// Each by its file and variant.
    kernels: HashSet<String>,
    time: Duration,
}

/// A case that the file names and that there isn't.
pub(crate) fn unknown(cases: &[Case]) -> Option<&'static str> {
    let paths: HashSet<String> = cases.iter().map(Case::path).collect();
    Sample::named().find(|name| !paths.contains(*name))
}

/// Chooses the cases on the first software adapter.
pub(crate) fn write(cases: &[Case]) -> ExitCode {
    let written = choose(cases).and_then(|chosen| {
        let text: String = chosen.iter().map(|path| format!("{path}\n")).collect();
        std::fs::write(FILE, text).map_err(|error| format!("{FILE}: {error}"))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn choose(cases: &[Case]) -> Result<Vec<String>, String> {
    let backend = backends()
        .into_iter()
        .find(|under_test| {
            let info = under_test.backend().map(|backend| backend.device_info());
            matches!(info, Ok(Ok(device)) if is_first(&device))
        })
        .ok_or("no software adapter of Vulkan")?;
    let webgpu = backend.backend()?.downcast_ref::<WebGpuBackend>().ok_or("not a WebGPU adapter")?;
    let sample = Sample::without_plans();
    let mut compiled = HashSet::new();
    let mut plans: BTreeMap<(&str, Vec<String>), Vec<Planned<'_>>> = BTreeMap::new();
    for case in cases.iter().filter(|case| case.is_one_call()) {
        let start = Instant::now();
        let run = |planner: &WebGpuBackend| {
            // No kernel has written the outputs that it looks at, which it reports as wrong.
            _ = catch_unwind(AssertUnwindSafe(|| case.run(planner)));
        };
        let kernels = webgpu.planned(run).map_err(|error| error.to_string())?;
        let plan = plan(&kernels);
        let planned = Planned { case, kernels: kernels.into_iter().collect(), time: start.elapsed() };
        if sample.has(&case.path()) {
            compiled.extend(planned.kernels.iter().cloned());
        }
        plans.entry((case.family, plan)).or_default().push(planned);
    }
    let all = plans.len();
    plans.retain(|_, planned| !planned.iter().any(|planned| sample.has(&planned.case.path())));
    let mut chosen = Vec::new();
    for planned in plans.values() {
        // Compiling takes longest.
        let new = |planned: &Planned<'_>| {
            planned.kernels.iter().filter(|kernel| !compiled.contains(*kernel)).count()
        };
        let cost = |planned: &Planned<'_>| (new(planned), planned.time.as_millis() / 50, planned.case.path());
        if let Some(least) = planned.iter().min_by_key(|&planned| cost(planned)) {
            compiled.extend(least.kernels.iter().cloned());
            chosen.push(least.case.path());
        }
    }
    chosen.sort();
    println!("{} cases for those of {all} plans that one in {} doesn't have", chosen.len(), sample.one_in());
    Ok(chosen)
}

/// The files of kernels in turn, and whether a last workgroup puts together what others have made. More than two launches of
/// one in a row are parts of one operation.
fn plan(kernels: &[String]) -> Vec<String> {
    let mut plan: Vec<String> = Vec::new();
    for kernel in kernels {
        let file = kernel.split(' ').next().unwrap_or(kernel);
        let step = if kernel.contains("_fixup") { format!("{file} fixup") } else { file.to_owned() };
        if !plan.ends_with(&[step.clone(), step.clone()]) {
            plan.push(step);
        }
    }
    plan
}
