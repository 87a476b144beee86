"""The network device as a receiver. Nobody is on the wire, so the frames come from a raw packet queue pair on the same
port: what it sends to the port's address or to a group goes to the kernel's queues, because it is of another transport
domain.
"""

import ipaddress
import os
import re
import socket
import struct
import sys
import time

import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

import harness
from harness import LogIsQuiet, check, read, run, wait
from rdma import device

IPV4, IPV6, VLAN, LOCAL = 0x0800, 0x86DD, 0x8100, 0x88B5
UDP = 17
STRANGER = bytes.fromhex("0200000000aa")
OWN4, PEER4 = "192.0.2.1", "192.0.2.77"
OWN6, PEER6 = "2001:db8:5::1", "2001:db8:5::77"
PORT = 5000


class Sender:
    """A raw packet queue pair. Loopback is on while more than one user of the port has one."""

    def __init__(self):
        self.users = []
        for _ in range(2):
            context = Context(name=device().name)
            pd, cq = PD(context), CQ(context, 64)
            caps = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
            init = QPInitAttr(qp_type=e.IBV_QPT_RAW_PACKET, scq=cq, rcq=cq, cap=caps)
            self.users.append((context, pd, cq, QP(pd, init, QPAttr(port_num=1))))
        _, pd, self.cq, self.qp = self.users[0]
        self.mr = MR(pd, 16384, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_RELAXED_ORDERING)

    def send(self, frame):
        self.mr.write(frame, len(frame))
        sge = SGE(self.mr.buf, len(frame), self.mr.lkey)
        self.qp.post_send(SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[sge]))
        completions = wait("completion of a send", lambda: self.cq.poll(1)[1])
        assert completions[0].status == e.IBV_WC_SUCCESS, f"status {completions[0].status}"


_sender = None


def send(frame):
    global _sender
    if _sender is None:
        _sender = Sender()
    _sender.send(frame)


def own_mac():
    return bytes.fromhex(read(f"/sys/class/net/{device().net}/address").replace(":", ""))


def checksum(data):
    data += b"\0" * (len(data) & 1)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp(data, source=PEER4, target=OWN4, port=PORT, sport=7, error=0, zero=False):
    """A datagram with its checksum, a wrong one, or none."""
    packed = [ipaddress.ip_address(a).packed for a in (source, target)]
    header = struct.pack("!HHHH", sport, port, 8 + len(data), 0)
    pseudo = b"".join(packed) + struct.pack("!II", 8 + len(data), UDP)
    value = 0 if zero else (checksum(pseudo + header + data) or 0xFFFF) ^ error
    return header[:6] + struct.pack("!H", value) + data


def ipv4(payload, source=PEER4, target=OWN4, fragment=0x4000):
    source, target = socket.inet_aton(source), socket.inet_aton(target)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, fragment, 64, UDP, 0, source, target)
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def ipv6(payload):
    source, target = (ipaddress.ip_address(a).packed for a in (PEER6, OWN6))
    return struct.pack("!IHBB", 6 << 28, len(payload), UDP, 64) + source + target + payload


def ether(payload, kind=IPV4, target=None, tag=None):
    tag = b"" if tag is None else struct.pack("!HH", VLAN, tag)
    frame = (target or own_mac()) + STRANGER + tag + struct.pack("!H", kind) + payload
    return frame.ljust(60, b"\xa5")


class Listener:
    """A socket that expects datagrams."""

    def __init__(self, address=OWN4, port=PORT):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        # With its first use the device gets its IPv4 address.
        run("ip", "addr", "replace", OWN6 + "/64", "dev", device().net, "nodad")
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.bind((address, port))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def hears(self, data):
        self.socket.settimeout(10)
        heard = self.socket.recv(65536)
        assert heard == data, f"{len(heard)} bytes {heard[:20]!r}, expected {len(data)} bytes {data[:20]!r}"

    def hears_nothing(self):
        self.socket.settimeout(0.3)
        try:
            heard = self.socket.recv(65536)
        except TimeoutError:
            return
        raise AssertionError(f"heard {heard[:20]!r}")


def statistics():
    text = run("ethtool", "-S", device().net)
    return {name: int(value) for name, value in re.findall(r"^\s+(\S+): (\d+)$", text, re.M)}


class Counted:
    """What the driver's statistics grew by."""

    def __enter__(self):
        self.before = statistics()
        return self

    def __exit__(self, *_):
        after = statistics()
        self.by = {name: value - self.before.get(name, 0) for name, value in after.items()}


