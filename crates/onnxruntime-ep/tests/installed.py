"""The installed wheel as a new user has it: python installed.py FOLDER

Executes the first Python lines of the wheel's own description in FOLDER, where model.onnx lies, in an environment that
has nothing but the wheel, ONNX Runtime and NumPy; then runs the session. `--make` writes that model, for which the
package onnx is needed. Ends with 1 if the provider isn't there or differs from ONNX Runtime's CPU provider.
"""

import importlib.metadata
import os
import pathlib
import re
import sys

import numpy as np
import onnxruntime as ort

PACKAGE = "webgpu_compute_onnxruntime"


def make(folder):
    from models import network

    (folder / "model.onnx").write_bytes(network())


def main(folder):
    os.chdir(folder)
    description = importlib.metadata.metadata(PACKAGE).get_payload()
    lines = re.search(r"```python\n(.*?)```", description, re.DOTALL).group(1)
    print(lines)
    names = {}
    exec(lines, names)
    session, wgpu = names["session"], names["wgpu"]
    assert pathlib.Path(wgpu.get_library_path()).parent == pathlib.Path(wgpu.__file__).resolve().parent, "not the wheel's library"
    assert wgpu.devices(), "no device"
    assert session.get_providers()[0] == wgpu.get_ep_name(), session.get_providers()
    session.disable_fallback()
    feed = {"x": np.random.default_rng(3).standard_normal((2, 3, 32, 32)).astype("f")}
    expected = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"]).run(None, feed)[0]
    got = session.run(None, feed)[0]
    error = np.abs(got - expected).max() / np.abs(expected).max()
    print(f"on {wgpu.devices()[0].ep_metadata['name']}: off by {error:.1e}")
    assert error < 1e-4, error
    value = ort.OrtValue.ortvalue_from_numpy(feed["x"], "gpu", 0, wgpu.VENDOR_ID)
    place = ort.OrtValue.ortvalue_from_shape_and_type(got.shape, np.float32, "gpu", 0, wgpu.VENDOR_ID)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, place)
    session.run_with_iobinding(binding)
    assert np.array_equal(place.numpy(), got), "bound to device memory"
    # A second registration does nothing.
    wgpu.register()
    # Versions before 1.23 have no plugins.
    del ort.get_ep_devices
    try:
        wgpu.register()
    except RuntimeError as error:
        assert "1.23.2 or newer" in str(error), error
    else:
        raise AssertionError("an older ONNX Runtime isn't refused")


if __name__ == "__main__":
    if sys.argv[1] == "--make":
        make(pathlib.Path(sys.argv[2]))
    else:
        main(sys.argv[1])
        sys.stdout.flush()
        # Drivers' threads are not waited for.
        os._exit(0)
