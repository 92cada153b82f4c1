# Run when a built-in module of the program is first imported (usmb_py_main). From then on
# multiprocessing's children run `program`, since the environment's plain python lacks the
# module. multiprocessing takes long to import: it is told when somebody else imports it.
import sys

__name__ = "children"  # of what is defined here
WHERE = "multiprocessing.spawn"


class Then:
    """Another's loader, and what follows it."""

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
    """A finder on sys.meta_path that finds nothing by itself."""

    asking = False

    def find_spec(self, name, path=None, target=None):
        if name != WHERE or self.asking:
            return None
        self.asking = True  # others ask everybody too
        try:
            spec = self.of_others(path, target)
        finally:
            self.asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = Then(spec.loader)
        return spec

    def of_others(self, path, target):
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
