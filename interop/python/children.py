# Makes multiprocessing start its children with `program`, because the environment's plain python
# lacks the built-in modules. usmb_py_main runs this file at the first import of such a module.
# multiprocessing takes long to import, so the file waits until the program imports it.
import sys

__name__ = "children"  # the module name of the classes below
WHERE = "multiprocessing.spawn"


class Then:
    """A loader that sets the executable after the original loader has run the module."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        module.set_executable(program)  # noqa: F821
        sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, Children)]


class Children:
    """A finder on sys.meta_path that wraps the loader which another finder has for WHERE."""

    asking = False

    def find_spec(self, name, path=None, target=None):
        if name != WHERE or self.asking:
            return None
        self.asking = True  # another finder of this kind asks all finders, this one included
        try:
            spec = self.ask_others(path, target)
        finally:
            self.asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = Then(spec.loader)
        return spec

    def ask_others(self, path, target):
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(WHERE, path, target)
            if spec is not None:
                return spec
        return None


if WHERE in sys.modules:
    sys.modules[WHERE].set_executable(program)  # noqa: F821
else:
    sys.meta_path.insert(0, Children())
