"""The worker plugin of usmbridge.dask.setup."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from distributed import Worker, WorkerPlugin

import usmbridge
from usmbridge import _dask_frames, _dask_receive

logger = logging.getLogger("distributed.usmbridge")

NAME = "usmbridge"

_lock = threading.Lock()
# The limits of the workers of this process by the id of their plugin; None is no limit.
_limits: dict[int, int | None] = {}


def _apply_limits() -> None:
    """Limits the pools of the process to the sum of _limits. The caller holds _lock."""
    bounded = _limits and None not in _limits.values()
    usmbridge._set_limit(sum(n or 0 for n in _limits.values()) if bounded else 0)


def _threshold(manager: Any) -> float | None:
    """Returns the resident memory above which Dask spills or pauses, or None if it never does."""
    if not manager.memory_limit:
        return None
    for fraction in (manager.memory_target_fraction, manager.memory_spill_fraction, manager.memory_pause_fraction):
        if fraction:
            return float(fraction) * int(manager.memory_limit)
    return None


def _idle(stats: dict[str, int]) -> int:
    return stats["reserved_bytes.all.current"] - stats["active_bytes.all.current"]


class Plugin(WorkerPlugin):
    """The plugin of one worker. limit is a number of bytes, a fraction of the worker's memory
    limit, or None for the whole memory limit."""

    name = NAME

    def __init__(self, limit: int | float | None, receive: str | None) -> None:
        self.limit = limit
        self.receive = receive
        self.settings: dict[str, Any] = {}
        self.problem: str | None = None
        self._undo: list[Callable[[], None]] = []

    def setup(self, worker: Worker) -> None:
        _dask_frames.register()
        try:
            self._set_limit(worker)
            self._set_receive()
            self._set_metrics(worker)
            self._set_monitor(worker)
        except BaseException:
            self.teardown(worker)
            raise

    def teardown(self, worker: Worker) -> None:
        while self._undo:
            self._undo.pop()()

    def _set_limit(self, worker: Worker) -> None:
        whole = worker.memory_manager.memory_limit
        limit: int | None
        if self.limit is None:
            limit = whole
        elif isinstance(self.limit, float):
            limit = int(self.limit * whole) if whole else None
        else:
            limit = self.limit or None
        self.settings["limit"] = limit

        def forget() -> None:
            with _lock:
                _limits.pop(id(self), None)
                _apply_limits()

        self._undo.append(forget)
        with _lock:
            _limits[id(self)] = limit
            _apply_limits()

    def _set_receive(self) -> None:
        self.settings["receive"] = None
        if self.receive is None:
            return
        try:
            hook = _dask_receive.install(id(self), self.receive)
        except _dask_receive.Unknown as e:
            self.problem = f"distributed receives into memory of its own, not into {self.receive} memory: {e}"
            logger.warning(self.problem)
            return
        self._undo.append(lambda: _dask_receive.remove(id(self)))
        self.settings["receive"] = hook.usm_type or "plain"

    def _set_metrics(self, worker: Worker) -> None:
        def metric(worker: Worker) -> dict[str, Any]:
            stats, hook = usmbridge.stats(), _dask_receive.installed()
            return {
                "allocated": stats["allocated_bytes.all.current"],
                "reserved": stats["reserved_bytes.all.current"],
                "limit": self.settings["limit"],
                "received elsewhere": hook.refused if hook else 0,
            }

        def undo() -> None:
            worker.metrics.pop(NAME, None)

        worker.metrics[NAME] = metric
        self._undo.append(undo)

    def _set_monitor(self, worker: Worker) -> None:
        """Trims the pools before Dask measures the process's memory. The memory of a spilled Array
        returns to a pool: without this Dask would see no memory freed, and spill everything."""
        above = _threshold(worker.memory_manager)
        if above is None:
            return
        monitor = worker.monitor
        plain = monitor.get_process_memory

        def get_process_memory() -> int:
            resident = plain()
            if resident > above and _idle(usmbridge.stats()) > 0 and usmbridge.trim() > 0:
                resident = plain()
            return resident

        def undo() -> None:
            if vars(monitor).get("get_process_memory") is get_process_memory:
                del monitor.get_process_memory

        monitor.get_process_memory = get_process_memory  # type: ignore[method-assign]
        self._undo.append(undo)


def result(dask_worker: Worker) -> tuple[dict[str, Any], str | None]:
    """Returns the settings of a worker, and why a setting could not be applied, or None."""
    plugin = dask_worker.plugins[NAME]
    assert isinstance(plugin, Plugin)
    return plugin.settings, plugin.problem
