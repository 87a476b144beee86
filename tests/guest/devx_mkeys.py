"""Which memory keys the device grants, asked from user space inside the guest.

Through DEVX: every access mode with every combination of the ordering bits; status and syndrome of each answer must be
what tests/data/mkey_refusals.json says, the table that the in-process test reads too. Through verbs: memory windows,
regions with and without IBV_ACCESS_RELAXED_ORDERING, and a region on device memory.

    python3 devx_mkeys.py [--table FILE] [--device NAME] [--verbose]

Prints one JSON line for each check, {"check": name, "ok": bool, "detail": text, "seconds": number}, and at the end
{"done": number of checks}; the exit status is 1 if one failed. The expectations follow the profile, which is told from
the PCI device id. pyverbs makes the verbs objects. DEVX commands go to libmlx5 itself, because pyverbs hides the output
of a refused command, and with it the syndrome.
"""

import argparse
import ctypes
import errno
import itertools
import json
import mmap
import os
import struct
import sys
import time
import traceback

PROFILES = {"0x2101": "connectx10-c2c", "0x1027": "connectx10", "0x1021": "connectx7"}
STRICT = ("connectx10-c2c", "connectx10")

OP_CREATE_MKEY, OP_ALLOC_PD = 0x200, 0x800
DEVX_FLAG = 1
ACCESS_LOCAL_WRITE, ACCESS_REMOTE_WRITE, ACCESS_REMOTE_READ = 1, 2, 4
RELAXED_ORDERING = 1 << 20

# Bit offset and width, as mlx5_ifc.h counts: bit 0 is the top bit of the first byte.
CREATE_MKEY_SIZE = 0x110
CREATE_MKEY = {
    "opcode": (0x0, 16),
    "mkey_umem_valid": (0x61, 1),
    "translations_octword_actual_size": (0x300, 32),
    "mkey_umem_id": (0x320, 32),
}
MKC_OFFSET = 0x80
MKC = {
    "free": (0x1, 1),
    "access_mode_4_2": (0x3, 3),
    "relaxed_ordering_write": (0xD, 1),
    "umr_en": (0x10, 1),
    "lw": (0x14, 1),
    "lr": (0x15, 1),
    "access_mode_1_0": (0x16, 2),
    "qpn": (0x20, 24),
    "mkey_7_0": (0x38, 8),
    "pd": (0x68, 24),
    "start_addr": (0x80, 64),
    "len": (0xC0, 64),
    "translations_octword_size": (0x1A0, 32),
    "order_read_after_write": (0x1D6, 2),
    "relaxed_ordering_read": (0x1D9, 1),
    "log_page_size": (0x1DA, 6),
}
REGION = 0x2000


class Mlx5dvContextAttr(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint32), ("comp_mask", ctypes.c_uint64)]


class Mlx5dvDevxUmem(ctypes.Structure):
    _fields_ = [("umem_id", ctypes.c_uint32)]


def put(buffer, offset, width, value):
    """Writes a big-endian bit field."""
    whole = int.from_bytes(buffer, "big")
    shift = len(buffer) * 8 - offset - width
    mask = ((1 << width) - 1) << shift
    buffer[:] = ((whole & ~mask) | (value << shift & mask)).to_bytes(len(buffer), "big")


