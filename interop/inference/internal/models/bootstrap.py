"""Imports the models of the inference server from their sources, one by one, and calls them.

A model is a module with INPUTS and OUTPUTS, each a dict from a tensor's name to
(datatype, shape), -1 for any extent, and infer(**inputs). It may have
  - a keyword-only parameter `outputs` of infer: then infer writes the arrays in that dict and
    returns None or the dict; otherwise it returns a dict with an array for each output;
  - a keyword-only parameter `request` of infer, unless an input has this name: it has the attributes `id`, a string, and
    `parameters`, a dict of the request's parameters;
  - WRITES_ALL = True: infer writes every element of `outputs`, whose memory is not cleared;
  - output_shapes(**shapes) -> dict, if the shapes of outputs do not follow from those of the
    inputs by the rule;
  - SERIAL = True: calls run one at a time;
  - warm(), which is called instead of a first call on zeros.
"""

import base64
import contextlib
import gc
import importlib
import inspect
import json
import keyword
import linecache
import os
import sys
import traceback
import types
import weakref

import usmbridge

# The datatypes of the protocol, and their array API names.
DATATYPES = {d: d.lower() for d in ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")}
DATATYPES |= {"FP16": "float16", "FP32": "float32", "FP64": "float64", "BF16": "bfloat16"}
# Each free extent of the inputs of a first call.
WARM_EXTENT = 8

_modules = weakref.WeakSet()  # of models
_package = types.ModuleType("usmbridge_models")  # of their modules, so that a model called numpy does not hide NumPy
_package.__path__ = []
sys.modules[_package.__name__] = _package
sys.modules[f"{__name__}_serial"] = sys.modules[__name__]  # the name by which functions of serial models are called


# A model's output appears line by line, also in a pipe.
for _stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(AttributeError, ValueError):
        _stream.reconfigure(line_buffering=True)


if "usmbridge.serving" not in sys.modules:  # models import it
    _serving = types.ModuleType("usmbridge.serving", "What the models of the inference server use.")
    _doc = "Raised by a model to refuse a request. The client gets the message, with status 400."
    _serving.InvalidInput = type("InvalidInput", (Exception,), {"__module__": _serving.__name__, "__doc__": _doc})
    sys.modules[_serving.__name__] = usmbridge.serving = _serving


class ModelError(Exception):
    """A model has an invalid declaration, or breaks it."""


def _tensors(module, what):
    """INPUTS or OUTPUTS as a list of (name, datatype, shape), checked."""
    declared = getattr(module, what, None)
    if not isinstance(declared, dict) or not declared:
        raise ModelError(f"{what} must be a dict from names to (datatype, shape), and not empty")
    tensors = []
    for name, value in declared.items():
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise ModelError(f"{what}: {name!r} is not a valid name: names are Python identifiers")
        if name == "outputs":
            raise ModelError(f"{what}: no tensor may be called 'outputs', which is a parameter of infer")
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise ModelError(f"{what}[{name!r}] must be (datatype, shape), not {value!r}")
        datatype, shape = value
        if not isinstance(datatype, str) or datatype not in DATATYPES:
            raise ModelError(f"{what}[{name!r}]: invalid datatype {datatype!r}: want one of {', '.join(DATATYPES)}")
        if not isinstance(shape, (tuple, list)) or not all(type(n) is int and -1 <= n < 1 << 63 for n in shape):
            raise ModelError(f"{what}[{name!r}]: shape {shape!r} must hold integers of 64 bits, -1 for any extent")
        tensors.append((name, datatype, list(shape)))
    return tensors


def _function(module, name):
    """Returns a function of a model, or None. A call of a coroutine or generator function only makes an
    object and runs nothing of its body, so these are refused."""
    function = getattr(module, name, None)
    for f in (function, getattr(type(function), "__call__", None)):
        if inspect.iscoroutinefunction(f) or inspect.isgeneratorfunction(f) or inspect.isasyncgenfunction(f):
            raise ModelError(f"{name} is a coroutine or generator function: it must be a plain function, which runs to its end")
    return function


def _extras(infer, inputs):
    """Checks that infer takes the inputs, and returns which of `outputs` and `request` it has as keyword-only parameters."""
    try:
        signature = inspect.signature(infer)
    except (TypeError, ValueError):
        return []
    names = [name for name, _, _ in inputs]
    found = [signature.parameters.get(name) for name in ("outputs", "request") if name not in names]
    extras = [p.name for p in found if p is not None and p.kind is p.KEYWORD_ONLY]
    try:
        signature.bind(**dict.fromkeys(names + extras))
    except TypeError as error:
        raise ModelError(f"infer does not take INPUTS: {error}") from None
    return extras


def _requesting(function):
    """Returns a function that passes its last argument as `request`."""

    def call(*arguments, **named):
        *arrays, request = arguments
        return function(*arrays, request=types.SimpleNamespace(**request), **named)

    return call


def _writer(infer, inputs, outputs):
    """Returns the function that calls an infer which writes its outputs."""
    split = len(inputs)

    def call(*arrays, **extra):
        named = dict(zip(outputs, arrays[split:]))
        result = infer(**dict(zip(inputs, arrays)), outputs=named, **extra)
        if result is not None and result is not named:
            raise ModelError(f"infer returned {type(result).__name__}: with the parameter outputs it must return None or outputs")
        for name, array in zip(outputs, arrays[split:]):
            if named.get(name) is not array:
                raise ModelError(f"outputs[{name!r}] was replaced: it is an array to be written")

    return call


def _returner(infer, inputs, outputs, dtypes):
    """Returns the function that calls an infer which returns its outputs."""
    wanted = frozenset(outputs)

    def call(*arrays, **extra):
        result = infer(**dict(zip(inputs, arrays)), **extra)
        if not isinstance(result, dict):
            raise ModelError(f"infer returned {type(result).__name__}: it must return a dict with an array for each output")
        if result.keys() != wanted:
            raise ModelError(f"infer returned {sorted(map(str, result))}, and OUTPUTS has {sorted(wanted)}")
        return [_array(name, result[name], dtype) for name, dtype in zip(outputs, dtypes)]

    return call


def _array(name, value, dtype):
    """Converts a returned value to an array. Numbers and lists get the declared type."""
    try:
        if hasattr(value, "dtype"):
            return usmbridge.asarray(value)
        return usmbridge.asarray(value, dtype=dtype)
    except MemoryError:
        raise
    except Exception as error:
        raise ModelError(f"output {name!r}, a {type(value).__name__}, cannot be converted to an array: {error}") from error


def _shaper(output_shapes, inputs, outputs):
    """Returns the function that calls output_shapes and returns a list of shapes as JSON."""

    def call(*shapes):
        result = output_shapes(**{name: tuple(shape) for name, shape in zip(inputs, shapes)})
        if not isinstance(result, dict) or result.keys() != set(outputs):
            raise ModelError(f"output_shapes returned {result!r}, and OUTPUTS has {sorted(outputs)}")
        return json.dumps([[int(n) for n in result[name]] for name in outputs])

    return call


def _zeros(shape, dtype):
    """Returns an array like those of requests: shared USM, or host memory without SYCL."""
    shape = tuple(WARM_EXTENT if n < 0 else n for n in shape)
    try:
        return usmbridge.zeros(shape, dtype=dtype, usm_type="shared")
    except Exception:
        return usmbridge.zeros(shape, dtype=dtype, device="host")


def _first_call(model):
    """Calls infer on zeros."""
    arrays = [_zeros(shape, DATATYPES[datatype]).as_readonly() for _, datatype, shape in model.inputs]
    if model.bound:
        shapes = [shape for _, _, shape in model.outputs]
        if model.shapes:
            shapes = json.loads(model.shapes(*[list(a.shape) for a in arrays]))
        arrays += [_zeros(shape, DATATYPES[datatype]) for shape, (_, datatype, _) in zip(shapes, model.outputs)]
    model.infer(*arrays, *[{"id": "", "parameters": {}}] * model.request)


def _define(name, module):
    """Returns the checked declarations and the functions of a model."""
    infer = _function(module, "infer")
    if not callable(infer):
        raise ModelError("the model has no function infer")
    inputs, outputs = _tensors(module, "INPUTS"), _tensors(module, "OUTPUTS")
    model = types.SimpleNamespace(name=name, inputs=inputs, outputs=outputs, error=None)
    extras = _extras(infer, inputs)
    model.bound, model.request = "outputs" in extras, "request" in extras
    model.serial = bool(getattr(module, "SERIAL", False))
    model.writes_all = bool(getattr(module, "WRITES_ALL", False))
    ins, outs = tuple(t[0] for t in inputs), tuple(t[0] for t in outputs)
    if model.bound:
        model.infer = _writer(infer, ins, outs)
    else:
        model.infer = _returner(infer, ins, outs, tuple(DATATYPES[t[1]] for t in outputs))
    if model.request:
        model.infer = _requesting(model.infer)
    shapes = _function(module, "output_shapes")
    model.shapes = _shaper(shapes, ins, outs) if shapes is not None else None
    model.warm = _function(module, "warm")
    return model


class Slot:
    """The functions of a model under a name that stays valid: later models use the slot again."""

    module = call = call_shapes = None

    def infer(self, *arrays):
        return self.call(*arrays)

    def shapes(self, *shapes):
        return self.call_shapes(*shapes)


def _import(name, file, text):
    """Makes a module of a model and runs its text. Models import helper modules of the directory by name, after installed
    packages, or relative to the package."""
    module = types.ModuleType(f"{_package.__name__}.{name}")
    module.__file__, module.__package__ = file, _package.__name__
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    _modules.add(module)
    sys.modules[module.__name__] = module
    exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)
    return module


