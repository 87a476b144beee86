"""On-demand paging: regions whose pages come when the device needs them, and go when the kernel takes them.

Both ends of a reliable connection are queue pairs of this process. The regions ask for relaxed ordering, so that a strict
device grants them. `madvise(MADV_DONTNEED)` takes pages away: the next access of the device faults, and finds zeros.

The device of ConnectX-10 has the memory scheme of page faults, which Linux 7.3 uses and 6.12 does not know.
"""

import ctypes
import errno
import json
import os
import random
import re

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mem_alloc import MAP_ANONYMOUS_, MAP_PRIVATE_, madvise, mmap, munmap
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from harness import LogIsQuiet, check, run, wait
from perf import variants
from rdma import device

PAGE = 4096
PAGES = 32
MADV_DONTNEED = 4
RELAXED = 1 << 20
RIGHTS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_ATOMIC
    | e.IBV_ACCESS_ON_DEMAND
    | RELAXED
)


def memory(pages=PAGES):
    return mmap(length=pages * PAGE, flags=MAP_ANONYMOUS_ | MAP_PRIVATE_)


def put(at, data):
    ctypes.memmove(at, data, len(data))


def get(at, length):
    return ctypes.string_at(at, length)


def drop(at, length):
    madvise(at, length, MADV_DONTNEED)


class Ends:
    """Two connected queue pairs with one completion queue each, and a protection domain."""

    def __init__(self):
        dev = device()
        self.ctx = Context(name=dev.name)
        self.pd = PD(self.ctx)
        self.cqs = [CQ(self.ctx, 100) for _ in range(2)]
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=4, max_recv_sge=4)
        self.qps = []
        for cq in self.cqs:
            init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=1)
            attr = QPAttr(port_num=1)
            attr.qp_access_flags = RIGHTS & 0xF
            self.qps.append(QP(self.pd, init, attr))
        gid = self.ctx.query_gid(port_num=1, index=int(dev.gid))
        for qp, peer in zip(self.qps, reversed(self.qps)):
            route = GlobalRoute(dgid=gid, sgid_index=int(dev.gid))
            attr = QPAttr(port_num=1)
            attr.qp_access_flags = RIGHTS & 0xF
            attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route, dlid=0)
            attr.dest_qp_num, attr.path_mtu = peer.qp_num, e.IBV_MTU_1024
            attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
            attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 18, 7, 7, 12
            qp.to_rts(attr)

    def region(self, at, length):
        return MR(self.pd, length, RIGHTS, address=at)

    def status(self, end):
        """Status of the next completion of an end."""

        def poll():
            count, completions = self.cqs[end].poll(1)
            return completions if count else None

        return wait("a completion", poll, seconds=60.0)[0].status

    def done(self, end):
        status = self.status(end)
        assert status == e.IBV_WC_SUCCESS, f"completion status {status}"

    def post(self, opcode, local, key, length, to=None, rkey=0):
        request = SendWR(num_sge=1, sg=[SGE(local, length, key)], opcode=opcode, send_flags=e.IBV_SEND_SIGNALED)
        if opcode in (e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WR_ATOMIC_CMP_AND_SWP):
            request.set_wr_atomic(rkey, to, 1)
        elif to is not None:
            request.set_wr_rdma(rkey, to)
        self.qps[0].post_send(request)

    def send(self, *arguments, **named):
        self.post(*arguments, **named)
        self.done(0)

    def receive(self, local, key, length):
        self.qps[1].post_recv(RecvWR(num_sge=1, sg=[SGE(local, length, key)]))

    def counters(self):
        """What the kernel counts of this process's regions."""
        total = {}
        for entry in json.loads(run("rdma", "-j", "statistic", "show", "mr") or "[]"):
            if entry.get("pid", os.getpid()) == os.getpid():
                for name, count in entry.items():
                    if name.startswith("page_"):
                        total[name] = total.get(name, 0) + int(count)
        return total


def refusal_of_implicit_regions():
    """What an implicit region fails with on a strict device, or None where it is granted.

    In the memory scheme the driver makes a null key for each, which is not relaxed. Linux 6.12 takes implicit regions from
    its cache of keys alone, which has none that are relaxed.
    """
    if not device().strict:
        return None
    return errno.EOPNOTSUPP if os.uname().release.startswith("6.12") else errno.EINVAL


