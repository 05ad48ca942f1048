//! One call of each family with operands past what the device binds: samples of its results beside the CPU's, and its time
//! beside that of calls within the limit which do as much together.
//!
//! `GIB=6 cargo test --release -p suites --test huge` has operands of 6 GiB, on the GPU (`TEST_BACKENDS=webgpu:0`), which then
//! needs 40 GiB of memory and the host 16. `KIB=300 MAX_BINDING_KIB=64` has small ones on a device that is opened with a
//! limit. `CASE=conv` runs the families whose name contains that. Without either size, some families (`EVERY=1`: all) run with
//! small operands, and nothing is timed.

mod device;
mod elements;
mod family;
mod images;
mod products;
mod quantised;
mod rows;
mod tables;
mod transfers;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use backend_api::{ComputeBackend, ErrorKind};
use backend_webgpu::WebGpuBackend;
use device::{Placed, judge, text};
use family::{Family, Size};
use libtest_mimic::{Arguments, Failed, Trial};
use suites::{BackendUnderTest, Filter, backends, number};

/// KiB of a large operand, and of a binding, where the environment says nothing.
const SMALL: [usize; 2] = [300, 64];

/// Operands of so many bytes are timed: smaller ones take the time of launches.
const TIMED_FROM: usize = 1 << 30;

/// How much longer the whole may take than its parts together: by a factor, and what the clock of the host may be off.
const SLOWER: f64 = 1.05;
const SLACK: Duration = Duration::from_micros(300);

/// One in so many families runs where the environment says nothing.
const EVERY: usize = 4;

type Make = fn(&Size) -> Family;

const FAMILIES: &[(&str, Make)] = &[
    ("unary", elements::unary),
    ("unary_f16", elements::unary_f16),
    ("binary", elements::binary),
    ("bias", elements::bias),
    ("compare", elements::compare),
    ("where_cond", elements::where_cond),
    ("copy", elements::copy),
    ("copy_dtod", elements::bytes),
    ("permute", elements::permute),
    ("transpose", elements::transpose),
    ("slice", elements::slice),
    ("concat", elements::concat),
    ("pad", elements::pad),
    ("repeat", elements::repeat),
    ("fill", elements::fill),
    ("random", elements::random),
    ("reduce_rows", rows::sums),
    ("reduce_arg_max", rows::largest),
    ("reduce_columns", rows::sums_of_columns),
    ("reduce_all", rows::sum),
    ("softmax", rows::softmax),
    ("softmax_inner", rows::softmax_inner),
    ("softmax_backward", rows::softmax_backward),
    ("cumsum", rows::cumsum),
    ("layer_norm", rows::layer_norm),
    ("rms_norm", rows::rms_norm),
    ("group_norm", rows::group_norm),
    ("batch_norm", rows::batch_norm),
    ("norm_backward", rows::norm_backward),
    ("norm_backward_weight", rows::norm_backward_weight),
    ("top_k", rows::top_k),
    ("sort", rows::sort),
    ("sample", rows::sample),
    ("gather", tables::gather),
    ("gather_many", tables::gather_many),
    ("scatter_assign", tables::scatter_assign),
    ("scatter_add", tables::scatter_add),
    ("rope", tables::rope),
    ("rope_append", tables::rope_append),
    ("quantize_rows", tables::quantize_rows),
    ("matmul_a", products::a),
    ("matmul_a_f16", products::a_f16),
    ("matmul_b_transposed", products::b_transposed),
    ("matmul_b_wide", products::b_wide),
    ("matmul_c", products::c),
    ("matmul_batch", products::batch),
    ("matmul_k", products::k),
    ("matmul_k_transposed", products::k_transposed),
    ("attention_decode", products::decode),
    ("attention_decode_f16", products::decode_f16),
    ("attention_prefill", products::prefill),
    ("quant_matmul_1", quantised::one_row),
    ("quant_matmul_24", quantised::some_rows),
    ("expert_matmul", quantised::experts),
    ("dequantize", quantised::dequantize),
    ("quant_gather", quantised::gather),
    ("conv_images", images::images),
    ("conv_transpose", images::transposed),
    ("conv_backward_data", images::gradients),
    ("conv_filters", images::filters),
    ("conv_outputs", images::outputs),
    ("conv_backward_filter", images::filter_gradients),
    ("pool", images::pool),
    ("pool_backward", images::pool_gradients),
];

