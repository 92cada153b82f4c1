"""usmbridge.share: arrays for unrelated processes."""

import contextlib
import gc
import os
import pickle
import signal
import subprocess
import threading
from multiprocessing.reduction import ForkingPickler

import procs
import pytest
from conftest import HOST, SOON, leases_end, run, soon, sycl_device

import usmbridge as ub


@pytest.fixture(autouse=True)
def no_leases_remain():
    yield
    leases_end("peers")


class Other:
    """An unrelated process that evaluates lines of Python."""

    def __init__(self, host=HOST, **env):
        self.p = subprocess.Popen([host, procs.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})

    def __call__(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        return self.p.stdout.readline().rstrip("\n")

    def stop(self):
        """Returns when all its threads are stopped, which the signal alone does not guarantee."""
        self.p.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.p.pid, os.WSTOPPED | os.WNOWAIT)

    def end(self, by=signal.SIGKILL):
        self.p.send_signal(by)
        self.p.wait()
        self.p.stdin.close()
        self.p.stdout.close()


@pytest.fixture
def other():
    o = Other()
    yield o
    o.end()


@contextlib.contextmanager
def alarm(handler):
    """Calls a handler after 0.1 s, by a signal."""
    previous = signal.signal(signal.SIGALRM, lambda *_: handler())
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # a signal after an early end would end the process
        signal.signal(signal.SIGALRM, previous)


def test_same_memory_both_ways(other, tmp_path):
    path = str(tmp_path / "frames")
    a, b = ub.zeros((3, 4), "int32", device="host", interprocess=True), ub.ones(5, "float64", device="host", interprocess="readonly")
    with ub.share.serve(path, {"a": a, "part": a[1:, ::2], "only": a.as_readonly(), "b": b}) as server:
        assert sorted(server) == ub.share.names(path) == ["a", "b", "only", "part"] and len(server) == 4
        assert other(f"ub.share.names({path!r})") == "['a', 'b', 'only', 'part']"
        for name, array in server.items():
            assert other(f"!x = ub.share.attach({path!r}, {name!r})") == "None"
            told = eval(other("describe(x)"))
            assert told == (*procs.describe(array)[:4], name in ("only", "b"), array.interprocess)
            assert other("x.tolist()") == repr(array.tolist())
        other(f"!x = ub.share.attach({path!r}, 'part')")
        assert other("!x[0, 1] = 8") == "None" and a[1, 2].item() == 8
        other(f"!y = ub.share.attach({path!r}, 'b')")
        assert other("!y.fill(1)").startswith("ValueError") and b.tolist() == [1] * 5
        other(f"!z = ub.share.attach({path!r}, 'only')")
        assert other("!z.fill(1)").startswith("ValueError")
        # An update applies to later calls of attach.
        server["a"] = c = ub.full(2, 6, "int32", device="host", interprocess=True)
        assert other(f"ub.share.attach({path!r}, 'a').tolist()") == "[6, 6]" and c.interprocess
        del server["a"]
        assert other(f"ub.share.attach({path!r}, 'a')").startswith("KeyError")
        with pytest.raises(KeyError):
            server["a"]
        with pytest.raises(KeyError):
            del server["a"]
    assert server.closed and len(server) == 0
    server.close()
    for use in (lambda: server.__setitem__("a", a), server.__enter__):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert other("(x.tolist()[0], describe(x)[0])") == "([0, 8], (2, 2))"  # the attached array stays
    assert other(f"ub.share.attach({path!r}, 'b')").startswith("ConnectionError")
    assert other("!x = y = z = None") == "None"
    assert os.listdir(tmp_path) == []


def test_other_forms_of_address(other, tmp_path):
    a = ub.ones(3, device="host", interprocess=True)
    for path in ("", f"@usmbridge-test-{os.getpid()}", f"unix:{tmp_path}/socket", tmp_path / "path"):
        with ub.share.serve(path, {"a": a}) as server:
            assert other(f"ub.share.attach({server.address!r}, 'a').tolist()") == "[1.0, 1.0, 1.0]"
            if path:
                assert ub.share.attach(path, "a").tolist() == [1, 1, 1]
                with pytest.raises(ConnectionError):
                    ub.share.serve(path)
        gc.collect()
    assert os.listdir(tmp_path) == []


