"""Targets: a generator of examples and a check of one. As tests they are short and deterministic."""

import ctypes
import functools
import gc
import importlib
import itertools
import pathlib
import random
import resource
import time
import traceback

import usmbridge as ub
from robust import producers

TARGETS = {}

BATCH = 500  # examples for each seed


class Target:
    """generate makes an example from a random.Random; check raises if the module and the model disagree."""

    def __init__(self, name, generate, check, examples):
        self.name, self.generate, self.check, self.examples = name, generate, check, examples

    def smoke(self):
        """Runs the target as a test, always with the same examples."""
        for seed in range(self.examples):
            example = self.generate(random.Random(seed))
            try:
                self.run(example)
            except BaseException as e:
                e.add_note(f"the example: {example!r}")
                raise

    def run(self, example):
        """Runs the check. Exceptions in callbacks that no caller receives belong to the example."""
        with producers.unraisable():
            self.check(example)

    def fails(self, example):
        """Returns the traceback of a failing example, or None. Its garbage is collected, so that the next is not affected."""
        try:
            self.run(example)
        except KeyboardInterrupt:
            raise
        except BaseException:
            return traceback.format_exc()
        return None

    def hunt(self, seed, seconds, journal):
        """Runs batches of examples, each with a seed of its own; yields (examples run, finding or None) after each."""
        end = time.monotonic() + seconds
        base = live()
        bound_memory()
        while time.monotonic() < end:
            r, before, failed = random.Random(seed), journal.begun, None
            for _ in range(BATCH):
                if time.monotonic() > end:
                    break
                example = self.generate(r)
                journal.begin(example)
                about = self.fails(example)
                journal.end()
                if about:
                    failed = repr(example), about
                    break
            gc.collect()
            if not failed and (n := live(base, 60)) > base:
                failed = f"seed {seed}", f"{n} owners are alive after a batch, {base} were before"
            if failed:
                base = live()  # memory held by a failed check is not counted twice
            yield journal.begun - before, failed
            seed += 1


def sort_of(about):
    """Returns the key of a finding: its place in the harness, the kind of error, and its first words."""
    lines = about.strip().splitlines()
    places = [line.strip() for line in lines if line.startswith('  File "') and "/robust/test_" in line]
    return (places[-1] if places else "") + " " + lines[-1][:48]


def bound_memory(room=2 << 30):
    """Limits the address space: an example that takes too much raises MemoryError and does not affect other processes."""
    if hasattr(ctypes.CDLL(None), "__asan_init"):
        return  # the sanitizer reserves a large address range
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))


def live(base=0, seconds=0.1):
    """Returns the owner cells in use once garbage is collected and other threads have dropped theirs, at most base. An owner
    behind an Array is found only after the Array: it takes several rounds, of which those of young objects are fast."""
    end = time.monotonic() + seconds
    for generation in itertools.chain((0, 1, 1, 1), itertools.repeat(2)):
        ub.zeros(0, device="host")
        n = ub.stats()["live_buffers.all.current"]
        if n <= base or time.monotonic() > end:
            return n
        gc.collect(generation)
        time.sleep(0.001 if generation == 2 else 0)


def target(generate, examples=1000):
    """Makes a test of a check: test_views(example) becomes the target "views"."""

    def wrap(check):
        name = check.__name__.removeprefix("test_")
        t = TARGETS[name] = Target(name, generate, check, examples)

        def test():
            t.smoke()

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return wrap


@functools.cache
def load():
    """Returns all targets by name."""
    for path in sorted(pathlib.Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"robust.{path.stem}")
    return TARGETS
