"""Arrays through multiprocessing: by handle where their memory can be shared, else by value.

Imported when multiprocessing is, and told when those of its modules are that it has to know
(see _watch). Only multiprocessing's own pickler learns of it: pickle.dumps goes by value.
"""

import os
import sys
import threading
import time

from usmbridge import Array, _native, _share_open

TYPE_CHECKING = False  # typing's, without typing
if TYPE_CHECKING:
    from typing import Any

# Seconds to make or open a handle; what takes long is a process that is stopped.
_PATIENCE = 60.0
# Seconds that a child waits at its end for those who it sent arrays to.
_LINGER = 10.0

_sender = 0  # the process that sent handles
_made = threading.local()  # of the pickling and the launching under way: their handles


def _reduce(array: Array) -> "tuple[Any, ...]":
    global _sender
    made = getattr(_made, "handles", None)
    if made is None:  # a pickler that is nobody's we know
        made = []
    handle = _native._share_export(array, _PATIENCE, made)
    if handle is None:
        return array.__reduce_ex__(4)
    _sender = os.getpid()
    launched = getattr(_made, "launched", None)
    if launched is not None:
        launched.append(handle)
    return _share_open, (handle, array.usm_type is not None, _PATIENCE)


def _wait() -> None:
    """A child that ends takes its handles with it. It waits for them as multiprocessing waits
    for the bytes of its queues, and after that."""
    parent: "Any" = sys.modules["multiprocessing.process"].parent_process()
    if parent is None or _sender != os.getpid():
        return
    end, pause = time.monotonic() + _LINGER, 0.001
    while _native._share_stats()["unopened"] and parent.is_alive() and time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _be_patient(module: "Any") -> None:
    module.Finalize(None, _wait, exitpriority=-10)  # queues have -5


def util() -> None:
    module: "Any" = sys.modules["multiprocessing.util"]
    _be_patient(module)
    module.register_after_fork(module, _be_patient)  # a forked child forgets what was registered


def reduction() -> None:
    pickler: "Any" = sys.modules["multiprocessing.reduction"].ForkingPickler
    pickler.register(Array, _reduce)
    dump, revoke = pickler.dump, _native._share_revoke

    def withdrawing_dump(self: "Any", obj: object) -> None:
        """Nobody gets the handles of a pickle that fails."""
        outer = getattr(_made, "handles", None)
        made: "list[bytes]" = []
        _made.handles = made
        try:
            dump(self, obj)
        except BaseException:
            if made:  # in a forked child revoking is an error, which would replace this one
                revoke(made)
            raise
        finally:
            _made.handles = outer

    pickler.dump = withdrawing_dump


def _ending_with_child(name: str) -> None:
    """What was made for a process that is being started, and what it did not open, ends with it."""
    popen: "Any" = sys.modules[name].Popen
    launch = popen._launch

    def _launch(self: "Any", process_obj: object) -> None:
        outer = getattr(_made, "launched", None)
        handles: "list[bytes]" = []
        _made.launched = handles
        try:
            launch(self, process_obj)
        finally:
            _made.launched = outer
            if handles:
                packed = b"".join(len(h).to_bytes(4, sys.byteorder) + h for h in handles)
                _native._share_end_with(getattr(self, "pid", None) or 0, packed)

    popen._launch = _launch


def popen_spawn_posix() -> None:
    _ending_with_child("multiprocessing.popen_spawn_posix")


def popen_forkserver() -> None:
    _ending_with_child("multiprocessing.popen_forkserver")


_SERVE = """
import sys
from multiprocessing import forkserver
serve = getattr(forkserver._serve_one, "_usmbridge_original", forkserver._serve_one)
sys.exit(serve({child}, {fds}, [], {{}}))
"""


def forkserver() -> None:
    """A fork server that has this module forks children in which Go cannot run: they become
    fresh processes, as spawned ones are. One that has not is left alone, unless it is a
    program that hosts Python."""
    module: "Any" = sys.modules["multiprocessing.forkserver"]
    if not all(hasattr(module, name) for name in ("_serve_one", "_forkserver", "spawn", "util")):
        return

    def serve_one(child_r: int, fds: "list[int]", unused_fds: "list[int]", handlers: "dict[int, Any]") -> int:
        import signal

        signal.set_wakeup_fd(-1)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for fd in (child_r, *fds):
            os.set_inheritable(fd, True)
        program = os.fsdecode(module.spawn.get_executable())
        code = _SERVE.format(child=child_r, fds=list(fds))
        os.execv(program, [program, *module.util._args_from_interpreter_flags(), "-c", code, "--multiprocessing-fork"])

    # the fresh process may import usmbridge before it serves (sitecustomize, .pth)
    serve_one.__dict__["_usmbridge_original"] = module._serve_one
    module._serve_one = serve_one
    spec = sys.modules["usmbridge"].__spec__
    if spec is None or spec.origin != "built-in":
        return
    server = module._forkserver
    ensure = server.ensure_running

    def ensure_running() -> None:
        if "usmbridge" not in server._preload_modules:
            server._preload_modules = [*server._preload_modules, "usmbridge"]
        ensure()

    server.ensure_running = module.ensure_running = ensure_running
