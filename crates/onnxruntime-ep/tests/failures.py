"""What is left to ONNX Runtime and what is cut short: python failures.py LIBRARY

A model with an operator between two matrix products that the provider doesn't have, and the log that says which node was
left and why; and a process that is killed in the middle of a run, after which a session of another process computes as
before. Prints a line for each check, and ends with 1 if one fails.
"""

import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto

from models import FAILED, NAME, Graph, check, compare, encoder, end, normal, ours, random_bert, reference, tokens


def interrupted():
    """An operator that no table has, between two products."""
    g = Graph()
    x = g.add("MatMul", "x", normal(6, 6))
    x = g.add("CDist", x, normal(6, 6), domain="com.microsoft", metric="euclidean")
    x = g.add("MatMul", x, normal(6, 6))
    return g.model([("x", TensorProto.FLOAT, ["rows", 6])], x, ["rows", 6])


def log():
    """Runs the model with the log on."""
    ort.set_default_logger_severity(1)
    session = ours(interrupted())
    session.run(None, {"x": normal(3, 6)})


def endless():
    """Runs a model until somebody kills the process."""
    session, feed = ours(encoder(random_bert(2, 32), 2, 4)), tokens(2, 16)
    while True:
        session.run(None, feed)
        print("running", flush=True)


def child(library, work):
    command = [sys.executable, __file__, library, work]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def main(library):
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("webgpu_compute", library)
    model, feed = interrupted(), {"x": normal(3, 6)}
    session = ours(model)
    compare("an operator that the provider doesn't have, between two that it has", session, reference(model), feed)
    if hasattr(session, "get_provider_graph_assignment_info"):
        parts = session.get_provider_graph_assignment_info()
        mine = sorted(len(part.get_nodes()) for part in parts if part.ep_name == NAME)
        others = [node.op_type for part in parts if part.ep_name != NAME for node in part.get_nodes()]
        check("two parts are the provider's", mine == [1, 1] and others == ["CDist"], (mine, others))
    _, told = child(library, "log").communicate()
    left = [line for line in told.splitlines() if "left to ONNX Runtime" in line]
    check("the log names the node that was left, and why", any("CDist_2 (CDist): no operation" in line for line in left), left)
    check("the log has the steps of both parts", told.count("1 nodes in 1 steps: MatMul") == 2)

    model, feed = encoder(random_bert(2, 32), 2, 4), tokens(2, 16)
    for attempt in range(3):
        running = child(library, "endless")
        for _ in range(attempt + 1):
            running.stdout.readline()
        time.sleep(0.003 * attempt)
        was_running = running.poll() is None
        running.kill()
        running.wait()
        check("a process was killed in the middle of a run", was_running)
        compare("a session after another process was killed", ours(model), reference(model), feed)
    end(FAILED)


if __name__ == "__main__":
    library = str(pathlib.Path(sys.argv[1]).resolve())
    if len(sys.argv) > 2:
        ort.register_execution_provider_library("webgpu_compute", library)
        {"log": log, "endless": endless}[sys.argv[2]]()
        sys.stdout.flush()
        os._exit(0)
    main(library)
