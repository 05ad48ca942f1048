//! Speed over distributions of shapes: seeded random ones of each family, or those of a file.
//!
//! `cargo bench --bench sweep -- [--seed N] [--count N] [--family NAME,NAME] [--dtype NAME] [--shapes FILE]`;
//! `COMPUTE_BACKEND=webgpu:0` chooses a device. Each line of the output is `family`, `dtype`, `variant`,
//! `sizes`, device time and wall time in µs, separated by tabs; a device without a clock has `-` in place of
//! the first. `--kernels NAME,NAME` times products, convolutions and attention also by each of these kernels that can make
//! them, named as `force_matmul`, `force_conv` and `force_attention` of the backend for WebGPU read them, and adds a column
//! with the kernel. `--list` prints the shapes alone, which `--shapes` reads. `benches/sweep_torch.py` times PyTorch
//! over such a file and says by how much either is ahead.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use backend_api::{BackendResult, ComputeBackend, DType};
use backend_webgpu::WebGpuBackend;
use benches::Subject;
use benches::shapes::{self, Budget, Call, Family, Operands, Shape};

/// What the command line asks for.
struct Options {
    seed: u64,
    count: usize,
    families: Vec<Family>,
    dtypes: Vec<DType>,
    shapes: Option<String>,
    /// Kernels besides the backend's choice, if the kernel is to be told.
    kernels: Option<Vec<String>>,
    list: bool,
    /// Whether each shape runs once, to see that it can.
    test: bool,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            seed: 1,
            count: 150,
            families: Family::ALL.to_vec(),
            dtypes: vec![DType::F32, DType::F16],
            shapes: None,
            kernels: None,
            list: false,
            test: false,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--seed" => options.seed = number(&value()?)?,
                "--count" => options.count = number(&value()?)?,
                "--family" => {
                    options.families = value()?.split(',').map(Family::parse).collect::<Result<_, _>>()?;
                }
                "--dtype" => {
                    options.dtypes = value()?.split(',').map(shapes::dtype).collect::<Result<_, _>>()?;
                }
                "--shapes" => options.shapes = Some(value()?),
                "--kernels" => options.kernels = Some(value()?.split(',').map(str::to_owned).collect()),
                "--list" => options.list = true,
                "--test" => (options.test, options.count) = (true, 2),
                // What cargo tells each bench.
                "--bench" => {}
                _ => return Err(format!("unknown argument {argument}")),
            }
        }
        Ok(options)
    }

    /// The shapes of the file, or random ones of at most `budget`.
    fn shapes(&self, budget: &Budget) -> Result<Vec<Shape>, String> {
        let Some(path) = &self.shapes else {
            let each = self.families.iter().flat_map(|&family| {
                self.dtypes
                    .iter()
                    .flat_map(move |&dtype| shapes::random(family, dtype, self.seed, self.count, budget))
            });
            return Ok(each.collect());
        };
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(Shape::parse).collect()
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

/// A device that has idled runs at a lower clock for a while.
const WARM_UP: Duration = Duration::from_millis(500);

/// Calls every shape once, so that nothing is compiled while another is timed, and keeps the device busy until it
/// runs at full clock.
fn prepare(subject: &Subject, calls: &[(&Shape, Call)]) -> Result<(), String> {
    let mut longest: Option<(Duration, &Call)> = None;
    for (shape, call) in calls {
        let failed = |error| format!("{shape}: {error}");
        call.record(subject.backend()).map_err(failed)?;
        subject.backend().synchronize().map_err(failed)?;
        let time = subject.wall(1, |backend| call.record(backend));
        if longest.is_none_or(|(most, _)| time > most) {
            longest = Some((time, call));
        }
    }
    let start = Instant::now();
    while let Some((_, call)) = longest.filter(|_| start.elapsed() < WARM_UP) {
        subject.wall(1, |backend| call.record(backend));
    }
    Ok(())
}

/// The most calls of a graph.
const MAX_CALLS: u32 = 64;

/// A shape's call, captured several times: as PyTorch is timed in CUDA graphs, so that neither host counts.
struct Graph<'a> {
    subject: &'a Subject,
    calls: u32,
    graph: u64,
}

