"""Arrays through multiprocessing: the same memory if it can be shared, otherwise by value."""

import functools
import gc
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import types
from multiprocessing.reduction import ForkingPickler

import procs
import pytest
from conftest import HOST, SOON, in_child, in_threads, leases_end, peer, soon, sycl_device

import usmbridge as ub

METHODS = ("spawn", "forkserver")


def usm_kinds():
    sycl_device()
    return ("device", "shared", "host")


@pytest.fixture(autouse=True)
def no_leases_remain():
    """Leases end with the processes that had them, and no idle memory stays mapped."""
    yield
    leases_end()


@pytest.fixture(scope="module", params=METHODS)
def pair(request):
    """A process that sends back the arrays that it receives."""
    context = multiprocessing.get_context(request.param)
    inbox, outbox = context.Queue(), context.Queue()
    p = context.Process(target=procs.echo, args=(inbox, outbox))
    p.start()

    def ask(x):
        inbox.put(x)
        pid, described, values = outbox.get(timeout=SOON)
        assert pid == p.pid
        return described, values, outbox.get(timeout=SOON)

    ask.method = request.param
    yield ask
    inbox.put(None)
    p.join(SOON)
    assert p.exitcode == 0


def test_a_queue_carries_memory_and_views(pair):
    for where in (dict(device="host"), *(dict(usm_type=k) for k in usm_kinds())):
        for dtype in ("int16", "bfloat16", "complex64", "bool"):
            a = ub.zeros((6, 8), dtype, interprocess=True, **where)
            for v in (a, a.T, a[1:, ::2], a[3], a[2, 3], a[:0], a.as_readonly(), a.as_readonly()[::2], a[..., None], a.reshape(8, 6)):
                told, values, back = pair(v)
                assert told == procs.describe(v) == procs.describe(back), (where, dtype)
                assert values == v.tolist()
                assert back._pointer == v._pointer or v.size == 0  # the same mapping, not a second one
                if not v.readonly and v.size:
                    back.fill(1)
                    assert v.tolist() == back.tolist() != values
                    v.fill(0)
    for dtype in ("float8_e5m2", "float6_e2m3fn", "int4", "uint1"):
        a = ub.full((2, 8), 1, dtype, device="host", interprocess=True)
        told, values, back = pair(a)
        assert told == procs.describe(a) and values == a.tolist() and back._pointer == a._pointer


def test_readonly_memory_arrives_readonly(pair):
    for where in (dict(device="host"), *(dict(usm_type=k) for k in usm_kinds())):
        a = ub.ones(5, "int32", interprocess="readonly", **where)
        told, values, back = pair(a)
        assert told == ((5,), (1,), "int32", a.usm_type, True, "readonly") and values == [1] * 5
        assert back.readonly and back._pointer == a._pointer and not a.readonly  # sent read-only, it is returned read-only
        a.fill(3)
        assert back.tolist() == [3] * 5


def test_other_memory_is_sent_by_value(pair):
    for where in (dict(device="host"), *(dict(usm_type=k) for k in usm_kinds())):
        a = ub.full((4, 4), 2, "int32", **where)
        for v in (a, a.T, a[::2, ::2]):
            told, values, back = pair(v)
            assert told[0] == v.shape and told[3:] == (v.usm_type, v.readonly, False) and values == v.tolist() == back.tolist()
            assert back._pointer != v._pointer


def test_many_at_once_keep_their_order(pair):
    """From several threads, with other messages between them."""
    arrays = [ub.full(3, i, "int32", device="host", interprocess=True) for i in range(50)]
    lock, failed = threading.Lock(), []

    def use(some):
        for a in some:
            with lock:
                told, values, back = pair(a)
            if values != a.tolist() or back._pointer != a._pointer:
                failed.append(a.tolist())

    in_threads(*(functools.partial(use, arrays[i::4]) for i in range(4)))
    assert not failed


def started(context, target, *args):
    outbox = context.Queue()
    p = context.Process(target=target, args=(*args, outbox))
    p.start()
    return p, outbox


