"""The examples of librdmacm: connections made by the kernel's connection manager over the device's own address.

They register their memory without IBV_ACCESS_RELAXED_ORDERING, so a strict device carries their connections as far as
the registration.
"""

import re

from harness import check
from rdma import both_succeed, cm_port_is_listening, device, pair

# The tools' own.
RPING_PORT, UDADDY_PORT, OTHER_PORT = 7174, 7174, 7471


def listening(port):
    return lambda: cm_port_is_listening(port)


def refused(server, client, port, message):
    """The first of the two to register memory says that it could not."""
    first, second = pair(server, client, listening(port), seconds=20)
    assert second.status != 0, f"not refused: {second.told(second.status)}"
    assert any(message in p.output + p.errors for p in (first, second)), f"{first.told(first.status)}; {second.told(second.status)}"
    return "refused at registration"


def rping(count, size, *options):
    address = device().address
    server = ["rping", "-s", "-a", address, "-C", count, "-S", size, "-v", "-V", *options]
    client = ["rping", "-c", "-a", address, "-C", count, "-S", size, "-v", "-V", *options]
    if device().strict:
        return refused(server, client, RPING_PORT, "reg_mr failed")
    for text, who in zip(both_succeed(server, client, listening(RPING_PORT)), ("server ", "")):
        pings = re.findall(rf"^{who}ping data: rdma-ping-(\d+): ", text, re.M)
        assert pings == [str(n) for n in range(count)], f"pings {pings} in {text}"
        assert "data mismatch" not in text, text
    return f"{count} pings of {size} bytes"


@check
def rping_reads_writes_and_validates():
    return rping(50, 1000)


@check
def rping_carries_long_buffers():
    return rping(10, 65535)


@check
def rping_connects_a_queue_pair_of_its_own():
    return rping(10, 4096, "-q")


def messages(tool, port, *options):
    """Client and server exchange messages on several connections."""
    address = device().address
    # Unbuffered, because the tools crash in their clean-up after a failed registration.
    server = ["stdbuf", "-o0", tool, "-b", address, "-c", 4, *options]
    client = ["stdbuf", "-o0", tool, "-b", address, "-s", address, "-c", 4, *options]
    if device().strict:
        return refused(server, client, port, "failed to reg MR")
    for text in both_succeed(server, client, listening(port)):
        assert "return status 0" in text, text
        assert "data transfers complete" in text, text
    return "4 connections"


@check
def ucmatose_exchanges_messages_on_reliable_connections():
    return messages("ucmatose", OTHER_PORT, "-C", 20, "-S", 4000)


@check
def udaddy_exchanges_datagrams():
    return messages("udaddy", UDADDY_PORT, "-C", 20, "-S", 1000)


@check
def cmtime_times_the_steps_of_a_hundred_connections():
    """With queue pairs and without.

    Without, the tool makes the numbers up. They must differ between the two ends, because the connection manager tells
    connections apart by node and number, and both ends are on one node.
    """
    address = device().address
    server = ["cmtime", "-b", address, "-c", 100, "-q", 0x100000]
    client = ["cmtime", "-b", address, "-s", address, "-c", 100, "-q", 0x200000]
    text = both_succeed(server, client, listening(OTHER_PORT))[1]
    tables = re.findall(r"^full connect\s+(\d+)", text, re.M)
    assert len(tables) == 2 and "rtr qp" in text, text
    return f"{tables[0]} us a connection, {tables[1]} us without queue pairs"


@check
def rstream_verifies_its_streams():
    address = device().address
    server = ["rstream", "-b", address, "-S", 65536, "-I", 20, "-C", 5, "-T", "v"]
    client = [*server[:1], "-s", address, *server[3:]]
    if device().strict:
        first, second = pair(server, client, listening(OTHER_PORT), seconds=20)
        assert second.status != 0, f"not refused: {second.told(second.status)}"
        return f"refused: {second.told(second.status)}"
    text = both_succeed(server, client, listening(OTHER_PORT))[1]
    return text.strip().splitlines()[-1]
