"""Memory of Arrays in Dask workers under pressure. Every process that has distributed and usmbridge
installs it.

The memory of a spilled Array returns to a pool. Therefore idle memory of the pools is returned to the
system before Dask compares the process's memory with its thresholds. Otherwise Dask would see no memory
freed, and spill everything.

An allocation in a task that finds the limit reached makes the worker spill, and waits for that. It
raises MemoryError if nothing is left to spill and all threads of the worker that run tasks wait as well,
or after a time.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from concurrent.futures import Future
from typing import Any

import usmbridge

# Seconds that one allocation can wait for memory.
PATIENCE = 30.0
# Seconds between two attempts while other tasks may free memory.
_PAUSE = 0.05

_attempt = threading.local()
_lock = threading.Lock()
# The number of threads of each worker whose allocation waits.
_waiting: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def threshold(manager: Any) -> float | None:
    """Returns the resident memory above which Dask spills or pauses, or None if it never does."""
    if not manager.memory_limit:
        return None
    for fraction in (manager.memory_target_fraction, manager.memory_spill_fraction, manager.memory_pause_fraction):
        if fraction:
            return float(fraction) * int(manager.memory_limit)
    return None


def _idle() -> int:
    stats = usmbridge.stats()
    return stats["reserved_bytes.all.current"] - stats["active_bytes.all.current"]


def _install_trim() -> None:
    """Trims the pools before Dask measures the memory of a process with workers."""
    from distributed.system_monitor import SystemMonitor
    from distributed.worker import Worker

    plain = SystemMonitor.get_process_memory
    if hasattr(plain, "_usmbridge_original"):
        return

    def get_process_memory(self: SystemMonitor) -> int:
        resident = plain(self)
        limits = [threshold(w.memory_manager) for w in list(Worker._instances) if w.monitor is self]
        if any(n is not None and resident > n for n in limits) and _idle() > 0 and usmbridge.trim() > 0:
            resident = plain(self)
        return resident

    get_process_memory.__dict__["_usmbridge_original"] = plain
    SystemMonitor.get_process_memory = get_process_memory  # type: ignore[method-assign]


def _spill_one(worker: Any, seconds: float) -> bool:
    """Spills one value on the worker's event loop. Returns False if there is none."""
    done: Future[bool] = Future()

    def spill() -> None:
        try:
            done.set_result(bool(worker.data.fast) and worker.data.evict() != -1)
        except BaseException as e:
            done.set_exception(e)

    worker.loop.add_callback(spill)
    try:
        return done.result(seconds)
    except TimeoutError:
        return False


def make_room(nbytes: int, attempt: int) -> bool:
    """Spills a value, or waits a moment for other tasks. Returns False if the allocation must fail."""
    from distributed import get_worker

    if asyncio._get_running_loop() is not None:
        return False  # the event loop, which does the spilling, must not wait
    try:
        worker = get_worker()
    except ValueError:
        return False  # not in a task
    if not hasattr(worker.data, "evict") or not hasattr(worker.data, "fast"):
        return False  # this worker does not spill
    if attempt == 0:
        _attempt.until = time.monotonic() + PATIENCE
    left = _attempt.until - time.monotonic()
    if left <= 0:
        return False
    with _lock:
        _waiting[worker] = _waiting.get(worker, 0) + 1
    try:
        if _spill_one(worker, left):
            return True
        with _lock:
            if _waiting[worker] >= len(worker.active_threads):
                return False
        time.sleep(min(left, _PAUSE))
        return True
    finally:
        with _lock:
            _waiting[worker] -= 1


def install() -> None:
    """Installs both parts. It can be called again."""
    _install_trim()
    usmbridge._set_make_room(make_room)
