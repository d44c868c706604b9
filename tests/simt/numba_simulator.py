"""Runs kernels on Numba's own CUDA simulator, in a process of its own: a request at a time, from stdin to stdout.

A request is a pickled (file name, kernel text, grid, block, arguments); the answer a pickled (arguments after the
launch, error text). Each is preceded by its length in eight bytes. Started by `Simulator` with NUMBA_ENABLE_CUDASIM=1,
which must be set before numba is imported.
"""

import math
import os
import pickle
import struct
import subprocess
import sys
import traceback


def send(stream, value):
    data = pickle.dumps(value)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def receive(stream):
    head = stream.read(8)
    if len(head) < 8:
        return None
    return pickle.loads(stream.read(struct.unpack("<q", head)[0]))


class Simulator:
    """The process, started on first use. `run` gives the arguments as the kernel left them."""

    def __init__(self):
        self.process = None

    def run(self, filename, text, grid, block, arguments):
        if self.process is None:
            environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONWARNINGS": "ignore"}
            self.process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
        send(self.process.stdin, (filename, text, grid, block, arguments))
        answer = receive(self.process.stdout)
        assert answer is not None, "Numba's simulator ended unexpectedly"
        arrays, error = answer
        assert not error, error
        return arrays

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait(timeout=600)


def serve():
    import numpy as np
    from numba import cuda

    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while (request := receive(requests)) is not None:
        filename, text, grid, block, arguments = request
        try:
            space = {"cuda": cuda, "np": np, "math": math}
            exec(compile(text, filename, "exec"), space)
            space["kernel"][grid, block](*arguments)
            send(answers, (arguments, ""))
        except Exception:
            send(answers, (None, traceback.format_exc()))


if __name__ == "__main__":
    serve()
