"""Tests of wgsl_backend on whatever device there is: `python3 -m unittest discover examples/python`."""

import array
import json
import os
import pathlib
import struct
import sys
import tempfile
import unittest

from wgsl_backend import Buffer, KernelLabError, WGSLBackend

AXPY = """
struct Params { n: u32, alpha: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.n { y[id.x] += params.alpha * x[id.x]; }
}
"""

ENDLESS = """
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main() { loop { x[1] += 1u; if x[0] == 7u { break; } } }
"""


class WGSLBackendTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.backend = WGSLBackend()

    def axpy(self, what, n=1000, **more):
        bindings = [Buffer("f32", (n,), "iota"), Buffer("f32", (n,), 1.0, output=True)]
        return what(AXPY, bindings, params={"n": n, "alpha": 0.5}, threads=(n,), **more)

    def test_specs(self):
        specs = self.backend.get_device_specs()
        self.assertTrue(specs["name"])
        self.assertGreaterEqual(specs["limits"]["max_compute_invocations_per_workgroup"], 128)
        self.assertTrue(specs["built_in"])

    def test_a_device_that_is_not_there(self):
        backend = WGSLBackend(device="no such device")
        with self.assertRaises(KernelLabError):
            backend.get_device_specs()
        # Not a kernel that is wrong.
        with self.assertRaisesRegex(KernelLabError, "no adapter found"):
            backend.validate_kernel(AXPY)
        result = self.axpy(backend.run_kernel)
        self.assertEqual((result["ok"], result["error"]["kind"]), (False, "no_device"))

    @unittest.skipIf(os.name == "nt", "a script with #! stands for the command")
    def test_a_driver_that_crashes(self):
        said = {"ok": False, "error": {"kind": "device", "reason": "the driver ended the process: signal 11"}}
        with tempfile.TemporaryDirectory() as folder:
            crashing = pathlib.Path(folder) / "kernel-lab"
            crashing.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(said))})")
            crashing.chmod(0o755)
            result = WGSLBackend(command=crashing).validate_kernel(AXPY)
        self.assertEqual(result, (False, said["error"]["reason"]))

    def test_a_right_kernel(self):
        ok, message = self.backend.validate_kernel(AXPY)
        self.assertTrue(ok, message)
        self.assertIn("y: read_write array<f32>", message)

    def test_a_wrong_kernel_and_its_line(self):
        ok, message = self.backend.validate_kernel(AXPY.replace("params.alpha", "params.beta"))
        self.assertFalse(ok)
        self.assertIn("beta", message)
        self.assertIn("line 7", message)
        self.assertIn("^^^^", message)

    def test_a_run(self):
        result = self.axpy(self.backend.run_kernel)
        self.assertTrue(result["ok"], result)
        found = struct.unpack("=1000f", result["outputs"][1])
        self.assertEqual(list(found), [1 + 0.5 * i for i in range(1000)])

    def test_a_profile(self):
        counts = {"bytes": 12 * 1000, "flops": 2 * 1000, "warm_up": 0.05, "samples": 5}
        right = [1 + 0.5 * i for i in range(1000)]
        result = self.axpy(self.backend.profile_kernel, expected={1: right}, **counts)
        self.assertTrue(result["ok"], result)
        self.assertIn(result["clock"], ("device", "host"))
        self.assertLessEqual(result["p10"], result["median"])
        self.assertLessEqual(result["median"], result["p90"])
        self.assertEqual(result["kernel"]["workgroup_size"], [64, 1, 1])

        wrong = right[:500] + [-1.0] + right[501:]
        result = self.axpy(self.backend.profile_kernel, expected={1: wrong}, **counts)
        self.assertFalse(result["ok"])
        self.assertEqual(result["error"]["kind"], "mismatch")
        self.assertIn("buffer 1: 1 of 1000 elements are wrong", result["error"]["reason"])
        self.assertIn("median", result)
        comparison = result["comparisons"][0]
        self.assertEqual((comparison["index"], comparison["wrong"], comparison["worst_index"]), (1, 1, 500))

    def test_a_run_with_wrong_results_has_its_outputs(self):
        result = self.axpy(self.backend.run_kernel, n=4, expected={1: [0.0] * 4})
        self.assertEqual((result["ok"], result["error"]["kind"]), (False, "mismatch"))
        self.assertEqual(struct.unpack("=4f", result["outputs"][1]), (1.0, 1.5, 2.0, 2.5))

    def test_a_reference_is_whole(self):
        for short in ([], [1.0] * 3, [1.0] * 5):
            result = self.axpy(self.backend.run_kernel, n=4, expected={1: short})
            self.assertEqual((result["ok"], result["error"]["kind"]), (False, "usage"))
            self.assertIn("buffer 1 has 16", result["error"]["reason"])

    def test_numbers_of_another_type(self):
        for wrong in (array.array("d", [0.0] * 4), array.array("d", [0.0] * 2), array.array("i", [0] * 4)):
            with self.assertRaisesRegex(ValueError, "elements of f32 were given as"):
                self.axpy(self.backend.run_kernel, n=4, expected={1: wrong})
        right = array.array("f", [1.0, 1.5, 2.0, 2.5])
        for same in (right, right.tobytes(), memoryview(right)):
            self.assertTrue(self.axpy(self.backend.run_kernel, n=4, expected={1: same})["ok"])

    def test_numbers_of_numpy(self):
        # Their texts have their types.
        class Number:
            shape = ()

            def __init__(self, value):
                self.value = value

            def tolist(self):
                return self.value

        bindings = [Buffer("f32", (4,), Number(2.0)), Buffer("f32", (4,), Number(1))]
        params = {"n": Number(4), "alpha": Number(0.5)}
        result = self.backend.run_kernel(AXPY, bindings, params=params, threads=(4,), expected={1: [2.0] * 4})
        self.assertTrue(result["ok"], result)
        code = AXPY.replace("alpha: f32", "alpha: vec2<f32>").replace("params.alpha", "params.alpha.y")
        result = self.backend.run_kernel(
            code, bindings, params={"n": True, "alpha": Number([3.0, 0.5])}, threads=(4,), expected={1: [2.0, 1, 1, 1]}
        )
        self.assertTrue(result["ok"], result)

    def test_no_text(self):
        self.assertFalse(WGSLBackend(timeout=20.0).validate_kernel(None)[0])

    def test_barriers_that_some_may_not_reach(self):
        code = AXPY.replace("if id.x <", "if id.y == 0u { workgroupBarrier(); }\n    if id.x <")
        self.assertFalse(self.backend.validate_kernel(code)[0])
        self.assertTrue(self.backend.validate_kernel(code, allow_non_uniform=True)[0])

    def test_what_is_wrong_is_told(self):
        result = self.backend.profile_kernel("fn", [], grid=(1,))
        self.assertEqual((result["ok"], result["error"]["kind"], result["error"]["line"]), (False, "wgsl", 1))
        result = self.backend.profile_kernel(AXPY, [Buffer("f32", (4,))], params={"n": 4, "alpha": 1}, grid=(1,))
        self.assertEqual(result["error"]["kind"], "usage")
        self.assertIn("y (read_write array<f32>)", result["error"]["reason"])
        # What the command line itself refuses.
        result = self.axpy(self.backend.run_kernel, grid=(0,))
        self.assertEqual((result["ok"], result["error"]["kind"]), (False, "usage"))

    def test_sizes(self):
        for shape in (4, (4,), [2, 2]):
            bindings = [Buffer("f32", 4, "iota"), Buffer("f32", shape, 1.0, output=True)]
            for launch in ({"threads": 4}, {"grid": 1}, {"grid": [1]}):
                result = self.backend.run_kernel(AXPY, bindings, params={"n": 4, "alpha": 0.5}, **launch)
                self.assertEqual(struct.unpack("=4f", result["outputs"][1]), (1.0, 1.5, 2.0, 2.5))
        for sizes in (1.5, (2, 0.5), None):
            with self.assertRaisesRegex(TypeError, "shape is .*: it has to be an integer or a sequence"):
                Buffer("f32", sizes)
        with self.assertRaisesRegex(TypeError, "grid is 1.5"):
            self.backend.run_kernel(AXPY, [], grid=1.5)

    def test_keys_of_references(self):
        for key in ("y", 2, -1):
            with self.assertRaisesRegex(ValueError, "keys are indices in bindings, of which there are 2"):
                self.axpy(self.backend.run_kernel, n=4, expected={key: [0.0] * 4})
        with self.assertRaisesRegex(TypeError, "has to be a dict"):
            self.axpy(self.backend.run_kernel, n=4, expected=[[0.0] * 4])

    def test_no_answer_is_no_refusal(self):
        with self.assertRaisesRegex(TimeoutError, "no end within 0"):
            WGSLBackend(timeout=0).validate_kernel(AXPY)

    def test_an_endless_kernel_ends(self):
        # Hanging a GPU on purpose isn't for a test.
        if self.backend.get_device_specs()["kind"] != "SoftwareAdapter":
            self.skipTest("not a software adapter")
        backend = WGSLBackend(timeout=3.0)
        result = backend.run_kernel(ENDLESS, [Buffer("u32", (2,))], grid=(65535, 65535))
        self.assertEqual((result["ok"], result["error"]["kind"]), (False, "timeout"))


if __name__ == "__main__":
    unittest.main()
