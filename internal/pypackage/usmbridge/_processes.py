"""Sends Arrays through multiprocessing and joblib's loky: by handle if their memory can be shared, else
by value.

_watch imports this module with multiprocessing and calls a function for each module of
multiprocessing that has to be changed. Only multiprocessing's pickler sends handles; pickle.dumps
stores the value.
"""

import atexit
import os
import sys
import threading
import time

from usmbridge import Array, _native, _share_open, _watch

TYPE_CHECKING = False  # as in typing, without importing it
if TYPE_CHECKING:
    from typing import Any

# Seconds that making or opening a handle can take. Only a stopped process takes long.
_PATIENCE = 60.0
# Seconds that a child waits at its end for the processes that it sent arrays to.
_LINGER = 10.0

# Whether multiprocessing's exit function is one of atexit's. Children of earlier versions call it in _bootstrap.
_AT_EXIT = sys.version_info >= (3, 13)

_sender = 0  # id of the process, if it has sent handles; a fork inherits it with the wrong id
_lost = 0  # 1 if arrays that this child sent were lost
# The handles that the pickling (handles) and the launch of a process (launched) on this thread have
# made so far.
_made = threading.local()


def _reduce(array: Array) -> "tuple[Any, ...]":
    """Reduces an Array for multiprocessing's pickler."""
    global _sender
    made = getattr(_made, "handles", None)
    if made is None:  # not called by ForkingPickler.dump
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
    """Waits until the handles that this child sent are opened, since they end with the process. It
    runs after multiprocessing has waited for the bytes of its queues. If some are not opened in time,
    it reports the loss and makes the exit status non-zero."""
    global _lost
    parent: "Any" = sys.modules["multiprocessing.process"].parent_process()
    if parent is None or _sender != os.getpid():
        return
    end, pause = time.monotonic() + _LINGER, 0.001
    while (lost := _native._share_stats()["unopened"]) and parent.is_alive() and time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    if not lost:
        return
    name = sys.modules["multiprocessing.process"].current_process().name
    print(
        f"usmbridge: {name} ends {_LINGER:.0f} s after its last task, and {lost} of the arrays that it sent were not received: they are lost. "
        "Receive the arrays of a process before it ends, or send copies in other memory (interprocess=False)",
        file=sys.stderr, flush=True)
    _lost = 1
    failed = sys.exc_info()[1]
    if _AT_EXIT:
        return
    if failed is None or (isinstance(failed, SystemExit) and not failed.code):
        raise SystemExit(1)  # other exceptions make the status non-zero themselves


def _wait_at_exit(module: "Any") -> None:
    module.Finalize(None, _wait, exitpriority=-10)  # queues have -5


def _end_after(module: "Any") -> None:
    """Makes multiprocessing's exit function, which sends what is in the queues, call the one of this package at its end.

    If multiprocessing was imported first, Python would call ours first, after which no Array is sent. The exit functions
    of the program that were registered in between still run before both: they may need multiprocessing's managers, or end
    its processes.
    """
    # Earlier versions' children call multiprocessing's function themselves, while their threads run and before those of
    # atexit. If Go started Python, the hook is the first function of atexit.
    child = getattr(sys.modules["multiprocessing.process"].current_process(), "_inheriting", False)
    if module._exiting or (child and not _AT_EXIT) or not hasattr(_native, "_exit_hook"):
        return
    atexit.unregister(_native._exit_hook)

    def at_end(module: "Any") -> None:
        module.Finalize(None, _native._exit_hook, exitpriority=-20)  # _wait has -10

    at_end(module)
    if _AT_EXIT:
        module.register_after_fork(module, at_end)


def _exit_in_bootstrap(process: "Any") -> None:
    """Calls the functions of atexit before the exit status of a child is decided, so that _wait can change it."""
    bootstrap = process._bootstrap

    def _bootstrap(self: "Any", *args: "Any", **kwargs: "Any") -> int:
        status: int = bootstrap(self, *args, **kwargs)
        atexit._run_exitfuncs()
        return status or _lost

    process._bootstrap = _bootstrap


def loky() -> None:
    """Makes joblib's loky, in both of its packages, send Arrays as multiprocessing does."""
    for name in ("joblib.externals.loky.backend.reduction", "loky.backend.reduction"):
        module: "Any" = sys.modules.get(name)
        if module is not None:
            module.register(Array, _reduce)


def util() -> None:
    module: "Any" = sys.modules["multiprocessing.util"]
    if _watch._importing(sys.modules["usmbridge"]):  # multiprocessing was imported first
        _end_after(module)
    if _AT_EXIT:
        _exit_in_bootstrap(sys.modules["multiprocessing.process"].BaseProcess)
    _wait_at_exit(module)
    module.register_after_fork(module, _wait_at_exit)  # a fork clears the registered finalizers


def reduction() -> None:
    pickler: "Any" = sys.modules["multiprocessing.reduction"].ForkingPickler
    pickler.register(Array, _reduce)
    dump, revoke = pickler.dump, _native._share_revoke

    def withdrawing_dump(self: "Any", obj: object) -> None:
        """Pickles, and revokes the handles if that fails, since no process receives them."""
        outer = getattr(_made, "handles", None)
        made: "list[bytes]" = []
        _made.handles = made
        try:
            dump(self, obj)
        except BaseException:
            if made:  # not called in a forked child, where revoke raises an error of its own
                revoke(made)
            raise
        finally:
            _made.handles = outer

    pickler.dump = withdrawing_dump


def _ending_with_child(name: str) -> None:
    """Ties the handles made for the arguments of a new process to it: those that it has not opened
    end with it."""
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
    """Makes the children of a fork server execute the program anew, because Go cannot run in a fork.
    This applies to a server that has loaded this module. If Go hosts Python, every server loads
    it; otherwise servers without it stay as they are."""
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

    # The new process can import usmbridge before it serves (sitecustomize, .pth): let it find the
    # original function.
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
