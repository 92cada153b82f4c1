"""Documentation: every public name has a docstring in numpydoc's form, and all examples are true."""

import builtins
import doctest
import importlib
import inspect
import io
import pathlib
import re

import pytest

from conftest import peer, program as run, sycl_device

import usmbridge as ub

# The modules with public names, and the module that each of them needs.
MODULES = {
    "usmbridge": (),
    "usmbridge.cute": (),
    "usmbridge.share": (),
    "usmbridge.numba": ("numba",),
    "usmbridge.dask": ("distributed",),
}
C_METHOD = type(str.join)
C_ATTRIBUTE = type(property.__dict__.get("__isabstractmethod__"))
HIDDEN = {"__dict__", "__weakref__"}
SECTIONS = ["Parameters", "Returns", "Raises", "Warns", "See Also", "Notes", "Examples"]


@pytest.fixture(params=MODULES)
def module(request, np):
    for name in MODULES[request.param]:
        peer(name)
    return importlib.import_module(request.param)


def members(cls, path):
    """The methods and attributes that a class defines. Of special names only C's have texts."""
    for name, item in vars(cls).items():
        written = isinstance(item, (C_METHOD, C_ATTRIBUTE)) and name not in HIDDEN
        if written or (not name.startswith("_") and (inspect.isroutine(item) or isinstance(item, property))):
            yield f"{path}.{name}", item


def documented(module):
    """Pairs of the dotted name and the object, for all public names of a module."""
    ub.Array.sum  # defines the methods of _methods
    yield module.__name__, module
    for name in getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")]):
        item, path = getattr(module, name), f"{module.__name__}.{name}"
        if inspect.ismodule(item):
            continue
        yield path, item
        if inspect.isclass(item):
            yield from members(item, path)


def sections(doc):
    """A dict from the title of each section to its lines."""
    found, lines, current = {}, doc.splitlines(), []
    for line, rule in zip(lines, lines[1:] + [""]):
        if rule and set(rule) == {"-"} and len(rule) == len(line):
            current = found.setdefault(line, [])
        else:
            current.append(line)
    return found


def problems(path, item):
    """Returns the missing parts of a docstring."""
    doc = inspect.getdoc(item)
    if not doc:
        return ["has no docstring"]
    out, parts = [], sections(doc)
    summary, *rest = doc.splitlines()
    if not (summary.endswith((".", "…")) or ". " in summary or ";" in summary) or (rest and summary.endswith(".") and rest[0]):
        out.append("the first line is not a summary")
    titles = [t for t in parts if t in SECTIONS]
    if len(titles) != len(parts) or titles != sorted(titles, key=SECTIONS.index):
        out.append(f"sections {list(parts)}: unknown, or in another order than numpydoc's")
    for line in parts.get("Raises", []):
        if line and not line.startswith(" ") and re.fullmatch(r"[\w, ]+", line):
            out += [f"{e} is not an exception" for e in line.split(", ") if not hasattr(builtins, e)]
    name = path.rpartition(".")[2]
    if name.startswith("_") or not (inspect.isroutine(item) or inspect.isclass(item)):
        return out
    if "Examples" not in parts and not name[0].isupper():
        out.append("has no example")
    if inspect.isroutine(item):
        names = [p.name for p in inspect.signature(item).parameters.values() if p.name != "self"]
        described = "\n".join(line for line in parts.get("Parameters", []) if not line.startswith(" "))
        out += [f"the parameter {n} is not described" for n in names if not re.search(rf"\b{n}\b", described)]
    return out


def test_every_public_name_is_documented(module):
    found = [f"{path}: {p}" for path, item in documented(module) for p in problems(path, item)]
    assert not found, "\n" + "\n".join(found)


def test_every_text_of_c_is_used(np):
    texts = pathlib.Path(__file__).parents[1] / "docstrings.txt"
    for entry in texts.read_text().split("\n=== ")[1:]:
        title, text = entry.split("\n", 1)
        name, _, parameters = title.partition("(")
        item = importlib.import_module("usmbridge._native")
        for part in name.split("."):
            item = getattr(item, part)
        assert inspect.cleandoc(item.__doc__) == inspect.cleandoc(text), name
        if parameters:
            assert item.__text_signature__ == "(" + parameters, name


def failures(examples):
    """Runs examples, pairs of a name and a text, each by itself, and returns the differences."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    report = io.StringIO()
    for path, text in examples:
        runner.run(doctest.DocTestParser().get_doctest(text, {}, path, None, None), out=report.write)
    vars(builtins).pop("_", None)  # the result of the last expression
    assert runner.tries > 0
    return report.getvalue()


def test_examples_are_true(module):
    report = failures((path, inspect.getdoc(item) or "") for path, item in documented(module))
    assert not report, report


PAGES = sorted((pathlib.Path(__file__).parents[3] / "docs").glob("python*.md"))


def blocks(page):
    """The blocks of Python code of a page of the guide."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_sessions_of_the_guide(page):
    sycl_device()
    session = "\n".join(b for b in blocks(page) if b.startswith(">>> "))
    for names in re.findall(r"^>>> import (.+)", session, re.MULTILINE):
        for name in names.split(", "):
            peer(name.split()[0])
    report = failures([(page.name, session)])
    assert not report, report


def test_programs_of_the_guide(tmp_path):
    programs = [b for page in PAGES for b in blocks(page) if not b.startswith(">>> ")]
    for n, text in enumerate(programs):
        path = tmp_path / f"program{n}.py"
        path.write_text(text)
        run(path)
    assert programs
