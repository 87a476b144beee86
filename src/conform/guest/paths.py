"""The ways in which user space registers memory, one function each.

A function takes a `Bench` and access flags, makes a key, and returns what names it: `lkey` (or `rkey`, `umem`). What it
needs first (a dma-buf, device memory) it takes from the bench, whose failures are told apart from those of the call.
"""

import ctypes
import mmap

from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError

import uverbs
from uverbs import LOCAL_WRITE, ON_DEMAND, RELAXED, REMOTE_READ, REMOTE_WRITE, ZERO_BASED, Unavailable

LENGTH = 0x4000
ALL_MEMORY = (1 << 64) - 1

DEVX_FLAG = 1


class Bench:
    """An open device with a protection domain and some memory."""

    def __init__(self, device, devx=False):
        from pyverbs.providers.mlx5.mlx5dv import Mlx5Context, Mlx5DVContextAttr

        self.devx = devx
        self.context = Mlx5Context(Mlx5DVContextAttr(flags=DEVX_FLAG if devx else 0), device)
        self.pd, self.pdn = uverbs.alloc_pd(self.context)
        self.memory = mmap.mmap(-1, LENGTH)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def dmabuf(self):
        try:
            return uverbs.udmabuf(LENGTH)
        except OSError as error:
            raise Unavailable(f"udmabuf: {error.strerror}") from error

    def device_memory(self):
        """The handle of four kilobytes of device memory."""
        from pyverbs.device import DM, AllocDmAttr

        try:
            self.dm = DM(self.context, AllocDmAttr(length=4096))
        except PyverbsError as error:
            raise Unavailable(f"ibv_alloc_dm: {error}") from error
        return self.dm.handle


# What a step opened lives as long as its process: the kernel takes it down in the right order.
KEPT = []


def region(mr):
    handle, lkey, rkey = mr
    return {"handle": handle, "lkey": lkey, "rkey": rkey}


def reg_mr_write(bench, access):
    return region(uverbs.reg_mr_write(bench.context, bench.pd, bench.start, LENGTH, bench.start, access))


def reg_mr_ioctl(bench, access):
    return region(uverbs.reg_mr_ioctl(bench.context, bench.pd, bench.start, LENGTH, access))


def reg_mr_ioctl_fd(bench, access):
    return region(uverbs.reg_mr_ioctl_fd(bench.context, bench.pd, bench.dmabuf(), LENGTH, access))


def rereg(bench, base, access):
    """A region with the flags `base` is given `access`."""
    try:
        mr = reg_mr_write(bench, base)
    except OSError as error:
        raise Unavailable(f"reg_mr: {error.strerror}") from error
    lkey, rkey = uverbs.rereg_mr_access(bench.context, mr["handle"], bench.pd, access)
    return {"lkey": lkey, "rkey": rkey}


def rereg_mr(bench, access):
    return rereg(bench, LOCAL_WRITE, access)


def rereg_relaxed_mr(bench, access):
    return rereg(bench, LOCAL_WRITE | RELAXED, access)


def dmabuf_mr(bench, access):
    return region(uverbs.reg_dmabuf_mr(bench.context, bench.pd, bench.dmabuf(), LENGTH, access))


def dm_mr(bench, access):
    return region(uverbs.reg_dm_mr(bench.context, bench.pd, bench.device_memory(), 4096, access | ZERO_BASED))


def odp_mr(bench, access):
    return reg_mr_write(bench, access | ON_DEMAND)


def odp_implicit_mr(bench, access):
    access |= ON_DEMAND
    return region(uverbs.reg_mr_write(bench.context, bench.pd, 0, ALL_MEMORY, 0, access))


def devx_umem(bench, access):
    return {"umem": uverbs.devx_umem(bench.context, bench.start, LENGTH, access)[1]}


def devx_umem_dmabuf(bench, access):
    return {"umem": uverbs.devx_umem(bench.context, 0, LENGTH, access, bench.dmabuf())[1]}


def mw_type_1(bench, _access):
    return {"rkey": uverbs.alloc_mw(bench.context, bench.pd, 1)[1]}


