"""RDS over RDMA: datagrams that the kernel carries reliably over connections of its own."""

import random
import socket

from harness import check, run
from rdma import device

AF_RDS = 21
PORTS = 4000, 4001
COUNT = 64


def rds_socket(address, port):
    """An RDS socket. Python does not know the family's addresses; they are those of IPv4."""
    plain = socket.socket(AF_RDS, socket.SOCK_SEQPACKET, 0)
    made = socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 0, fileno=plain.detach())
    made.settimeout(30.0)
    made.bind((address, port))
    return made


@check
def rds_carries_messages_over_a_connection_to_itself():
    run("modprobe", "-a", "rds", "rds_rdma")
    address = device().address
    one, two = (rds_socket(address, port) for port in PORTS)
    choice = random.Random(3)
    total = 0
    with one, two:
        for n in range(COUNT):
            size = choice.choice((1, 100, 4096, 20_000, 100_000))
            data = choice.randbytes(size)
            one.sendto(data, (address, PORTS[1]))
            got, sender = two.recvfrom(1 << 20)
            assert sender == (address, PORTS[0]), sender
            assert got == data, f"message {n} of {size} bytes has come changed"
            two.sendto(got[::-1], sender)
            back, _ = one.recvfrom(1 << 20)
            assert back == data[::-1], f"answer {n} of {size} bytes has come changed"
            total += 2 * size
    # Both ends of one connection. The module is left alone: when it goes, it warns of what it has lost itself.
    queue_pairs = kernel_connections()
    assert len(queue_pairs) == 2, queue_pairs
    return f"{2 * COUNT} messages, {total} bytes"


def kernel_connections():
    """Connected queue pairs of the kernel, whose owner is told in brackets."""
    lines = run("rdma", "resource", "show", "qp").splitlines()
    return [line for line in lines if "type RC" in line and "comm [" in line]
