"""The kernel's own interface to memory registration: write commands and ioctls of /dev/infiniband/uverbs*.

Libraries filter flags before the kernel sees them, so the calls under test are made here. Contexts, protection domains and
device memory come from pyverbs, which lends its descriptors and handles. Numbers are those of include/uapi/rdma
(ib_user_verbs.h, ib_user_ioctl_cmds.h, rdma_user_ioctl_cmds.h, mlx5_user_ioctl_cmds.h).
"""

import ctypes
import errno
import fcntl
import os
import struct

# Access flags (ib_user_ioctl_verbs.h); bits 20 to 29 are the optional ones.
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 1, 2, 4
ZERO_BASED, ON_DEMAND = 1 << 5, 1 << 6
RELAXED = 1 << 20

# Write commands.
CMD_ALLOC_PD, CMD_DEALLOC_PD, CMD_REG_MR, CMD_REREG_MR, CMD_ALLOC_MW = 3, 4, 9, 11, 14
REREG_ACCESS = 4

# Objects and methods of the ioctl interface; bit 12 marks the driver's own.
OBJECT_PD, OBJECT_MR = 1, 7
METHOD_DM_MR_REG, METHOD_REG_DMABUF_MR, METHOD_REG_MR = 0, 4, 5
DRIVER = 1 << 12
OBJECT_DEVX_UMEM = DRIVER + 2
METHOD_DEVX_UMEM_REG = DRIVER
METHOD_PD_QUERY = DRIVER

RDMA_VERBS_IOCTL = 3 << 30 | 24 << 16 | 0x1B << 8 | 1
DRIVER_MLX5 = 1
MANDATORY = 1


