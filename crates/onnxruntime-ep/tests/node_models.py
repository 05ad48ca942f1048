"""ONNX's node models on the provider: what it claims must be right, and only the cases listed in claimed.txt are claimed.

    python node_models.py LIBRARY [--write] [--case TEXT] [--sample N]

Every model of `onnx.backend.test` of kind "node" is given to a session with the provider and without the fallback to
ONNX Runtime's CPU provider. A case counts as claimed if the provider computes every node of it. Outputs are compared
within ONNX's own bounds, 1e-3 relative and 1e-5 besides, integers and truth values exactly, of cases that are claimed
in part too. What ONNX Runtime can't load, run or compute right by itself counts against the provider only if all nodes
are its own.

claimed.txt has a line for each case that is claimed as a whole, and failing.txt one for each that is claimed and
differs, with the reason; --write writes them anew. Prints what differs from the lists, and ends with 1 then.
"""

import argparse
import collections
import os
import pathlib
import sys
import time
import warnings

import numpy as np
import onnx
import onnx.backend.test.loader as loader
import onnxruntime as ort

NAME = "WebGpuComputeExecutionProvider"
HERE = pathlib.Path(__file__).parent
warnings.filterwarnings("ignore")


def session(model, device, whole_only=False):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if whole_only:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices([device], {"claim": "all"})
    made = ort.InferenceSession(model, sess_options=options)
    made.disable_fallback()
    return made


def reference(model):
    """A session of ONNX Runtime's CPU provider alone."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, sess_options=options, providers=["CPUExecutionProvider"])


def share(made):
    """Which nodes are the provider's: "whole", "in part" or "not ours"."""
    parts = [part for part in made.get_provider_graph_assignment_info() if part.get_nodes()]
    ours = [part.ep_name == NAME for part in parts]
    return "whole" if ours and all(ours) else "in part" if any(ours) else "not ours"


def difference(got, expected, case):
    """What is wrong with an output, or None."""
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype} {got.shape} for {expected.dtype} {expected.shape}"
    if expected.dtype.kind != "f":
        return None if np.array_equal(got, expected) else "integers differ"
    relative, absolute = max(case.rtol, 1e-3), max(case.atol, 1e-5)
    if np.allclose(got, expected, rtol=relative, atol=absolute, equal_nan=True):
        return None
    return f"off by {np.nanmax(np.abs(got.astype('f8') - expected.astype('f8'))):.3g}"


def results(made, inputs):
    return made.run(None, {entry.name: np.asarray(value) for entry, value in zip(made.get_inputs(), inputs)})


def wrong_output(got, outputs, case):
    differences = (difference(*pair, case) for pair in zip(got, outputs))
    return next(filter(None, differences), None)


def works_without(case):
    """Whether ONNX Runtime's own provider loads the model and gives what the case expects."""
    try:
        made = reference(case.model.SerializeToString())
        return not any(wrong_output(results(made, inputs), outputs, case) for inputs, outputs in case.data_sets)
    except Exception:
        return False


def run(case, device, older):
    """What became of a case: not loadable, not ours, in part, right, or what is wrong."""
    model = case.model.SerializeToString()
    try:
        # Before 1.25, only whether a session without the CPU provider can be made tells whose the nodes are.
        made = session(model, device, whole_only=older)
    except Exception as error:
        if older and "fallback" in str(error):
            return "not ours", ""
        return "error" if works_without(case) else "not loadable", str(error).replace("\n", " ")
    found = "whole" if older else share(made)
    if found == "not ours":
        return found, ""
    for inputs, outputs in case.data_sets:
        try:
            wrong = wrong_output(results(made, inputs), outputs, case)
            verdict = "differs"
        except Exception as error:
            # Some cases hand over data that no session takes.
            wrong, verdict = str(error).replace("\n", " "), "error"
            if not works_without(case):
                return "not loadable", wrong
        if wrong and (found == "whole" or works_without(case)):
            return verdict, wrong
    return "right" if found == "whole" else found, ""


def read(name):
    path = HERE / name
    if not path.exists():
        return {}
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict((line.split(": ", 1) + [""])[:2] for line in lines)


def write(name, heading, lines):
    (HERE / name).write_text("".join(line + "\n" for line in [heading, *sorted(lines)]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--case", default="")
    parser.add_argument("--older", action="store_true", help="only run the claimed cases and look for what is wrong, as claims may differ")
    parser.add_argument("--sample", type=int, default=1, help="run every N-th of the cases")
    args = parser.parse_args()
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("webgpu_compute", str(args.library.resolve()))
    devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    if not devices:
        sys.exit("the provider offers no device: set COMPUTE_BACKEND to a software adapter's name or to cpu")
    device = devices[0]
    print(f"onnxruntime {ort.__version__}, onnx {onnx.__version__}, {dict(device.ep_metadata)}")
    claimed, failing = read("claimed.txt"), read("failing.txt")
    counts, new_claims, new_failures, problems = collections.Counter(), [], [], []
    start = time.time()
    cases = [case for case in loader.load_model_tests(kind="node") if args.case in case.name]
    if args.older:
        cases = [case for case in cases if case.name in claimed]
    for case in cases[:: args.sample]:
        verdict, why = run(case, device, args.older)
        counts[verdict] += 1
        if args.case:
            print(case.name, verdict, why)
        if verdict == "right":
            new_claims.append(case.name)
            if case.name not in claimed and not args.older:
                problems.append(f"{case.name} is right, but isn't in claimed.txt")
        elif verdict in ("error", "differs"):
            new_failures.append(f"{case.name}: {why[:150]}")
            if case.name not in failing:
                problems.append(f"{case.name}: {verdict}: {why}")
        elif case.name in claimed and not args.older:
            problems.append(f"{case.name} is in claimed.txt, but is {verdict} now: {why[:150]}")
    print(f"{dict(counts)} in {time.time() - start:.1f} s")
    loadable = counts.total() - counts["not loadable"]
    if args.older and counts["right"] < 0.9 * loadable:
        problems.append(f"only {counts['right']} of {loadable} claimed cases are computed as a whole")
    if args.write:
        write("claimed.txt", "# Cases that the provider computes as a whole, and right.", new_claims)
        write("failing.txt", "# Cases that the provider claims and that fail, with the reason.", new_failures)
        return
    if args.case:
        return
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # Drivers' threads are not waited for.
    os._exit(0)
