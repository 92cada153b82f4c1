"""Functions that the processes of test_processes.py and test_share.py run. The module can be imported whichever
way a process is started."""

import os
import signal
import sys
import time
import types

import usmbridge as ub


def describe(a):
    return (a.shape, a.strides, str(a.dtype), a.usm_type, a.readonly, a.interprocess)


def echo(inbox, outbox):
    """Describes each array that arrives and sends it back, until None arrives."""
    for x in iter(inbox.get, None):
        outbox.put((os.getpid(), describe(x), x.tolist()))
        outbox.put(x)
        del x  # before it blocks for the next one


def increment(a, outbox=None):
    """Adds one to an array in place, by dpnp if the host cannot write it."""
    add_one(a)
    if outbox is not None:
        outbox.put((os.getpid(), describe(a)))


def increment_all(arrays, outbox):
    for a in arrays:
        increment(a, outbox)


def add_one(a):
    if a.usm_type is None:
        m = memoryview(a)
        for i in range(len(m)):
            m[i] += 1
        return
    import dpnp.tensor as dpt

    x = dpt.asarray(a)
    x += 1
    x.sycl_queue.wait()


def same_and_more(a):
    """For Pool: changes its argument and returns it."""
    add_one(a)
    return a


def part(a):
    return a[1:, ::2]


def make(n):
    return ub.full(n, n, "int32", device="host", interprocess=True)


def total(a):
    return sum(a.tolist())


def put_and_end(outbox, n):
    outbox.put(make(n))


def put_and_end_soon(outbox, n, error=None):
    """Waits only for a moment for the array to be received. error is a type and its argument: distributed
    registers a pickler for exceptions that loses the code of SystemExit."""
    from usmbridge import _processes

    _processes._LINGER = 0.2
    outbox.put(make(n))
    if error is not None:
        raise error[0](error[1])


def write(a, outbox):
    """Tries to write read-only memory and reports the errors."""
    import numpy as np

    said = []
    for f in (lambda: a.fill(1), lambda: memoryview(a).__setitem__(0, 1), lambda: np.asarray(a).__setitem__(0, 1)):
        try:
            f()
            said.append(None)
        except (ValueError, TypeError, BufferError) as e:
            said.append(type(e).__name__ + ": " + str(e))
    outbox.put(said)


def write_by_address(a, outbox):
    """Writes read-only memory by its address. Only the writing process is killed."""
    import ctypes

    outbox.put(a.tolist())
    outbox.close()
    outbox.join_thread()  # the queue sends by a thread, which ends with the process
    ctypes.memset(a._pointer, 1, 1)
    time.sleep(600)  # not reached unless the write was allowed


def hold(a, outbox):
    """Keeps an array until it is killed."""
    add_one(a)
    outbox.put(os.getpid())
    time.sleep(600)


def publish(usm_type, outbox):
    """Publishes an array until it is killed."""
    with ub.share.serve("", {"a": ub.full(1 << 16, 7, "int32", usm_type=usm_type, interprocess=True)}) as server:
        outbox.put(server.address)
        time.sleep(600)


def hold_from_pipe(pipe):
    hold(pipe.recv(), types.SimpleNamespace(put=pipe.send))


def die(a):
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    """Kills the process that unpickles it."""

    def __reduce__(self):
        return os.kill, (_Own(), signal.SIGKILL)


class _Own:
    """The id of the process that unpickles it."""

    def __reduce__(self):
        return os.getpid, ()


def stale(data, outbox):
    """Opens one handle twice."""
    from multiprocessing.reduction import ForkingPickler

    first = ForkingPickler.loads(data)
    try:
        ForkingPickler.loads(data)
        outbox.put("opened again")
    except ReferenceError as e:
        outbox.put(str(e))
    outbox.put(first.tolist())


def fork_child(a, outbox):
    """In a forked child a received array raises RuntimeError, and its repr names the reason."""
    pid = os.fork()
    if pid == 0:
        said = []
        for f in (lambda: a.tolist(), lambda: memoryview(a), lambda: a.fill(1), lambda: a[0], lambda: a.shape, lambda: ub.asarray(a),
                  lambda: a.__dlpack__()):
            try:
                f()
                said.append("no error")
            except RuntimeError as e:
                said.append("memory of another process" in str(e))
        said.append(repr(a) == "<Array, memory of another process>")
        os._exit(0 if said == [True] * len(said) else 1)
    outbox.put(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    # The other process of test_share.py. It reads lines of Python.
    names = {"ub": ub, "os": os, "sys": sys, "add_one": add_one, "describe": describe}
    for line in sys.stdin:
        try:
            print(repr(eval(line, names)) if not line.startswith("!") else exec(line[1:], names), flush=True)
        except Exception as e:
            print(type(e).__name__, str(e).replace("\n", " "), flush=True)
