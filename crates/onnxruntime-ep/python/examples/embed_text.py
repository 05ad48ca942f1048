"""How alike texts are: python embed_text.py MODEL.onnx tokenizer.json TEXT TEXT…

MODEL and tokenizer.json are a sentence encoder's, such as all-MiniLM-L6-v2 as sentence-transformers exports it:
`input_ids`, `attention_mask` and perhaps `token_type_ids` in, hidden states out. Prints the cosine of the first text's
embedding with each other's. Needs the package tokenizers, and ONNX Runtime 1.25.1, as `providers=` doesn't know plugins before.
"""

import sys

import numpy as np
import onnxruntime
import webgpu_compute_onnxruntime as wgpu
from tokenizers import Tokenizer


def embed(session: onnxruntime.InferenceSession, tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """A vector of length 1 for each text: the mean of its tokens' hidden states."""
    encoded = tokenizer.encode_batch(texts)
    ids = np.array([text.ids for text in encoded], np.int64)
    mask = np.array([text.attention_mask for text in encoded], np.int64)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    names = [entry.name for entry in session.get_inputs()]
    hidden = session.run(None, {name: given[name] for name in names})[0]
    mean = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1)[:, None]
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def main(model: str, vocabulary: str, texts: list[str]) -> None:
    wgpu.register()
    # Without `enable_fallback=False`, Python would go on with the CPU provider where this one's session can't be made.
    session = onnxruntime.InferenceSession(model, providers=[wgpu.get_ep_name(), "CPUExecutionProvider"], enable_fallback=False)
    tokenizer = Tokenizer.from_file(vocabulary)
    tokenizer.enable_padding()
    tokenizer.enable_truncation(256)
    first, *others = embed(session, tokenizer, texts)
    for text, vector in zip(texts[1:], others):
        print(f"{first @ vector:.3f}  {text}")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