def _warm(model):
    """Warms a model. One without warm() is called on zeros. If it refuses them, the traceback is printed."""
    if model.warm is not None:
        result = model.warm()
        if inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise ModelError(f"warm has not run: its result is of type {type(result).__name__}")
        return
    try:
        _first_call(model)
    except (Exception, SystemExit):
        print(f"model {model.name}: the first call, on zeros, failed; define warm() if the model needs other inputs", file=sys.stderr)
        traceback.print_exc()


def _drop(name):
    """Removes a module, so that the next import imports it again."""
    sys.modules.pop(name, None)
    package, _, rest = name.partition(".")
    if package == _package.__name__:
        vars(_package).pop(rest, None)


def _refresh(directory):
    """Forgets the helper modules of the directory, so that the next model imports them again. Models keep those that they
    have imported."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        importing = getattr(getattr(module, "__spec__", None), "_initializing", False)  # by another load
        if directory and file.startswith(directory + "/") and module not in _modules and not importing:
            _drop(name)
    importlib.invalidate_caches()


def load(job):
    """Loads a model into a slot, and describes it as JSON with the fields of engine.Definition. Broken is the reason why it
    cannot be called, for clients, and Detail a traceback for the log. Until it is loaded, and after a failure, a
    module of the same name stays the one that other models import."""
    job = types.SimpleNamespace(**json.loads(job))
    job.file, job.directory = (os.fsdecode(base64.b64decode(path)) for path in (job.file, job.directory))
    _package.__path__ = [job.directory] if job.directory else []
    if job.directory and job.directory not in sys.path:
        sys.path.append(job.directory)
    if job.fresh:
        _refresh(job.directory)
    qualified, error, detail, module = f"{_package.__name__}.{job.name}", "", "", None
    before = sys.modules.get(qualified)
    doing = "it cannot be imported"
    try:
        module = _import(job.name, job.file, job.text)
        model = _define(job.name, module)
        doing = "warm() failed"
        _warm(model)
        slot = globals().setdefault(f"slot_{job.slot}", Slot())  # the name of a model need not be an identifier
        slot.call, slot.call_shapes = model.infer, model.shapes
        setattr(_package, job.name, module)
        slot.module = module
        return _describe(model, f"{__name__}{'_serial' * model.serial}:slot_{job.slot}")
    except ModelError as problem:
        error = str(problem)
    except (Exception, SystemExit):
        error, detail = doing, traceback.format_exc()
    finally:
        if getattr(globals().get(f"slot_{job.slot}"), "module", None) is not module or module is None:
            sys.modules.pop(qualified, None)
            if before is not None:
                sys.modules[qualified] = before
    return json.dumps({"Meta": {"name": job.name}, "Broken": error, "Detail": detail})


def _describe(model, at):
    meta = {"name": model.name, "platform": "usmbridge_python"}
    for field in ("inputs", "outputs"):
        meta[field] = [dict(zip(("name", "datatype", "shape"), t)) for t in getattr(model, field)]
    flags = {"Bound": model.bound, "Serial": model.serial, "WritesAll": model.writes_all, "Request": model.request}
    return json.dumps({"Meta": meta, "Function": f"{at}.infer", "Shapes": f"{at}.shapes" if model.shapes else "", **flags})


def unload(slot):
    """Empties a slot, also after a load that failed. Functions and their modules refer to each other, and Python's
    automatic collection can take long to begin: it counts objects, and not their size."""
    model = globals().get(f"slot_{slot}")
    if model is not None:
        for name in [name for name, module in list(sys.modules.items()) if module is model.module is not None]:
            _drop(name)
        vars(model).clear()
    del model
    gc.collect()
    return ""


def forget():
    """Empties all slots, at the end."""
    for name in [name for name in globals() if name.startswith("slot_")]:
        unload(name.removeprefix("slot_"))
