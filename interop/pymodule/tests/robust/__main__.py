"""Hunts: runs each target in a process of its own for the given time, in several runs if needed."""

import argparse
import ast
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from robust import engine, journal

HOST = os.environ.get("USMBRIDGE_TEST_HOST") or os.readlink("/proc/self/exe")


def child(name, seed, seconds, path):
    """Runs one target and prints one line of JSON for each batch."""
    for ran, failed in engine.load()[name].hunt(seed, seconds, journal.Journal(path)):
        print(json.dumps({"ran": ran, "failed": failed}), flush=True)


def replay(name, path):
    engine.load()[name].run(ast.literal_eval(pathlib.Path(path).read_text().split("\n---\n")[0]))
    print("no finding")


class Hunt:
    """One target. Its findings are in files."""

    def __init__(self, name, results, seed):
        self.name, self.results, self.seed, self.executions, self.findings = name, results, seed, 0, []

    def finding(self, example, about):
        sort = engine.sort_of(about)
        if sort in self.findings:
            return
        self.findings.append(sort)
        path = self.results / f"{self.name}-{len(self.findings)}.txt"
        path.write_text(f"{example}\n---\n{about}", errors="surrogatepass")
        print(f"{self.name}: finding in {path}: {about.strip().splitlines()[-1][:400]}", flush=True)

    def step(self, seconds):
        """Runs one process until the time is up or it dies."""
        book, log, said = self.results / f"{self.name}.journal", self.results / f"{self.name}.log", time.monotonic()
        book.unlink(missing_ok=True)
        command = [HOST, "-X", "faulthandler", "-m", "robust", "--child", self.name, str(self.seed), str(seconds), str(book)]
        with open(log, "wb") as err, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True) as p:
            try:
                for line in p.stdout:
                    batch = json.loads(line)
                    self.seed += 1
                    self.executions += batch["ran"]
                    if batch["failed"]:
                        self.finding(*batch["failed"])
                    if time.monotonic() - said > 10:
                        said = time.monotonic()
                        self.say()
            except BaseException:
                p.kill()
                self.say()
                raise
        self.seed += 1
        if p.returncode != 0:
            example, _ = journal.read(book) if book.exists() else (None, 0)
            died = signal.Signals(-p.returncode).name if p.returncode < 0 else f"exit status {p.returncode}"
            text = log.read_text(errors="replace")
            self.finding(example or "", f"{text[:8000]}\n...\n{text[-2000:]}\n{died}")

    def run(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0.5:
            self.step(left)
        self.say()
        return len(self.findings)

    def say(self):
        print(f"{self.name:24} {self.executions:>10} executions {len(self.findings):>3} findings", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="robust", description=__doc__)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("USMBRIDGE_FUZZ_SECONDS", "60")))
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir(), "usmbridge-robust"))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"))
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args.child[0], int(args.child[1]), float(args.child[2]), args.child[3])
    if args.replay:
        return replay(*args.replay)
    args.results.mkdir(parents=True, exist_ok=True)
    names = args.targets or sorted(engine.load())
    unknown = set(names) - set(engine.load())
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(sorted(engine.load()))}")
    print(f"seed {args.seed}, results in {args.results}", flush=True)
    found = sum(Hunt(name, args.results, args.seed).run(args.seconds) for name in names)
    sys.exit(1 if found else 0)


main()
