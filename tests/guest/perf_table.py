"""perftest on the device and on rdma_rxe, side by side in one boot; started by scripts/perftest-table.

    python3 perf_table.py [--repeat N] [--sizes BYTES,...] [TOOL...]

Prints a JSON line about the guest, {"kernel", "processor", "processors"}, and one for each row, {"profile", "test",
"connection", "size", "unit", "cx10", "rxe", "ratio"}: bandwidth in MiB/s, latency in us, and how many times the device is
ahead. rdma_rxe runs on a network device of its own in the same kernel,
with the same path MTU. Runs alternate between the two; of several the best counts, of either: a busy host makes runs
worse, never better.
"""

import argparse
import json
import os
import re
import sys

import perf
import rdma
from harness import read

SIZES = (2, 64, 1024, 4096, 16384, 65536, 262_144, 1 << 20)
TESTS = [
    (tool, connection)
    for tool, connections in {
        "ib_send_bw": ("RC", "UC", "UD"),
        "ib_send_lat": ("RC", "UC", "UD"),
        "ib_write_bw": ("RC", "UC"),
        "ib_write_lat": ("RC", "UC"),
        "ib_read_bw": ("RC",),
        "ib_read_lat": ("RC",),
        "ib_atomic_bw": ("RC",),
        "ib_atomic_lat": ("RC",),
    }.items()
    for connection in connections
]


def sizes_of(tool, connection, sizes):
    if "atomic" in tool:
        return (8,)
    return tuple(size for size in sizes if connection != "UD" or size <= 4096)


def once(device, tool, connection, size):
    """MiB/s, or us; None where the tool is refused or the clock was not steady in five attempts."""
    latency = tool.endswith("_lat")
    iterations = 200 if latency else 1000 if size <= 4096 else 200 if size <= 65536 else 50
    options = ["-c", connection, *(() if "atomic" in tool else ("-s", size))]
    for _ in range(5):
        rows, steady = perf.perftest(tool, *options, iterations=iterations, seconds=100, dev=device)
        if rows is None:
            return None
        if steady:
            # Of bandwidth messages a second are printed with more digits.
            return rows[0][4] if latency else rows[0][4] * 1e6 * size / (1 << 20)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; the best counts")
    parser.add_argument("--sizes", default=SIZES, type=lambda text: [int(size) for size in text.split(",")])
    parser.add_argument("tools", nargs="*", help="only tests of these tools")
    options = parser.parse_args()
    devices = {"cx10": rdma.mlx5(), "rxe": rdma.rxe()}
    processor = re.search(r"^model name\s*: (.*)$", read("/proc/cpuinfo"), re.M)
    guest = {"kernel": os.uname().release, "processor": processor[1] if processor else os.uname().machine}
    print(json.dumps(guest | {"processors": os.cpu_count()}), flush=True)
    behind = 0
    for tool, connection in TESTS:
        if options.tools and tool not in options.tools:
            continue
        for size in sizes_of(tool, connection, options.sizes):
            found = {name: [] for name in devices}
            for _ in range(options.repeat):
                for name, device in devices.items():
                    result = once(device, tool, connection, size)
                    if result is not None:
                        found[name].append(result)
            row = {"profile": devices["cx10"].profile, "test": tool, "connection": connection, "size": size}
            row["unit"] = "us" if tool.endswith("_lat") else "MiB/s"
            best = min if row["unit"] == "us" else max
            row |= {name: round(best(runs), 3) if runs else None for name, runs in found.items()}
            row["ratio"] = None
            if row["cx10"] and row["rxe"]:
                ratio = row["rxe"] / row["cx10"] if row["unit"] == "us" else row["cx10"] / row["rxe"]
                row["ratio"] = round(ratio, 2)
                behind += ratio < 1
            print(json.dumps(row), flush=True)
    print(json.dumps({"behind": behind}), flush=True)
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
