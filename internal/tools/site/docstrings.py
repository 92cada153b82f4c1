"""A Griffe extension: gives the stubs the texts of help(), which are in a file of the C module."""

import pathlib
import re

import griffe

FILE = pathlib.Path(__file__).parents[3] / "interop/pymodule/docstrings.txt"
TEXTS = {re.match(r"[\w.]+", head)[0]: text for head, text in re.findall(r"(?ms)^=== (.+?)\n(.*?)(?=^=== |\Z)", FILE.read_text())}


class Docstrings(griffe.Extension):
    def on_object(self, *, obj, **_):
        text = TEXTS.get(obj.path.removeprefix("usmbridge."))
        if text and not obj.docstring:
            obj.docstring = griffe.Docstring(text, parent=obj, parser=griffe.Parser.numpy)
