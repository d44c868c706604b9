"""Benches that a worker process can make: what candidates can do to their process, without a GPU."""

import os
import signal
import time

import numpy as np

from dwlab.tuning.race import Out


class Plain:
    """Times by arithmetic: 10 µs and `cost` more."""

    def judge(self, candidate):
        if candidate.get("wrong"):
            raise Out("incorrect", "y[3] is 1.0, 2.0 is right")

    def time_us(self, candidate):
        does = candidate.get("does", "")
        if does == "hang":
            time.sleep(60)
        elif does == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif does == "leave":
            os._exit(3)
        elif does == "memory":
            raise MemoryError("of 80 GiB")
        elif does == "raise":
            raise ZeroDivisionError("division by zero")
        elif does == "context":
            raise CudaAPIError("[700] Call to cuEventSynchronize results in CUDA_ERROR_ILLEGAL_ADDRESS")
        return 10.0 + candidate["cost"]

    def resources(self, candidate):
        return {"registers": 32.0}


class CudaAPIError(Exception):
    """As numba-cuda's."""


def broken():
    raise RuntimeError("no GPU here")


def doubling(candidate):
    """A kernel of one's own: y = 2 x, wrong with `bug`; y[hole] is not written."""
    from dwlab import cuda

    factor, hole = 2 + candidate.get("bug", 0), candidate.get("hole", -1)

    @cuda.jit
    def kernel(x, y):
        i = cuda.grid(1)
        if i < x.size and i != hole:
            y[i] = factor * x[i]

    return kernel, -(-100 // candidate["block"]), candidate["block"]


def doubled(x, y):
    y[:] = 2 * x


class Counted(Plain):
    """Says which process measured, and on which GPU; `does` as Plain has it, at once."""

    def resources(self, candidate):
        return {"process": float(os.getpid()), "gpu": float(os.environ.get("CUDA_VISIBLE_DEVICES") or 99)}


class Held(Counted):
    """Says when it had the GPU to itself, in its last round."""

    def __init__(self, lock):
        self.lock, self.held = lock, {}

    def time_us(self, candidate):
        with self.lock:
            self.held = {"from": time.monotonic()}
            time.sleep(0.02)
            self.held["to"] = time.monotonic()
        return super().time_us(candidate)

    def resources(self, candidate):
        return super().resources(candidate) | self.held


class Sudden(Plain):
    """What started its process is killed where `does` is "end the machine", the first time: `flag` is a file."""

    def judge(self, candidate):
        flag = os.environ["DWLAB_TEST_FLAG"]
        if candidate.get("does") == "end the machine" and not os.path.exists(flag):
            open(flag, "w").close()
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(5)


class Shared(Plain):
    """Takes its lock for each round, and keeps it where `does` is "hang"."""

    def __init__(self, lock):
        self.lock = lock

    def time_us(self, candidate):
        with self.lock:
            return super().time_us(candidate)


def numbers():
    """Its arguments."""
    return np.arange(1, 101, dtype=np.float32), np.zeros(100, np.float32)


def slowly(candidate):
    """Its kernel after so many seconds."""
    time.sleep(candidate["seconds"])
    return doubling(candidate)


def largely(candidate):
    """Its kernel while so many gigabytes are held, a little at a time."""
    held = [np.ones(12_500_000) for _ in range(10 * candidate["gigabytes"])]
    return doubling(candidate | {"bug": 0 * len(held)})
