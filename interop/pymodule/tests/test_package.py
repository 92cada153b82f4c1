"""The package around the C module, built in and as a wheel, and its stubs."""

import importlib
import importlib.metadata
import importlib.resources
import inspect
import json
import os
import pickle
import pkgutil
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from conftest import BUILT_IN, program as run

import usmbridge as ub


def test_names_are_the_packages():
    """Names and pickles do not depend on how the package is loaded."""
    assert ub.__name__ == ub.__package__ == "usmbridge" and ub._native.__name__ == "usmbridge._native"
    for name in ub.__all__:
        item = getattr(ub, name)
        if inspect.ismodule(item):
            assert item.__name__ == f"usmbridge.{name}"
        else:
            assert item.__module__ == "usmbridge" and pickle.loads(pickle.dumps(item)) is item
            assert f"usmbridge {name}".replace(" ", "\n").encode() in pickle.dumps(item, 0)


@pytest.mark.parametrize("name, instead", [("sin", "usmbridge.array_api.sin"), ("linalg", "usmbridge.array_api.linalg"), ("fft", "usmbridge.array_api.fft"),
                                            ("int8", "usmbridge.array_api.int8"), ("median", "numpy.median"), ("random", "numpy.random"), ("sinn", "array_api"), ("_x", "")])
def test_errors_name_what_to_use(name, instead):
    with pytest.raises(AttributeError) as e:
        getattr(ub, name)
    assert str(e.value).startswith(f"module 'usmbridge' has no attribute '{name}'") and instead in str(e.value)
    assert bool(instead) == (";" in str(e.value))


def test_reload_and_import_anew():
    module = sys.modules.pop("usmbridge")
    try:
        again = importlib.import_module("usmbridge")
        assert again.Array is ub.Array and again.__spec__.submodule_search_locations is not None
        assert importlib.reload(again) is again and again.zeros is ub.zeros
    finally:
        sys.modules["usmbridge"] = module
    assert importlib.reload(module) is module and module.Array is ub.Array
    with pytest.raises(ImportError):
        importlib.import_module("usmbridge.no_such_module")


def test_sources_and_resources():
    main = importlib.import_module("usmbridge.__main__")
    assert inspect.getsource(main.main).startswith("def main(")
    assert inspect.getsource(ub).startswith('"""') and pkgutil.get_data("usmbridge", "__init__.py").decode() == inspect.getsource(ub)
    files = importlib.resources.files("usmbridge")
    assert files.joinpath("py.typed").is_file() and "__init__.pyi" in [f.name for f in files.iterdir()]
    assert (files / "__init__.pyi").read_text().startswith('"""') and not (files / "none").is_file()
    with files.joinpath("cute.pyi").open("rb") as f:
        assert f.read() == files.joinpath("cute.pyi").read_bytes()
    with pytest.raises(FileNotFoundError):
        (files / "none").read_bytes()


def test_traceback_has_the_source_line():
    main = importlib.import_module("usmbridge.__main__")
    with pytest.raises(TypeError):
        try:
            main.main([1])
        except TypeError:
            assert "options = parser.parse_args(argv)" in traceback.format_exc()
            raise


def test_metadata():
    d = importlib.metadata.distribution("usmbridge")
    assert d.version == ub.__version__ and d.metadata["License-Expression"] == "Apache-2.0"
    assert d.metadata["Requires-Python"] == ">=3.11" and d.metadata["Project-URL"].startswith("Homepage, https://")
    if not BUILT_IN:
        assert d.metadata.get_payload().startswith("# usmbridge")


def test_as_program():
    assert run("-m", "usmbridge").startswith(f"usmbridge {ub.__version__}, go")
    report = json.loads(run("-m", "usmbridge", "--json"))
    assert report["python"]["executable"] == sys.executable and report["python"]["source"] == "this process"
    assert report["platforms"][-1]["devices"][0]["filter_string"] == "host"


def test_a_free_threaded_python_is_refused():
    """The error comes before the C module is searched. `make test-pythons` uses a python3.14t if there is one; this
    test uses its ABI flags."""
    out = run("-c", """
import sys
sys.abiflags += "t"
try:
    import usmbridge
except ImportError as e:
    print(e, e.name, "usmbridge" in sys.modules, "usmbridge._native" in sys.modules)
""")
    short = "%d.%d" % sys.version_info[:2]
    assert "a free-threaded build (" in out and f"use the ordinary build of Python {short}" in out
    assert out.endswith(" usmbridge False False\n"), out


@pytest.fixture
def stubs(tmp_path):
    """Returns a directory with the package's files for mypy, away from where programs run."""
    if not os.environ.get("USMBRIDGE_REQUIRE_PEERS"):
        pytest.importorskip("mypy")
    folder = tmp_path / "stubs" / "usmbridge"
    folder.mkdir(parents=True)
    for f in importlib.resources.files("usmbridge").iterdir():
        if f.name.endswith((".py", ".pyi", "py.typed")):
            folder.joinpath(f.name).write_bytes(f.read_bytes())
    return folder.parent


