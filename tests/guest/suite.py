"""rdma-core's own tests, all of them, as Debian packages them in /usr/share/doc/rdma-core/tests.

Every test runs in a process of its own, so that one that hangs or dies costs nothing but itself. It passes, fails or is
skipped with a reason, and tests/data/rdma_core_suite.json says which tests may be skipped and why; a test that is
skipped without a word there is as wrong as one that fails, and so is a word for a test that runs. On a strict device a
test may fail, too, but only because a key was refused. Where accesses are late on purpose (--late) some tests may fail because they
rely on time; the file names them and why.

    python3 suite.py [--expectations FILE] [--late] [--jobs N] [WORD...]

Prints a JSON line for each test as harness.py does, with "result" (passed, failed, skipped) beside the rest.
"""

import argparse
import collections
import json
import os
import random
import re
import select
import signal
import sys
import time
import traceback
import unittest

import harness
import rdma

TESTS = "/usr/share/doc/rdma-core/tests"
EXPECTATIONS = os.path.join(harness.HERE, "../data/rdma_core_suite.json")
SEED = "cx10"
# The longest tests take some seconds; what hangs is ended. Those of implicit regions make the driver write long lists again and
# again, which a busy host takes its time for.
SECONDS, LONG = 60, 300
HUGE_PAGES = 24

# What a test of a strict device may stumble over: a key without relaxed ordering.
REFUSED_KEY = re.compile(
    r"Failed to (register a MR|register a device MR|allocate MW|create MW|reg)[^/]*Errno: 22, |"
    r"(CMID|reg_(msgs|read|write)|rdma_reg)[^/]*Errno: 22"
)


class Result(unittest.TestResult):
    """Keeps the outcome of one test. A test with failing subtests has failed, one with skipped subtests has passed."""

    def __init__(self):
        super().__init__()
        self.failed, self.skipped_because, self.subtests = None, None, 0

    def addError(self, test, err):
        self.failed = self.failed or told(err)

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is None:
            self.subtests += 1
        elif issubclass(err[0], unittest.SkipTest):
            self.skipped_because = self.skipped_because or str(err[1])
        else:
            self.failed = self.failed or f"{subtest}: {told(err)}"

    def addSkip(self, test, reason):
        self.skipped_because = self.skipped_because or reason

    def addUnexpectedSuccess(self, test):
        self.failed = "unexpected success"

    def outcome(self):
        if self.failed:
            return "failed", self.failed
        if self.skipped_because and not self.subtests:
            return "skipped", self.skipped_because
        return "passed", ""


def told(err):
    """The exception and where in the tests it was raised."""
    kind, error, trace = err
    frames = [f for f in traceback.extract_tb(trace) if TESTS in f.filename] or traceback.extract_tb(trace)
    places = ", ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in frames[-3:])
    return f"{kind.__name__}: {' '.join(str(error).split())} ({places})"


