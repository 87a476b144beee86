"""Runs the checks of the named modules beside this file, in one boot: python3 run.py MODULE... [-- WORD...]

With words only the checks whose names contain one of them. CX10_STAND_IN=1 takes rdma_rxe for the device.
"""

import importlib
import sys

import harness


def main():
    arguments = sys.argv[1:]
    words = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, words = arguments[:at], arguments[at + 1 :]
    if not arguments:
        sys.exit(__doc__)
    for name in arguments:
        importlib.import_module(name)
    return harness.main(words)


if __name__ == "__main__":
    sys.exit(main())
