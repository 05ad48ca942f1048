"""webgpu-compute for ONNX Runtime: models on every GPU with a Vulkan, Metal, DirectX 12 or OpenGL driver.

    import onnxruntime, webgpu_compute_onnxruntime as wgpu
    wgpu.register()
    session = onnxruntime.InferenceSession("model.onnx", providers=[wgpu.get_ep_name()])
"""

import pathlib
import sys

__all__ = ["VENDOR_ID", "devices", "get_ep_name", "get_ep_names", "get_library_path", "register", "unregister"]

VENDOR_ID = 0x5747
"""The vendor of the devices' memory, for `onnxruntime.OrtValue`s there."""

_NAME = "WebGpuComputeExecutionProvider"
_REGISTRATION = "webgpu_compute"


def get_ep_name() -> str:
    """The provider's name, as sessions take it."""
    return _NAME


def get_ep_names() -> list[str]:
    """The names of the providers in the library: there is one."""
    return [_NAME]


def get_library_path() -> str:
    """The absolute path of the library that ONNX Runtime loads."""
    name = {"win32": "webgpu_compute_onnxruntime.dll", "darwin": "libwebgpu_compute_onnxruntime.dylib"}
    return str(pathlib.Path(__file__).resolve().parent / name.get(sys.platform, "libwebgpu_compute_onnxruntime.so"))


def register() -> None:
    """Registers the library with ONNX Runtime; does nothing the second time. Without a device, a warning is logged."""
    import onnxruntime

    if not hasattr(onnxruntime, "get_ep_devices"):
        raise RuntimeError(f"{__name__} needs ONNX Runtime 1.23.2 or newer, not {onnxruntime.__version__}")
    if not devices():
        try:
            onnxruntime.register_execution_provider_library(_REGISTRATION, get_library_path())
        except Exception as error:
            if "already registered" not in str(error):
                raise


def unregister() -> None:
    """Unregisters the library. Sessions that there are go on; values on its devices can be read no more."""
    import onnxruntime

    onnxruntime.unregister_execution_provider_library(_REGISTRATION)


def devices() -> list:
    """The provider's devices, `onnxruntime.OrtEpDevice`s: `ep_metadata` has the selector, name, interface and driver.

    Empty before `register()`, and where there is no GPU. The CPU and software adapters are listed only if the
    environment variable COMPUTE_BACKEND names one, such as "cpu" or "webgpu:vulkan".
    """
    import onnxruntime

    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == _NAME]