def flat(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flat(item)
        else:
            yield item


def load(device):
    """All tests, as run_tests.py finds them."""
    sys.path.insert(0, TESTS)
    sys.argv = ["run_tests.py", "--dev", device.name, "--port", "1", "--gid", device.gid]
    from importlib.machinery import SourceFileLoader

    from args_parser import parser

    parser.parse_args()
    module = SourceFileLoader("tests", TESTS + "/__init__.py").load_module()
    return list(flat(unittest.defaultTestLoader.loadTestsFromModule(module)))


class Running:
    """A test in its process. The outcome comes through a pipe; what the test prints goes to a file."""

    def __init__(self, test):
        self.test, self.started, self.data = test, time.monotonic(), b""
        self.limit = LONG if "odp_implicit" in test.id() else SECONDS
        self.output = f"/tmp/suite-{test.id()}"
        self.fd, child = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.fd)
            self.child(child)
        os.close(child)

    def child(self, fd):
        os.setsid()
        with open(self.output, "wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        result = Result()
        # Some tests draw capabilities and flags; the same ones each time.
        random.seed(SEED + self.test.id())
        try:
            self.test(result)
            outcome = result.outcome()
        except BaseException:  # pylint: disable=broad-except
            outcome = "failed", told(sys.exc_info())
        os.write(fd, json.dumps(outcome).encode())
        # Without clean-up: the parent's was inherited.
        os._exit(0)

    def finish(self):
        """The outcome, once the process has closed the pipe or its time is over."""
        seconds = time.monotonic() - self.started
        os.close(self.fd)
        try:
            # Also what the test has left behind.
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        ended = status = 0
        deadline = time.monotonic() + 5.0
        while not ended and time.monotonic() < deadline:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            time.sleep(0 if ended else 0.01)
        if self.data:
            outcome, reason = json.loads(self.data)
        elif seconds >= self.limit:
            outcome, reason = "failed", f"did not end within {self.limit} s"
        else:
            outcome, reason = "failed", f"the process ended with status {status}"
        if not ended:
            outcome, reason = "failed", reason + " [the process cannot be ended]"
        with open(self.output, encoding="utf-8", errors="replace") as f:
            lines = f.read().split("\n")
        if outcome == "failed":
            # Tests with processes of their own print there why they failed.
            reason += "".join(f" / {line.strip()}" for line in lines[-12:] if line.strip())
        os.unlink(self.output)
        return outcome, reason, seconds


def run_all(tests, jobs):
    """Runs the tests, `jobs` at a time; yields test, outcome, reason, seconds in the order they end."""
    waiting = collections.deque(tests)
    running = {}
    while waiting or running:
        for _ in range(len(waiting)):
            if len(running) >= jobs:
                break
            test = waiting.popleft()
            if any(exclusive(test) and exclusive(other.test) for other in running.values()):
                waiting.append(test)
                continue
            one = Running(test)
            running[one.fd] = one
        left = max(0.0, min(r.started + r.limit for r in running.values()) - time.monotonic())
        for fd in select.select(list(running), [], [], left)[0]:
            chunk = os.read(fd, 65536)
            if chunk:
                running[fd].data += chunk
            else:
                one = running.pop(fd)
                yield one.test, *one.finish()
        for fd, one in list(running.items()):
            if time.monotonic() >= one.started + one.limit:
                del running[fd]
                yield one.test, *one.finish()


def exclusive(test):
    """Tests that meet on the wire: raw packets and flows to the same addresses, connections to the same port."""
    return re.search(r"rdmacm|flow|raw|dr\.|rss|timestamp|multicast|pp\.|tag|steer", test.id(), re.I) is not None


def judge(expectations, device, late, name, outcome, reason):
    """Whether this outcome is the right one, and what to say about it."""
    rules = [
        rule
        for rule in expectations["skipped"]
        if device.profile in rule.get("profiles", [device.profile]) and any(re.fullmatch(p, name) for p in rule["tests"])
    ]
    if outcome == "skipped":
        for rule in rules:
            if re.search(rule["says"], reason):
                return True, f"skipped: {reason} [{rule['because']}]"
        return False, f"skipped, which no rule allows: {reason}"
    if outcome == "failed":
        if device.strict and REFUSED_KEY.search(reason):
            return True, f"refused: {reason}"
        for rule in expectations["late"] if late else []:
            if name in rule["tests"] and re.search(rule["says"], reason):
                return True, f"late: {reason} [{rule['because']}]"
        return False, reason
    if any(not rule.get("perhaps") for rule in rules):
        return False, "passed, but a rule says that it is skipped"
    return True, "passed"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--expectations", default=EXPECTATIONS)
    parser.add_argument("--late", action="store_true", help="accesses are late on purpose")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time")
    parser.add_argument("words", nargs="*", help="only tests whose names have one of these in them")
    options = parser.parse_args()
    with open(options.expectations, encoding="utf-8") as f:
        expectations = json.load(f)
    device = rdma.device()
    # For the tests that ask for huge pages.
    harness.write("/proc/sys/vm/nr_hugepages", str(HUGE_PAGES))
    tests = [t for t in load(device) if not options.words or any(word in t.id() for word in options.words)]
    counts, wrong, started = collections.Counter(), 0, time.monotonic()
    for test, outcome, reason, seconds in run_all(tests, options.jobs):
        name = test.id().removeprefix("tests.")
        ok, detail = judge(expectations, device, options.late, name, outcome, reason)
        if outcome == "failed" and ok:
            outcome = detail.split(":")[0]
        counts[outcome] += 1
        wrong += not ok
        line = {"check": name, "ok": ok, "detail": detail, "seconds": round(seconds, 2), "result": outcome, "reason": reason}
        print(json.dumps(line), flush=True)
    totals = {"suite": dict(counts), "tests": len(tests), "seconds": round(time.monotonic() - started, 1)}
    print(json.dumps(totals), flush=True)
    print(json.dumps({"done": len(tests)}), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
