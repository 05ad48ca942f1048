"""The five likeliest classes of an image: python classify_image.py MODEL.onnx IMAGE.npy

MODEL takes float32 [1, 3, height, width] and gives scores [1, classes]; IMAGE.npy holds the image as it takes it.
"""

import sys

import numpy as np
import onnxruntime
import webgpu_compute_onnxruntime as wgpu

wgpu.register()
session = onnxruntime.InferenceSession(sys.argv[1], providers=[wgpu.get_ep_name(), "CPUExecutionProvider"])
scores = session.run(None, {session.get_inputs()[0].name: np.load(sys.argv[2]).astype(np.float32)})[0][0]
for place in np.argsort(-scores)[:5]:
    print(f"class {place}: {scores[place]:.3f}")
