"""python -m usmbridge [--json]: prints the libraries and devices that usmbridge finds, as usminfo does."""

import argparse
import platform
import sys

from usmbridge import _info


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m usmbridge", description="Print the SYCL library, the devices, and what is missing.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    print(_info(options.json, platform.python_version(), sys.executable or "", sys.prefix), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
