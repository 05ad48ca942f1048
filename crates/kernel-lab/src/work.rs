//! `run` and `profile`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use backend_api::ComputeBackend as _;
use backend_api::support::numbers;
use backend_webgpu::{
    BindingAccess, Comparison, Expected, Kernel, KernelDesc, ProfileOptions, WebGpuBackend,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::args::{Launch, Options};
use crate::failure::{Failure, MISMATCH, show_warnings};
use crate::{Output, files, open, operand, params, report};

/// A launch that is ready.
struct Ready {
    backend: WebGpuBackend,
    kernel: Kernel,
    handles: Vec<u64>,
    params: Vec<u8>,
    grid: [u32; 3],
    expected: Vec<Expected>,
    bar: ProgressBar,
}

/// Launches once and shows what was written.
pub(crate) fn run(launch: &Launch, show: usize, files: &[(usize, PathBuf)]) -> Result<Output, Failure> {
    for (index, _) in files {
        binding(launch, *index)?;
    }
    let ready = prepare(launch)?;
    let Ready { backend, kernel, handles, params, grid, expected, bar } = &ready;
    step(bar, "running");
    // One launch is all that is measured: with its warm-up and all.
    let start = std::time::Instant::now();
    backend.launch(kernel, handles, params, *grid)?;
    backend.synchronize()?;
    let seconds = start.elapsed().as_secs_f64();
    save(&ready, launch, files)?;
    let comparisons = backend.compare_bindings(handles, expected)?;
    let mut text = String::new();
    let mut outputs = Vec::new();
    for (index, (operand, &handle)) in launch.bindings.iter().zip(handles).enumerate() {
        let info = &kernel.bindings()[index];
        if !operand.is_output && info.access == BindingAccess::Read {
            continue;
        }
        let count = operand.elements().min(show);
        let mut bytes = vec![0; count * operand.dtype.size()];
        backend.copy_dtoh(&mut bytes, handle)?;
        let numbers: Vec<f64> = numbers(operand.dtype, &bytes).collect();
        text.push_str(&report::output(index, &info.name, operand, &numbers));
        outputs.push(json!({
            "index": index,
            "name": info.name,
            "type": operand.dtype.name(),
            "shape": operand.shape,
            // JSON has no NaN and no infinities.
            "begins": numbers.iter().map(|x| if x.is_finite() { json!(x) } else { json!(x.to_string()) })
                .collect::<Vec<_>>(),
        }));
    }
    bar.finish_and_clear();
    text.push_str(&report::comparisons(&comparisons));
    let mut json = json!({
        "device": backend.device_info()?.name,
        "grid": grid,
        "seconds": seconds,
        "outputs": outputs,
        "comparisons": report::comparisons_json(&comparisons),
        "kernel": report::kernel_json(kernel.report()),
    });
    let code = judge(&mut json, &comparisons);
    Ok(Output { text, json, code })
}

/// Measures a launch.
pub(crate) fn profile(launch: &Launch, options: &Options) -> Result<Output, Failure> {
    let ready = prepare(launch)?;
    let Ready { backend, kernel, handles, params, grid, expected, bar } = &ready;
    let mut wanted = ProfileOptions::default();
    wanted.warm_up = options.warm_up;
    wanted.samples = options.samples;
    wanted.max_time = options.max_time;
    wanted.bytes = options.bytes;
    wanted.flops = options.flops;
    wanted.expected.clone_from(expected);
    step(bar, "measuring");
    let profile = backend.profile(kernel, handles, params, *grid, &wanted)?;
    bar.finish_and_clear();
    let info = backend.device_info()?;
    let mut json = serde_json::to_value(&profile).map_err(|error| Failure::Usage(error.into()))?;
    json["comparisons"] = report::comparisons_json(&profile.comparisons);
    json["device"] = json!(info.name);
    json["grid"] = json!(grid);
    json["kernel"] = report::kernel_json(kernel.report());
    let code = judge(&mut json, &profile.comparisons);
    let text = format!("{}{}", report::profile(&info, &profile), report::comparisons(&profile.comparisons));
    Ok(Output { text, json, code })
}

/// Says in a document whether all is well, and returns the exit code. A kernel with wrong results has an `error` too,
/// beside what was measured: whoever looks for either finds it.
fn judge(json: &mut Value, comparisons: &[Comparison]) -> ExitCode {
    let mismatch = report::mismatch(comparisons);
    json["ok"] = json!(mismatch.is_none());
    match mismatch {
        None => ExitCode::SUCCESS,
        Some(error) => {
            json["error"] = error;
            ExitCode::from(MISMATCH)
        }
    }
}

fn prepare(launch: &Launch) -> Result<Ready, Failure> {
    let bar = ProgressBar::new(4);
    // Hidden where the standard error is no terminal.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg:<10} {bar:20} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    let desc = launch.source.desc()?;
    let backend = {
        step(&bar, "opening");
        open(&launch.device)?
    };
    backend.set_timeout(launch.limit.timeout)?;
    step(&bar, "compiling");
    let kernel = backend.kernel(&desc).map_err(|error| {
        bar.finish_and_clear();
        Failure::of_kernel(error, &desc)
    })?;
    if !launch.json {
        bar.suspend(|| show_warnings(&kernel.report().warnings, &desc));
    }
    check_bindings(launch, &kernel, &desc, backend.capabilities()?.max_binding_bytes)?;
    let params = params::bytes(&launch.params, kernel.params()).map_err(Failure::usage)?;
    let grid = launch.grid.or_else(|| launch.threads.map(|threads| kernel.grid_for(threads)));
    let grid = grid.ok_or_else(|| Failure::usage("--grid or --threads is missing"))?;
    let expected = expected(launch)?;
    step(&bar, "uploading");
    let mut handles = Vec::new();
    for (seed, operand) in (launch.seed..).zip(&launch.bindings) {
        let bytes = operand.bytes(seed)?;
        let handle = backend.alloc(bytes.len().next_multiple_of(4))?;
        backend.copy_htod(handle, &bytes)?;
        handles.push(handle);
    }
    Ok(Ready { backend, kernel, handles, params, grid, expected, bar })
}

fn step(bar: &ProgressBar, what: &'static str) {
    bar.set_message(what);
    bar.inc(1);
}

/// Says which `--bind` is missing, of another type than the kernel declares, or of a size that no launch takes.
fn check_bindings(launch: &Launch, kernel: &Kernel, desc: &KernelDesc, max: usize) -> Result<(), Failure> {
    let infos = kernel.bindings();
    if infos.len() != launch.bindings.len() {
        let list: Vec<String> =
            infos.iter().map(|b| format!("{} ({} {})", b.name, b.access.name(), b.ty)).collect();
        let (have, need, name) = (launch.bindings.len(), infos.len(), &desc.name);
        return Err(Failure::usage(format!(
            "{name} has {need} bindings, --bind gives {have}: {}",
            list.join(", ")
        )));
    }
    for (info, operand) in infos.iter().zip(&launch.bindings) {
        if let Some(dtype) = info.dtype.filter(|&dtype| dtype != operand.dtype) {
            let (name, given) = (&info.name, operand.dtype);
            return Err(Failure::usage(format!("{name} has elements of {dtype}, --bind gives {given}")));
        }
        let (name, need, bytes) = (&info.name, info.min_bytes, operand.byte_len());
        if bytes < need {
            return Err(Failure::usage(format!("{name} needs {need} bytes or more, --bind gives {bytes}")));
        }
        if bytes > max {
            return Err(Failure::Limit(format!("{name} has {bytes} bytes, the device binds {max} at most")));
        }
    }
    Ok(())
}

fn expected(launch: &Launch) -> Result<Vec<Expected>, Failure> {
    let read = |(index, path): &(usize, PathBuf)| {
        let operand = binding(launch, *index)?;
        // A prefix would take a kernel for right that leaves the rest undone.
        let bytes =
            files::read(path, operand.byte_len(), &format!("buffer {index} has")).map_err(Failure::usage)?;
        Ok(Expected::new(*index, operand.dtype, bytes).within(launch.atol, launch.rtol))
    };
    launch.expect.iter().map(read).collect()
}

fn binding(launch: &Launch, index: usize) -> Result<&operand::Operand, Failure> {
    launch.bindings.get(index).ok_or_else(|| {
        let count = launch.bindings.len();
        Failure::usage(format!("there is no buffer {index}: --bind gives {count}, which count from 0"))
    })
}

/// Writes what was asked for to files.
fn save(ready: &Ready, launch: &Launch, files: &[(usize, PathBuf)]) -> Result<(), Failure> {
    for (index, path) in files {
        let operand = binding(launch, *index)?;
        let mut bytes = vec![0; operand.byte_len()];
        ready.backend.copy_dtoh(&mut bytes, ready.handles[*index])?;
        std::fs::write(path, bytes)
            .map_err(|error| Failure::usage(format!("can't write {}: {error}", path.display())))?;
    }
    Ok(())
}