def write_command(context, command, request, response_size):
    """A command of the write interface: its response. `request` is what follows the response's address."""
    response = ctypes.create_string_buffer(max(response_size, 1))
    body = struct.pack("<Q", ctypes.addressof(response)) + request if response_size else request
    words = (8 + len(body)) // 4
    message = struct.pack("<IHH", command, words, response_size // 4) + body
    os.write(context.cmd_fd, message)
    return response.raw[:response_size]


class Unavailable(Exception):
    """Something that a step needs is not there."""


class Attribute:
    """An attribute of an ioctl: its number, length and eight bytes of data."""

    def __init__(self, number, length=0, data=0, mandatory=True):
        self.number, self.length, self.data, self.mandatory = number, length, data & (1 << 64) - 1, mandatory

    def pack(self):
        return struct.pack("<HHHHQ", self.number, self.length, MANDATORY if self.mandatory else 0, 0, self.data)


def value(number, data, size=8):
    """A number by value."""
    return Attribute(number, size, data)


def handle(number, data=0):
    """An object; a new one's handle is found in `data` afterwards. A file descriptor has the same form."""
    return Attribute(number, 0, data)


class Out(Attribute):
    """A 32-bit answer."""

    def __init__(self, number):
        self.buffer = ctypes.create_string_buffer(4)
        super().__init__(number, 4, ctypes.addressof(self.buffer))

    def get(self):
        return struct.unpack("<I", self.buffer.raw)[0]


def ioctl(context, object_id, method_id, attributes):
    """Calls a method. New handles are written back into the attributes."""
    length = 24 + 16 * len(attributes)
    header = struct.pack("<HHHHQII", length, object_id, method_id, len(attributes), 0, DRIVER_MLX5, 0)
    message = bytearray(header + b"".join(attribute.pack() for attribute in attributes))
    fcntl.ioctl(context.cmd_fd, RDMA_VERBS_IOCTL, message, True)
    for index, attribute in enumerate(attributes):
        attribute.data = struct.unpack_from("<Q", message, 24 + 16 * index + 8)[0]


def alloc_pd(context):
    """(handle, number in the device) of a new protection domain."""
    return struct.unpack("<II", write_command(context, CMD_ALLOC_PD, b"", 8))


def pd_number(context, pd_handle):
    """The number in the device of a protection domain that a library has made."""
    number = Out(DRIVER + 1)
    ioctl(context, OBJECT_PD, METHOD_PD_QUERY, [handle(DRIVER, pd_handle), number])
    return number.get()


def dealloc_pd(context, pd_handle):
    write_command(context, CMD_DEALLOC_PD, struct.pack("<I", pd_handle), 0)


def reg_mr_write(context, pd, start, length, iova, access):
    """(handle, lkey, rkey)."""
    request = struct.pack("<QQQII", start, length, iova, pd, access)
    return struct.unpack("<III", write_command(context, CMD_REG_MR, request, 12))


def rereg_mr_access(context, mr, pd, access):
    """New (lkey, rkey) of a region whose access flags alone change."""
    request = struct.pack("<IIQQQII", mr, REREG_ACCESS, 0, 0, 0, pd, access)
    return struct.unpack("<II", write_command(context, CMD_REREG_MR, request, 8))


def alloc_mw(context, pd, kind):
    """(handle, rkey) of a memory window of type 1 or 2."""
    return struct.unpack("<II", write_command(context, CMD_ALLOC_MW, struct.pack("<IB3x", pd, kind), 8))


def reg_mr_ioctl(context, pd, start, length, access):
    new, lkey, rkey = handle(0), Out(9), Out(10)
    attributes = [new, handle(1, pd), value(3, start), value(4, start), value(5, length), value(6, access), lkey, rkey]
    ioctl(context, OBJECT_MR, METHOD_REG_MR, attributes)
    return new.data, lkey.get(), rkey.get()


def reg_mr_ioctl_fd(context, pd, descriptor, length, access):
    new, lkey, rkey = handle(0), Out(9), Out(10)
    attributes = [new, handle(1, pd), value(3, 0), value(5, length), value(6, access), handle(7, descriptor), value(8, 0)]
    ioctl(context, OBJECT_MR, METHOD_REG_MR, [*attributes, lkey, rkey])
    return new.data, lkey.get(), rkey.get()


def reg_dmabuf_mr(context, pd, descriptor, length, access):
    new, lkey, rkey = handle(0), Out(7), Out(8)
    attributes = [new, handle(1, pd), value(2, 0), value(3, length), value(4, 0), value(5, descriptor, 4), value(6, access)]
    ioctl(context, OBJECT_MR, METHOD_REG_DMABUF_MR, [*attributes, lkey, rkey])
    return new.data, lkey.get(), rkey.get()


def reg_dm_mr(context, pd, memory, length, access):
    new, lkey, rkey = handle(0), Out(6), Out(7)
    attributes = [new, value(1, 0), value(2, length), handle(3, pd), value(4, access), handle(5, memory), lkey, rkey]
    ioctl(context, OBJECT_MR, METHOD_DM_MR_REG, attributes)
    return new.data, lkey.get(), rkey.get()


def devx_umem(context, start, length, access, descriptor=None):
    """(handle, number in the device) of user memory for DEVX; with a descriptor it is a dma-buf's."""
    new, number = handle(DRIVER), Out(DRIVER + 4)
    attributes = [new, value(DRIVER + 1, start), value(DRIVER + 2, length), value(DRIVER + 3, access), number]
    if descriptor is not None:
        attributes.append(handle(DRIVER + 6, descriptor))
    ioctl(context, OBJECT_DEVX_UMEM, METHOD_DEVX_UMEM_REG, attributes)
    return new.data, number.get()


UDMABUF_CREATE = 1 << 30 | 24 << 16 | ord("u") << 8 | 0x42


def udmabuf(length):
    """A dma-buf on fresh anonymous memory, from the kernel's udmabuf device."""
    memory = os.memfd_create("conform", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, length)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    device = os.open("/dev/udmabuf", os.O_RDWR)
    try:
        return fcntl.ioctl(device, UDMABUF_CREATE, bytearray(struct.pack("<IIQQ", memory, 0, 0, length)), True)
    finally:
        os.close(device)


def errno_name(code):
    return errno.errorcode.get(code, str(code))
