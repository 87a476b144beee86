"""Memory other than regions of the process's pages: device memory, dma-bufs, user memory of DEVX, with data by RDMA.

A queue pair is connected to itself; what is written to one region and read back from another is compared with what the
processor sees. All regions ask for relaxed ordering, but for those on device memory, for which no kernel up to 7.3 can.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import struct
from types import SimpleNamespace

import pyverbs.device as d
import pyverbs.providers.mlx5.mlx5_enums as dve
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_RELAXED_ORDERING,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_ACCESS_ZERO_BASED,
    IBV_MTU_1024,
    IBV_ODP_SUPPORT,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
)
from pyverbs.mr import DMMR, MR, DmaBufMR
from pyverbs.pd import PD
from pyverbs.providers.mlx5.mlx5dv import Mlx5Context, Mlx5DevxObj, Mlx5DVContextAttr, Mlx5UMEM
from pyverbs.providers.mlx5.mlx5dv_objects import Mlx5DvObj
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

import devx_mkeys
import rdma
from harness import check, wait

DEVICE = rdma.mlx5()
ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
RELAXED = ACCESS | IBV_ACCESS_RELAXED_ORDERING
SIZE = 0x3000
# Linux include/uapi/linux/udmabuf.h
UDMABUF_CREATE = 0x40187542
MFD_ALLOW_SEALING, F_ADD_SEALS, F_SEAL_SHRINK = 2, 1033, 2


class Loop:
    """A reliable connection with itself, and a region of ordinary memory."""

    def __init__(self, ctx=None):
        self.ctx = ctx or Context(name=DEVICE.name)
        self.pd = PD(self.ctx)
        self.cq = CQ(self.ctx, 16)
        cap = QPCap(max_send_wr=16, max_recv_wr=1)
        access = QPAttr(port_num=1)
        access.qp_access_flags = ACCESS
        self.qp = QP(self.pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap), access)
        route = GlobalRoute(dgid=self.ctx.query_gid(1, int(DEVICE.gid)), sgid_index=int(DEVICE.gid))
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        attr.dest_qp_num = self.qp.qp_num
        attr.path_mtu = IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)
        self.mr = MR(self.pd, SIZE, RELAXED)

    def post(self, opcode, local, remote, length=SIZE, add=None):
        """Does one request from (region, address) to (region, address) and takes its completion."""
        sge = SGE(local[1], length, local[0].lkey)
        wr = SendWR(opcode=opcode, num_sge=1, sg=[sge], send_flags=IBV_SEND_SIGNALED)
        if add is None:
            wr.set_wr_rdma(remote[0].rkey, remote[1])
        else:
            wr.set_wr_atomic(remote[0].rkey, remote[1], add)
        self.qp.post_send(wr)

        def completion():
            count, found = self.cq.poll()
            return found if count else None

        found = wait("a completion", completion)[0]
        assert found.status == IBV_WC_SUCCESS, f"status {found.status}, vendor error {found.vendor_err:#x}"


def pattern(seed, length=SIZE):
    return bytes((seed + 7 * i + i // 256) & 0xFF for i in range(length))


def udmabuf(size):
    """Memory of the process that is a dma-buf, too: the mapping and the dma-buf."""
    memory = os.memfd_create("cx10", MFD_ALLOW_SEALING)
    os.ftruncate(memory, size)
    fcntl.fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK)
    with open("/dev/udmabuf", "wb", buffering=0) as device:
        exported = fcntl.ioctl(device, UDMABUF_CREATE, bytearray(struct.pack("=IIQQ", memory, 0, 0, size)))
    return mmap.mmap(memory, size), exported


def faults(loop):
    """Whether the device can take page faults. The driver has dma-bufs that move, and makes a queue for faults first."""
    return loop.ctx.query_device_ex().odp_caps.general_caps & IBV_ODP_SUPPORT


def without_faults(loop, exported, access):
    try:
        DmaBufMR(loop.pd, SIZE, access, dmabuf=exported).close()
    except PyverbsRDMAError as error:
        assert error.error_code == errno.EOPNOTSUPP, error
        return "refused: Operation not supported, as there is no on-demand paging"
    raise AssertionError("granted without on-demand paging")


@check
def rdma_reaches_a_dma_buf():
    loop = Loop()
    memory, exported = udmabuf(SIZE)
    if not faults(loop):
        return without_faults(loop, exported, RELAXED)
    with DmaBufMR(loop.pd, SIZE, RELAXED, dmabuf=exported) as region:
        loop.mr.write(pattern(1), SIZE)
        loop.post(IBV_WR_RDMA_WRITE, (loop.mr, loop.mr.buf), (region, 0))
        assert memory[:] == pattern(1), "written by RDMA, seen by the processor"
        memory[:] = pattern(2)
        loop.post(IBV_WR_RDMA_READ, (loop.mr, loop.mr.buf), (region, 0))
        assert loop.mr.read(SIZE, 0) == pattern(2), "read by RDMA"
        # As the local side, too, in the middle of a page.
        loop.post(IBV_WR_RDMA_READ, (region, 0x123), (loop.mr, loop.mr.buf), length=0x1000)
        assert memory[0x123:0x1123] == pattern(2, 0x1000) and memory[0x1123] == pattern(2)[0x1123]
    return f"{SIZE} bytes each way"


@check
def a_dma_buf_region_without_relaxed_ordering_is_as_good_as_any():
    loop = Loop()
    _, exported = udmabuf(SIZE)
    if not faults(loop) and not DEVICE.strict:
        return without_faults(loop, exported, ACCESS)
    try:
        DmaBufMR(loop.pd, SIZE, ACCESS, dmabuf=exported).close()
    except PyverbsRDMAError as error:
        assert DEVICE.strict and error.error_code == errno.EINVAL, error
        return "refused: Invalid argument"
    assert not DEVICE.strict, "granted"
    return "granted"


@check
def rdma_and_the_processor_reach_device_memory():
    loop = Loop()
    length = 0x1000
    with d.DM(loop.ctx, d.AllocDmAttr(length=length)) as memory:
        memory.copy_to_dm(0, pattern(3, length), length)
        assert bytes(memory.copy_from_dm(0, length)) == pattern(3, length)
        try:
            region = DMMR(loop.pd, length, ACCESS | IBV_ACCESS_ZERO_BASED, dm=memory, offset=0)
        except PyverbsRDMAError as error:
            assert DEVICE.strict and error.error_code == errno.EINVAL, error
            return "the processor does; the region is refused: Invalid argument"
        assert not DEVICE.strict, "the region is granted"
        with region:
            loop.post(IBV_WR_RDMA_READ, (loop.mr, loop.mr.buf), (region, 0), length)
            assert loop.mr.read(length, 0) == pattern(3, length), "device memory read by RDMA"
            loop.mr.write(pattern(4), SIZE)
            loop.post(IBV_WR_RDMA_WRITE, (loop.mr, loop.mr.buf), (region, 64), 1024)
            expected = pattern(3, 64) + pattern(4, 1024)
            assert bytes(memory.copy_from_dm(0, 64 + 1024)) == expected, "device memory written by RDMA"
            # From device memory, as the local side.
            loop.post(IBV_WR_RDMA_WRITE, (region, 0), (loop.mr, loop.mr.buf), 64 + 1024)
            assert loop.mr.read(64 + 1024, 0) == expected
            memory.copy_to_dm(0, struct.pack("<Q", 40), 8)
            loop.post(IBV_WR_ATOMIC_FETCH_AND_ADD, (loop.mr, loop.mr.buf), (region, 0), 8, add=2)
            assert struct.unpack("<QQ", loop.mr.read(8, 0) + bytes(memory.copy_from_dm(0, 8))) == (40, 42), "an atomic"
    return f"{length} bytes"


def devx_key(loop, pdn, umem, **fields):
    """A key made through DEVX on user memory that was registered through DEVX."""
    command = bytearray(devx_mkeys.CREATE_MKEY_SIZE)
    outer = {"opcode": devx_mkeys.OP_CREATE_MKEY, "mkey_umem_valid": 1, "mkey_umem_id": umem.umem_id}
    for name, value in outer.items():
        devx_mkeys.put(command, *devx_mkeys.CREATE_MKEY[name], value)
    inner = {"access_mode_1_0": 1, "lw": 1, "lr": 1, "qpn": 0xFFFFFF, "pd": pdn, "log_page_size": 12, "mkey_7_0": 0x5A}
    inner |= {"start_addr": umem.umem_addr, "len": SIZE} | fields
    places = devx_mkeys.MKC | {"rw": (0x12, 1), "rr": (0x13, 1)}
    for name, value in inner.items():
        offset, width = places[name]
        devx_mkeys.put(command, devx_mkeys.MKC_OFFSET + offset, width, value)
    made = Mlx5DevxObj(loop.ctx, bytes(command), 16)
    key = int.from_bytes(bytes(made.out_view)[9:12], "big") << 8 | 0x5A
    return made, SimpleNamespace(lkey=key, rkey=key)


@check
def rdma_reaches_user_memory_of_devx():
    loop = Loop(Mlx5Context(Mlx5DVContextAttr(dve.MLX5DV_CONTEXT_FLAGS_DEVX), DEVICE.name))
    pdn = Mlx5DvObj(dve.MLX5DV_OBJ_PD, pd=loop.pd).dvpd.pdn
    umem = Mlx5UMEM(loop.ctx, size=SIZE, alignment=4096, access=IBV_ACCESS_LOCAL_WRITE)
    at = umem.umem_addr
    made, region = devx_key(loop, pdn, umem, relaxed_ordering_write=1, rw=1, rr=1)
    loop.mr.write(pattern(5), SIZE)
    loop.post(IBV_WR_RDMA_WRITE, (loop.mr, loop.mr.buf), (region, at))
    assert ctypes.string_at(at, SIZE) == pattern(5), "written by RDMA, seen by the processor"
    ctypes.memmove(at, pattern(6), SIZE)
    loop.post(IBV_WR_RDMA_READ, (loop.mr, loop.mr.buf), (region, at))
    assert loop.mr.read(SIZE, 0) == pattern(6), "read by RDMA"
    made.close()
    umem.close()
    return f"{SIZE} bytes each way, key {region.lkey:#x}"


@check
def device_memory_is_clean_for_its_next_owner():
    ctx = Context(name=DEVICE.name)
    for seed in range(3):
        with d.DM(ctx, d.AllocDmAttr(length=4096)) as memory:
            assert not any(bytes(memory.copy_from_dm(0, 4096))), "left by an owner before"
            memory.copy_to_dm(0, pattern(seed, 4096), 4096)
