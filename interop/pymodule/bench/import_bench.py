"""Measures the time and the memory of an import, compared with an empty extension module.

    bin/usmpython interop/pymodule/bench/import_bench.py [--json FILE] [--rounds N] [--strict]

New processes of this interpreter import one or the other in turns. Each reports the time of its import statement and the
growth of resident memory a while later. The best time and the median memory of each are compared. The empty module is
compiled here, with $CC or cc."""

import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile

import report
import usmbridge as ub

MILLISECONDS, MEBIBYTES = 10, 5  # the bounds: difference from the empty module

# The definition is PyModuleDef of the stable ABI, so that no header of Python is needed.
EMPTY = """
typedef struct {
	long refs; void *type, *init; long index; void *copy; /* PyModuleDef_HEAD_INIT */
	const char *name, *doc; long size; void *methods, *slots, *traverse, *clear, *free;
} definition;
extern void *PyModule_Create2(definition *, int);
static definition module = {1, 0, 0, 0, 0, "usmbridge_bench_empty"};
void *PyInit_usmbridge_bench_empty(void) { return PyModule_Create2(&module, 3); }
"""

CHILD = """
import sys
from time import perf_counter_ns, sleep
def resident():
    with open("/proc/self/smaps_rollup") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Rss:"))
resident()
before = resident()
start = perf_counter_ns()
__import__(sys.argv[1])
took = perf_counter_ns() - start
sleep(0.2)
print(took, resident() - before)
"""


def built(folder):
    """Compiles the empty module."""
    source = folder / "empty.c"
    source.write_text(EMPTY)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run([*compiler, "-O2", "-shared", "-fPIC", "-o", folder / "usmbridge_bench_empty.abi3.so", source], check=True)


def measure(rounds, folder):
    """Returns ({name: seconds}, {name: KiB}) of both modules."""
    host = os.readlink("/proc/self/exe") if ub.__spec__.origin == "built-in" else sys.executable
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
    times, memory = {}, {}
    for _ in range(rounds):
        for name in ("usmbridge_bench_empty", "usmbridge"):
            out = subprocess.run([host, "-c", CHILD, name], env=env, check=True, capture_output=True, text=True).stdout
            took, resident = map(int, out.split())
            times.setdefault(name, []).append(took / 1e9)
            memory.setdefault(name, []).append(resident)
    return {k: min(v) for k, v in times.items()}, {k: statistics.median(v) for k, v in memory.items()}


def main():
    args = report.options(25).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        built(pathlib.Path(folder))
        times, memory = measure(args.rounds, pathlib.Path(folder))
    print(f"Python {platform.python_version()}, usmbridge {ub.__version__} {'built in' if ub.__spec__.origin == 'built-in' else 'installed'}")
    print(f"{'import':42} {'usmbridge':>10} {'empty':>10} {'more':>10} {'bound':>7}")
    results = []
    for name, unit, found, scale, bound in (("time of the import", "ms", times, 1e3, MILLISECONDS), ("memory at rest", "MiB", memory, 1 / 1024, MEBIBYTES)):
        ours, empty = found["usmbridge"] * scale, found["usmbridge_bench_empty"] * scale
        ok = ours - empty <= bound
        print(f"{name:42} {ours:6.2f} {unit:3} {empty:6.2f} {unit:3} {ours - empty:6.2f} {unit:3} {bound:7} {'ok' if ok else 'MISSED'}", flush=True)
        results.append(dict(operation=name, unit=unit, ours=ours, empty=empty, bound=bound, ok=ok))
    return report.finish(args, results, python=platform.python_version())


if __name__ == "__main__":
    sys.exit(main())
