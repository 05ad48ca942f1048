"""Times of the provider beside ONNX Runtime's CPU provider: COMPUTE_BACKEND=… python speed.py LIBRARY MINILM

MINILM is the folder of all-MiniLM-L6-v2; the other models have random weights. run() with host arrays, warmed up for a
second, in turns, median in ms. Prints a line of a Markdown table for each model.
"""

import os
import pathlib
import statistics
import sys
import time

import onnxruntime as ort

from architectures import floats, resnet, whisper_encoder
from models import device, encoder, ours, reference, safetensors, tokens

WARM_UP, SECONDS, FEWEST = 1.0, 3.0, 5


def seconds(session, feed):
    start = time.perf_counter()
    session.run(None, feed)
    return time.perf_counter() - start


def medians(sessions, feed):
    """Of each session, in turns, so that both see the machine's other work."""
    firsts = [seconds(session, feed) for session in sessions]
    for session in sessions:
        end = time.perf_counter() + WARM_UP
        while time.perf_counter() < end:
            session.run(None, feed)
    samples = [[] for _ in sessions]
    end = time.perf_counter() + SECONDS * len(sessions)
    while time.perf_counter() < end or len(samples[0]) < FEWEST:
        for session, found in zip(sessions, samples):
            found.append(seconds(session, feed))
    return [1e3 * statistics.median(found) for found in samples], firsts


def main(library, minilm):
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("webgpu_compute", library)
    print(f"onnxruntime {ort.__version__}, {dict(device().ep_metadata)}, {os.cpu_count()} cores\n")
    bert = encoder(safetensors(minilm / "model.safetensors"), 6, 12)
    cases = [
        ("MiniLM, 1 × 16 tokens", bert, tokens(1, 16, 30000)),
        ("MiniLM, 8 × 64 tokens", bert, tokens(8, 64, 30000)),
        ("two stages of ResNet-50, 2 images of 64 × 64", resnet(64), {"x": floats(2, 3, 64, 64)}),
        ("two layers of Whisper tiny's encoder, 750 positions", whisper_encoder(384, 6, 1500), {"x": floats(1, 20, 1500)}),
    ]
    print("| model | this provider, ms | CPU provider, ms | ratio | first run, s |\n|---|---|---|---|---|")
    for name, model, feed in cases:
        (mine, cpu), (first, _) = medians([ours(model), reference(model)], feed)
        print(f"| {name} | {mine:.2f} | {cpu:.2f} | {mine / cpu:.1f} | {first:.2f} |", flush=True)
    sys.stdout.flush()
    # Drivers' threads are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]))
