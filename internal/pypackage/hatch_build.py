"""Build hook: compiles usmbridge._native, a shared library, from the Go sources of the repository.

It needs Go and a C compiler. GO names another go command, and CC another compiler.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "./internal/pypackage/extension"


class GoLibrary(BuildHookInterface):
    def initialize(self, version, build_data):
        if self.target_name != "wheel" or version == "editable":
            raise RuntimeError(
                "usmbridge is built as a wheel only, because its Go sources are outside of this directory: "
                "use `python -m build --wheel`, or `pip install` without -e"
            )
        if sys.platform != "linux":
            raise RuntimeError(f"usmbridge needs Linux, and this is {sys.platform}")
        self.work = tempfile.TemporaryDirectory(prefix="usmbridge-wheel-")
        library = os.path.join(self.work.name, "_native.abi3.so")
        # The library does not depend on the place and time of the build: it has no paths, no state of the checkout,
        # no debug information of C, and no build ID, which depends on the path of the compiler. It looks up no host
        # names, so netgo avoids the resolver of C.
        command = [
            os.environ.get("GO", "go"), "build", "-buildmode=c-shared", "-tags=netgo", "-trimpath", "-buildvcs=false",
            "-ldflags=-s -w -buildid= -extldflags=-Wl,-s", "-o", library, PACKAGE,
        ]
        environment = {**os.environ, "CGO_ENABLED": "1", "CGO_CFLAGS": "-O2 -g0", "GOWORK": "off"}
        try:
            subprocess.run(command, cwd=os.path.join(self.root, "..", ".."), env=environment, check=True)
        except FileNotFoundError:
            raise RuntimeError(f"{command[0]} not found: install Go (https://go.dev/dl) and a C compiler") from None
        build_data["force_include"][library] = "usmbridge/_native.abi3.so"
        build_data["pure_python"] = False
        build_data["tag"] = "cp311-abi3-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")

    def finalize(self, version, build_data, artifact_path):
        self.work.cleanup()