@pytest.mark.parametrize("method", METHODS)
def test_arguments_and_pipes(method):
    context = multiprocessing.get_context(method)
    a = ub.zeros(10, "int32", device="host", interprocess=True)
    p, outbox = started(context, procs.increment, a[::3])
    assert outbox.get(timeout=SOON)[1] == procs.describe(a[::3])
    p.join(SOON)
    assert p.exitcode == 0 and a.tolist() == [1, 0, 0, 1, 0, 0, 1, 0, 0, 1]
    ours, theirs = context.Pipe()
    p = context.Process(target=procs.hold_from_pipe, args=(theirs,))
    p.start()
    ours.send(a)
    assert ours.recv() == p.pid and a.tolist()[:3] == [2, 1, 1]
    soon(lambda: ub.share.stats()["leases"] == 1)  # the lease of the process before ends when its end is noticed
    p.kill()
    p.join()
    soon(lambda: ub.share.stats()["leases"] == 0)


@pytest.mark.parametrize("method", METHODS)
def test_pool(method):
    """Arguments and results; results that the worker made, and its arguments."""
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        a = ub.zeros((4, 6), "int32", device="host", interprocess=True)
        rows = pool.map(procs.same_and_more, list(a[i] for i in range(4)))
        assert [r._pointer for r in rows] == [a[i]._pointer for i in range(4)] and a.tolist() == [[1] * 6] * 4
        v = pool.apply(procs.part, (a,))
        assert v._pointer == a[1:, ::2]._pointer and v.strides == (6, 2) and v.shape == (3, 3)
        made = pool.map(procs.make, range(1, 20))
        assert [m.tolist() for m in made] == [[n] * n for n in range(1, 20)] and all(m.interprocess is True for m in made)
        assert pool.map(procs.total, made) == [n * n for n in range(1, 20)]  # arrays of one worker that this process passes on to any of them
        del made, rows, v
    gc.collect()


@pytest.mark.parametrize("method", METHODS)
def test_kernels_on_both_sides(method, dpt):
    context = multiprocessing.get_context(method)
    arrays = [ub.zeros(1000, "float32", usm_type=kind, interprocess=True) for kind in usm_kinds()]
    theirs = [dpt.asarray(a) for a in arrays]
    for x in theirs:
        x += 1
    p, outbox = started(context, procs.increment_all, [a[500:] for a in arrays])
    for a, x in zip(arrays, theirs):
        assert outbox.get(timeout=SOON)[1] == procs.describe(a[500:])
        x *= 2
        assert a[498:502].tolist() == [2, 2, 4, 4]
    p.join(SOON)
    assert p.exitcode == 0
    del a, x, arrays, theirs
    gc.collect()


def test_the_readonly_audience(np):
    """Python refuses to write, and a write by address kills only the writing process."""
    context = multiprocessing.get_context("spawn")
    a = ub.zeros(4, "int32", device="host", interprocess="readonly")
    p, outbox = started(context, procs.write, a)
    said = outbox.get(timeout=SOON)
    assert all(s and ("read-only" in s or "readonly" in s) for s in said), said
    p.join(SOON)
    p, outbox = started(context, procs.write_by_address, a)
    assert outbox.get(timeout=SOON) == [0] * 4
    p.join(SOON)
    hit = p.exitcode
    p.kill()
    assert hit not in (0, None) and a.tolist() == [0] * 4
    a.fill(1)


def test_a_process_waits_for_its_results_at_exit(pair):
    """A process puts an array into a queue and ends: the array arrives, as any other object."""
    context = multiprocessing.get_context(pair.method)
    outbox = context.Queue()
    for n in (3, 5):
        p = context.Process(target=procs.put_and_end, args=(outbox, n))
        p.start()
        a = outbox.get(timeout=SOON)
        p.join(SOON)
        assert p.exitcode == 0 and a.tolist() == [n] * n  # its maker has ended
        a.fill(7)
        assert a.tolist() == [7] * n and a.interprocess is True
        told, values, back = pair(a)  # this process passes it on
        assert told == procs.describe(a) == procs.describe(back) and values == a.tolist() and back._pointer == a._pointer
        del a, back


