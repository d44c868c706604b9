"""Calls that the judge makes of code it does not trust: no exception gets past it, and none takes for ever."""

from __future__ import annotations

import contextvars
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

SECONDS = 120.0  # of the processor's time that one launch may take on the laptop GPU
LAUNCH_SECONDS = 20.0  # and a launch function; most take microseconds
WALL = 1200.0  # seconds that either may take by the clock: a sleep takes none of the processor's
LAUNCH_WALL = 60.0


class Stopped(BaseException):
    """Raised in a thread that took too long."""


class TooLong(Exception):
    """A call took longer than it may."""


def isolated(call: Callable[[], Any], seconds: float, wall: float) -> Any:
    """Returns what `call` returns, or the exception of any kind that it raises: so none gets past the judge.

    It runs in a thread of its own, with this one's context variables. One that takes more than `seconds` of this
    process' processor time, or `wall` by the clock, is left behind: a TooLong. A Ctrl-C meets this thread, and stops
    both.
    """
    done, found = threading.Event(), []

    def body() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(body,), daemon=True)
    before, began = time.process_time(), time.monotonic()
    thread.start()
    try:
        while not done.wait(0.05):
            if time.process_time() - before > seconds:
                return _stop(thread, done, f"more than {seconds:g} s of the processor's time")
            if time.monotonic() - began > wall:
                return _stop(thread, done, f"more than {wall:g} s")
    except BaseException:
        _stop(thread, done, "")
        raise
    return found[0]


def _stop(thread: threading.Thread, done: threading.Event, what: str) -> TooLong:
    """Raises Stopped in the thread: it ends at its next step in Python, a sleep when it is over."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Stopped))
    done.wait(2)
    return TooLong(what)
