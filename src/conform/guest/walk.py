"""Does what the host asks, one step at a time; started in the guest by `cx10 conform`.

A line with a request, {"do": name, "limit": seconds, ...arguments}, is answered by a line with the step's result, the
kernel messages that it caused, and a `fence`: the number of a protection domain that was freed after the step. All that
the step made the device do stands before that in the device's trace. The first such line is about the boot.

Each step runs in a process of its own: where the kernel kills it, or does not return from it, the walk goes on.
"""

import contextlib
import faulthandler
import json
import os
import re
import select
import signal
import sys
import time

import steps
import uverbs

FENCE_LIMIT = 10
# Lines of the kernel log that a step may bring, not counting those of a trace, and records that are looked at.
MOST_LINES, MOST_TRACE, MOST_RECORDS = 200, 400, 20000
DRIVERS = re.compile(r"mlx5|infiniband|ib_core|uverbs|rdma")
# At the start of a message only: others speak of such words. The host knows them too (src/run/console.rs).
TROUBLE = re.compile(r"BUG:|Oops|kernel BUG at|WARNING:|general protection|-+\[ cut here|Call Trace")
TROUBLE_ENDS = re.compile(r"end trace")


class KernelLog:
    """Messages of the kernel since the boot or the last look: warnings, those of the drivers, and whole traces."""

    def __init__(self):
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        self.in_trace = False

    def take(self, of_drivers=False):
        """Without the warnings of other parts of the kernel if `of_drivers`."""
        lines, of_trace = [], 0
        for _ in range(MOST_RECORDS):
            try:
                record = os.read(self.fd, 8192).decode(errors="replace")
            except BlockingIOError:
                break
            except BrokenPipeError:  # messages were overwritten before they were read
                continue
            head, _, text = record.partition(";")
            level = int(head.split(",")[0]) & 7
            text = text.split("\n")[0]
            self.in_trace = self.in_trace or bool(TROUBLE.match(text))
            if self.in_trace and of_trace < MOST_TRACE:
                of_trace += 1
                lines.append({"level": level, "text": text})
            elif (level <= 4 and not of_drivers or DRIVERS.search(text)) and len(lines) - of_trace < MOST_LINES:
                lines.append({"level": level, "text": text})
            if TROUBLE_ENDS.search(text):
                self.in_trace = False
        return lines


def apart(function, limit):
    """Runs a function in a process of its own: its result, or how it ended."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        # What it starts ends with it.
        os.setsid()
        # Where a fault ends the program, Python's stack stands in place of the result.
        faulthandler.enable(theirs)
        try:
            result = function()
        except uverbs.Unavailable as error:
            result = {"unavailable": str(error)}
        except BaseException as error:  # the process must not return
            result = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(theirs, "wb") as f:
            f.write(json.dumps(result).encode())
        os._exit(0)
    os.close(theirs)
    end = time.monotonic() + limit
    data = read_until(ours, end)
    status = wait_until(pid, end) if data is not None else None
    os.close(ours)
    where = stack(pid) if status is None else []
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if status is None:
        wait_until(pid, time.monotonic() + 2)
        return {"hung": where}
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return {"died": signal.Signals(-code).name, "where": data.decode(errors="replace")[:4096]}
    return json.loads(data)


def read_until(descriptor, end):
    """All of a pipe, or None if its end does not come in time."""
    data = b""
    while select.select([descriptor], [], [], max(0, end - time.monotonic()))[0]:
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return data
        data += chunk
    return None


def wait_until(pid, end):
    """The status of a process that ends in time, or None."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() >= end:
            return None
        time.sleep(0.01)


def stack(pid):
    """Where in the kernel a process is."""
    try:
        with open(f"/proc/{pid}/stack", encoding="ascii") as f:
            return [line.strip() for line in f][:32]
    except OSError:
        return []


def fence():
    """Allocates and frees a protection domain."""
    context = steps.open_device()
    handle, number = uverbs.alloc_pd(context)
    uverbs.dealloc_pd(context, handle)
    return {"pd": number}


def main():
    log = KernelLog()

    def answer(result, **lines):
        after = apart(fence, FENCE_LIMIT)
        print(json.dumps({"result": result, "fence": after.get("pd"), "log": log.take(**lines)}), flush=True)

    steps.prepare()
    # Machines warn of much at boot.
    answer(steps.about(), of_drivers=True)
    for line in sys.stdin:
        request = json.loads(line)
        step = steps.STEPS[request["do"]]
        limit = request.get("limit", 30)
        arguments = {name: value for name, value in request.items() if name not in ("do", "limit")}
        answer(apart(lambda: step(**arguments), limit))


if __name__ == "__main__":
    main()
