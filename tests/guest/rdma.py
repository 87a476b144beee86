"""RDMA in one guest: the devices, and tools that talk to each other over them.

Both ends of every connection are on the same device. For mlx5_0 that is the device's loopback: the packets go to the
address of the port that sends them. rdma_rxe serves as a yardstick and as a stand-in; it gets a network device of its
own, because what is sent to UDP port 4791 of mlx5's port belongs to the device's own RDMA engine.
"""

import ipaddress
import json
import os
import subprocess
import threading
import time

from harness import read, run, wait

# Profiles by PCI device id.
PROFILES = {"0x2101": "connectx10-c2c", "0x1027": "connectx10", "0x1021": "connectx7"}
STRICT = ("connectx10-c2c", "connectx10")
# Path MTU 4096 and the headers around it.
MTU = 4200
RXE_NET, RXE_ADDRESS = "rxe_net", "198.51.100.1"
MLX5_ADDRESS = "192.0.2.1"


class Device:
    """An RDMA device with an address of its own."""

    def __init__(self, name, net, address):
        self.name, self.net, self.address = name, net, address
        self.port = f"/sys/class/infiniband/{name}/ports/1"
        wait(f"{name}: active port", lambda: read(self.port + "/state") == "4: ACTIVE")
        self.gid = wait(f"{name}: RoCE v2 GID of {address}", self.find_gid)
        self.profile = None
        if os.path.exists(f"/sys/class/infiniband/{name}/device/device"):
            self.profile = PROFILES[read(f"/sys/class/infiniband/{name}/device/device")]
        self.strict = self.profile in STRICT

    def find_gid(self):
        """Index of the RoCE v2 entry for the IPv4 address; as text, because 0 is an index, too."""
        want = ipaddress.ip_address("::ffff:" + self.address)
        for index in sorted(map(int, os.listdir(self.port + "/gids"))):
            try:
                if read(f"{self.port}/gid_attrs/types/{index}") != "RoCE v2":
                    continue
            except OSError:  # an empty entry
                continue
            if ipaddress.ip_address(read(f"{self.port}/gids/{index}")) == want:
                return str(index)
        return None

    def active_mtu(self):
        for line in run("ibv_devinfo", "-d", self.name).splitlines():
            if "active_mtu" in line:
                return int(line.split()[1])
        raise AssertionError("ibv_devinfo tells no active_mtu")


def mlx5():
    """The device under test, with its address and an MTU that carries path MTU 4096."""
    name = wait("mlx5 device", lambda: next((n for n in devices() if n.startswith("mlx5_")), None))
    net = os.listdir(f"/sys/class/infiniband/{name}/device/net")[0]
    run("ip", "addr", "replace", MLX5_ADDRESS + "/24", "dev", net)
    run("ip", "link", "set", net, "mtu", str(MTU), "up")
    return Device(name, net, MLX5_ADDRESS)


def rxe():
    """The kernel's software device on a network device of its own."""
    if "rxe0" not in devices():
        run("modprobe", "rdma_rxe")
        run("ip", "link", "add", RXE_NET, "type", "dummy")
        run("ip", "addr", "add", RXE_ADDRESS + "/24", "dev", RXE_NET)
        run("ip", "link", "set", RXE_NET, "mtu", str(MTU), "up")
        run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", RXE_NET)
    return Device("rxe0", RXE_NET, RXE_ADDRESS)


def devices():
    path = "/sys/class/infiniband"
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


_chosen = None


def device():
    """What the checks run on: mlx5_0, or the stand-in if CX10_STAND_IN is set, to prove the checks themselves."""
    global _chosen
    if _chosen is None:
        _chosen = rxe() if os.environ.get("CX10_STAND_IN") else mlx5()
    return _chosen


# --- two programs ---


class Program:
    """A running program whose output is collected."""

    def __init__(self, argv):
        self.argv = [str(arg) for arg in argv]
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.output = self.errors = ""
        self.readers = [threading.Thread(target=collect, daemon=True) for collect in (self.collect_output, self.collect_errors)]
        for reader in self.readers:
            reader.start()

    def collect_output(self):
        for line in self.process.stdout:
            self.output += line

    def collect_errors(self):
        for line in self.process.stderr:
            self.errors += line

    def ended(self):
        return self.process.poll() is not None

    def end(self, deadline):
        """The exit status, or None for what had to be killed."""
        try:
            status = self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            status = None
        # A process that the program left behind may hold the pipes open.
        for reader in self.readers:
            reader.join(5.0)
        self.seconds = time.monotonic() - self.started
        return status

    def kill(self):
        """Ends it; what waits in the kernel for ever is left, so that the other checks get their turn."""
        self.process.kill()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.errors += "[cannot be killed]"

    def told(self, status):
        ending = "did not end" if status is None else f"status {status}"
        return f"`{' '.join(self.argv)}` {ending}: {' / '.join((self.output + self.errors).strip().splitlines()[-6:])}"


def tcp_port_is_listening(port):
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in read(table).splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[1].endswith(wanted):
                return True
    return False


def cm_port_is_listening(port):
    found = json.loads(run("rdma", "-j", "resource", "show", "cm_id") or "[]")
    return any(e.get("state") == "LISTEN" and str(e.get("src-addr", "")).endswith(f":{port}") for e in found)


def pair(server, client, listening, seconds=60):
    """Runs a server and, as soon as `listening()` is true, its client. Both are over when this returns.

    Returns the two programs with their status. A server that ends before it listens does not keep the client from
    running: what refuses the one must refuse the other.
    """
    deadline = time.monotonic() + seconds
    first, second = Program(server), None
    try:
        while not listening() and not first.ended():
            if time.monotonic() > deadline:
                raise AssertionError(f"does not listen: {first.told(first.end(0))}")
            time.sleep(0.02)
        second = Program(client)
        statuses = second.end(deadline), None
        # A client that has failed leaves some servers waiting for ever.
        grace = deadline if statuses[0] == 0 else min(deadline, time.monotonic() + 2.0)
        statuses = statuses[0], first.end(grace)
    finally:
        for program in (first, second):
            if program is not None and not program.ended():
                program.kill()
    first.status, second.status = statuses[1], statuses[0]
    return first, second


def both_succeed(server, client, listening, seconds=60):
    """Runs the pair; the outputs of server and client."""
    first, second = pair(server, client, listening, seconds)
    if first.status != 0 or second.status != 0:
        raise AssertionError(f"client {second.told(second.status)}; server {first.told(first.status)}")
    return first.output, second.output
