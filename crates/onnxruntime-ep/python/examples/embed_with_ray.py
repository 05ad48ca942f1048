"""Embeds a corpus on the machines of a Ray cluster, one session for each actor.

    pip install ray pandas pyarrow    # besides onnxruntime and webgpu_compute_onnxruntime
    python embed_with_ray.py MODEL.onnx IDS.parquet OUT

MODEL takes `input_ids` and `attention_mask` and gives hidden states, as all-MiniLM-L6-v2 does; IDS has columns of the
same names, padded to one length. Ray counts NVIDIA GPUs: each has an actor. Without them there are two actors in all, or
one where Ray has fewer than four CPUs, each on the first device of its machine, which COMPUTE_BACKEND chooses.
"""

import sys

import numpy as np
import ray
from ray.data import ActorPoolStrategy


def device_of_actor(gpus: list, devices: list):
    """The device of the GPU that Ray gave to this actor: the actors of a machine have different ones."""
    if not devices:
        raise RuntimeError("this machine has no GPU: COMPUTE_BACKEND=webgpu:vulkan or COMPUTE_BACKEND=cpu computes without")
    return devices[int(gpus[0]) % len(devices)] if gpus else devices[0]


class Embedder:
    """A session of the provider."""

    def __init__(self, model: str):
        import onnxruntime
        import webgpu_compute_onnxruntime as wgpu

        # Libraries are registered by process, so by each actor.
        wgpu.register()
        options = onnxruntime.SessionOptions()
        options.add_provider_for_devices([device_of_actor(ray.get_gpu_ids(), wgpu.devices())], {})
        self.session = onnxruntime.InferenceSession(model, sess_options=options)
        # Without this, a failed run would print its error, and the session would go on with the CPU provider.
        self.session.disable_fallback()

    def __call__(self, batch: dict) -> dict:
        feed = {name: np.stack(batch[name]).astype(np.int64) for name in ("input_ids", "attention_mask")}
        hidden = self.session.run(None, feed)[0]
        mask = feed["attention_mask"][:, :, None]
        mean = (hidden * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)
        return {"embedding": mean / np.linalg.norm(mean, axis=1, keepdims=True)}


def main(model: str, corpus: str, out: str) -> None:
    ray.init()
    # One actor for each GPU; without GPUs two in all, or one: actors that take all CPUs would leave none for reading and
    # writing, and the job would wait for ever.
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0))
    actors = ActorPoolStrategy(size=gpus or (2 if resources.get("CPU", 1) >= 4 else 1))
    # Batches of one size have shapes that repeat, which the provider replays.
    embeddings = ray.data.read_parquet(corpus).map_batches(
        Embedder, fn_constructor_args=(model,), batch_size=64, compute=actors, num_gpus=1 if gpus else 0
    )
    embeddings.write_parquet(out)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:4])
