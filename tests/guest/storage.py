"""NVMe over RDMA: target and initiator in one kernel, both users of fast registration.

A file system is made on the remote disk, files are written, read back without the page cache, and compared.
"""

import contextlib
import hashlib
import json
import os
import random
import subprocess

from harness import check, read, run, wait, write
from rdma import device

NQN, PORT = "nqn.2024-01.org.cx10:disk", 4420
NVMET = "/sys/kernel/config/nvmet"
MIB = 1 << 20
DISK_MIB, FILES = 192, 24


def make(path):
    os.mkdir(path)
    return path


@contextlib.contextmanager
def target(address):
    """A subsystem with a disk in memory, offered over RDMA at the device's own address."""
    run("modprobe", "brd", "rd_nr=1", f"rd_size={DISK_MIB << 10}")
    run("modprobe", "-a", "nvmet", "nvmet-rdma", "nvme-rdma", "ext4")
    if not os.path.ismount("/sys/kernel/config"):
        run("mount", "-t", "configfs", "none", "/sys/kernel/config")
    subsystem, port = f"{NVMET}/subsystems/{NQN}", f"{NVMET}/ports/1"
    with contextlib.ExitStack() as undo:
        make(subsystem)
        undo.callback(os.rmdir, subsystem)
        write(subsystem + "/attr_allow_any_host", "1")
        namespace = make(subsystem + "/namespaces/1")
        undo.callback(os.rmdir, namespace)
        write(namespace + "/device_path", "/dev/ram0")
        write(namespace + "/enable", "1")
        make(port)
        undo.callback(os.rmdir, port)
        for name, value in (("trtype", "rdma"), ("adrfam", "ipv4"), ("traddr", address), ("trsvcid", str(PORT))):
            write(f"{port}/addr_{name}", value)
        os.symlink(subsystem, f"{port}/subsystems/{NQN}")
        undo.callback(os.unlink, f"{port}/subsystems/{NQN}")
        yield
    run("modprobe", "-r", "brd")


def disk():
    """The initiator's block device."""
    for name in sorted(os.listdir("/sys/class/nvme")) if os.path.isdir("/sys/class/nvme") else []:
        if read(f"/sys/class/nvme/{name}/subsysnqn") == NQN:
            # With multipath the namespace belongs to the subsystem, whose number is that of the first controller.
            for block in os.listdir("/sys/block"):
                if block.startswith("nvme") and "c" not in block and read(f"/sys/block/{block}/size") != "0":
                    return "/dev/" + block
    return None


@contextlib.contextmanager
def connected(address, *options):
    run("nvme", "connect", "-t", "rdma", "-a", address, "-s", str(PORT), "-n", NQN, *options)
    try:
        yield wait("block device", disk, 20.0)
    finally:
        run("nvme", "disconnect", "-n", NQN)


@contextlib.contextmanager
def mounted(block):
    """A fresh file system."""
    run("mkfs.ext4", "-q", "-F", block)
    os.makedirs("/mnt", exist_ok=True)
    run("mount", "-t", "ext4", block, "/mnt")
    try:
        yield "/mnt"
    finally:
        run("umount", "/mnt")


def drop_caches():
    run("sync")
    write("/proc/sys/vm/drop_caches", "3")


def checksum(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def files_survive(directory):
    """Writes files of many sizes, forgets them, reads them back; the bytes that were compared."""
    choice = random.Random(1)
    sums, total = {}, 0
    for n in range(FILES):
        size = choice.choice((1, 511, 4096, 65537, 300_001, MIB, 5 * MIB + 13))
        data = choice.randbytes(size)
        path = f"{directory}/file{n}"
        with open(path, "wb") as f:
            f.write(data)
        sums[path], total = hashlib.sha256(data).hexdigest(), total + size
    drop_caches()
    for path, want in sums.items():
        assert checksum(path) == want, f"{path} has come back changed"
    return total


@check(seconds=240)
def a_file_system_on_a_remote_disk_keeps_its_files():
    address = device().address
    with target(address), connected(address, "-i", "2") as block, mounted(block) as directory:
        total = files_survive(directory)
        again = files_survive(directory)
        run("sync")
    return f"{total + again} bytes written, read back and compared"


@check(seconds=240)
def large_direct_transfers_of_a_remote_disk_are_whole():
    """Requests of a megabyte, several at a time, past the page cache; then the same in reverse from the disk itself."""
    address = device().address
    with target(address), connected(address, "-i", "2", "-Q", "32") as block:
        pattern = random.Random(2).randbytes(32 * MIB)
        with open("/tmp/pattern", "wb") as f:
            f.write(pattern)
        run("dd", "if=/tmp/pattern", f"of={block}", "bs=1M", "oflag=direct", "conv=fsync", "status=none")
        readers = [
            subprocess.Popen(["dd", f"if={block}", f"of=/tmp/back{n}", "bs=1M", "count=32", "iflag=direct", "status=none"])
            for n in range(3)
        ]
        for reader in readers:
            assert reader.wait(100) == 0
        want = hashlib.sha256(pattern).hexdigest()
        for n in range(3):
            assert checksum(f"/tmp/back{n}") == want, f"copy {n} is not what was written"
            os.unlink(f"/tmp/back{n}")
        assert checksum_of_start("/dev/ram0", len(pattern)) == want, "the disk itself has something else"
        os.unlink("/tmp/pattern")
    return "32 MiB written, read three times at once, compared"


def checksum_of_start(path, length):
    drop_caches()
    with open(path, "rb") as f:
        return hashlib.sha256(f.read(length)).hexdigest()


@check(seconds=120)
def a_remote_disk_comes_back_after_its_controller_is_reset():
    address = device().address
    with target(address), connected(address, "-i", "2") as block:
        for _ in range(2):
            run("nvme", "reset", "/dev/" + controller())
            wait("live controller", lambda: read(f"/sys/class/nvme/{controller()}/state") == "live")
        run("dd", f"if={block}", "of=/dev/null", "bs=64k", "count=16", "iflag=direct", "status=none")
        listed = json.loads(run("nvme", "list-subsys", "-o", "json"))
    return f"{len(listed)} subsystems listed"


def controller():
    return next(n for n in os.listdir("/sys/class/nvme") if read(f"/sys/class/nvme/{n}/subsysnqn") == NQN)