def mw_type_2(bench, _access):
    return {"rkey": uverbs.alloc_mw(bench.context, bench.pd, 2)[1]}


# CREATE_MKEY: bit offset and width, as mlx5_ifc.h counts: bit 0 is the top bit of the first byte.
OP_CREATE_MKEY = 0x200
CREATE_MKEY_SIZE = 0x110
MKC = 0x80
FIELDS = {
    "opcode": (0, 16),
    "mkey_umem_valid": (0x61, 1),
    "translations_octword_actual_size": (0x300, 32),
    "mkey_umem_id": (0x320, 32),
    "relaxed_ordering_write": (MKC + 0xD, 1),
    "rw": (MKC + 0x12, 1),
    "rr": (MKC + 0x13, 1),
    "lw": (MKC + 0x14, 1),
    "lr": (MKC + 0x15, 1),
    "access_mode_1_0": (MKC + 0x16, 2),
    "qpn": (MKC + 0x20, 24),
    "pd": (MKC + 0x68, 24),
    "start_addr": (MKC + 0x80, 64),
    "len": (MKC + 0xC0, 64),
    "translations_octword_size": (MKC + 0x1A0, 32),
    "order_read_after_write": (MKC + 0x1D6, 2),
    "relaxed_ordering_read": (MKC + 0x1D9, 1),
    "log_page_size": (MKC + 0x1DA, 6),
}
MODE_MTT = 1


def mkey_command(fields):
    whole = 0
    for name, content in fields.items():
        offset, width = FIELDS[name]
        whole |= content << CREATE_MKEY_SIZE * 8 - offset - width
    return whole.to_bytes(CREATE_MKEY_SIZE, "big")


def devx_mkey(bench, access):
    """A key made by user space itself; the flags choose the bits that a driver would set for them."""
    from pyverbs.providers.mlx5.mlx5dv import Mlx5DevxObj

    try:
        umem = uverbs.devx_umem(bench.context, bench.start, LENGTH, LOCAL_WRITE)[1]
    except OSError as error:
        raise Unavailable(f"DEVX umem: {error.strerror}") from error
    relaxed = access & RELAXED != 0
    command = mkey_command({
        "opcode": OP_CREATE_MKEY,
        "mkey_umem_valid": 1,
        "mkey_umem_id": umem,
        "relaxed_ordering_write": relaxed,
        "relaxed_ordering_read": relaxed,
        "order_read_after_write": access >> 21 & 1,
        "lr": 1,
        "lw": 1,
        "rr": access & REMOTE_READ != 0,
        "rw": access & REMOTE_WRITE != 0,
        "access_mode_1_0": MODE_MTT,
        "qpn": 0xFFFFFF,
        "pd": bench.pdn,
        "start_addr": bench.start,
        "len": LENGTH,
        "translations_octword_size": LENGTH // 4096 // 2,
        "log_page_size": 12,
    })
    try:
        bench.mkey = Mlx5DevxObj(bench.context, command, 16)
    except PyverbsRDMAError as error:
        raise OSError(error.error_code, str(error)) from error
    index = int.from_bytes(bench.mkey.out_view[9:12], "big")
    return {"lkey": index << 8, "rkey": index << 8}


PATHS = {
    function.__name__: function
    for function in (
        reg_mr_write,
        reg_mr_ioctl,
        reg_mr_ioctl_fd,
        rereg_mr,
        rereg_relaxed_mr,
        dmabuf_mr,
        dm_mr,
        odp_mr,
        odp_implicit_mr,
        devx_umem,
        devx_umem_dmabuf,
        devx_mkey,
        mw_type_1,
        mw_type_2,
    )
}


def opened(device, devx):
    """A bench that lives as long as its process."""
    try:
        bench = Bench(device, devx)
    except (OSError, PyverbsError) as error:
        raise Unavailable(f"opening {device}{' with DEVX' if devx else ''}: {error}") from error
    KEPT.append(bench)
    return bench


def register(device, path, access):
    """Makes a key: what names it, or the `errno` of the call."""
    bench = opened(device, path.startswith("devx"))
    try:
        return PATHS[path](bench, access)
    except OSError as error:
        return {"errno": uverbs.errno_name(error.errno)}