@check
def packets_of_any_length_reach_the_network_stack():
    lengths = [0, 1, 17, 18, 19, 500, 1001, 1472]
    with Listener() as ear, Listener(OWN6) as ear6, Counted() as count, LogIsQuiet():
        for length in lengths:
            data = bytes(i & 0xFF for i in range(length))
            send(ether(ipv4(udp(data))))
            ear.hears(data)
            send(ether(ipv6(udp(data, PEER6, OWN6)), IPV6))
            ear6.hears(data)
    packets = 2 * len(lengths)
    assert count.by["rx_packets"] == packets, f"{count.by['rx_packets']} packets"
    assert count.by["rx_vport_unicast_packets"] == packets, f"{count.by['rx_vport_unicast_packets']} in the vport"
    return f"{count.by['rx_csum_complete']} sums complete, {count.by['rx_csum_unnecessary']} unnecessary"


@check
def checksums_tell_good_packets_from_bad():
    with Listener() as ear, LogIsQuiet():
        for size in (3, 300):
            data = b"c" * size
            send(ether(ipv4(udp(data, error=0x1111))))
            ear.hears_nothing()
            send(ether(ipv4(udp(data, zero=True))))
            ear.hears(data)
        # Padding behind a packet that is not short is part of the device's sum.
        send(ether(ipv4(udp(b"p" * 100))) + b"\xee" * 77)
        ear.hears(b"p" * 100)
    return "wrong ones are dropped, absent ones accepted, padding does not matter"


@check
def fragments_are_put_together():
    datagram = udp(b"f" * 1600)
    with Listener() as ear, LogIsQuiet():
        send(ether(ipv4(datagram[:800], fragment=0x2000)))
        send(ether(ipv4(datagram[800:], fragment=100)))
        ear.hears(b"f" * 1600)


@check
def only_what_is_asked_for_is_received():
    group = "239.1.2.3"
    frame = ether(ipv4(udp(b"g" * 100, target=group, port=6000), target=group), target=bytes.fromhex("01005e010203"))
    with Listener() as ear, Listener(group, 6000) as member, Listener("", 7000) as anybody, LogIsQuiet():
        send(ether(ipv4(udp(b"x")), target=bytes.fromhex("020000000099")))
        ear.hears_nothing()
        send(frame)
        member.hears_nothing()
        membership = socket.inet_aton(group) + socket.inet_aton(OWN4)
        member.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        time.sleep(0.5)
        send(frame)
        member.hears(b"g" * 100)
        send(ether(ipv4(udp(b"all", target="192.0.2.255", port=7000), target="192.0.2.255"), target=b"\xff" * 6))
        anybody.hears(b"all")


@check
def a_promiscuous_port_receives_everything():
    packet_add_membership, solicit = 1, struct.pack("IHH8s", socket.if_nametoindex(device().net), 1, 0, b"")
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(LOCAL)) as ear:
        ear.bind((device().net, LOCAL))
        ear.settimeout(0.5)
        frame = ether(b"raw" * 30, LOCAL, target=bytes.fromhex("0300000000ee"))
        send(frame)
        try:
            raise AssertionError(f"heard {ear.recv(2000)[:20]!r}")
        except TimeoutError:
            pass
        ear.setsockopt(263, packet_add_membership, solicit)
        time.sleep(0.5)
        ear.settimeout(10)
        send(frame)
        assert ear.recv(2000) == frame


@check
def vlan_tags_are_stripped_or_kept():
    net, own, peer = device().net, "198.51.100.1", "198.51.100.7"
    run("ip", "link", "add", "link", net, "name", "v5", "type", "vlan", "id", "5")
    try:
        run("ip", "addr", "add", own + "/24", "dev", "v5")
        run("ip", "link", "set", "v5", "up")
        time.sleep(0.5)

        def tagged(vlan, data):
            return ether(ipv4(udp(data, peer, own), peer, own), tag=3 << 13 | vlan)

        with Listener(own) as ear:
            for strip in ("on", "off", "on"):
                run("ethtool", "-K", net, "rxvlan", strip)
                time.sleep(1.0)
                with Counted() as count:
                    send(tagged(5, b"tagged" * 30))
                    ear.hears(b"tagged" * 30)
                stripped = 1 if strip == "on" else 0
                assert count.by["rx_removed_vlan_packets"] == stripped, count.by["rx_removed_vlan_packets"]
            send(tagged(6, b"other" * 30))
            ear.hears_nothing()
    finally:
        run("ip", "link", "del", "v5")


@check
def flows_are_spread_over_the_rings():
    rings = int(re.findall(r"^Combined:\s+(\d+)$", run("ethtool", "-l", device().net), re.M)[-1])
    with Listener() as ear, Counted() as count:
        for flow in range(64):
            # The hash is linear in the bits of the port and its key is drawn at random: a few bits that differ may all hash to
            # nothing, sixteen do not.
            send(ether(ipv4(udp(b"r" * 200, sport=1024 + flow * 1009))))
            ear.hears(b"r" * 200)
    used = [count.by[f"rx{ring}_packets"] for ring in range(rings)]
    assert sum(used) == 64 and all(used), f"packets by ring: {used}"
    return f"packets by ring: {used}"


