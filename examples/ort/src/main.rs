//! Runs an ONNX model on a plugin provider and on ONNX Runtime's CPU provider, and compares their outputs:
//!
//! ```sh
//! ORT_DYLIB_PATH=libonnxruntime.so cargo run -- LIBRARY MODEL.onnx NAME=EXTENT…
//! ```
//!
//! LIBRARY is this project's, `ORT_DYLIB_PATH` ONNX Runtime's own. An extent that the model leaves open is 1
//! or what is given for its name, such as `batch=2`. The inputs are made up: waves of f32, ones of i64.
#![forbid(unsafe_code)]

use std::env;

use anyhow::{Context as _, Result, bail, ensure};
use ort::environment::Environment;
use ort::session::{Session, SessionInputValue};
use ort::value::{Outlet, Tensor, TensorElementType, ValueType};

/// The plugin's provider, as its devices name it.
const PLUGIN: &str = "WebGpuComputeExecutionProvider";

/// The provider that every ONNX Runtime has.
const CPU: &str = "CPUExecutionProvider";

/// How far the providers may be apart, as a part of an output's largest number.
const TOLERANCE: f32 = 1e-3;

/// Name, shape and numbers.
type Output = (String, Vec<i64>, Vec<f32>);

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [library, model, extents @ ..] = arguments.as_slice() else {
        bail!("needs LIBRARY MODEL.onnx, and NAME=EXTENT for open extents");
    };
    let runtime =
        env::var_os("ORT_DYLIB_PATH").context("ORT_DYLIB_PATH has to name ONNX Runtime's library")?;
    // `ort::init` panics where ONNX Runtime can't be loaded, or is older than the feature `api-23` asks for.
    let environment = ort::init_from(runtime)?.build()?;
    // ONNX Runtime resolves relative paths by rules of its own.
    environment.register_ep_library("webgpu_compute", std::path::absolute(library)?)?;

    let outputs = run(&environment, PLUGIN, model, extents)?;
    let expected = run(&environment, CPU, model, extents)?;
    for ((name, shape, numbers), (_, expected_shape, expected)) in outputs.iter().zip(&expected) {
        println!("{name} {shape:?} = {:?} …", numbers.get(..4).unwrap_or(numbers));
        ensure!(shape == expected_shape, "{name} is {expected_shape:?} on {CPU}");
        let error = relative_error(numbers, expected);
        println!("{name} is off by {error:.1e}");
        // NaN isn't within the tolerance.
        ensure!(error <= TOLERANCE, "{name} differs from what {CPU} computes");
    }
    Ok(())
}

/// The outputs of a model on a provider's first device.
fn run(environment: &Environment, provider: &str, model: &str, extents: &[String]) -> Result<Vec<Output>> {
    // By name: the kind of hardware says nothing of a plugin, whose GPUs stand behind the CPU where ONNX
    // Runtime itself sees no other hardware.
    let mut devices = environment.devices();
    let device = devices.find(|device| device.ep().is_ok_and(|name| name == provider));
    // The plugin offers GPUs; the CPU and software adapters only where COMPUTE_BACKEND names one.
    let device = device.with_context(|| {
        format!("{provider} has no device here: try COMPUTE_BACKEND=cpu or COMPUTE_BACKEND=webgpu:0")
    })?;
    let vendor = device.ep_vendor()?;
    let mut session = open(environment, device, provider, model)?;
    check_names(session.inputs(), extents)?;
    let inputs = session.inputs().iter().map(|input| Ok((input.name().to_owned(), made_up(input, extents)?)));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let outputs = session.run(inputs)?;
    println!("every node ran on {provider} of {vendor}");
    let copied = outputs.iter().map(|(name, value)| {
        let (shape, numbers) = value.try_extract_tensor::<f32>()?;
        Ok((name.to_owned(), shape.to_vec(), numbers.to_vec()))
    });
    copied.collect()
}

/// A session on one device.
///
/// Without any, `ort` lets ONNX Runtime choose, which may choose the plugin: a session that is meant for the
/// CPU has to name it too.
fn open(
    environment: &Environment,
    device: ort::device::Device<'_>,
    provider: &str,
    model: &str,
) -> ort::Result<Session> {
    let mut builder = Session::builder(environment)?.with_devices([device], None)?;
    if provider != CPU {
        // A model is refused if the provider leaves nodes to the CPU. Without this line they would run there.
        builder = builder.with_disable_cpu_fallback()?;
    }
    builder.commit_from_file(model)
}

/// Whether each extent that is given is one that some input leaves open.
fn check_names(inputs: &[Outlet], extents: &[String]) -> Result<()> {
    let symbols = inputs.iter().filter_map(|input| match input.dtype() {
        ValueType::Tensor { dimension_symbols, .. } => Some(dimension_symbols.iter()),
        _ => None,
    });
    let open: Vec<&String> = symbols.flatten().filter(|symbol| !symbol.is_empty()).collect();
    for extent in extents {
        let (name, _) = extent.split_once('=').with_context(|| format!("{extent} isn't NAME=EXTENT"))?;
        ensure!(open.iter().any(|symbol| *symbol == name), "no input leaves open {name}, but {open:?}");
    }
    Ok(())
}

/// Numbers for an input.
fn made_up(input: &Outlet, extents: &[String]) -> Result<SessionInputValue<'static>> {
    let ValueType::Tensor { ty, shape, dimension_symbols } = input.dtype() else {
        bail!("{} isn't a tensor", input.name());
    };
    let open_extent = |symbol: &String| {
        let mut given = extents.iter().filter_map(|extent| extent.split_once('='));
        given.find(|(name, _)| name == symbol).map_or(Ok(1), |(_, extent)| extent.parse())
    };
    let shape = shape.iter().zip(dimension_symbols.iter());
    let shape = shape.map(|(&extent, symbol)| usize::try_from(extent).or_else(|_| open_extent(symbol)));
    let shape = shape.collect::<Result<Vec<usize>, _>>()?;
    let count = shape.iter().product();
    Ok(match ty {
        TensorElementType::Float32 => {
            let waves = (0..count).map(|i| (i as f32).sin()).collect::<Vec<_>>();
            Tensor::from_array((shape, waves))?.into()
        }
        TensorElementType::Int64 => Tensor::from_array((shape, vec![1_i64; count]))?.into(),
        other => bail!("{} is of {other}, for which this example makes no numbers", input.name()),
    })
}

/// The largest difference as a part of the largest number expected; NaN if there is one.
fn relative_error(numbers: &[f32], expected: &[f32]) -> f32 {
    // Unlike `f32::max`, keeps NaN.
    let larger = |a: f32, b: f32| if a.is_nan() || a >= b { a } else { b };
    let difference = numbers.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, larger);
    difference / expected.iter().map(|x| x.abs()).fold(f32::MIN_POSITIVE, larger)
}
