//! Speed over distributions of shapes: seeded random ones of each family, or those of a file.
//!
//! `cargo bench --bench sweep -- [--seed N] [--count N] [--family NAME,NAME] [--dtype NAME] [--shapes FILE]`;
//! `COMPUTE_BACKEND=webgpu:0` chooses a device. Each line of the output is `family`, `dtype`, `variant`,
//! `sizes`, device time and wall time in µs, separated by tabs; a device without a clock has `-` in place of
//! the first. `--list` prints the shapes alone, which `--shapes` reads. `benches/sweep_torch.py` times PyTorch
//! over such a file and says by how much either is ahead.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use backend_api::DType;
use benches::Subject;
use benches::shapes::{self, Budget, Family, Operands, Shape};

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

/// Median of a few samples, each long enough for the clock, in µs of one call.
fn median(sample: impl Fn(u64) -> Option<Duration>) -> Option<f64> {
    let warm_up = Instant::now();
    let mut calls = 1;
    let once = loop {
        let time = sample(calls)?;
        // A sample takes 2 ms, and the first ones aren't counted: they compile, and wake the device's clock.
        if warm_up.elapsed() > Duration::from_millis(8) || time > Duration::from_millis(2) {
            break time / u32::try_from(calls).unwrap_or(u32::MAX);
        }
        calls = (calls * 4).min(1024);
    };
    let calls = (0.002 / once.as_secs_f64().max(1e-7)).clamp(1.0, 1024.0) as u64;
    let mut samples = [0.0; 5];
    for each in &mut samples {
        *each = sample(calls)?.as_secs_f64() * 1e6 / calls as f64;
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
    for shape in &shapes {
        if !subject.supports(shape.dtype) {
            continue;
        }
        let call = operands.call(shape)?;
        if options.test {
            call(subject.backend()).map_err(|error| format!("{shape}: {error}"))?;
            continue;
        }
        let device = median(|calls| subject.device_time(calls, &call));
        let wall = median(|calls| Some(subject.wall(calls, &call)));
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