@check
def the_driver_offers_paging_explicit_and_implicit():
    text = run("ibv_devinfo", "-v", "-d", device().name)
    general = re.search(r"general_odp_caps:\s+(\w+)\s+(\w+)", text)
    assert general and general.groups() == ("ODP_SUPPORT", "ODP_SUPPORT_IMPLICIT"), general
    told = []
    for transport, count in (("rc", 6), ("ud", 2), ("xrc", 6)):
        found = re.search(rf"^\s+{transport}_odp_caps:\n((?:\s+SUPPORT_\w+\n)*)", text, re.M)
        names = found[1].split() if found else []
        assert len(names) == count, f"{transport}: {names}"
        told.append(f"{transport}: {' '.join(names)}")
    assert re.search(r"uc_odp_caps:\s+NO SUPPORT", text)
    return "; ".join(told)


def transfers(ends, local, remote, lkey, rkey, rounds, seed):
    """Random transfers between two areas of which random pages were taken away; every byte is compared."""
    dice = random.Random(seed)
    for turn in range(rounds):
        first, count = dice.randrange(PAGES - 8), dice.randrange(1, 8)
        # Addresses and lengths that do not fit pages.
        skip, length = dice.randrange(PAGE // 2), count * PAGE + dice.randrange(PAGE // 2)
        source, target = local + first * PAGE + skip, remote + (PAGES - 9 - first) * PAGE + skip
        which = dice.choice(("write", "read", "send", "atomic"))
        data = dice.randbytes(length)
        if which == "read":
            put(target, data)
            drop(local, PAGES * PAGE)
            ends.send(e.IBV_WR_RDMA_READ, source, lkey, length, target, rkey)
            assert get(source, length) == data, f"turn {turn}: what was read"
        elif which == "atomic":
            drop(local, PAGES * PAGE)
            drop(remote, PAGES * PAGE)
            target -= target % 8
            put(target, (41 + turn).to_bytes(8, "little"))
            ends.send(e.IBV_WR_ATOMIC_FETCH_AND_ADD, source, lkey, 8, target, rkey)
            assert get(source, 8) == (41 + turn).to_bytes(8, "little"), f"turn {turn}: what was there"
            assert get(target, 8) == (42 + turn).to_bytes(8, "little"), f"turn {turn}: the sum"
        else:
            put(source, data)
            drop(remote, PAGES * PAGE)
            if which == "write":
                ends.send(e.IBV_WR_RDMA_WRITE, source, lkey, length, target, rkey)
            else:
                ends.receive(target, rkey, length)
                ends.send(e.IBV_WR_SEND, source, lkey, length)
                ends.done(1)
            assert get(target, length) == data, f"turn {turn}: what was sent ({which})"
            assert get(target + length, 16) == bytes(16), f"turn {turn}: behind it"


@check
def pages_come_when_they_are_needed_and_go_when_they_are_taken():
    ends, local, remote = Ends(), memory(), memory()
    with LogIsQuiet():
        regions = [ends.region(at, PAGES * PAGE) for at in (local, remote)]
        transfers(ends, local, remote, regions[0].lkey, regions[1].rkey, rounds=40, seed=1)
        counters = ends.counters()
        for region in regions:
            region.close()
    assert counters["page_faults"] > 40 and counters["page_invalidations"] > 40, counters
    return str(counters)


@check
def pages_that_were_there_at_registration_are_not_missed():
    ends, local, remote = Ends(), memory(), memory()
    for at in (local, remote):
        put(at, b"\1" * PAGES * PAGE)
    regions = [ends.region(at, PAGES * PAGE) for at in (local, remote)]
    ends.send(e.IBV_WR_RDMA_WRITE, local, regions[0].lkey, PAGES * PAGE, remote, regions[1].rkey)
    counters = ends.counters()
    assert counters["page_faults"] == 0, counters


@check
def prefetched_pages_do_not_fault():
    ends, local, remote = Ends(), memory(), memory()
    regions = [ends.region(at, PAGES * PAGE) for at in (local, remote)]
    flush = e._IBV_ADVISE_MR_FLAG_FLUSH  # pylint: disable=protected-access
    for advice, region, at in (
        (e._IBV_ADVISE_MR_ADVICE_PREFETCH, regions[0], local),  # pylint: disable=protected-access
        (e._IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, regions[1], remote),  # pylint: disable=protected-access
    ):
        ends.pd.advise_mr(advice, flush, [SGE(at, PAGES * PAGE, region.lkey)])
    ends.send(e.IBV_WR_RDMA_WRITE, local, regions[0].lkey, PAGES * PAGE, remote, regions[1].rkey)
    counters = ends.counters()
    assert counters["page_faults"] == 0 and counters["page_prefetch"] == 2 * PAGES, counters
    # Pages that were prefetched for reading may not be written.
    ends.send(e.IBV_WR_RDMA_READ, local, regions[0].lkey, PAGES * PAGE, remote, regions[1].rkey)
    assert ends.counters()["page_faults"] > 0, ends.counters()
    return str(ends.counters())


@check
def memory_that_is_gone_is_an_error_on_the_side_that_needs_it():
    told = []
    for name, opcode, gone_is_local, expected in (
        ("gather", e.IBV_WR_RDMA_WRITE, True, e.IBV_WC_LOC_PROT_ERR),
        ("scatter", e.IBV_WR_RDMA_READ, True, e.IBV_WC_LOC_PROT_ERR),
        ("write", e.IBV_WR_RDMA_WRITE, False, e.IBV_WC_REM_ACCESS_ERR),
        ("read", e.IBV_WR_RDMA_READ, False, e.IBV_WC_REM_ACCESS_ERR),
        ("receive", e.IBV_WR_SEND, False, e.IBV_WC_REM_OP_ERR),
    ):
        ends, local, remote = Ends(), memory(), memory()
        regions = [ends.region(at, PAGES * PAGE) for at in (local, remote)]
        munmap(local if gone_is_local else remote, PAGES * PAGE)
        if name == "receive":
            ends.receive(remote, regions[1].lkey, PAGE)
        ends.post(opcode, local, regions[0].lkey, PAGE, remote, regions[1].rkey)
        status = ends.status(0)
        assert status == expected, f"{name}: status {status}, not {expected}"
        told.append(f"{name}: {status}")
    return ", ".join(told)


@check
def two_processes_share_what_was_forked_and_do_not_see_each_others_writes():
    ends, local, remote = Ends(), memory(), memory()
    regions = [ends.region(at, PAGES * PAGE) for at in (local, remote)]
    put(local, b"\2" * PAGES * PAGE)
    ends.send(e.IBV_WR_RDMA_WRITE, local, regions[0].lkey, PAGES * PAGE, remote, regions[1].rkey)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        # The pages are shared until one of the two writes; the device writes for the parent.
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0 if get(remote, PAGES * PAGE) == b"\2" * PAGES * PAGE else 1)
    os.read(ready[0], 1)
    put(local, b"\3" * PAGES * PAGE)
    ends.send(e.IBV_WR_RDMA_WRITE, local, regions[0].lkey, PAGES * PAGE, remote, regions[1].rkey)
    os.write(go[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child sees what the device wrote for the parent"
    assert get(remote, PAGES * PAGE) == b"\3" * PAGES * PAGE


@check(seconds=300)
def an_implicit_region_is_all_of_the_address_space():
    ends = Ends()
    try:
        region = MR(ends.pd, 0, RIGHTS, implicit=True)
    except PyverbsRDMAError as error:
        assert error.error_code == refusal_of_implicit_regions(), error
        return f"refused: {error}"
    assert refusal_of_implicit_regions() is None, "granted"
    # Memory that is mapped later. A page that stays keeps the driver from giving up the key of its piece of the address
    # space: in the memory scheme Linux 7.3 answers a fault in a key that it is giving up with an error (odp.c,
    # destroy_unused_implicit_child_mr forgets the key before the device does).
    local, remote = memory(PAGES + 1), memory(PAGES + 1)
    kept = PAGES * PAGE
    ends.send(e.IBV_WR_RDMA_WRITE, local + kept, region.lkey, PAGE, remote + kept, region.rkey)
    transfers(ends, local, remote, region.lkey, region.rkey, rounds=20, seed=2)
    counters = ends.counters()
    region.close()
    assert counters["page_faults"] > 20, counters
    return str(counters)


@check(seconds=300)
def perftest_carries_its_messages_on_demand():
    told = [variants(tool, ["--odp"], sizes=[65536]) for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw")]
    told.append(variants("ib_write_bw", ["--odp"], sizes=[1 << 20], iterations=20))
    told.append(variants("ib_atomic_bw", ["--odp"]))
    told.append(variants("ib_send_bw", ["--odp", "-c", "UD"], sizes=[1024]))
    return "; ".join(told)
