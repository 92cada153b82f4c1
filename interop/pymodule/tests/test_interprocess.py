"""interprocess= : memory that other processes can map."""

import os

import pytest
from conftest import places, run

import usmbridge as ub


MAKERS = [
    *(lambda f=f, **kw: f((3, 4), "int16", **kw) for f in (ub.empty, ub.zeros, ub.ones)), lambda **kw: ub.full((3, 4), 7, "int16", **kw),
    *(lambda f=f, **kw: f(ub.zeros((3, 4), "int16", device="host"), **kw) for f in (ub.empty_like, ub.zeros_like, ub.ones_like)),
    lambda **kw: ub.full_like(ub.zeros((3, 4), "int16", device="host"), 7, **kw),
]


@pytest.mark.parametrize("make", MAKERS)
def test_everything_that_makes_arrays_takes_it(make):
    for where in places():
        for asked, told in ((None, False), (False, False), (True, True), ("readonly", "readonly")):
            a = make(interprocess=asked, **where)
            assert a.interprocess == told and type(a.interprocess) is type(told), (where, asked)
            assert a.shape == (3, 4) and a.dtype == "int16" and a.usm_type == where.get("usm_type") and not a.readonly
            a.fill(5)
            assert a.tolist() == [[5] * 4] * 3


def test_views_report_it(np):
    for asked in (True, "readonly"):
        a = ub.zeros((4, 6), device="host", interprocess=asked)
        views = [a[1:, ::2], a.T, a.mT, a[0], a[..., None], a.reshape(6, 4), a.as_readonly(), a.view("int32"), a[:0]]
        views += [ub.asarray(np.asarray(a)), ub.from_dlpack(a), ub.asarray(memoryview(a)[1:]), ub.asarray(a)]
        assert [v.interprocess for v in views] == [asked] * len(views)
        # New arrays beside it and copies do not inherit it.
        for other in (ub.empty_like(a), a.copy(), a.astype("int8"), a.to_device("host") if a.usm_type else a.copy()):
            assert other.interprocess is False
        with a:
            pass
        with pytest.raises(ValueError, match="released"):
            a.interprocess
    assert ub.asarray(np.zeros(4)).interprocess is False and ub.asarray([1, 2]).interprocess is False


def test_invalid_values():
    for value in ("read", "", "READONLY"):
        with pytest.raises(ValueError, match='"readonly"'):
            ub.zeros(3, interprocess=value)
    for value in (1, 0, 1.0, b"readonly", [True]):
        with pytest.raises(TypeError, match="interprocess must be"):
            ub.zeros(3, interprocess=value)
    with pytest.raises(TypeError):
        ub.zeros(3, "float32", True)


def test_each_audience_has_pages_of_its_own():
    """A peer maps whole segments: arrays of different audiences must not share a segment."""
    page = os.sysconf("SC_PAGESIZE")
    for where in places():
        pages = {}
        for asked in (True, "readonly", False):
            arrays = [ub.empty(64, interprocess=asked, **where) for _ in range(20)]
            pages[asked] = {a._pointer // page for a in arrays}
            del arrays
        for x in pages:
            for y in pages:
                assert x == y or not pages[x] & pages[y]


def test_counted_limited_and_trimmed(device):
    """The counters include it, trim() returns all of it, and limits apply to it."""
    out = run("""
import itertools, time
def mapped():
    return sum("memfd:" in line for line in open("/proc/self/maps"))
def files():
    return sum("memfd:" in os.readlink("/proc/self/fd/" + f) for f in os.listdir("/proc/self/fd") if os.path.islink("/proc/self/fd/" + f))
def get(name):
    return ub.stats()[name + "_bytes.all.current"]
for where, asked in itertools.product((dict(device="host"), dict(usm_type="shared"), dict(usm_type="device")), (True, "readonly")):
    ub.trim()
    before = get("allocated"), get("reserved")
    a = ub.empty(8 << 20, "int8", interprocess=asked, **where)
    assert get("allocated") >= before[0] + (8 << 20) and get("reserved") >= before[1] + (8 << 20)
    assert mapped() and files()
    ub.trim()
    a.fill(1)
    assert mapped()
    del a
    given, end = 0, time.monotonic() + 60
    while given < 8 << 20 and time.monotonic() < end:  # the fill may be under way
        given += ub.trim()
    assert given >= 8 << 20
    assert not mapped() and not files()
    after = get("allocated"), get("reserved")
    assert after[0] == before[0] and after[1] <= before[1], (before, after)
    ub._set_limit(get("reserved") + (4 << 20))
    try:
        ub.empty(64 << 20, "int8", interprocess=asked, **where)
    except MemoryError as e:
        assert "limit" in str(e), e
    else:
        raise AssertionError("beyond the limit")
    ub._set_limit(0)
print("done")
""")
    assert out == "done\n"


def test_out_of_descriptors():
    """The error has the reason: each segment takes a descriptor."""
    out = run("""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
keep = []
ub.zeros(3, device="host")
try:
    for _ in range(1000):
        keep.append(ub.empty(64 << 20, "int8", device="host", interprocess=True))
except MemoryError as e:
    print(len(keep) > 50, "limit" in str(e) or "descriptors" in str(e))
""")
    assert out == "True True\n"
