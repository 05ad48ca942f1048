//! Speed over distributions of shapes: seeded random ones of each family, or those of a file.
//!
//! `cargo bench --bench sweep -- [--seed N] [--count N] [--family NAME,NAME] [--dtype NAME] [--shapes FILE]`;
//! `COMPUTE_BACKEND=webgpu:0` chooses a device. Each line of the output is `family`, `dtype`, `variant`,
//! `sizes`, device time and wall time in µs, separated by tabs; a device without a clock has `-` in place of
//! the first. `--list` prints the shapes alone, which `--shapes` reads. `benches/sweep_torch.py` times PyTorch
//! over such a file and says by how much either is ahead.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use backend_api::{BackendResult, ComputeBackend, DType};
use benches::Subject;
use benches::shapes::{self, Budget, Call, Family, Operands, Shape};

/// What the command line asks for.
struct Options {
    seed: u64,
    count: usize,
    families: Vec<Family>,
    dtypes: Vec<DType>,
    shapes: Option<String>,
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
        call(subject.backend()).map_err(failed)?;
        subject.backend().synchronize().map_err(failed)?;
        let time = subject.wall(1, call);
        if longest.is_none_or(|(most, _)| time > most) {
            longest = Some((time, call));
        }
    }
    let start = Instant::now();
    while let Some((_, call)) = longest.filter(|_| start.elapsed() < WARM_UP) {
        subject.wall(1, call);
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
        let once = subject.wall(1, call).as_secs_f64();
        let calls = (0.004 / once).clamp(1.0, f64::from(MAX_CALLS)) as u32;
        let record = &mut |backend: &dyn ComputeBackend| (0..calls).try_for_each(|_| call(backend));
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
        let graph = Graph::capture(&subject, call)?;
        let device = median(|rounds| subject.device_time(rounds, |backend| graph.replay(backend)));
        let device = device.map(|time| time / f64::from(graph.calls));
        let wall = median(|calls| Some(subject.wall(calls, call)));
        let text = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.2}"));
        println!("{shape}\t{}\t{}", text(device), text(wall));
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
