"""Kernel protocols over RDMA, each with its two ends in this kernel: data goes through and is compared.

Each function sets a protocol up at the address of the device, moves data, compares it, takes the protocol down, and returns
the number of bytes that were compared. A module or program that is not there is `Unavailable`; data that comes back changed
is an answer, not an error.
"""

import contextlib
import hashlib
import os
import random
import socket
import subprocess
import time

from uverbs import Unavailable

MIB = 1 << 20
CONFIGFS = "/sys/kernel/config"


class Changed(Exception):
    """Data has come back changed."""


def run(*argv):
    """Runs a program: its output. One that is not there is unavailable, one that fails is an error."""
    try:
        done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=60)
    except FileNotFoundError as error:
        raise Unavailable(f"no {argv[0]} in the guest") from error
    if done.returncode:
        text = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise RuntimeError(f"{' '.join(argv)}: exit status {done.returncode}: {text[-1] if text else 'no output'}")
    return done.stdout.decode(errors="replace")


def modules(*names):
    for name, *options in (name.split() for name in names):
        done = subprocess.run(["modprobe", name, *options], capture_output=True, check=False)
        if done.returncode:
            raise Unavailable(f"no module {name} in this kernel: {done.stderr.decode(errors='replace').strip()}")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read().strip()


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def wait(what, condition, seconds=20.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise RuntimeError(f"no {what} after {seconds:.0f} s")


def address(device):
    """The IPv4 address of the device's port."""
    for name in os.listdir(f"/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs"):
        gid = read(f"/sys/class/infiniband/{device}/ports/1/gids/{name}").split(":")
        if gid[5] == "ffff":
            return socket.inet_ntoa(bytes.fromhex(gid[6] + gid[7]))
    raise Unavailable(f"{device} has no IPv4 address")


class Tree:
    """Directories and links of configfs, removed in reverse."""

    def __init__(self, undo):
        self.undo = undo

    def make(self, path, **files):
        if not os.path.isdir(path):
            os.mkdir(path)
            self.undo.callback(os.rmdir, path)
        for name, text in files.items():
            write(f"{path}/{name}", text)
        return path

    def link(self, target, path):
        os.symlink(target, path)
        self.undo.callback(os.unlink, path)


@contextlib.contextmanager
def tree():
    if not os.path.ismount(CONFIGFS):
        run("mount", "-t", "configfs", "none", CONFIGFS)
    with contextlib.ExitStack() as undo:
        yield Tree(undo)


def block_survives(block):
    """Writes and reads a disk past the page cache, in requests of many sizes."""
    total = 0
    for number, (size, count) in enumerate((("4k", 64), ("64k", 16), ("1M", 4))):
        length = {"4k": 4096, "64k": 65536, "1M": MIB}[size] * count
        data = random.Random(number).randbytes(length)
        write_bytes("/tmp/pattern", data)
        run("dd", "if=/tmp/pattern", f"of={block}", f"bs={size}", "oflag=direct", "conv=fsync", "status=none")
        run("dd", f"if={block}", "of=/tmp/back", f"bs={size}", f"count={count}", "iflag=direct", "status=none")
        compare("/tmp/back", data)
        total += length
    return total


def write_bytes(path, data):
    with open(path, "wb") as f:
        f.write(data)


def compare(path, data):
    with open(path, "rb") as f:
        if hashlib.file_digest(f, "sha256").digest() != hashlib.sha256(data).digest():
            raise Changed(f"{path}: {len(data)} bytes have come back changed")


# NVMe

NQN, NVME_PORT = "nqn.2024-01.org.cx10:conform", 4420


def nvme_disk():
    for name in os.listdir("/sys/class/nvme") if os.path.isdir("/sys/class/nvme") else []:
        if read(f"/sys/class/nvme/{name}/subsysnqn") == NQN:
            for block in os.listdir("/sys/block"):
                if block.startswith("nvme") and "c" not in block and read(f"/sys/block/{block}/size") != "0":
                    return "/dev/" + block
    return None


def nvme(device):
    modules("brd rd_nr=1 rd_size=65536", "nvmet", "nvmet-rdma", "nvme-rdma")
    here = address(device)
    with tree() as config:
        base = CONFIGFS + "/nvmet"
        subsystem = config.make(f"{base}/subsystems/{NQN}", attr_allow_any_host="1")
        config.make(subsystem + "/namespaces/1", device_path="/dev/ram0", enable="1")
        port = config.make(f"{base}/ports/1")
        for name, text in (("trtype", "rdma"), ("adrfam", "ipv4"), ("traddr", here), ("trsvcid", str(NVME_PORT))):
            write(f"{port}/addr_{name}", text)
        config.link(subsystem, f"{port}/subsystems/{NQN}")
        run("nvme", "connect", "-t", "rdma", "-a", here, "-s", str(NVME_PORT), "-n", NQN, "-i", "2")
        try:
            return block_survives(wait("disk", nvme_disk))
        finally:
            run("nvme", "disconnect", "-n", NQN)


# SCSI targets


def scsi_disk(model):
    """The disk of the target in memory, whose model LIO has chosen."""
    for name in os.listdir("/sys/class/scsi_disk") if os.path.isdir("/sys/class/scsi_disk") else []:
        base = f"/sys/class/scsi_disk/{name}/device"
        # A disk that goes while it is looked at is gone.
        with contextlib.suppress(OSError):
            if read(base + "/model") == model:
                return "/dev/" + os.listdir(base + "/block")[0]
    return None


def ram_backend(config):
    modules("target_core_mod")
    core = CONFIGFS + "/target/core"
    config.make(core + "/rd_mcp_0")
    disk = config.make(core + "/rd_mcp_0/conform")
    write(disk + "/control", "rd_pages=16384")
    write(disk + "/enable", "1")
    return disk


MODEL = "RAMDISK-MCP"
SRP_PORT = 5555


def srp(device):
    modules("sd_mod", "target_core_mod", "ib_srpt", "ib_srp")
    here = address(device)
    guid = read("/sys/module/ib_srpt/parameters/srpt_service_guid")
    with tree() as config:
        disk = ram_backend(config)
        fabric = config.make(CONFIGFS + "/target/srpt")
        write(fabric + "/discovery_auth/rdma_cm_port", str(SRP_PORT))
        # A port is named by the device's GUID, an initiator that logs in through rdma_cm by its address.
        node = read(f"/sys/class/infiniband/{device}/node_guid")
        group = config.make(config.make(f"{fabric}/{node}") + f"/{node}")
        config.link(disk, config.make(group + "/lun/lun_0") + "/conform")
        initiator = config.make(f"{group}/acls/{here}")
        config.link(group + "/lun/lun_0", config.make(initiator + "/lun_0") + "/conform")
        write(group + "/enable", "1")
        config.undo.callback(write, group + "/enable", "0")
        hosts = "/sys/class/infiniband_srp"
        port = wait("SRP initiator", lambda: os.path.isdir(hosts) and os.listdir(hosts))[0]
        login = f"id_ext={guid[2:]:0>16},ioc_guid={guid[2:]:0>16},dest={here}:{SRP_PORT}"
        write(f"{hosts}/{port}/add_target", login)
        try:
            return block_survives(wait("disk", lambda: scsi_disk(MODEL)))
        finally:
            for name in os.listdir("/sys/class/srp_remote_ports"):
                # It may be going already.
                with contextlib.suppress(OSError):
                    write(f"/sys/class/srp_remote_ports/{name}/delete", "1")
            wait("end of the disk", lambda: scsi_disk(MODEL) is None)


IQN = "iqn.2024-01.org.cx10:conform"
ISCSI_PORT = 3260


def iser(device):
    modules("sd_mod", "target_core_mod", "iscsi_target_mod", "ib_isert", "ib_iser")
    here = address(device)
    with tree() as config:
        disk = ram_backend(config)
        config.make(CONFIGFS + "/target/iscsi")
        group = config.make(config.make(f"{CONFIGFS}/target/iscsi/{IQN}") + "/tpgt_1")
        config.link(disk, config.make(group + "/lun/lun_0") + "/conform")
        for name, text in (("authentication", "0"), ("generate_node_acls", "1"), ("demo_mode_write_protect", "0")):
            write(f"{group}/attrib/{name}", text)
        portal = config.make(f"{group}/np/{here}:{ISCSI_PORT}")
        write(portal + "/iser", "1")
        write(group + "/enable", "1")
        config.undo.callback(write, group + "/enable", "0")
        # The target ends a session after its initiator does; a group that is taken from under it makes 6.12 stop with
        # a kernel BUG (transport_deregister_session_configfs).
        config.undo.callback(wait, "end of the session", lambda: not read(group + "/dynamic_sessions").strip("\0\n "))
        os.makedirs("/etc/iscsi", exist_ok=True)
        write("/etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.2024-01.org.cx10:initiator\n")
        os.makedirs("/run/lock/iscsi", exist_ok=True)
        with contextlib.ExitStack() as undo:
            daemon(undo, "iscsid", "-f")
            node = ["iscsiadm", "-m", "node", "-T", IQN, "-p", f"{here}:{ISCSI_PORT}"]
            run(*node, "-o", "new")
            run(*node, "-o", "update", "-n", "iface.transport_name", "-v", "iser")
            run(*node, "--login")
            undo.callback(run, *node, "--logout")
            return block_survives(wait("disk", lambda: scsi_disk(MODEL)))


# Files and messages

NFS_PORT = 20049
FILES = 16


def nfs(device):
    modules("rpcrdma", "nfsd", "nfs", "nfsv4")
    here = address(device)
    for path in ("/export", "/mnt", "/run/rpc_pipefs", "/var/lib/nfs/nfsdcld"):
        os.makedirs(path, exist_ok=True)
    for path in ("/var/lib/nfs/etab", "/var/lib/nfs/rmtab", "/etc/exports"):
        write(path, "")
    with contextlib.ExitStack() as undo:
        for kind, path in (("tmpfs", "/export"), ("nfsd", "/proc/fs/nfsd"), ("rpc_pipefs", "/run/rpc_pipefs")):
            if not os.path.ismount(path):
                run("mount", "-t", kind, "none", path)
        # One knows that no client has locks from before, or the server would wait for them; the other answers questions
        # about exports. Without version 3 it needs no port mapper.
        daemon(undo, "nfsdcld", "-F", "-p", "/run/rpc_pipefs")
        daemon(undo, "rpc.mountd", "-F", "--no-nfs-version", "3")
        run("exportfs", "-o", "rw,no_root_squash,insecure,fsid=0", "*:/export")
        undo.callback(run, "exportfs", "-au")
        run("rpc.nfsd", "--no-nfs-version", "3", f"--rdma={NFS_PORT}", "2")
        undo.callback(run, "rpc.nfsd", "0")
        # Where the server looked for that daemon before it listened, it would wait 90 s all the same. One that does not
        # wait is busy.
        with contextlib.suppress(OSError):
            write("/proc/fs/nfsd/v4_end_grace", "Y")
        run("mount", "-t", "nfs4", "-o", f"rdma,port={NFS_PORT},soft,timeo=100", f"{here}:/", "/mnt")
        undo.callback(run, "umount", "/mnt")
        return files_survive("/mnt")


def daemon(undo, *argv):
    """A program that runs until the protocol is taken down."""
    try:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise Unavailable(f"no {argv[0]} in the guest") from error
    undo.callback(process.wait)
    undo.callback(process.kill)


def files_survive(directory):
    choice = random.Random(1)
    files = {}
    for number in range(FILES):
        data = choice.randbytes(choice.choice((1, 511, 4096, 65537, 300_001, MIB)))
        files[f"{directory}/file{number}"] = data
        write_bytes(f"{directory}/file{number}", data)
    run("sync")
    write("/proc/sys/vm/drop_caches", "3")
    for path, data in files.items():
        compare(path, data)
    return sum(map(len, files.values()))


AF_RDS, AF_SMC = 21, 43


def rds_socket(here, port):
    # Python does not know the family's addresses; they are those of IPv4.
    plain = socket.socket(AF_RDS, socket.SOCK_SEQPACKET, 0)
    made = socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 0, fileno=plain.detach())
    made.settimeout(30.0)
    made.bind((here, port))
    return made


