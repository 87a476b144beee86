"""What the host can ask for by name."""

import contextlib
import os
import time

import paths
import protocols
import unordered
import uverbs
from uverbs import Unavailable


def device():
    """The first RDMA device of the driver."""
    names = about()["devices"]
    if not names:
        raise Unavailable("no RDMA device")
    return names[0]


def open_device():
    from pyverbs.providers.mlx5.mlx5dv import Mlx5Context, Mlx5DVContextAttr

    return Mlx5Context(Mlx5DVContextAttr(), device())


def prepare():
    """What each step would do again in its own process: imports, and waiting for the driver to be up."""
    with contextlib.suppress(ImportError):
        import pyverbs.addr, pyverbs.cq, pyverbs.mr, pyverbs.pd, pyverbs.qp, pyverbs.wr  # noqa: E401, F401
        import pyverbs.device, pyverbs.providers.mlx5.mlx5dv  # noqa: E401, F401
    settled()


def about():
    """What there is to walk in."""
    names = sorted(os.listdir("/sys/class/infiniband")) if os.path.isdir("/sys/class/infiniband") else []
    return {"devices": names, "release": os.uname().release}


def register(path, access):
    return paths.register(device(), path, access)


def rebind(driver):
    """Takes a driver of the auxiliary bus off its device and puts it on again."""
    base = f"/sys/bus/auxiliary/drivers/{driver}"
    if not os.path.isdir(base):
        raise Unavailable(f"no driver {driver} on the auxiliary bus")
    names = [name for name in os.listdir(base) if name.startswith("mlx5_core.")]
    if not names:
        raise Unavailable(f"{driver} has no device")
    for name in names:
        for action in ("unbind", "bind"):
            try:
                with open(f"{base}/{action}", "w", encoding="ascii") as f:
                    f.write(name)
            except OSError as error:
                return {"errno": uverbs.errno_name(error.errno)}
    return {"devices": names, "settled": settled()}


def settled():
    """Waits until there is an RDMA device with a GID again, for ten seconds at most."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            with open(f"/sys/class/infiniband/{device()}/ports/1/gid_attrs/types/1", encoding="ascii") as f:
                if f.read().strip():
                    return True
        except (OSError, Unavailable):
            pass
        time.sleep(0.1)
    return False


def read_after_write(unordered_key, rounds, wait):
    return unordered.read_after_write(device(), unordered_key, rounds, wait)


def protocol(name):
    return protocols.protocol(device(), name)


STEPS = {function.__name__: function for function in (register, rebind, read_after_write, protocol)}