impl<'a> Graph<'a> {
    fn capture(subject: &'a Subject, call: &Call) -> Result<Self, String> {
        let once = subject.wall(1, |backend| call.record(backend)).as_secs_f64();
        let calls = (0.004 / once).clamp(1.0, f64::from(MAX_CALLS)) as u32;
        let record = &mut |backend: &dyn ComputeBackend| (0..calls).try_for_each(|_| call.record(backend));
        let graph = subject.backend().capture(record).map_err(|error| error.to_string())?;
        Ok(Self { subject, calls, graph })
    }

    fn replay(&self, backend: &dyn ComputeBackend) -> BackendResult<()> {
        backend.replay(self.graph)
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        self.subject.backend().free_graph(self.graph).expect("a graph");
    }
}

/// Median of five samples of some 2 ms, in µs of one round.
fn median(sample: impl Fn(u64) -> Option<Duration>) -> Option<f64> {
    let per_call = |rounds: u64| Some(sample(rounds)?.as_secs_f64() / rounds as f64);
    let calls = (0.002 / per_call(1)?.max(1e-7)).clamp(1.0, 1024.0) as u64;
    let mut samples = [0.0; 5];
    for each in &mut samples {
        *each = per_call(calls)? * 1e6;
    }
    samples.sort_by(f64::total_cmp);
    Some(samples[2])
}

/// The two columns of a call's times.
fn times(subject: &Subject, call: &Call) -> Result<String, String> {
    let graph = Graph::capture(subject, call)?;
    let device = median(|rounds| subject.device_time(rounds, |backend| graph.replay(backend)));
    let device = device.map(|time| time / f64::from(graph.calls));
    let wall = median(|calls| Some(subject.wall(calls, |backend| call.record(backend))));
    let text = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.2}"));
    Ok(format!("{}\t{}", text(device), text(wall)))
}

/// Prints the times of a shape by the kernel that the backend chooses, and by each of others that can make it.
fn time_kernels(
    subject: &Subject,
    backend: &WebGpuBackend,
    (shape, call): (&Shape, &Call),
    kernels: &[String],
) -> Result<(), String> {
    let failed = |error| format!("{shape}: {error}");
    let kernel = || call.kernel(backend).map_err(failed);
    let planned = kernel()?;
    println!("{shape}\t{}\t{}", times(subject, call)?, planned.as_deref().unwrap_or("-"));
    for name in kernels.iter().filter(|_| planned.is_some()) {
        call.force(backend, Some(name)).map_err(failed)?;
        // A kernel that can't make it is passed over for the backend's choice.
        let forced =
            kernel()?.filter(|forced| forced.starts_with(base_of(name)) && Some(forced) != planned.as_ref());
        if let Some(forced) = forced {
            println!("{shape}\t{}\t{forced}", times(subject, call)?);
        }
    }
    call.force(backend, None).map_err(failed)
}

/// A kernel's name without what follows it, such as `+split4`.
fn base_of(name: &str) -> &str {
    name.split('+').next().unwrap_or(name)
}

fn run(options: &Options) -> Result<(), String> {
    let subject = Subject::open();
    let budget = Budget::of(subject.device().kind);
    let shapes = options.shapes(&budget)?;
    if options.list {
        shapes.iter().for_each(|shape| println!("{shape}"));
        return Ok(());
    }
    println!("# {}, seed {}", subject.device().name, options.seed);
    let operands = Operands::for_shapes(&subject, &shapes)?;
    let supported = shapes.iter().filter(|shape| subject.supports(shape.dtype));
    let calls: Result<Vec<_>, String> = supported.map(|shape| Ok((shape, operands.call(shape)?))).collect();
    let calls = calls?;
    prepare(&subject, &calls)?;
    for (shape, call) in calls.iter().filter(|_| !options.test) {
        match (&options.kernels, subject.webgpu()) {
            (Some(kernels), Some(backend)) => time_kernels(&subject, backend, (shape, call), kernels)?,
            _ => println!("{shape}\t{}", times(&subject, call)?),
        }
    }
    operands.free(&subject);
    subject.backend().synchronize().map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("sweep: {reason}");
            ExitCode::FAILURE
        }
    }
}