def mypy(stubs, module, *args):
    run("-m", module, *args, cwd=stubs.parent, MYPYPATH=str(stubs), MYPY_CACHE_DIR=str(stubs.parent / "cache"))


def test_stubs(stubs):
    """The stubs declare exactly what the module has. By hand:
    `MYPYPATH=internal/pypackage bin/usmpython -m mypy.stubtest usmbridge`."""
    # The buffer protocol has Python names from 3.12 on; typing has them in all versions.
    allowed = stubs.parent / "allowed"
    allowed.write_text("usmbridge\\.Array\\.__(release_)?buffer__\n")
    # The types of other libraries are not compared, and mypy takes longer to read them than the stubs.
    config = stubs.parent / "mypy.ini"
    config.write_text("[mypy]\n[mypy-numba.*,numpy.*,dask.*,distributed.*,dpctl.*,dpnp.*]\nfollow_imports = skip\n")
    mypy(stubs, "mypy.stubtest", "usmbridge", "--concise", "--allowlist", str(allowed), "--ignore-unused-allowlist", "--mypy-config-file", str(config))


# The results of functions of array_api that are not Arrays.
RETURNS = {
    "nonzero": "tuple[Array, ...]", "unstack": "tuple[Array, ...]", "__dir__": "list[str]", "capabilities": "dict[str, Any]", "devices": "list[Any]",
    "default_dtypes": "dict[str, numpy.dtype[Any]]", "dtypes": "dict[str, numpy.dtype[Any]]",
    **dict.fromkeys("asnumpy broadcast_arrays can_cast finfo iinfo isdtype meshgrid result_type unique_all unique_counts unique_inverse default_device".split(), "Any"),
}


def declared(name, function):
    """Returns the declaration of a function for a stub."""
    signature = inspect.signature(function)
    parameters = [p if p.name == "self" else p.replace(annotation=Any) for p in signature.parameters.values()]
    return f"def {name}{signature.replace(parameters=parameters)} -> {RETURNS.get(name, 'Array')}: ...".replace("typing.Any", "Any")


def stub_of_array_api():
    from usmbridge import array_api

    info = array_api.__array_namespace_info__
    shared = [name for name in array_api.__all__ if hasattr(ub._native, name)]
    functions = {name: f for name, f in vars(array_api).items() if inspect.isfunction(f) and (name in array_api.__all__ or name == "__dir__")}
    types = {"NoneType": "None", "module": "types.ModuleType"}
    values = {name: "numpy.dtype[Any]" if hasattr(v, "newbyteorder") else types.get(type(v).__name__, type(v).__name__) for name, v in vars(array_api).items() if name in array_api.__all__ and name not in shared and not callable(v)}
    return "\n".join([
        '"""Types of the module usmbridge.array_api."""', "",
        "# Code generated by test_package.py with USMBRIDGE_WRITE=1. DO NOT EDIT.", "",
        "import types", "from typing import Any", "", "import numpy", "", "from usmbridge import Array as Array",
        *(f"from usmbridge import {name} as {name}" for name in sorted(shared)), "",
        f"__all__ = {array_api.__all__}".replace("'", '"'),
        *(f"{name}: {kind}" for name, kind in sorted(values.items())), "",
        *(declared(name, f) for name, f in sorted(functions.items()) if name not in shared), "",
        "class __array_namespace_info__:", *("    " + declared(name, f) for name, f in vars(info).items() if inspect.isfunction(f)), ""])


def test_stub_of_array_api(np):
    """The stub of array_api is made of the module."""
    if os.environ.get("USMBRIDGE_WRITE"):
        (Path(__file__).parents[3] / "internal/pypackage/usmbridge/array_api.pyi").write_text(stub_of_array_api())
    else:
        assert (importlib.resources.files("usmbridge") / "array_api.pyi").read_text() == stub_of_array_api()


USES = """
import numpy as np
import usmbridge as ub

a: ub.Array = ub.zeros((2, 3), usm_type="shared")
b: ub.Array = a[0, ..., None].T.reshape(3)
shape: tuple[int, ...] = b.shape
view: memoryview = memoryview(a)
n = np.asarray(a)
t = ub.cute.from_dlpack(a).mark_layout_dynamic()
key: str = t.key
ub.zeros(3, usm_type="fast")  # type: ignore[arg-type]

def scale(x: ub.Array, k: float) -> ub.Array:
    return x * k

def standardize(x: ub.Array) -> ub.Array:
    y = (1 - x) ** 2 // -x
    y += x
    return (y - y.mean(axis=0, keepdims=True)) / y.std(0, ddof=1).clip(min=1e-9)

chosen: ub.Array = a[a > 2]
equal: ub.Array = a == b
parts: tuple[ub.Array, ub.Array] = divmod(a, 2)
grid: ub.Array = ub.stack([ub.arange(3), ub.linspace(0, 1, 3), ub.eye(3)[0]]).real
"""


def test_stubs_in_use(stubs):
    """A type checker accepts a typical program."""
    program = stubs.parent / "program.py"
    program.write_text(USES)
    mypy(stubs, "mypy", "--strict", str(program))
