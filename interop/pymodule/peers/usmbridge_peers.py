"""A pytest plugin that runs the peers' own tests, unmodified, with usmbridge in the process.

    bin/usmpython -m pytest -p usmbridge_peers [--route] --pyargs numpy._core.tests.test_dlpack ...

It imports usmbridge before the peers. With --route the peers' DLPack imports go through usmbridge: their from_dlpack(x)
becomes from_dlpack(usmbridge.from_dlpack(x)).

The tables below list the tests that fail, with the reason. A failing test that is not listed, and a listed test that passes,
fail the run. So does a run with --route that routed nothing."""

import functools
import importlib

import pytest

import usmbridge

# (with --route only, part of the test's id, reason).
EXPECTED = [
    (
        True,
        "test_from_dlpack_no_dlpack_method",
        "an object that has no __dlpack__ is a TypeError to usmbridge, as to dpnp and JAX; pyarrow and NumPy let the AttributeError through",
    ),
]

# (part of the test's id, reason): tests whose outcome says nothing about us.
UNSTEADY = [
    (
        "test_memory_copy_between_contexts",
        "the OpenCL CPU driver loses or never ends copies between sub-devices on a busy machine, without usmbridge too",
    ),
]

routed_calls = 0


def through(original):
    """Returns a peer's from_dlpack that goes through usmbridge; the peer handles device and copy."""

    @functools.wraps(original)
    def from_dlpack(x, /, **kwargs):
        global routed_calls
        routed_calls += 1
        return original(usmbridge.from_dlpack(x), **kwargs)

    return from_dlpack


class _StandIn(type):
    """A subclass with another from_dlpack, for a class whose methods cannot be replaced."""

    def __getattr__(cls, name):
        return getattr(cls.original, name)

    def __call__(cls, *args, **kwargs):
        return cls.original(*args, **kwargs)

    def __instancecheck__(cls, x):
        return isinstance(x, cls.original)


def stand_in(original):
    return _StandIn(original.__name__, (), {"original": original, "from_dlpack": staticmethod(through(original.from_dlpack))})


def route():
    for name in ("numpy", "array_api_strict", "dpnp", "dpnp.tensor"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "from_dlpack"):
            module.from_dlpack = through(module.from_dlpack)
    try:
        pyarrow = importlib.import_module("pyarrow")
    except ImportError:
        return
    for name in ("Array", "FixedShapeTensorArray", "Tensor"):
        setattr(pyarrow, name, stand_in(getattr(pyarrow, name)))


def pytest_addoption(parser):
    parser.addoption("--route", action="store_true", help="import DLPack through usmbridge")


def pytest_configure(config):
    if config.getoption("--route"):
        route()


def pytest_report_header(config):
    return f"usmbridge {usmbridge.__version__}, from_dlpack {'through usmbridge' if config.getoption('--route') else 'as it is'}"


def pytest_collection_modifyitems(config, items):
    routed = config.getoption("--route")
    for item in items:
        for only_routed, part, reason in EXPECTED:
            if part in item.nodeid and (routed or not only_routed):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        for part, reason in UNSTEADY:
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    if session.config.getoption("--route") and not session.config.option.collectonly:
        print(f"\n{routed_calls} arrays went through usmbridge.from_dlpack")
        if routed_calls == 0 and exitstatus == 0:
            session.exitstatus = 1
