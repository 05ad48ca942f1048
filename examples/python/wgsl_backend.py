"""WGSL kernels from Python: what a kernel optimiser needs to register a backend called "wgsl".

It has no dependencies. The work is done by the command `kernel-lab` of this repository
(`cargo build --release --package kernel-lab`), which is found through the environment variable KERNEL_LAB, on the PATH,
or in target/ of the repository that this file lies in.

    backend = WGSLBackend()
    specs = backend.get_device_specs()
    ok, message = backend.validate_kernel(code)
    result = backend.profile_kernel(
        code,
        bindings=[Buffer("f32", (1024,), "random"), Buffer("f32", (1024,), "zeros", output=True)],
        params={"n": 1024},
        threads=(1024,),
    )
    print(result["median"] if result["ok"] else result["error"]["reason"])
"""

import array
import json
import math
import operator
import os
import pathlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass

_TYPE_CODES = {"f32": "f", "i32": "i", "u32": "I"}

# Of the struct module, as buffers have them: "l" has 4 bytes where the system's long has.
_LONG = array.array("l").itemsize == 4
_FORMATS = {
    "f32": ("f",),
    "f16": ("e",),
    "i32": ("i", "l") if _LONG else ("i",),
    "u32": ("I", "L") if _LONG else ("I",),
}


class KernelLabError(RuntimeError):
    """The command can't be found, it says something that isn't JSON, there is no such device, or `validate_kernel` was
    called with arguments that the command can't use."""


@dataclass
class Buffer:
    """A buffer of a launch.

    `dtype` is "f32", "f16", "i32" or "u32", `shape` a sequence of sizes or one size. `content` is "zeros", "ones",
    "iota", "random", "normal", a number for all elements, or the elements: bytes in the machine's order, anything with a buffer of this type, such as a NumPy array
    (`x.astype(numpy.float32)`; its default is float64), or a sequence of numbers (not of f16).
    """

    dtype: str
    shape: tuple
    content: object = "zeros"
    output: bool = False

    def __post_init__(self):
        self.shape = _sizes("shape", self.shape)


class WGSLBackend:
    """Device specs, validation and profiles of WGSL kernels on one device."""

    name = "wgsl"

    def __init__(self, device="", command=None, timeout=60.0):
        """`device` is an index, a part of a name, an interface such as "vulkan", or nothing for the best device.
        `timeout` bounds each run of the command, in seconds."""
        self.device = device
        self.command = str(command or _find_command())
        self.timeout = timeout

    def get_device_specs(self) -> dict:
        """Every limit and feature of the device, subgroup sizes, cooperative matrices, and what built-in operations use.

        Raises KernelLabError where there is no such device."""
        specs = self._run(["specs", "--device", self.device, "--timeout", str(self.timeout)])
        if specs.get("ok") is False:
            raise KernelLabError(specs["error"]["reason"])
        return specs

    def validate_kernel(self, code, entry_point=None, constants=None, allow_non_uniform=False) -> tuple:
        """Compiles a kernel for the device: whether it is right, and the bindings or what is wrong with the line.

        A kernel over which the driver crashes is wrong too. `allow_non_uniform` takes barriers that some invocations may
        not reach. Raises KernelLabError where there is no such device, and for arguments that the command can't use, and
        TimeoutError where there is no answer within the timeout: neither is said to be the kernel's fault."""
        arguments = ["validate", "-", "--device", self.device, "--timeout", str(self.timeout)]
        result = self._run([*arguments, *_kernel_arguments(entry_point, constants, allow_non_uniform)], code)
        if not result["ok"]:
            error = result["error"]
            if error["kind"] in ("no_device", "usage"):
                raise KernelLabError(error["reason"])
            if error["kind"] == "timeout":
                raise TimeoutError(error["reason"])
            return False, error.get("text") or error["reason"]
        bindings = ", ".join(f"{b['name']}: {b['access']} {b['type']}" for b in result["bindings"])
        return True, f"`{result['entry_point']}` is right; bindings: {bindings}"

    def run_kernel(self, code, bindings, **launch) -> dict:
        """Launches a kernel once. The result's "outputs" are the bytes of each `output` buffer, by its index in
        `bindings`, and "seconds" the time of this one launch, which is no measurement; the other arguments are those of
        `profile_kernel`, without its counts."""
        return self._launch("run", code, bindings, **launch)

    def profile_kernel(
        self, code, bindings, bytes=None, flops=None, warm_up=0.3, samples=50, max_time=5.0, **launch
    ) -> dict:
        """Measures a launch.

        `bindings` are Buffers in the kernel's order, by group and binding. The launch takes `params` (a dict by field
        name, or bytes), `grid` in workgroups or `threads` in invocations (a number, or up to three), `expected` (a dict of
        all elements of buffers after the first launch, by index in `bindings`, within `atol + rtol * |expected|`, which
        are 1e-5 and 1e-3 unless given), `entry_point`, `constants` and `allow_non_uniform`. `bytes` and `flops` are
        counts of a launch, for "gb_per_s" and "gflop_per_s". `warm_up` and `max_time`, of which the first isn't measured, are seconds.

        The result has "ok", and where that is false an "error" with its "kind" and "reason". A kernel that is refused
        also has the "line", the "column" and a "text" with the source line there. One that runs has "median", "p10" and
        "p90" in seconds, "clock" ("device" or "host"), "comparisons" and "kernel", also where the error's kind is
        "mismatch": results were wrong, so that its times mean nothing."""
        options = ["--warm-up", str(warm_up), "--samples", str(samples), "--max-time", str(max_time)]
        for name, count in (("--bytes", bytes), ("--flops", flops)):
            options += [] if count is None else [name, str(count)]
        return self._launch("profile", code, bindings, options, **launch)

    def _launch(
        self,
        what,
        code,
        bindings,
        options=(),
        params=None,
        grid=None,
        threads=None,
        expected=None,
        atol=1e-5,
        rtol=1e-3,
        entry_point=None,
        constants=None,
        allow_non_uniform=False,
        seed=0,
    ):
        with tempfile.TemporaryDirectory(prefix="wgsl-") as folder:
            folder = pathlib.Path(folder)
            arguments = [what, "-", "--device", self.device, "--timeout", str(self.timeout), "--seed", str(seed)]
            arguments += [*_kernel_arguments(entry_point, constants, allow_non_uniform), *options]
            saved = {}
            for index, buffer in enumerate(bindings):
                arguments += ["--bind", _spec(buffer, folder / f"{index}.in")]
                if what == "run" and buffer.output:
                    saved[index] = folder / f"{index}.out"
                    arguments += ["--save", f"{index}={saved[index]}"]
            for index, content in _by_index(expected, len(bindings)).items():
                path = folder / f"{index}.expected"
                path.write_bytes(_elements(content, bindings[index].dtype))
                arguments += ["--expect", f"{index}={path}", "--atol", str(atol), "--rtol", str(rtol)]
            if isinstance(params, dict):
                arguments += ["--params", ",".join(f"{name}={_number(value)}" for name, value in params.items())]
            elif params is not None:
                (folder / "params").write_bytes(params)
                arguments += ["--params", f"@{folder / 'params'}"]
            for name, sizes in (("--grid", grid), ("--threads", threads)):
                arguments += [] if sizes is None else [name, ",".join(map(str, _sizes(name[2:], sizes)))]
            result = self._run(arguments, code)
            # A mismatch is an error of a kernel that ran.
            if what == "run" and "outputs" in result:
                result["outputs"] = {index: path.read_bytes() for index, path in saved.items()}
            return result

    def _run(self, arguments, code=None) -> dict:
        try:
            # The command ends by itself after its timeout.
            done = subprocess.run(
                [self.command, *arguments, "--json"],
                # Without a text the command would read that of this process.
                input=code or "",
                capture_output=True,
                encoding="utf-8",
                timeout=self.timeout + 30,
            )
        except OSError as error:
            raise KernelLabError(f"can't run {self.command}: {error}") from error
        except subprocess.TimeoutExpired:
            return {"ok": False, "error": {"kind": "timeout", "reason": f"no end within {self.timeout} s"}}
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError as error:
            said = done.stderr.strip() or f"it ended with {done.returncode}"
            raise KernelLabError(f"{self.command} {' '.join(arguments)}: {said}") from error