def test_a_handle_is_good_for_one_opening():
    context = multiprocessing.get_context("spawn")
    a = ub.ones(4, "int32", device="host", interprocess=True)
    data = bytes(ForkingPickler.dumps(a))
    assert ub.share.stats()["unopened"] == 1
    b = ForkingPickler.loads(data)
    assert b._pointer == a._pointer and ub.share.stats()["unopened"] == 0
    with pytest.raises(ReferenceError, match="stale handle"):
        ForkingPickler.loads(data)
    p, outbox = started(context, procs.stale, bytes(ForkingPickler.dumps(a)))
    assert "stale handle" in outbox.get(timeout=SOON) and outbox.get(timeout=SOON) == [1] * 4
    p.join(SOON)


REFUSALS = (ValueError, ReferenceError, ConnectionError)  # other bytes, an ended handle, and one whose maker cannot be reached


def test_altered_handles():
    """A changed, cut, lengthened or revoked handle opens nothing and does not affect the array. Package share fuzzes handles."""
    for where in (dict(device="host"), dict(usm_type="shared", device=sycl_device())):
        a = ub.ones((2, 3), "int32", interprocess=True, **where)[::-1].as_readonly()
        usm, handles = a.usm_type is not None, []
        handle = ub._native._share_export(a, 5.0, handles)
        others = [ub._native._share_export(a, 5.0, handles) for _ in range(3)]
        assert handles == [handle, *others] and len(set(handles)) == 4
        ub._native._share_revoke(others)
        forged = [handle[:at] + bytes([handle[at] ^ 1]) + handle[at + 1 :] for at in range(len(handle))]
        for bad in (*forged, *(handle[:at] for at in range(len(handle))), handle + b"\0", handle * 99, *others):
            with pytest.raises(REFUSALS):
                ub._share_open(bad, usm, 5.0)
        for bad in (None, "text", 3, bytearray(handle)):
            with pytest.raises(TypeError):
                ub._share_open(bad, usm, 1.0)
        for timeout, error in ((-1, ValueError), (float("nan"), ValueError), ("1", TypeError), ((), TypeError), (1 << 2000, OverflowError)):
            with pytest.raises(error):
                ub._share_open(handle, usm, timeout)
        b = ub._share_open(handle, usm, None)
        assert (b.shape, b.strides, b.dtype, b.readonly, b.tolist()) == (a.shape, a.strides, a.dtype, True, a.tolist())
        with pytest.raises(ReferenceError):
            ub._share_open(handle, usm, 1e300)
        assert ub.share.stats()["unopened"] == 0


# Number of killed processes: a few, or more in a hunt. A hunt also reports how long memory takes to
# return and requires a second at most, so it needs an idle machine.
KILLS = (3, pytest.param(50, marks=pytest.mark.skipif("USMBRIDGE_HUNT" not in os.environ, reason="long: set USMBRIDGE_HUNT")))
HUNT_BOUND = 1.0  # seconds


def left_behind():
    """Returns the number of mappings and of descriptors of shared memory in this process."""
    with open("/proc/self/maps") as f:
        maps = sum("memfd:usmbridge" in line for line in f)
    files = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            files += "memfd:usmbridge" in os.readlink("/proc/self/fd/" + fd)
        except OSError:
            pass  # the descriptor of the directory itself
    return maps, files


def kill(n, once):
    """Calls once, which kills a process and returns the seconds until its memory was back, n times. Nothing may stay behind."""
    times, first = [], None
    for i in range(n):
        times.append(once(i))
        first = first or left_behind()
    soon(lambda: all(now <= then for now, then in zip(left_behind(), first)))
    if n >= 50:
        print(f"{n} processes killed; memory was back after {max(times):.3f} s at most, {sorted(times)[len(times) // 2]:.3f} s in the middle")
        assert max(times) <= HUNT_BOUND