class Devx:
    """A DEVX context with a protection domain and a user memory region of its own."""

    def __init__(self, name):
        self.verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
        self.mlx5 = ctypes.CDLL("libmlx5.so.1", use_errno=True)
        pointer = ctypes.c_void_p
        self.verbs.ibv_get_device_list.restype = ctypes.POINTER(pointer)
        self.verbs.ibv_get_device_name.restype = ctypes.c_char_p
        self.verbs.ibv_get_device_name.argtypes = [pointer]
        self.mlx5.mlx5dv_open_device.restype = pointer
        self.mlx5.mlx5dv_open_device.argtypes = [pointer, ctypes.POINTER(Mlx5dvContextAttr)]
        self.mlx5.mlx5dv_devx_obj_create.restype = pointer
        sizes = [pointer, pointer, ctypes.c_size_t, pointer, ctypes.c_size_t]
        self.mlx5.mlx5dv_devx_obj_create.argtypes = sizes
        self.mlx5.mlx5dv_devx_obj_destroy.argtypes = [pointer]
        self.mlx5.mlx5dv_devx_umem_reg.restype = ctypes.POINTER(Mlx5dvDevxUmem)
        self.mlx5.mlx5dv_devx_umem_reg.argtypes = [pointer, pointer, ctypes.c_size_t, ctypes.c_uint32]

        devices = self.verbs.ibv_get_device_list(None)
        device = next((d for d in itertools.takewhile(bool, devices) if self.name(d) == name), None)
        if device is None:
            raise AssertionError(f"no RDMA device {name}")
        attr = Mlx5dvContextAttr(flags=DEVX_FLAG)
        self.context = self.mlx5.mlx5dv_open_device(device, ctypes.byref(attr))
        if not self.context:
            raise OSError(ctypes.get_errno(), "mlx5dv_open_device")
        _, out, code = self.create(bytearray(struct.pack(">HHHHQ", OP_ALLOC_PD, 0, 0, 0, 0)))
        if code:
            raise OSError(code, "ALLOC_PD")
        self.pd = int.from_bytes(out[9:12], "big")
        self.memory = mmap.mmap(-1, REGION)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        umem = self.mlx5.mlx5dv_devx_umem_reg(self.context, address, REGION, ACCESS_LOCAL_WRITE)
        if not umem:
            raise OSError(ctypes.get_errno(), "mlx5dv_devx_umem_reg")
        self.umem, self.address = umem.contents.umem_id, address

    def name(self, device):
        return self.verbs.ibv_get_device_name(device).decode()

    def create(self, command):
        """Runs a create command: (object or None, output, errno)."""
        inbox = (ctypes.c_char * len(command)).from_buffer(command)
        outbox = ctypes.create_string_buffer(16)
        ctypes.set_errno(0)
        made = self.mlx5.mlx5dv_devx_obj_create(self.context, inbox, len(command), outbox, 16)
        return made, outbox.raw, 0 if made else ctypes.get_errno()

    def create_mkey(self, mode, fields):
        """(status, syndrome, errno) of CREATE_MKEY; a key that is granted is destroyed again."""
        command = bytearray(CREATE_MKEY_SIZE)
        indirect = mode in (2, 3)
        outer = {"opcode": OP_CREATE_MKEY, "mkey_umem_id": 0 if indirect else self.umem}
        inner = {
            "access_mode_4_2": mode >> 2,
            "access_mode_1_0": mode & 3,
            "lr": 1,
            "lw": 1,
            "qpn": 0xFFFFFF,
            "pd": self.pd,
            "start_addr": self.address,
            "len": REGION,
            "log_page_size": 12,
            "translations_octword_size": 4 if indirect or mode == 1 else 0,
            "umr_en": fields["free"],
            **fields,
        }
        for name, value in outer.items():
            put(command, *CREATE_MKEY[name], value)
        for name, value in inner.items():
            offset, width = MKC[name]
            put(command, MKC_OFFSET + offset, width, value)
        made, out, code = self.create(command)
        if made and self.mlx5.mlx5dv_devx_obj_destroy(made):
            raise OSError(ctypes.get_errno(), "DESTROY_MKEY")
        return out[0], int.from_bytes(out[4:8], "big"), code


class Bench:
    """What the checks share."""

    def __init__(self, options):
        with open(options.table, encoding="utf-8") as f:
            self.table = json.load(f)
        self.verbose = options.verbose
        self.name = options.device or sorted(os.listdir("/sys/class/infiniband"))[0]
        with open(f"/sys/class/infiniband/{self.name}/device/device", encoding="ascii") as f:
            self.profile = PROFILES[f.read().strip()]
        self.strict = self.profile in STRICT
        # Not needed by DEVX: the verbs checks say so themselves where it is missing.
        self.pyverbs_context = None

    def context(self):
        if self.pyverbs_context is None:
            from pyverbs.device import Context

            self.pyverbs_context = Context(name=self.name)
        return self.pyverbs_context

    def expected(self, case):
        for rule in self.table["rules"]:
            if all(case[axis] in values for axis, values in rule["if"].items()):
                return rule["status"], int(rule["syndrome"], 16), rule["meaning"]
        raise AssertionError(f"no rule for {case}")

    def attempt(self, what, make):
        """Makes a verbs object: "granted" or the name of the errno."""
        from pyverbs.pyverbs_error import PyverbsRDMAError

        try:
            made = make()
        except PyverbsRDMAError as error:
            code = getattr(error, "error_code", 0)
            if self.verbose:
                print(f"{what}: {error}", file=sys.stderr)
            return errno.errorcode.get(code, str(code))
        made.close()
        return "granted"

    def must(self, what, make, relaxed=False):
        """A strong key is refused with EINVAL by a strict profile and granted by the others; a relaxed one is granted."""
        expected = "EINVAL" if self.strict and not relaxed else "granted"
        answer = self.attempt(what, make)
        if answer != expected:
            raise AssertionError(f"{what}: {answer}, expected {expected} on {self.profile}")
        return f"{what}: {answer}"