def test_the_other_process_serves(other, tmp_path):
    """Attaching is the same in this process; a connection is kept, and made again if it was lost."""
    path = str(tmp_path / "x")
    with pytest.raises(ConnectionError, match="no process listens"):
        ub.share.attach(path, "a")
    assert other(f"!s = ub.share.serve({path!r}, dict(a=ub.full(4, 3, 'int32', device='host', interprocess=True)))") == "None"
    a, b = ub.share.attach(path, "a"), ub.share.attach(path, "a", timeout=None)
    assert a._pointer == b._pointer and a.interprocess is True
    a[1] = 9
    assert b.tolist() == [3, 9, 3, 3] and other("s['a'].tolist()") == "[3, 9, 3, 3]"
    assert eval(other("ub.share.stats()"))["leases"] == 2
    b.release()
    soon(lambda: eval(other("ub.share.stats()"))["leases"] == 1)
    # Its maker passes it on.
    with ub.share.serve("", {}) as server:
        with pytest.raises(BufferError, match="lie in no segment|not shared"):
            server["a"] = a
    other.end()
    soon(lambda: ub.share.stats()["peers"] == 0)
    assert a.tolist() == [3, 9, 3, 3]
    again = Other()
    assert again(f"!s = ub.share.serve({path!r}, dict(a=ub.zeros(2, device='host', interprocess=True)))") == "None"
    assert ub.share.attach(path, "a").tolist() == [0, 0]
    again.end()
    a.release()


def test_usm_is_usm_there(other, dpt):
    with ub.share.serve("") as server:
        for kind in ("device", "shared", "host"):
            a = server["a"] = ub.ones(1000, "float32", usm_type=kind, interprocess=True)
            for taken in (f"ub.share.attach({server.address!r}, 'a')", f"ub.share.open({ub.share.export(a)!r})"):
                assert other(f"!x = {taken}") == "None" and eval(other("describe(x)")) == procs.describe(a)
                a.fill(1)
                other("!add_one(x)")
                assert a[:2].tolist() == [2, 2]
            y = dpt.asarray(a)
            y += 1
            y.sycl_queue.wait()
            assert other("x[998:].tolist()") == "[3.0, 3.0]"
            del a, y
        other("!x = None")
    gc.collect()


def test_without_a_device_usm_is_plain_memory():
    sycl_device()
    other = Other(USMBRIDGE_SYCL="off")
    with ub.share.serve("", {"a": ub.full(3, 2, "int32", usm_type="shared", interprocess=True)}) as server:
        assert other(f"!x = ub.share.attach({server.address!r}, 'a')") == "None"
        assert eval(other("describe(x)"))[3] is None and other("!x.fill(4)") == "None" and server["a"].tolist() == [4, 4, 4]
    other.end()


def test_memory_that_cannot_be_shared():
    with ub.share.serve("") as server:
        for a in (ub.zeros(3, device="host"), ub.asarray(bytearray(4))):
            with pytest.raises(BufferError, match="no segment"):
                server["a"] = a
        assert list(server) == []
        for wrong in (None, 3, bytearray(4), [1]):
            with pytest.raises(TypeError, match="usmbridge.Array"):
                server["a"] = wrong
        with pytest.raises(TypeError):
            server[3] = ub.zeros(3, device="host", interprocess=True)
        with pytest.raises(KeyError):
            server["x" * 300] = ub.zeros(3, device="host", interprocess=True)
        with ub.zeros(3, device="host", interprocess=True) as gone:
            pass
        with pytest.raises(ValueError, match="released"):
            server["a"] = gone
    half = f"@usmbridge-test-half-{os.getpid()}"
    with pytest.raises(BufferError):
        ub.share.serve(half, {"good": ub.zeros(3, device="host", interprocess=True), "bad": ub.zeros(3, device="host")})
    ub.share.serve(half).close()  # the name is free