@pytest.mark.parametrize("n", KILLS)
def test_killed_at_random_moments(n):
    """The memory of a killed process returns, with and without SYCL, and nothing of it stays."""
    peer("dpnp")
    context, kinds = multiprocessing.get_context("spawn"), usm_kinds()

    def once(i):
        a = ub.zeros(1 << 16, "float32", interprocess=True, usm_type=kinds[i % 3])
        before = ub.stats()["allocated_bytes.all.current"]
        p, outbox = started(context, procs.hold, a)
        if i % 3 == 0:
            assert outbox.get(timeout=SOON) == p.pid
            assert a[:2].tolist() == [1, 1]
        else:
            time.sleep(random.random() * 1.5)  # some have not begun, some have opened it, some compute
        p.kill()
        at = time.monotonic()
        soon(lambda: ub.share.stats()["leases"] == 0 and ub.share.stats()["unopened"] == 0)
        seconds = time.monotonic() - at
        p.join()
        a.fill(2)
        assert a[-1].item() == 2
        size = a.nbytes
        del a
        soon(lambda: ub.stats()["allocated_bytes.all.current"] <= before - size)
        outbox.close()
        return seconds

    kill(n, once)


@pytest.mark.parametrize("n", KILLS)
def test_makers_killed_at_random_moments(n):
    """Memory stays with the processes that hold it when its maker is killed, and ends with them."""
    context, kinds = multiprocessing.get_context("spawn"), usm_kinds()

    def once(i):
        p, outbox = started(context, procs.publish, kinds[i % 3])
        address = outbox.get(timeout=SOON)
        kept, end = [], time.monotonic() + random.random() * 0.2
        while time.monotonic() < end:
            kept.append(ub.share.attach(address, "a"))
            del kept[:-3]
        p.kill()
        try:
            while True:  # until its end is noticed
                kept.append(ub.share.attach(address, "a"))
        except (ConnectionError, TimeoutError):
            pass
        p.join()
        for a in kept:
            assert a[:3].tolist() == [7, 7, 7] and a[-1].item() == 7
        if kept:
            kept[0].fill(8)
            assert kept[-1][-1].item() == 8  # the same memory
        a = None
        kept.clear()
        at = time.monotonic()
        soon(lambda: ub.trim() >= 0 and ub.share.stats()["mapped"] == 0)
        outbox.close()
        return time.monotonic() - at

    kill(n, once)


def test_a_killed_worker_of_a_pool():
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        a = ub.zeros(100, "int32", device="host", interprocess=True)
        pool.apply_async(procs.die, (a,))
        soon(lambda: ub.share.stats()["leases"] == 0 and ub.share.stats()["unopened"] == 0)
        assert pool.apply(procs.same_and_more, (a,)).tolist() == [1] * 100  # by the worker that replaces it


@pytest.mark.parametrize("method", METHODS)
def test_arguments_of_a_process_that_dies_at_its_start(method):
    context = multiprocessing.get_context(method)
    a = ub.zeros(100, "int32", device="host", interprocess=True)
    kept = ForkingPickler.dumps(a)
    p = context.Process(target=procs.total, args=([procs.Deadly(), a, a[::2]],))
    p.start()
    soon(lambda: ub.share.stats()["unopened"] == 1)  # a handle for another process stays
    p.join(SOON)
    assert ForkingPickler.loads(kept).tolist() == [0] * 100


def test_arguments_of_a_process_that_cannot_be_started():
    context = multiprocessing.get_context("spawn")
    a = ub.zeros(100, "int32", device="host", interprocess=True)
    executable = multiprocessing.spawn.get_executable()
    context.set_executable("/nonexistent/python")
    try:
        p = context.Process(target=procs.total, args=(a,))
        try:
            p.start()  # if it is executed late, the child ends
        except OSError:
            pass
    finally:
        context.set_executable(executable)
    soon(lambda: ub.share.stats()["unopened"] == 0)


def test_forked_children_of_a_receiver():
    context = multiprocessing.get_context("spawn")
    a = ub.zeros(4, "int32", device="host", interprocess=True)
    p, outbox = started(context, procs.fork_child, a)
    assert outbox.get(timeout=SOON) == 0
    p.join(SOON)


def test_forked_children_send_nothing_shared():
    """They cannot enter Go: shared memory is refused with an error, other arrays are sent by value."""
    a = ub.zeros(4, "int32", device="host", interprocess=True)
    plain = ub.ones(4, "int32", device="host")

    def child():
        with pytest.raises(RuntimeError, match="fork"):
            ForkingPickler.dumps(a)
        return len(ForkingPickler.dumps(plain)) > 16

    in_child(child)


