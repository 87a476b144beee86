"""Runs perftest's tools and reads what they print."""

import itertools
import re

from rdma import cm_port_is_listening, device, pair, tcp_port_is_listening

# Every run has a port of its own: the last one's may still wait for its end.
PORTS = itertools.count(18700)
ALL_SIZES = [2**n for n in range(1, 24)]


def perftest(tool, *options, iterations=100, seconds=60, dev=None):
    """Runs a pair: rows of numbers as the client prints them, and whether it could measure times.

    The first two numbers of a row are size and iterations.
    """
    dev, port = dev or device(), next(PORTS)
    argv = [tool, "-F", "-d", dev.name, "-x", dev.gid, "-p", str(port), "-n", str(iterations), *map(str, options)]
    target, is_listening = "127.0.0.1", tcp_port_is_listening
    if "-R" in options:
        target, is_listening = dev.address, cm_port_is_listening
    first, second = pair(argv, argv + [target], lambda: is_listening(port), seconds)
    if tool == "ib_write_lat" and dev.strict:
        # With the connection manager the server registers its memory when a client comes, which does not.
        for program in (second,) if "-R" in options else (first, second):
            assert program.status != 0, f"not refused: {program.told(program.status)}"
            assert "Couldn't allocate MR" in program.output + program.errors, program.told(program.status)
        return None, False
    if first.status != 0 or second.status != 0:
        raise AssertionError(f"client {second.told(second.status)}; server {first.told(first.status)}")
    number = r"-?(?:inf|nan|[\d.]+)"
    lines = re.findall(rf"^ ?(\d+ +\d+(?:[ \t]+{number})+)[ \t]*$", second.output, re.M)
    assert lines, second.output
    # Without a steady clock it says so and prints nonsense; emulated processors of a busy host have none.
    steady = "Correlation coefficient" not in second.errors
    return [[float(n) for n in line.split()] for line in lines], steady


def measure(tool, *options, sizes=None, iterations=100, seconds=60):
    """Runs a pair and checks that every size has its row, with all iterations and a result."""
    if sizes == ALL_SIZES or sizes and len(sizes) > 1:
        options = ("-a", *options)
    elif sizes:
        options = ("-s", sizes[0], *options)
    rows, steady = perftest(tool, *options, iterations=iterations, seconds=seconds)
    if rows is None:
        return "refused at registration"
    assert [row[0] for row in rows] == (sizes or [8]), rows
    qps = int(options[options.index("-q") + 1]) if "-q" in options else 1
    both_ways = 2 if "-b" in options else 1
    for row in rows:
        assert row[1] in (iterations, iterations * qps, iterations * qps * both_ways), row
        # The last column of bandwidth is messages, because few small ones are 0.00 MiB/s.
        assert row[4] > 0 or not steady, f"no result: {row}"
    if not steady:
        return "done, not measured"
    if tool.endswith("_lat"):
        return ", ".join(f"{row[4]:.1f} us for {row[0]:.0f} B" for row in rows[:1] + rows[1:][-1:])
    return f"{rows[-1][3]:.1f} MiB/s with {rows[-1][0]:.0f} B, {rows[0][4] * 1e3:.1f} kmsg/s with {rows[0][0]:.0f} B"


def variants(tool, *lists, **arguments):
    """Several runs of a tool, one for each list of options."""
    return "; ".join(f"{' '.join(map(str, o))}: {measure(tool, *o, **arguments)}" for o in lists)


def one_at_a_time(tool, *options, sizes=(2, 4096, 65536, 1 << 20)):
    """A latency tool over a few sizes; where processors are scarce each exchange takes milliseconds."""
    return "; ".join(measure(tool, *options, sizes=[size], iterations=20) for size in sizes)