def test_an_array_released_by_a_later_argument(np):
    a = ub.zeros(3, device="host", interprocess=True)

    class Timeout:
        def __float__(self):
            a.release()
            return 1.0

    n = np.asarray(a)  # holds the memory
    with pytest.raises(ValueError, match="released"):
        ub.share.export(a, timeout=Timeout())
    assert n.tolist() == [0, 0, 0]


def test_arguments():
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            ub.share.attach("@nobody", "a", timeout=wrong)
    with pytest.raises(TypeError):
        ub.share.attach("@nobody", "a", timeout="1")
    with pytest.raises(TypeError):
        ub.share.attach("@nobody", b"a")
    with pytest.raises(TypeError):
        ub.share.serve(None)
    for path in ("", "\0", "@", "x" * 10 + "\0"):
        with pytest.raises(ConnectionError):
            ub.share.attach(path, "a")
    with pytest.raises(ConnectionError):
        ub.share.names("@usmbridge-test-nobody")
    with pytest.raises(BufferError, match="interprocess=True"):
        ub.share.export(ub.zeros(3, device="host"))
    with pytest.raises(TypeError):
        ub.share.revoke("handle")
    handle = ub.share.export(ub.zeros(3, device="host", interprocess=True))
    for _ in range(2):  # the second call has no effect
        ub.share.revoke(handle)
        with pytest.raises(ReferenceError):
            ub.share.open(handle)


def test_waiting_has_a_timeout_and_releases_the_gil(other):
    """A stopped process does not answer; the GIL is released meanwhile, and later calls work."""
    address = eval(other("globals().setdefault('s', ub.share.serve('', dict(a=ub.zeros(2, device='host', interprocess=True)))).address"))
    a = ub.share.attach(address, "a")
    other.stop()
    with pytest.raises(TimeoutError):
        ub.share.attach(address, "a", timeout=0.1)
    # Only this thread, which needs the GIL for it, lets the process go on.
    t = threading.Timer(0.1, other.p.send_signal, (signal.SIGCONT,))
    t.start()
    assert ub.share.attach(address, "a", timeout=SOON)._pointer == a._pointer
    t.join()


def test_servers_start_at_first_use():
    out = run("""
def threads():
    return len(os.listdir("/proc/self/task"))
def sockets():
    return sum("socket:" in os.readlink("/proc/self/fd/" + f) for f in os.listdir("/proc/self/fd") if os.path.islink("/proc/self/fd/" + f))
had = sockets()
assert "multiprocessing" not in sys.modules and "usmbridge.share" not in sys.modules and "socket" not in sys.modules
ub.zeros(3, device="host", interprocess=True)
ub.trim()
print(sockets() == had, ub.share.stats())
""")
    assert out.startswith("True {'peers': 0")


def test_mapping_and_end():
    server = ub.share.serve("", {"a": ub.zeros(3, device="host", interprocess=True)})
    assert repr(server).startswith("<usmbridge.share.Server '@usmbridge/") and "closed" not in repr(server)
    address = server.address
    assert server.get("b") is None and "a" in server and server.pop("a").tolist() == [0, 0, 0]
    del server
    gc.collect()
    with pytest.raises(ConnectionError):
        ub.share.attach(address, "a")


def test_names_hold_any_byte():
    a = ub.zeros(3, device="host", interprocess=True)
    with ub.share.serve("", {"a\0b": a, "c": a}) as server:
        assert sorted(ub.share.names(server.address)) == ["a\0b", "c"]
        assert ub.share.attach(server.address, "a\0b").shape == (3,)