def test_a_pickle_that_fails_leaves_no_handle():
    a = ub.ones(4, "int32", device="host", interprocess=True)
    data = bytes(ForkingPickler.dumps(a))
    assert ub.share.stats()["unopened"] == 1
    for _ in range(3):
        with pytest.raises((AttributeError, pickle.PicklingError)):
            ForkingPickler.dumps([a, a[1:], lambda: 0])
        assert ub.share.stats()["unopened"] == 1
    assert ForkingPickler.loads(data).tolist() == a.tolist()
    assert ub.share.stats()["unopened"] == 0


def test_fork_server_where_every_process_imports_usmbridge(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import multiprocessing.forkserver, usmbridge\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    script = tmp_path / "main.py"
    script.write_text("""
import multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    p = context.Process(target=print, args=("served",), kwargs={"flush": True})
    p.start()
    p.join(60)
    if p.exitcode is None:
        p.kill()
        p.join()
    print(p.exitcode)
""")
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=3 * SOON)
    assert out.stdout.split() == ["served", "0"], out


FORKED = """
import concurrent.futures, multiprocessing, os, pickle, sys

SOON = 60
early, kind = sys.argv[1] == "early", sys.argv[2]

def look(a):
    return a.usm_type, a.dtype, a.readonly, a.tolist() if a.ndim == 0 else memoryview(a).tolist()

def facts(a):
    return a.usm_type, a.dtype, a.readonly, a.tolist()

def double(a):
    m = memoryview(a)
    for i in range(len(m)):
        m[i] *= 2
    return a

def load(data):
    return look(pickle.loads(data))

def same(a):
    return a

def unsendable():
    return lambda: None

def error(call):
    try:
        return call()
    except Exception as e:
        return type(e).__name__ + ": " + str(e)

context = multiprocessing.get_context("fork")
if early:  # the workers are forked from a process that has not imported usmbridge
    pool = context.Pool(1)
    pool.apply_async(len, ([],)).get(SOON)
import usmbridge as ub
if not early:
    pool = context.Pool(1)

where = dict(device="host") if kind == "host" else dict(usm_type=kind)
a = ub.full(5, 3, "int32", **where)
shared = ub.full(5, 3, "int32", interprocess=True, **where)

def to_forks():
    for x in (a, a.as_readonly(), a[::2], a[1], a[:0]):
        got = pool.apply_async(look, (x,)).get(SOON)
        assert got == (None, "int32", x.readonly, x.tolist()), got
        for protocol in range(2, 6):  # as joblib and loky send it
            assert pool.apply_async(load, (pickle.dumps(x, protocol),)).get(SOON) == got
    assert pool.apply_async(look, (ub.full(3, 2.5, "float64", **where),)).get(SOON)[3] == [2.5] * 3
    back = pool.apply_async(double, (a,)).get(SOON)
    assert back.tolist() == [6] * 5 and a.tolist() == [3] * 5 and back.usm_type is None

    # An array that was sent by handle cannot be opened there. Its use raises an error.
    for f in (look, double, len, list):
        said = error(lambda: pool.apply_async(f, (shared,)).get(SOON))
        assert said.startswith("RuntimeError") and "memory of another process" in said, (f, said)
    assert pool.apply_async(repr, (shared,)).get(SOON) == "<Array, memory of another process>"
    assert "MaybeEncodingError" in error(lambda: pool.apply_async(same, (shared,)).get(SOON))
    assert pool.apply_async(look, (shared.copy(),)).get(SOON)[3] == [3] * 5
    # The error of a result that cannot be pickled is not replaced.
    assert "local object" in error(lambda: pool.apply_async(unsendable).get(SOON))
    if not early:  # a value that a worker cannot send is an error here too
        assert "RuntimeError" in error(lambda: pool.apply_async(ub.zeros, (3,)).get(SOON))

def to_processes_of_their_own():
    for x in (a, a.as_readonly(), a[::2], a[1], a[:0], shared):
        assert pool.apply_async(facts, (x,)).get(SOON) == facts(x)

# A worker that was forked before usmbridge was imported imports it itself. Where Go hosts
# Python, the worker is a fork of a Go process all the same.
if early and "usmbridge" not in sys.builtin_module_names:
    to_processes_of_their_own()
else:
    to_forks()
pool.terminate()
pool.join()

with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
    assert list(executor.map(look, [a, a], timeout=SOON)) == [(None, "int32", False, [3] * 5)] * 2
    assert "memory of another process" in error(lambda: executor.submit(look, shared).result(SOON))
    assert list(executor.map(double, [a], timeout=SOON))[0].tolist() == [6] * 5
print("done", flush=True)
"""


