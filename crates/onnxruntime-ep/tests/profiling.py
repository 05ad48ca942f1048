"""Profiles of sessions: python profiling.py LIBRARY

A model whose nodes have names is run with profiling on. From ONNX Runtime 1.25 on, the file that it writes has an event for
each step that the provider has computed; before, the profile has none and the session computes as ever. Prints a line for
each check, and ends with 1 if one fails.
"""

import json
import pathlib
import sys
import tempfile
import threading

import onnxruntime as ort
from onnx import TensorProto

from models import FAILED, NAME, Graph, check, compare, end, ints, normal, ours, reference

RUNS = 4

# The greatest time in microseconds between the two readings of clocks that join the provider's timeline to ONNX Runtime's.
GREATEST_SHIFT = 50_000


def model():
    """Two products, of which one has a bias and an activation, beside operators that move elements."""
    g = Graph()
    x = g.add("Add", g.add("MatMul", "x", normal(64, 64)), normal(64))
    x = g.add("Softmax", g.add("Relu", x), axis=-1)
    x = g.add("Reshape", g.add("Transpose", x, perm=[1, 0]), ints(-1, 64))
    x = g.add("MatMul", x, normal(64, 64))
    names = [(node.name, node.op_type) for node in g.nodes]
    return g.model([("x", TensorProto.FLOAT, [64, 64])], x, [64, 64]), names


def profiled(folder, name):
    """Options of a session that writes a profile, and leaves the graph to providers as it is."""
    settings = ort.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(pathlib.Path(folder) / name)
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return settings


def events(path):
    """The runs of a profile, and the provider's events."""
    told = json.loads(pathlib.Path(path).read_text())
    runs = sorted((event["ts"], event["ts"] + event["dur"]) for event in told if event["name"] == "model_run")
    mine = [event for event in told if event["cat"] == "Kernel" and event["args"].get("provider") == NAME]
    return runs, mine


def main(library):
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("webgpu_compute", library)
    has_profiles = tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 25)
    described, names = model()
    feed = {"x": normal(64, 64)}
    with tempfile.TemporaryDirectory() as folder:
        session = ours(described, settings=profiled(folder, "in-order"))
        for _ in range(RUNS):
            compare("a run with a profile", session, reference(described), feed)
        runs, mine = events(session.end_profiling())
        compare("a run after the profile", session, reference(described), feed)
        compare("another run after the profile", session, reference(described), feed)
        check("every run is in the profile", len(runs) == RUNS, len(runs))
        if has_profiles:
            known = {name for name, _ in names}
            check("events are called as nodes of the model", {event["name"] for event in mine} <= known, {event["name"] for event in mine} - known)
            products = [event["args"]["op_name"] for event in mine].count("MatMul")
            check("both products are there in every run", products == 2 * RUNS, products)
            steps = len(mine) // RUNS
            of_run = [mine[i * steps : (i + 1) * steps] for i in range(RUNS)]
            same = all([event["name"] for event in part] == [event["name"] for event in of_run[0]] for part in of_run)
            check("every run has the same steps", same and steps * RUNS == len(mine))
            # One shift between the clocks puts every event into its run; times are cut to microseconds.
            pairs = [(run, event) for run, part in zip(runs, of_run) for event in part]
            least = max(begin - event["ts"] for (begin, _), event in pairs)
            most = min(end - event["ts"] - event["dur"] for (_, end), event in pairs)
            check("every event lies within its run", max(least, 0) <= min(most + 2, GREATEST_SHIFT), (least, most))
            ends = [0] + [event["ts"] + event["dur"] for event in mine]
            check("events don't overlap", all(event["ts"] >= end for event, end in zip(mine, ends)))
        else:
            check("a version without profiles of providers has none", mine == [], len(mine))

        session = ours(described, settings=profiled(folder, "side-by-side"))
        threads = [threading.Thread(target=session.run, args=(None, feed)) for _ in range(RUNS)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        _, together = events(session.end_profiling())
        check("runs of several threads have as many events", len(together) == len(mine), (len(together), len(mine)))

        del session
        session = ours(described, settings=profiled(folder, "without-runs"))
        del session
        written = list(pathlib.Path(folder).glob("without-runs*"))
        check("a session that is dropped without a run writes its profile", len(written) == 1, len(written))
    end(FAILED)


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1]).resolve()))