def test_wait_for_a_newer_version(other):
    """A process waits for the first version and each newer one; a signal interrupts the wait."""
    with ub.share.serve("") as server:
        next_one = f"!x, number = ub.share.wait({server.address!r}, 'frame', number, timeout=300)"
        assert other("!number = 0") == "None"
        for value in (1, 2):
            other.p.stdin.write(next_one + "\n")  # the other process may wait before or after the assignment
            other.p.stdin.flush()
            server["frame"] = ub.full(2, value, device="host", interprocess=True)
            assert other.p.stdout.readline() == "None\n" and other("x.tolist()") == f"[{value}, {value}]"
        for value in (3, 4):
            server["frame"] = ub.full(2, value, device="host", interprocess=True)
        assert other(next_one) == "None" and other("x.tolist()") == "[4, 4]"
        assert other("!x = None") == "None"
        _, number = ub.share.wait(server.address, "frame")
        with pytest.raises(TimeoutError, match=f"after number {number}"):
            ub.share.wait(server.address, "frame", number, timeout=0)
        with pytest.raises(ZeroDivisionError), alarm(lambda: 1 / 0):
            ub.share.wait(server.address, "nothing")
        address = server.address
        del _
    with pytest.raises(ConnectionError):
        ub.share.wait(address, "frame", timeout=SOON)


WAITS = {
    "attach": lambda address, handle, pickled, a: ub.share.attach(address, "a", timeout=SOON).release(),
    "names": lambda address, handle, pickled, a: ub.share.names(address, timeout=SOON),
    "wait": lambda address, handle, pickled, a: ub.share.wait(address, "a", timeout=SOON)[0].release(),
    "open": lambda address, handle, pickled, a: ub.share.open(handle, timeout=SOON).release(),
    "unpickle": lambda address, handle, pickled, a: pickle.loads(pickled).release(),
}


@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize("call", WAITS.values(), ids=WAITS)
def test_signals_interrupt_the_wait_for_a_silent_process(other, call, connected):
    """A handler that raises ends the call. After any other handler the call goes on."""
    other("!a = ub.zeros(2, device='host', interprocess=True)")
    address = eval(other("globals().setdefault('s', ub.share.serve('', dict(a=a))).address"))
    other("!from multiprocessing.reduction import ForkingPickler")
    calls = [(address, eval(other("ub.share.export(a)")), eval(other("bytes(ForkingPickler.dumps(a))"))) for _ in range(2)]
    a = ub.zeros(2, device="host", interprocess=True)
    if connected:
        ub.share.names(address)
        ub.share.open(eval(other("ub.share.export(a)"))).release()
    other.stop()
    with pytest.raises(ZeroDivisionError), alarm(lambda: 1 / 0):
        call(*calls[0], a)
    with alarm(lambda: other.p.send_signal(signal.SIGCONT)):
        call(*calls[1], a)
    assert ub.share.names(address) == ["a"]


def test_signals_interrupt_the_export_of_another_process_memory(other):
    """Its maker makes the handle."""
    other("!s = ub.share.serve('', dict(a=ub.zeros(2, device='host', interprocess=True)))")
    a = ub.share.attach(eval(other("s.address")), "a")
    other.stop()
    for export in (ub.share.export, ForkingPickler.dumps):
        with pytest.raises(ZeroDivisionError), alarm(lambda: 1 / 0):
            export(a)
    other.p.send_signal(signal.SIGCONT)
    assert ub.share.open(ub.share.export(a)).tolist() == [0, 0]


def test_limits_of_a_server():
    a = ub.zeros(3, device="host", interprocess=True)
    with ub.share.serve("", {"a": a}, max_names=1, max_leases=2) as server:
        with pytest.raises(RuntimeError, match="MaxNames"):
            server["b"] = a
        held = [ub.share.attach(server.address, "a") for _ in range(2)]
        with pytest.raises(RuntimeError, match="limit"):
            ub.share.attach(server.address, "a")
        del held
    for bad, error in ((dict(max_names=0), ValueError), (dict(max_names=True), TypeError), (dict(names=1), TypeError)):
        with pytest.raises(error):
            ub.share.serve("", **bad)


def test_a_new_server_at_an_address():
    """The connection to the former server is replaced."""
    with ub.share.serve("") as server:
        address = server.address
        assert ub.share.names(address) == []
    with ub.share.serve(address, {"a": ub.zeros(3, device="host", interprocess=True)}):
        assert ub.share.names(address) == ["a"]