/// A line of the table.
struct Line {
    name: String,
    /// Of the whole and of its parts.
    times: Option<[Duration; 2]>,
    said: String,
}

/// A device, opened when the first of its families runs.
struct Device {
    tested: BackendUnderTest,
    limit: Option<usize>,
    bytes: usize,
    opened: Mutex<Option<WebGpuBackend>>,
    lines: Mutex<Vec<Line>>,
}

/// The test of uploads and reads, which is named like a family.
const TRANSFERS: &str = "transfers";

/// What the environment asks for.
struct Asked {
    /// Of a large operand.
    bytes: usize,
    /// The most bytes of a binding, if that is limited.
    limit: Option<usize>,
    /// One in how many families runs.
    every: usize,
    /// Parts of the names of those.
    filter: Filter,
}

impl Asked {
    fn from_environment() -> Result<Self, String> {
        let filter = Filter::from_environment();
        filter.check(FAMILIES.iter().map(|&(name, _)| name).chain([TRANSFERS]))?;
        let limit = number("MAX_BINDING_KIB")?.map(|kib: usize| kib << 10);
        let every = if filter.is_empty() { suites::every(EVERY)? } else { 1 };
        Ok(match (number::<usize>("GIB")?, number::<usize>("KIB")?) {
            (Some(gib), _) => Self { bytes: gib << 30, limit, every: 1, filter },
            (None, Some(kib)) => Self { bytes: kib << 10, limit, every: 1, filter },
            (None, None) => {
                let [bytes, small] = SMALL.map(|kib| kib << 10);
                Self { bytes, limit: limit.or(Some(small)), every, filter }
            }
        })
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Families share the device's memory.
    arguments.test_threads = Some(1);
    let Asked { bytes, limit, every, filter } = match Asked::from_environment() {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let mut devices = Vec::new();
    let mut trials = Vec::new();
    for tested in backends().into_iter().filter(|tested| tested.selector != "cpu") {
        let slug = tested.slug.clone();
        let device =
            Arc::new(Device { tested, limit, bytes, opened: Mutex::default(), lines: Mutex::default() });
        let families = FAMILIES.iter().filter(|(name, _)| filter.has(name));
        for &(name, make) in families.step_by(every) {
            let device = Arc::clone(&device);
            trials.push(Trial::test(format!("huge/{slug}/{name}"), move || device.check(name, make)));
        }
        if filter.has(TRANSFERS) {
            let device = Arc::clone(&device);
            trials.push(Trial::test(format!("huge/{slug}/{TRANSFERS}"), move || device.transfers()));
        }
        devices.push(device);
    }
    let conclusion = suites::run(&arguments, trials);
    devices.iter().for_each(|device| device.print());
    conclusion.exit_code()
}

impl Device {
    /// Calls `then` with the device and the size of operands, opening the device at first.
    fn with<T>(&self, then: impl FnOnce(&WebGpuBackend, &Size) -> Result<T, String>) -> Result<T, String> {
        let mut opened = self.opened.lock().map_err(|_| "an earlier family panicked")?;
        let backend = match &*opened {
            Some(backend) => backend,
            None => opened.insert(self.open()?),
        };
        let capabilities = backend.capabilities().map_err(text)?;
        let limit = capabilities.max_binding_bytes.min(1 << 31);
        // Half of a binding, as parts needn't begin where one may.
        let part = limit.next_power_of_two() / 2;
        let size = Size { bytes: self.bytes, part, f16: capabilities.f16 };
        if size.bytes <= limit {
            return Err(format!("{} bytes are bound at once: GIB or KIB is too small", size.bytes));
        }
        then(backend, &size)
    }

    fn open(&self) -> Result<WebGpuBackend, String> {
        let info = self.tested.backend()?.device_info().map_err(text)?;
        let mut backend = WebGpuBackend::select(info.selector.strip_prefix("webgpu:").unwrap_or_default());
        let lower = |limits: &mut wgpu::Limits| {
            if let Some(limit) = self.limit {
                limits.max_storage_buffer_binding_size = limit as u64;
            }
        };
        backend.init_with_limits(lower).map_err(text)?;
        Ok(backend)
    }

    fn say(&self, name: &str, times: Option<[Duration; 2]>, said: String) {
        if let Ok(mut lines) = self.lines.lock() {
            lines.push(Line { name: name.to_owned(), times, said });
        }
    }

    fn is_timed(&self) -> bool {
        self.bytes >= TIMED_FROM
    }

    /// Whether the whole is about as fast as its parts.
    fn require_fast(&self, times: [Duration; 2]) -> Result<(), String> {
        let [whole, parts] = times;
        if !self.is_timed() || whole <= parts.mul_f64(SLOWER) + SLACK {
            return Ok(());
        }
        let ratio = whole.as_secs_f64() / parts.as_secs_f64();
        Err(format!("{whole:?} are {ratio:.3} times the {parts:?} of the parts together"))
    }

    fn check(&self, name: &str, make: Make) -> Result<(), Failed> {
        let result = self.with(|backend, size| {
            if name.ends_with("_f16") && !size.f16 {
                self.say(name, None, "the device has no f16".to_owned());
                return Ok(());
            }
            self.run(backend, name, &make(size))
        });
        if let Err(why) = &result {
            self.say(name, None, format!("FAILED: {why}"));
        }
        result.map_err(Failed::from)
    }

    fn run(&self, backend: &WebGpuBackend, name: &str, family: &Family) -> Result<(), String> {
        let started = Instant::now();
        let bytes: usize = family.buffers.iter().map(|buffer| buffer.bytes).sum();
        let placed = Placed::new(backend, family)
            .map_err(|error| format!("{:.1} GiB: {}", bytes as f64 / f64::from(1 << 30), text(error)))?;
        let before = |call| placed.read_all(call).map_err(text);
        let before = family.samples.iter().map(before).collect::<Result<Vec<_>, _>>()?;
        match placed.execute(&family.whole) {
            Err(error) if family.refused && error.kind() == ErrorKind::Limit => {
                self.say(name, None, format!("refused as documented: {error}"));
                return Ok(());
            }
            result => result.map_err(text)?,
        }
        backend.synchronize().map_err(text)?;
        let cpu = backend_cpu::CpuBackend::new();
        for (call, before) in family.samples.iter().zip(&before) {
            let after = placed.read_all(call).map_err(text)?;
            judge(&cpu, call, before, &after).map_err(|why| format!("{:?}: {why}", call.operands))?;
        }
        family.values.iter().try_for_each(|values| placed.has(values))?;
        let checked = family.samples.len() + family.values.len();
        let times = if self.is_timed() && !family.parts.is_empty() {
            Some(placed.time(family).map_err(text)?)
        } else {
            None
        };
        let known = if times.is_some() { placed.time_known(family).map_err(text)? } else { None };
        let known = known.map_or(String::new(), |time| {
            format!(", {:.3} ms if indices were known", time.as_secs_f64() * 1e3)
        });
        let said = format!(
            "{} parts, {checked} samples, {:.1} s{known}",
            family.parts.len(),
            started.elapsed().as_secs_f64()
        );
        self.say(name, times, said);
        if checked == 0 && !family.refused {
            return Err("nothing was compared".to_owned());
        }
        times.map_or(Ok(()), |times| self.require_fast(times))
    }

    fn transfers(&self) -> Result<(), Failed> {
        let times = self.with(|backend, size| transfers::transfers(backend, size))?;
        for (name, times) in ["upload", "read"].into_iter().zip(times) {
            self.say(name, Some(times), String::new());
            self.require_fast(times)?;
        }
        Ok(())
    }

    fn print(&self) {
        let Ok(lines) = self.lines.lock() else { return };
        let limit = self.limit.map_or("as it is".to_owned(), |limit| format!("{} KiB", limit >> 10));
        println!("\n{}: operands of {} KiB, a binding of {limit}", self.tested.label, self.bytes >> 10);
        for Line { name, times, said } in lines.iter() {
            let times = times.map_or(" ".repeat(34), |[whole, parts]| {
                let [whole, parts] = [whole, parts].map(|time| time.as_secs_f64() * 1e3);
                format!("{whole:10.3} ms {parts:10.3} ms {:8.3}", whole / parts)
            });
            println!("{name:24} {times}  {said}");
        }
    }
}
