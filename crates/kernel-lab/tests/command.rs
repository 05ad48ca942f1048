//! The command as a user calls it, on the best device there is, and the Python class over it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SCALE: &str = "struct Params { n: u32, factor: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.n { y[id.x] = params.factor * x[id.x]; }
}";

const BINDINGS: [&str; 4] = ["--bind", "f32:8:iota", "--bind", "f32:2x4:zeros:out"];

/// Starts the command, which waits for its standard input.
fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_kernel-lab"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs the command with a kernel as its standard input.
fn lab(arguments: &[&str], wgsl: &str) -> Output {
    let mut child = start(arguments);
    // Refused if the command ends without reading it.
    _ = child.stdin.take().unwrap().write_all(wgsl.as_bytes());
    child.wait_with_output().unwrap()
}

#[track_caller]
fn expect(output: &Output, code: i32, parts: &[&str]) {
    let text =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    assert_eq!(output.status.code(), Some(code), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

fn launch<'a>(command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec![command, "-", "--params", "n=8,factor=0.5"];
    arguments.extend(BINDINGS);
    arguments.extend(more);
    arguments
}

#[test]
fn specs_are_told_as_text_and_json() {
    expect(&lab(&["specs"], ""), 0, &["max_compute_workgroup_storage_size", "matmul f32 1024×1024×1024"]);
    let json = ["\"max_compute_workgroup_storage_size\": ", "\"ok\": true"];
    expect(&lab(&["specs", "--json"], ""), 0, &json);
    expect(&lab(&["specs", "--device", "no such device"], ""), 3, &["no adapter found"]);
    expect(&lab(&["specs", "--device", "no such device", "--json"], ""), 3, &["\"ok\": false"]);
}

#[test]
fn kernels_are_validated_with_and_without_a_device() {
    for device in [&[][..], &["--device", ""], &["--backend", "webgpu"]] {
        let arguments = |more: &[&'static str]| [&["validate", "-"], device, more].concat();
        let right = ["`main` is right", "64×1×1", "y: read_write array<f32>", "factor: f32 at 4"];
        expect(&lab(&arguments(&[]), SCALE), 0, &right);
        expect(&lab(&arguments(&["--json"]), SCALE), 0, &["\"ok\": true", "\"min_bytes\": 4"]);
        let wrong = SCALE.replace("params.factor", "params.scale");
        expect(&lab(&arguments(&[]), &wrong), 1, &["scale", ":6:", "^^^^^"]);
        let json = ["\"kind\": \"wgsl\"", "\"line\": 6", "\"column\": "];
        expect(&lab(&arguments(&["--json"]), &wrong), 1, &json);
    }
    expect(&lab(&["validate", "/no/such/file.wgsl"], ""), 2, &["can't read"]);
    expect(&lab(&["validate", "-", "--const", "N"], ""), 2, &["NAME=VALUE"]);
}

/// Integers keep all their digits, and numbers that a type can't hold are refused rather than changed.
#[test]
fn integers_are_printed_and_taken_as_they_are() {
    let text = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read_write> signed: array<i32>;
@compute @workgroup_size(1) fn main() {
    out[0] = 16777217u; out[1] = 4294967295u; out[2] = 123456789u; signed[0] = -2147483647;
}";
    let run = ["run", "-", "--grid", "1", "--bind", "u32:4:2147483649", "--bind", "i32:1:0"];
    let printed = ["= 16777217 4294967295 123456789 2147483649", "= -2147483647"];
    expect(&lab(&run, text), 0, &printed);
    for number in ["u32:4:-1", "u32:4:1.5", "f16:8:70000"] {
        let refused = ["run", "-", "--grid", "1", "--bind", number, "--bind", "i32:1:0"];
        let (ty, value) =
            (number.split(':').next().unwrap_or_default(), number.rsplit(':').next().unwrap_or_default());
        expect(&lab(&refused, text), 2, &[&format!("{value} is no {ty}")]);
    }
    let constant = format!("override N: u32;\n{}", text.replace("16777217u", "N"));
    let refused = ["validate", "-", "--const", "N=1.9"];
    expect(&lab(&refused, &constant), 1, &["`N` can't be 1.9: it is no u32", ":1:"]);
}

#[test]
fn a_missing_device_is_told_from_a_wrong_kernel() {
    let nowhere = ["--device", "no such device", "--json"];
    for arguments in [&["specs"][..], &["validate", "-"], &launch("run", &["--grid", "1"])] {
        let output = lab(&[arguments, &nowhere].concat(), SCALE);
        expect(&output, 3, &["\"kind\": \"no_device\"", "no adapter found"]);
    }
}

#[test]
fn nothing_ends_within_no_time() {
    for arguments in [&["specs"][..], &["validate", "-", "--device", ""], &["validate", "-"]] {
        expect(&lab(&[arguments, &["--timeout", "0"]].concat(), SCALE), 4, &["no end within 0 s"]);
    }
}

#[test]
fn a_kernel_that_never_arrives_ends_after_the_timeout() {
    for device in [&[][..], &["--device", ""]] {
        let mut child = start(&[&["validate", "-", "--timeout", "0.5"], device].concat());
        let text = child.stdin.take();
        expect(&child.wait_with_output().unwrap(), 4, &["no end within 0.5 s"]);
        drop(text);
    }
}

/// The process that uses the driver is ended as a crash would end it, while it waits for the kernel's text.
#[cfg(target_os = "linux")]
#[test]
fn a_driver_that_crashes_in_validation_is_told() {
    let mut child = start(&["validate", "-", "--device", "", "--json"]);
    let text = child.stdin.take();
    let start = Instant::now();
    let worker = loop {
        assert!(start.elapsed() < Duration::from_secs(60), "no process of its own for the driver");
        let parent = format!("PPid:\t{}\n", child.id());
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut ids = processes.map(|process| process.file_name().into_string().unwrap());
        let has = |id: &str, file: &str, part: &str| {
            let read = std::fs::read(format!("/proc/{id}/{file}"));
            read.is_ok_and(|text| String::from_utf8_lossy(&text).contains(part))
        };
        // Its environment is its own from when it runs the program on.
        let is_worker = |id: &String| has(id, "status", &parent) && has(id, "environ", "KERNEL_LAB_CHILD=");
        match ids.find(is_worker) {
            Some(id) => break id,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    assert!(Command::new("kill").args(["-KILL", &worker]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    drop(text);
    expect(&output, 3, &["\"kind\": \"device\"", "the driver ended the process"]);
}

#[test]
fn kernels_run() {
    let y = ["y: f32 2×4 = 0 0.5 1 1.5 2 2.5 3 3.5"];
    expect(&lab(&launch("run", &["--grid", "1"]), SCALE), 0, &y);
    expect(&lab(&launch("run", &["--threads", "8", "--show", "2"]), SCALE), 0, &["= 0 0.5 …"]);
    expect(&lab(&launch("run", &["--grid", "1", "--json"]), SCALE), 0, &["\"ok\": true", "3.5"]);

    let folder = std::env::temp_dir().join(format!("kernel-lab-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let saved = format!("1={}", folder.join("y").display());
    expect(&lab(&launch("run", &["--grid", "1", "--save", &saved]), SCALE), 0, &[]);
    let numbers: Vec<u8> = (0..8).flat_map(|i| (i as f32 * 0.5).to_le_bytes()).collect();
    assert_eq!(std::fs::read(folder.join("y")).unwrap(), numbers);
    expect(&lab(&launch("run", &["--grid", "1", "--expect", &saved]), SCALE), 0, &["all 8 elements"]);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A kernel with wrong results has an error, whether it is run or measured. A reference that isn't whole judges none.
#[test]
fn a_reference_is_compared_whole() {
    let folder = std::env::temp_dir().join(format!("kernel-lab-expect-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("y");
    let named = format!("1={}", path.display());
    std::fs::write(&path, [1; 32]).unwrap();
    let quick = ["--warm-up", "0.01", "--samples", "1"];
    for (command, more, beside) in [("run", &[][..], "\"seconds\": "), ("profile", &quick, "\"median\": ")] {
        let arguments = [&["--grid", "1", "--expect", &named], more].concat();
        let wrong = lab(&launch(command, &arguments), SCALE);
        expect(&wrong, 5, &["buffer 1: 7 of 8 elements are wrong", "the worst is element"]);
        let json = lab(&launch(command, &[&arguments[..], &["--json"]].concat()), SCALE);
        expect(
            &json,
            5,
            &["\"ok\": false", "\"kind\": \"mismatch\"", "buffer 1: 7 of 8", "\"index\": 1", beside],
        );
    }
    for bytes in [0, 16, 30, 36] {
        std::fs::write(&path, vec![0; bytes]).unwrap();
        let output = lab(&launch("run", &["--grid", "1", "--expect", &named, "--json"]), SCALE);
        let reason = format!("has {bytes} bytes, buffer 1 has 32");
        expect(&output, 2, &["\"kind\": \"usage\"", &reason]);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn kernels_are_profiled() {
    let options = ["--grid", "1", "--warm-up", "0.05", "--samples", "3", "--bytes", "64", "--flops", "8"];
    expect(&lab(&launch("profile", &options), SCALE), 0, &["time ", "samples", "clock"]);
    let json = lab(&launch("profile", &[&options[..], &["--json"]].concat()), SCALE);
    expect(&json, 0, &["\"median\": ", "\"clock\": ", "\"ok\": true"]);
}

#[test]
fn what_is_wrong_with_a_launch_is_told() {
    expect(
        &lab(&["run", "-", "--grid", "1"], SCALE),
        2,
        &["has 2 bindings, --bind gives 0", "x (read array<f32>)"],
    );
    expect(&lab(&launch("run", &[]), SCALE), 2, &["--grid", "--threads"]);
    expect(&lab(&launch("run", &["--grid", "4,0"]), SCALE), 2, &["0 launches nothing"]);
    expect(&lab(&launch("run", &["--grid", "1", "--bind", "f64:1:zeros"]), SCALE), 2, &["f64"]);
    expect(&lab(&launch("run", &["--grid", "1"]), &SCALE.replace("read_write", "read")), 1, &["^"]);
    let mut arguments = launch("run", &["--grid", "1"]);
    arguments[3] = "n=8";
    expect(&lab(&arguments, SCALE), 2, &["no value for factor"]);
    let ints = SCALE
        .replace("var<storage, read> x: array<f32>", "var<storage, read> x: array<i32>")
        .replace("* x", "* f32(x")
        .replace("id.x]; }", "id.x]); }");
    expect(&lab(&launch("run", &["--grid", "1"]), &ints), 2, &["x has elements of i32, --bind gives f32"]);
}

/// What the caller can mend isn't told as a failure of the device, and a wrong command line has a document too.
#[test]
fn mistakes_of_the_caller_are_of_their_kinds() {
    let json = |arguments: &[&str], code, kind: &str, reason: &str| {
        let output = lab(&[arguments, &["--json"]].concat(), SCALE);
        let document = String::from_utf8_lossy(&output.stdout);
        assert!(document.starts_with('{'), "{document}{}", String::from_utf8_lossy(&output.stderr));
        expect(&output, code, &["\"ok\": false", &format!("\"kind\": \"{kind}\""), reason]);
    };
    let with = |params: &'static str, more: &[&'static str]| {
        let mut arguments = launch("run", more);
        arguments[3] = params;
        arguments
    };
    let one = ["--grid", "1"];
    json(
        &with("u32:8", &one),
        2,
        "usage",
        "--params has 4 bytes, the parameters have 8: n: u32, factor: f32",
    );
    json(&with("f32:8,f32:0.5", &one), 2, "usage", "byte 0 is n: u32, --params gives f32:8");
    json(&with("n=8,n=9,factor=1", &one), 2, "usage", "n is given twice");
    json(&launch("run", &["--grid", "70000"]), 1, "limit", "70000, the device's limit is 65535");
    json(&launch("run", &["--grid", "1", "--save", "2=/tmp/y"]), 2, "usage", "there is no buffer 2");
    let empty = [
        "run",
        "-",
        "--params",
        "n=8,factor=1",
        "--grid",
        "1",
        "--bind",
        "f32:0:zeros",
        "--bind",
        "f32:8:ones",
    ];
    json(&empty, 2, "usage", "x needs 4 bytes or more, --bind gives 0");
    json(&launch("run", &[]), 2, "usage", "--grid");
    json(&launch("run", &["--grid", "0"]), 2, "usage", "0 launches nothing");
    json(&launch("run", &["--grid", "1", "--bind", "f32:4:one"]), 2, "usage", "none of zeros, ones");
    json(&launch("run", &["--grid", "1", "--atol", "nan"]), 2, "usage", "no bound of 0 or more");
    json(&launch("profile", &["--grid", "1", "--warm-up", "-1"]), 2, "usage", "no time of 0 seconds or more");
    // After many launches there is nothing to save.
    json(&launch("profile", &["--grid", "1", "--save", "1=/tmp/y"]), 2, "usage", "--save");
    for count in ["nan", "inf", "-1"] {
        let arguments = ["--grid", "1", "--bytes", count];
        json(&launch("profile", &arguments), 2, "usage", "no count of 0 or more");
    }
    json(&["validate", "-", "--const", "SIZE"], 2, "usage", "NAME=VALUE");
    json(&["specs", "--nothing"], 2, "usage", "--nothing");
    // Help isn't an error.
    expect(&lab(&["run", "--help", "--json"], ""), 0, &["--bind"]);
}

/// Exit codes are the same where nobody reads what is told, as in a pipe that is closed.
#[cfg(target_os = "linux")]
#[test]
fn a_stream_that_takes_nothing_is_no_panic() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let run = |arguments: &[&str], is_error: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernel-lab"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let full = full();
        let output = if is_error { command.stderr(full) } else { command.stdout(full) }.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for json in [&[][..], &["--json"]] {
        let (code, said) = run(&[&["specs", "--list"], json].concat(), false);
        assert!(
            code == Some(2) && said.contains("can't print") && !said.contains("panicked"),
            "{code:?} {said}"
        );
    }
    // The text is empty, which has no entry point.
    assert_eq!(run(&["validate", "-"], true).0, Some(1));
    assert_eq!(run(&["validate", "/no/such/file.wgsl"], true).0, Some(2));
}

/// Whoever ends the command, as a caller that has lost its patience does, has ended what it began.
#[cfg(unix)]
#[test]
fn the_work_ends_with_the_command() {
    use std::io::Read as _;
    let mut child = start(&["validate", "-"]);
    let (text, mut said) = (child.stdin.take(), child.stdout.take().unwrap());
    // Time to start the process that waits for the text.
    std::thread::sleep(Duration::from_secs(1));
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    // The end comes when no process can write any more.
    said.read_to_end(&mut Vec::new()).unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    drop(text);
}

/// Only where a binding's limit is small enough for a buffer beyond it.
#[test]
fn a_buffer_beyond_the_limit_is_named() {
    let specs = lab(&["specs", "--json"], "");
    let text = String::from_utf8_lossy(&specs.stdout).into_owned();
    if text.contains("\"max_storage_buffer_binding_size\": 134217728") {
        let output = lab(
            &["run", "-", "--params", "n=8,factor=1", "--grid", "1", "--bind", "f32:50000000:zeros"]
                .into_iter()
                .chain(["--bind", "f32:8:zeros", "--json"])
                .collect::<Vec<_>>(),
            SCALE,
        );
        expect(
            &output,
            1,
            &["\"kind\": \"limit\"", "x has 200000000 bytes, the device binds 134217728 at most"],
        );
    }
}

#[test]
fn validation_without_a_device_says_so() {
    let wide = SCALE.replace("workgroup_size(64)", "workgroup_size(512)");
    let note = "checked against WebGPU's default limits and no features; with --device";
    expect(&lab(&["validate", "-", "--json"], &wide), 1, &["\"kind\": \"limit\"", note]);
    let half = format!("enable f16;\n{SCALE}");
    let needed = ["`f16` is an optional feature, which isn't there", note];
    expect(&lab(&["validate", "-"], &half.replace("* x[id.x]", "* f32(f16(x[id.x]))")), 1, &needed);
    let wrong = lab(&["validate", "-"], &SCALE.replace("params.n", "params.m"));
    assert!(!String::from_utf8_lossy(&wrong.stderr).contains(note));
}

#[test]
fn devices_are_listed() {
    expect(&lab(&["specs", "--list"], ""), 0, &["webgpu:0"]);
    expect(&lab(&["specs", "--list", "--json"], ""), 0, &["\"ok\": true", "\"selector\": \"webgpu:0\""]);
}

/// Only on a software adapter: a GPU isn't hung on purpose.
#[test]
fn a_kernel_without_an_end_ends_after_the_timeout() {
    let specs = lab(&["specs", "--json"], "");
    if !String::from_utf8_lossy(&specs.stdout).contains("\"kind\": \"SoftwareAdapter\"") {
        return;
    }
    let endless = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @compute @workgroup_size(1) fn main() { loop { x[1] += 1u; if x[0] == 7u { break; } } }";
    for command in ["run", "profile"] {
        let start = Instant::now();
        let arguments = [command, "-", "--bind", "u32:2:zeros", "--grid", "65535,65535", "--timeout", "3"];
        expect(&lab(&arguments, endless), 4, &["no end within 3 s"]);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
}

#[test]
fn the_python_class_passes_its_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python");
    let python = if cfg!(windows) { "python" } else { "python3" };
    let tests = Command::new(python)
        .args(["-B", "-m", "unittest", "discover", "--start-directory"])
        .arg(folder)
        .env("KERNEL_LAB", env!("CARGO_BIN_EXE_kernel-lab"))
        .output()
        .unwrap_or_else(|error| panic!("{python} is needed: {error}"));
    expect(&tests, 0, &["OK"]);
}
