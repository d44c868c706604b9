"""Benches that a worker process can make: what candidates can do to their process, without a GPU."""

import os
import signal
import time

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