def every_combination_through_devx_is_answered_as_the_table_says(bench):
    devx = Devx(bench.name)
    axes = {**bench.table["axes"], "profile": [bench.profile], "via": ["devx"]}
    wrong, answers = [], {}
    for values in itertools.product(*axes.values()):
        case = dict(zip(axes, values))
        fields = {name: value for name, value in case.items() if name not in ("profile", "via", "access_mode")}
        status, syndrome, code = devx.create_mkey(case["access_mode"], fields)
        want_status, want_syndrome, meaning = bench.expected(case)
        answers[(status, syndrome, code)] = answers.get((status, syndrome, code), 0) + 1
        if bench.verbose:
            print(f"{case}: status {status:#x} syndrome {syndrome:#010x} errno {code} {meaning}", file=sys.stderr)
        if (status, syndrome) != (want_status, want_syndrome) or bool(code) != bool(status):
            got = f"status {status:#x} syndrome {syndrome:#010x} errno {code}"
            wrong.append(f"{case}: {got}, expected {want_status:#x} {want_syndrome:#010x}")
    if wrong:
        raise AssertionError(f"{len(wrong)} answers differ, first: {wrong[0]}")
    told = ", ".join(
        f"{count}x {'granted' if not status else f'{syndrome:#010x} {errno.errorcode.get(code, code)}'}"
        for (status, syndrome, code), count in sorted(answers.items())
    )
    return f"{sum(answers.values())} keys on {bench.profile}: {told}"


def memory_windows_are_granted_only_where_strong_keys_are(bench):
    from pyverbs.mr import MW
    from pyverbs.pd import PD
    import pyverbs.enums as e

    pd = PD(bench.context())
    kinds = {"window type 1": e.IBV_MW_TYPE_1, "window type 2": e.IBV_MW_TYPE_2}
    told = [bench.must(what, lambda kind=kind: MW(pd, kind)) for what, kind in kinds.items()]
    pd.close()
    return ", ".join(told)


def regions_are_granted_if_they_ask_for_relaxed_ordering(bench):
    from pyverbs.mr import MR
    from pyverbs.pd import PD

    pd = PD(bench.context())
    access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ
    told = [
        bench.must("region without the flag", lambda: MR(pd, REGION, access)),
        bench.must("region with IBV_ACCESS_RELAXED_ORDERING", lambda: MR(pd, REGION, access | RELAXED_ORDERING), True),
    ]
    pd.close()
    return ", ".join(told)


def device_memory_regions_are_granted_only_where_strong_keys_are(bench):
    from pyverbs.device import DM, AllocDmAttr
    from pyverbs.mr import DMMR
    from pyverbs.pd import PD
    import pyverbs.enums as e

    pd = PD(bench.context())
    memory = DM(bench.context(), AllocDmAttr(length=4096))
    access = e.IBV_ACCESS_ZERO_BASED | ACCESS_LOCAL_WRITE
    told = bench.must("region on device memory", lambda: DMMR(pd, 4096, access, dm=memory, offset=0))
    memory.close()
    pd.close()
    return told


CHECKS = [
    every_combination_through_devx_is_answered_as_the_table_says,
    memory_windows_are_granted_only_where_strong_keys_are,
    regions_are_granted_if_they_ask_for_relaxed_ordering,
    device_memory_regions_are_granted_only_where_strong_keys_are,
]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", default=os.path.join(here, "../data/mkey_refusals.json"))
    parser.add_argument("--device", help="RDMA device; the first one if not given")
    parser.add_argument("--verbose", action="store_true", help="every answer on standard error")
    bench = Bench(parser.parse_args())
    failed = 0
    for function in CHECKS:
        started = time.monotonic()
        try:
            ok, detail = True, function(bench)
        except Exception:  # a check fails by raising, whatever it raises
            ok, detail = False, traceback.format_exc()
            failed += 1
        seconds = round(time.monotonic() - started, 2)
        print(json.dumps({"check": function.__name__, "ok": ok, "detail": detail, "seconds": seconds}), flush=True)
    print(json.dumps({"done": len(CHECKS)}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