def _find_command():
    named = os.environ.get("KERNEL_LAB") or shutil.which("kernel-lab")
    if named:
        return named
    target = pathlib.Path(__file__).resolve().parents[2] / "target"
    for profile in ("release", "debug"):
        for name in ("kernel-lab", "kernel-lab.exe"):
            if (target / profile / name).is_file():
                return target / profile / name
    raise KernelLabError(
        "there is no kernel-lab: build it by `cargo build --release --package kernel-lab`, and set KERNEL_LAB to the "
        "program or put it on the PATH"
    )


def _kernel_arguments(entry_point, constants, allow_non_uniform):
    arguments = [] if entry_point is None else ["--entry", entry_point]
    arguments += ["--allow-non-uniform"] if allow_non_uniform else []
    for name, value in (constants or {}).items():
        arguments += ["--const", f"{name}={float(value)}"]
    return arguments


def _sizes(name, sizes):
    # NumPy's integers have an index too, and its arrays of sizes are iterable.
    try:
        return (operator.index(sizes),)
    except TypeError:
        pass
    try:
        return tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise TypeError(f"{name} is {sizes!r}: it has to be an integer or a sequence of them") from None


def _by_index(expected, count):
    if expected is not None and not isinstance(expected, dict):
        raise TypeError(f"expected is {type(expected).__name__}: it has to be a dict from a buffer's index to its elements")
    for index in expected or {}:
        if index not in range(count):
            raise ValueError(f"expected has {index!r}: its keys are indices in bindings, of which there are {count}")
    return expected or {}


def _spec(buffer, path):
    shape = "x".join(str(size) for size in buffer.shape)
    content = buffer.content
    # A number of NumPy's, which isn't Python's.
    if getattr(content, "shape", None) == ():
        content = content.tolist()
    if isinstance(content, (int, float)):
        content = repr(float(content))
    elif not isinstance(content, str):
        path.write_bytes(_elements(content, buffer.dtype))
        content = f"@{path}"
    return f"{buffer.dtype}:{shape}:{content}{':out' if buffer.output else ''}"


def _elements(content, dtype):
    if isinstance(content, (list, tuple)):
        if dtype not in _TYPE_CODES:
            raise ValueError(f"elements of {dtype} have to be given as bytes")
        return array.array(_TYPE_CODES[dtype], content).tobytes()
    view = memoryview(content)
    # Bytes may hold any type; numbers of another one would be taken for their bits.
    if view.format not in ("B", "b", "c") and view.format.lstrip("@=<") not in _FORMATS[dtype]:
        raise ValueError(f"elements of {dtype} were given as {view.format!r} of {view.itemsize} bytes: convert them first")
    return view.tobytes()


def _number(value):
    # A number or an array of NumPy's, whose text may have its type.
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)):
        return ";".join(_number(element) for element in value)
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")
    return repr(value)
