"""The ping-pong examples of libibverbs.

None of them registers its memory with IBV_ACCESS_RELAXED_ORDERING: a strict device refuses them at registration, the
others carry their messages.
"""

import re

from harness import check
from rdma import both_succeed, device, pair, tcp_port_is_listening

PORT = 18600
ITERATIONS, SIZE = 200, 4096


def command(tool, *options):
    dev = device()
    return [tool, "-d", dev.name, "-g", dev.gid, "-p", str(PORT), *map(str, options)]


def refused(tool, *options):
    """The strict device lets neither end have its memory."""
    argv = command(tool, *options)
    for program in pair(argv, argv + ["127.0.0.1"], lambda: tcp_port_is_listening(PORT), seconds=20):
        text = program.output + program.errors
        assert program.status not in (0, None), f"not refused: {program.told(program.status)}"
        assert "Couldn't register MR" in text or "Couldn't allocate MR" in text, program.told(program.status)
    return "refused at registration"


def exchange(tool, *options, iterations=ITERATIONS, size=SIZE):
    """Both ends count all bytes and all exchanges, and find no wrong byte."""
    options = ("-n", iterations, "-s", size, *options)
    if device().strict:
        return refused(tool, *options)
    argv = command(tool, *options)
    told = []
    for text in both_succeed(argv, argv + ["127.0.0.1"], lambda: tcp_port_is_listening(PORT)):
        assert "invalid data" not in text, text
        count = re.search(r"^(\d+) bytes in", text, re.M)
        assert count and int(count[1]) == 2 * size * iterations, f"bytes in {text}"
        rounds = re.search(r"^(\d+) iters in .* = ([\d.]+) usec/iter", text, re.M)
        assert rounds and int(rounds[1]) == iterations, f"exchanges in {text}"
        told.append(rounds[2])
    return f"{iterations} exchanges of {size} bytes, {told[0]} us each"


@check
def rc_pingpong_carries_its_messages_polling():
    return exchange("ibv_rc_pingpong", "-c", "-m", 4096)


@check
def rc_pingpong_carries_its_messages_with_events():
    return exchange("ibv_rc_pingpong", "-c", "-e", "-m", 1024)


@check
def rc_pingpong_carries_long_messages():
    return exchange("ibv_rc_pingpong", "-c", iterations=20, size=1 << 20)


@check
def rc_pingpong_carries_its_messages_through_the_new_post_interface():
    return exchange("ibv_rc_pingpong", "-c", "-N", "-m", 4096)


@check
def rc_pingpong_has_time_stamps_of_completions():
    return exchange("ibv_rc_pingpong", "-c", "-t")


@check
def rc_pingpong_carries_its_messages_on_demand():
    return exchange("ibv_rc_pingpong", "-c", "-o") + "; with prefetch " + exchange("ibv_rc_pingpong", "-c", "-o", "-P")


@check
def rc_pingpong_carries_its_messages_in_an_implicit_region():
    return exchange("ibv_rc_pingpong", "-c", "-O") + "; with prefetch " + exchange("ibv_rc_pingpong", "-c", "-O", "-P")


@check
def uc_pingpong_carries_its_messages_polling():
    return exchange("ibv_uc_pingpong", "-c", "-m", 4096)


@check
def uc_pingpong_carries_its_messages_with_events():
    return exchange("ibv_uc_pingpong", "-c", "-e")


@check
def ud_pingpong_carries_its_messages_polling():
    return exchange("ibv_ud_pingpong", "-c", size=2048)


@check
def ud_pingpong_carries_its_messages_with_events():
    return exchange("ibv_ud_pingpong", "-c", "-e", size=1024)


@check
def srq_pingpong_carries_its_messages_polling():
    return exchange("ibv_srq_pingpong", "-c", "-q", 16, iterations=400)


@check
def srq_pingpong_carries_its_messages_with_events():
    return exchange("ibv_srq_pingpong", "-c", "-e", "-q", 16, iterations=400)


def xsrq(*options):
    """Extended reliable connections; the tool has no validation of data and no counts."""
    argv = command("ibv_xsrq_pingpong", "-m", 4096, "-n", ITERATIONS, *options)
    if device().strict:
        return refused("ibv_xsrq_pingpong", *options)
    outputs = both_succeed(argv, argv + ["127.0.0.1"], lambda: tcp_port_is_listening(PORT))
    return " / ".join(text.strip().splitlines()[-1] for text in outputs if text.strip())


@check
def xsrq_pingpong_carries_its_messages_polling():
    return xsrq()


@check
def xsrq_pingpong_carries_its_messages_with_events():
    return xsrq("-e")
