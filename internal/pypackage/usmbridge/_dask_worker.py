"""The worker plugin of usmbridge.dask.setup."""

from __future__ import annotations

import threading
from typing import Any

from distributed import Worker, WorkerPlugin

import usmbridge
from usmbridge import _dask_frames

NAME = "usmbridge"

_lock = threading.Lock()
# The limits of the workers of this process by the id of their plugin; None is no limit.
_limits: dict[int, int | None] = {}


def _apply_limits() -> None:
    """Limits the pools of the process to the sum of _limits. The caller holds _lock."""
    bounded = _limits and None not in _limits.values()
    usmbridge._set_limit(sum(n or 0 for n in _limits.values()) if bounded else 0)


class Plugin(WorkerPlugin):
    """The plugin of one worker. limit is a number of bytes, a fraction of the worker's memory
    limit, or None for the whole memory limit."""

    name = NAME

    def __init__(self, limit: int | float | None) -> None:
        self.limit = limit
        self.settings: dict[str, Any] = {}

    def setup(self, worker: Worker) -> None:
        _dask_frames.register()
        whole = worker.memory_manager.memory_limit
        limit: int | None
        if self.limit is None:
            limit = whole
        elif isinstance(self.limit, float):
            limit = int(self.limit * whole) if whole else None
        else:
            limit = self.limit or None
        self.settings["limit"] = limit
        try:
            with _lock:
                _limits[id(self)] = limit
                _apply_limits()
            worker.metrics[NAME] = self._metric
        except BaseException:
            self.teardown(worker)
            raise

    def teardown(self, worker: Worker) -> None:
        worker.metrics.pop(NAME, None)
        with _lock:
            if id(self) in _limits:  # else setup failed before, and the limit may be the program's own
                del _limits[id(self)]
                _apply_limits()

    def _metric(self, worker: Worker) -> dict[str, Any]:
        stats = usmbridge.stats()
        return {
            "allocated": stats["allocated_bytes.all.current"],
            "reserved": stats["reserved_bytes.all.current"],
            "limit": self.settings["limit"],
        }


def result(dask_worker: Worker) -> dict[str, Any]:
    """Returns the settings of a worker."""
    plugin = dask_worker.plugins[NAME]
    assert isinstance(plugin, Plugin)
    return plugin.settings