def rds(device):
    modules("rds", "rds_rdma")
    here = address(device)
    choice = random.Random(3)
    total = 0
    with rds_socket(here, 4000) as one, rds_socket(here, 4001) as two:
        for number in range(64):
            data = choice.randbytes(choice.choice((1, 100, 4096, 20_000, 100_000)))
            one.sendto(data, (here, 4001))
            if two.recvfrom(1 << 20)[0] != data:
                raise Changed(f"message {number} of {len(data)} bytes has come changed")
            total += len(data)
    return total


def smc(device):
    modules("smc")
    here = address(device)
    with smc_socket() as server, smc_socket() as client:
        server.bind((here, 5000))
        server.listen(1)
        client.connect((here, 5000))
        peer, _ = server.accept()
        with peer:
            if not any("smc" in line for line in run("rdma", "resource", "show", "qp").splitlines()):
                raise Unavailable("SMC falls back to TCP between two ends on one machine")
            return stream_survives(client, peer)


def smc_socket():
    # Python does not know the family's addresses; they are those of IPv4.
    plain = socket.socket(AF_SMC, socket.SOCK_STREAM, 0)
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=plain.detach())
    made.settimeout(30.0)
    return made


def stream_survives(one, two):
    data = random.Random(4).randbytes(4 * MIB)
    got = bytearray()
    pid = os.fork()
    if pid == 0:
        try:
            one.sendall(data)
        finally:
            os._exit(0)
    while len(got) < len(data):
        chunk = two.recv(65536)
        if not chunk:
            break
        got += chunk
    os.waitpid(pid, 0)
    if bytes(got) != data:
        raise Changed("a stream has come changed")
    return len(data)


PROTOCOLS = {function.__name__: function for function in (nvme, nfs, iser, srp, smc, rds)}


def protocol(device, name):
    try:
        return {"bytes": PROTOCOLS[name](device)}
    except Changed as error:
        return {"changed": str(error)}
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return {"failed": f"{type(error).__name__}: {error}"}
