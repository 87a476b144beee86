"""What the guest's checks are made of: finding them, running them, telling the result.

A check is a function whose name says the claim; it fails by raising. Modules register theirs with `@check`; `main` runs
them and prints one JSON line for each, {"check": name, "ok": bool, "detail": text, "seconds": number}, and at the end
{"done": number of checks}. tests/guest.rs reads them. What a check returns is its detail.
"""

import json
import os
import re
import signal
import subprocess
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKS = []
# Files with the kernel messages that are allowed; `--allow=FILE` adds one.
ALLOWED = ["kernel-log.allow"]


def check(function=None, *, seconds=120):
    """Registers a check that must end within `seconds`."""

    def register(function):
        function.seconds = seconds
        CHECKS.append(function)
        return function

    return register(function) if function else register


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read().strip()


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def run(*argv, ok=True):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    if ok and done.returncode:
        raise AssertionError(f"{' '.join(argv)}: status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def wait(what, condition, seconds=30.0):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


def allowed():
    """What is allowed as one regular expression; the host applies it once more to the whole run."""
    patterns = []
    for name in ALLOWED:
        with open(os.path.join(HERE, name), encoding="utf-8") as f:
            patterns += [line.rstrip("\n") for line in f if line.strip() and not line.startswith("#")]
    return re.compile("|".join(".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns))


def kernel_log():
    return [line for line in run("dmesg", "--notime", "--level=emerg,alert,crit,err,warn").splitlines() if line]


class LogIsQuiet:
    """No new kernel message of level warning or worse, but for the allowed ones."""

    def __enter__(self):
        self.before = len(kernel_log())

    def __exit__(self, kind, *_):
        if kind is None:
            pattern = allowed()
            new = [line for line in kernel_log()[self.before :] if not pattern.fullmatch(line)]
            assert not new, "the kernel says: " + "; ".join(new[:5])


def tell(name, ok, detail, seconds):
    """One line for the host."""
    print(json.dumps({"check": name, "ok": ok, "detail": detail, "seconds": round(seconds, 1)}), flush=True)


def too_late(_signal, _frame):
    raise TimeoutError("the check's time is over")


def main(wanted):
    """Runs the checks whose names contain one of the wanted words, or all. The exit status is 1 if one failed."""
    failed = 0
    ALLOWED.extend(word.removeprefix("--allow=") for word in wanted if word.startswith("--allow="))
    wanted = [word for word in wanted if not word.startswith("--allow=")]
    checks = [c for c in CHECKS if not wanted or any(word in c.__name__ for word in wanted)]
    signal.signal(signal.SIGALRM, too_late)
    for function in checks:
        start = time.monotonic()
        signal.alarm(function.seconds)
        try:
            ok, detail = True, function() or ""
        except Exception as error:  # pylint: disable=broad-except
            ok, failed = False, failed + 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            detail = f"{type(error).__name__}: {error} (line {where.lineno}: {where.line})"
        signal.alarm(0)
        tell(function.__name__, ok, detail, time.monotonic() - start)
    print(json.dumps({"done": len(checks)}), flush=True)
    return 1 if failed else 0
