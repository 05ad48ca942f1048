"""What is left to ONNX Runtime and what is cut short: python failures.py LIBRARY

A model with an operator between two matrix products that the provider doesn't have, and the log that says which node
was left and why, also where nodes have no names; what errors and warnings say of an unnamed node, of a machine without
a GPU and of a model of EPContext nodes; a session that outlives the registration; a forked process; which runs the log
says are captured; and a process that is killed in the middle of a run, after which a session of another process
computes as before. Prints a line for each check, and ends with 1 if one fails.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper

from models import FAILED, NAME, Graph, check, compare, device, encoder, end, normal, ours, random_bert, reference, tokens


def interrupted():
    """An operator that no table has, between two products."""
    g = Graph()
    x = g.add("MatMul", "x", normal(6, 6))
    x = g.add("CDist", x, normal(6, 6), domain="com.microsoft", metric="euclidean")
    x = g.add("MatMul", x, normal(6, 6))
    return g.model([("x", TensorProto.FLOAT, ["rows", 6])], x, ["rows", 6])


def unnamed():
    """The model without the names of its nodes, and with an addition of which nobody knows whether the lengths agree."""
    model = ModelProto.FromString(interrupted())
    for node in model.graph.node:
        node.name = ""
    model.graph.node.add(op_type="MatMul", input=["x", model.graph.node[0].input[1]], output=["product"])
    model.graph.node.add(op_type="Add", input=["product", "other"], output=["sum"])
    model.graph.input.add().CopyFrom(helper.make_tensor_value_info("other", TensorProto.FLOAT, ["others", 6]))
    model.graph.output.add().CopyFrom(helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["sums", 6]))
    return model.SerializeToString()


def log():
    """Runs the model with the log on."""
    ort.set_default_logger_severity(1)
    session = ours(interrupted())
    session.run(None, {"x": normal(3, 6)})


def log_unnamed():
    """Makes a session of the unnamed nodes with the log on."""
    ort.set_default_logger_severity(1)
    ours(unnamed())


def devices():
    """Prints how many devices there are."""
    print(sum(device.ep_name == NAME for device in ort.get_ep_devices()))


def outlived():
    """Runs and deletes a session after the library was unregistered, when other data lies in memory that was freed."""
    session = ours(interrupted())
    ort.unregister_execution_provider_library("webgpu_compute")
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    for bytes_ in range(16, 512, 16):
        for _ in range(16):
            ctypes.memset(libc.malloc(ctypes.c_size_t(bytes_)), 0x41, bytes_)
    session.run(None, {"x": normal(3, 6)})
    del session
    print("outlived")


def forked():
    """Runs a session and makes another in a forked process, where neither computes."""
    session, feed = ours(interrupted()), {"x": normal(3, 6)}
    session.run(None, feed)
    if os.fork() == 0:
        print(why(lambda: session.run(None, feed)), why(lambda: ours(interrupted())), sep="\n", flush=True)
        os._exit(0)
    os.wait()


def replayed():
    """Runs a model with a log, of whose runs the second one is captured."""
    ort.set_default_logger_severity(1)
    session = ours(interrupted())
    for rows in (3, 3, 3):
        session.run(None, {"x": normal(rows, 6)})


def why(call):
    """The message of the error that a call ends with."""
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


def endless():
    """Runs a model until somebody kills the process."""
    session, feed = ours(encoder(random_bert(2, 32), 2, 4)), tokens(2, 16)
    while True:
        session.run(None, feed)
        print("running", flush=True)


def child(library, work, **environment):
    command = [sys.executable, __file__, library, work]
    return subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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
    check("the log names the node that was left, and why", any('"CDist_2" (CDist): the provider has no such operator' in line for line in left), left)
    check("the log has the steps of both parts", told.count("1 nodes in 1 steps: MatMul") == 2)
    _, told = child(library, "log_unnamed").communicate()
    left = [line for line in told.splitlines() if "left to ONNX Runtime" in line]
    check("the log names an unnamed node by its output", any('output "v2" (CDist): the provider has no such operator' in line for line in left), left)
    feed = {"x": normal(3, 6), "other": normal(2, 6)}
    message = why(lambda: ours(unnamed()).run(None, feed))
    check("an error names an unnamed node by its output", 'node with output "sum" (Add)' in message, message)
    count, told = child(library, "devices", COMPUTE_BACKEND="").communicate()
    check("without a GPU, a warning says how to compute elsewhere", (int(count) == 0) == ("COMPUTE_BACKEND=cpu" in told), told)
    if sys.platform != "win32":
        # Windows unloads the library.
        told, _ = child(library, "outlived").communicate()
        check("a session may outlive the library's registration", told == "outlived\n", told)
        # With 1.23.2, Python prints why it can't make a session, and makes one of the CPU provider.
        told = child(library, "forked").communicate(timeout=120)[0].splitlines()
        check("a forked process is told why it can't compute", sum("forked from" in line for line in told) == 2, told)
    options = ort.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_file_path", str(pathlib.Path(tempfile.gettempdir()) / "no_context.onnx"))
    options.add_provider_for_devices([device()], {})
    message = why(lambda: ort.InferenceSession(model, sess_options=options))
    check("a model of EPContext nodes is an error that says so", "makes no EPContext nodes" in message, message)

    log = child(library, "replayed").communicate()[1]
    check("the log tells which runs are captured", "captured: runs of [3, 6] are replayed" in log, log[-300:])

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
        {"log": log, "log_unnamed": log_unnamed, "endless": endless, "devices": devices, "outlived": outlived, "forked": forked, "replayed": replayed}[sys.argv[2]]()
        sys.stdout.flush()
        os._exit(0)
    main(library)