@check
def one_flow_stays_on_its_ring_in_both_directions():
    """The driver's hash is symmetric (kernel en/rss.c)."""
    net = device().net
    rings = int(re.findall(r"^Combined:\s+(\d+)$", run("ethtool", "-l", net), re.M)[-1])
    run("ethtool", "-N", net, "rx-flow-hash", "udp4", "sdfn")
    seen = set()
    with Listener(port=1234) as there, Listener(port=4321) as back, Counted() as count:
        for sport, port, ear in ((4321, 1234, there), (1234, 4321, back)):
            for _ in range(4):
                send(ether(ipv4(udp(b"s" * 100, OWN4, OWN4, port=port, sport=sport), OWN4, OWN4)))
                time.sleep(0.05)
                seen.add(port)
                ear.hears_nothing()
    # The stack drops packets from its own address; the rings have counted them.
    used = [count.by[f"rx{ring}_packets"] for ring in range(rings)]
    assert sorted(used)[-1] == 8 and sum(used) == 8, f"packets by ring: {used}"


@check
def the_port_does_not_hear_itself():
    """What the network device sends to all or to a group does not come back to it, or addresses would seem taken."""
    net, mac = device().net, own_mac()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as ear:
        ear.bind((net, 3))
        ear.settimeout(0.5)
        out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        out.bind((net, LOCAL))
        send(ether(b"", LOCAL))
        for target in (b"\xff" * 6, bytes.fromhex("333300000001")):
            out.send((target + mac + struct.pack("!H", LOCAL)).ljust(60, b"\0"))
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            try:
                frame, address = ear.recvfrom(2000)
            except TimeoutError:
                break
            assert address[2] == socket.PACKET_OUTGOING or frame[6:12] != mac, f"heard itself: {frame[:20].hex()}"
    run("ip", "addr", "add", "2001:db8:6::1/64", "dev", net)
    wait("duplicate address detection", lambda: "tentative" not in run("ip", "addr", "show", "dev", net))
    state = run("ip", "addr", "show", "dev", net)
    run("ip", "addr", "del", "2001:db8:6::1/64", "dev", net)
    assert "dadfailed" not in state, state


@check
def jumbo_frames_pass_where_the_mtu_allows_them():
    net = device().net
    mtu = int(read(f"/sys/class/net/{net}/mtu"))
    try:
        with Listener() as ear:
            for size in (9000, 4000, 1500):
                run("ip", "link", "set", net, "mtu", str(size))
                wait("link", lambda: read(f"/sys/class/net/{net}/operstate") == "up")
                time.sleep(0.5)
                send(ether(ipv4(udp(b"j" * (size - 28)))))
                ear.hears(b"j" * (size - 28))
                send(ether(ipv4(udp(b"j" * size))))
                ear.hears_nothing()
    finally:
        run("ip", "link", "set", net, "mtu", str(mtu))


@check
def rules_of_ethtool_choose_the_ring():
    net = device().net
    if "ntuple-filters: on" not in run("ethtool", "-k", net):
        run("ethtool", "-K", net, "ntuple", "on")
    run("ethtool", "-N", net, "flow-type", "udp4", "dst-ip", OWN4, "dst-port", str(PORT), "action", "1")
    try:
        with Listener() as ear, Counted() as count:
            for sport in range(16):
                send(ether(ipv4(udp(b"n" * 100, sport=1000 + sport))))
                ear.hears(b"n" * 100)
        assert count.by["rx1_packets"] == 16, f"ring 1 got {count.by['rx1_packets']} of 16 packets"
    finally:
        for rule in re.findall(r"^Filter: (\d+)$", run("ethtool", "-n", net), re.M):
            run("ethtool", "-N", net, "delete", rule)


@check
def an_interface_that_is_down_receives_nothing_and_comes_back():
    net = device().net
    with Listener() as ear:
        run("ip", "link", "set", net, "down")
        send(ether(ipv4(udp(b"down"))))
        run("ip", "link", "set", net, "up")
        wait("link", lambda: read(f"/sys/class/net/{net}/operstate") == "up")
        run("ip", "addr", "replace", OWN4 + "/24", "dev", net)
        ear.hears_nothing()
        send(ether(ipv4(udp(b"up"))))
        ear.hears(b"up")
    assert os.path.isdir(f"/sys/class/net/{net}")


if __name__ == "__main__":
    sys.exit(harness.main(sys.argv[1:]))
