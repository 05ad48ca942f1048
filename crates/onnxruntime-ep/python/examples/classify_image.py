"""The five likeliest classes of an image: python classify_image.py MODEL.onnx IMAGE.npy

MODEL takes float32 [1, 3, height, width] and gives scores [1, classes]; IMAGE.npy holds the image as it takes it.
It needs ONNX Runtime 1.25.1, as `providers=` doesn't know plugins before.
"""

import sys

import numpy as np
import onnxruntime
import webgpu_compute_onnxruntime as wgpu

if len(sys.argv) != 3:
    raise SystemExit(__doc__)
wgpu.register()
# Without `enable_fallback=False`, Python would go on with the CPU provider where this one's session can't be made.
session = onnxruntime.InferenceSession(sys.argv[1], providers=[wgpu.get_ep_name(), "CPUExecutionProvider"], enable_fallback=False)
scores = session.run(None, {session.get_inputs()[0].name: np.load(sys.argv[2]).astype(np.float32)})[0][0]
for place in np.argsort(-scores)[:5]:
    print(f"class {place}: {scores[place]:.3f}")
