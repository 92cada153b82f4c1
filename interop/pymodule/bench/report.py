"""The options and the results of the benchmarks beside this file."""

import argparse
import json
import os


def options(rounds):
    """Returns a parser of --json, --rounds with that default, and --strict."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--strict", action="store_true")
    return parser


def finish(args, results, **about):
    """Writes the results to the file of --json. Returns the exit status: with --strict it is 1 if a result is not ok."""
    if args.json:
        with open(args.json + ".part", "w") as f:
            json.dump(dict(about, results=results), f, indent=1)
        os.replace(args.json + ".part", args.json)
    return 1 if args.strict and not all(r["ok"] for r in results) else 0