def output_of(source, directory, *args, patience=2 * SOON):
    """Runs a program that starts processes, with arguments, and returns its output."""
    (directory / "main.py").write_text(source)
    with open(directory / "out", "w+") as out:  # remaining processes would keep a pipe open
        p = subprocess.Popen([HOST, str(directory / "main.py"), *args], stdout=out, stderr=out, start_new_session=True)
        try:
            p.wait(patience)
        finally:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
        out.seek(0)
        text = out.read()
    assert p.returncode == 0, text
    return text


@pytest.mark.parametrize("early", ("early", "late"))
@pytest.mark.parametrize("kind", ("host", "device", "shared"))
def test_workers_that_are_forked(tmp_path, kind, early):
    """Arrays arrive as memory of the worker, or the parent gets an error."""
    if kind != "host":
        sycl_device()
    out = output_of(FORKED, tmp_path, early, kind, patience=3 * SOON)
    assert "done" in out.split(), out


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("error", [None, (SystemExit, 0), (SystemExit, 3), (KeyError, "mine")], ids=["none", "exit", "exit 3", "exception"])
def test_arrays_that_are_lost_at_the_end(method, error, capfd):
    """A process that ends before its arrays are received says so, and its status is not 0. To join it first does not hang."""
    context = multiprocessing.get_context(method)
    outbox = context.Queue()
    p = context.Process(target=procs.put_and_end_soon, args=(outbox, 3, error))
    p.start()
    p.join(SOON)
    assert p.exitcode == (3 if error == (SystemExit, 3) else 1)
    if method == "spawn":  # a fork server keeps the standard error of its start
        said = capfd.readouterr().err
        assert f"{p.name} ends" in said and "1 of the arrays" in said
        assert ("KeyError: 'mine'" in said) == (error == (KeyError, "mine"))
    with pytest.raises((ReferenceError, ConnectionError)):
        outbox.get(timeout=SOON)


def test_loky_sends_handles(monkeypatch):
    """joblib's loky registers the reducer, whichever is imported first."""
    from usmbridge import _processes

    registered = {}
    monkeypatch.setitem(sys.modules, "loky.backend.reduction", types.SimpleNamespace(register=registered.__setitem__))
    _processes.loky()
    assert registered == {ub.Array: _processes._reduce}


# multiprocessing is imported first, and sends the array when the main thread has ended.
AT_EXIT = """
import multiprocessing.util
import threading
import time

class Late:
    def __reduce__(self):
        while threading.main_thread().is_alive():
            time.sleep(0.01)
        time.sleep(0.3)  # the functions of atexit run
        return int, ()

def receive(ready, inbox):
    ready.set()
    print(inbox.get(), inbox.get().tolist(), flush=True)

import usmbridge as ub
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ready, inbox = context.Event(), context.Queue()
    context.Process(target=receive, args=(ready, inbox)).start()
    ready.wait()
    inbox.put(Late())
    inbox.put(ub.ones(3, "int32", device="host", interprocess=True))
"""


def test_a_program_sends_what_is_in_its_queues_at_exit(tmp_path):
    assert output_of(AT_EXIT, tmp_path) == "0 [1, 1, 1]\n"


# The exit function that ends the process was registered between the imports.
END = """
import atexit
import multiprocessing.util

def work(ready, end):
    ready.set()
    end.wait()

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    context.Process(target=work, args=(ready, end)).start()
    ready.wait()
    values = context.Manager().list([1])
    atexit.register(lambda: (end.set(), print(values[0])))
    import usmbridge
"""


def test_exit_functions_of_the_program_run_before_that_of_multiprocessing(tmp_path):
    assert output_of(END, tmp_path) == "1\n"
