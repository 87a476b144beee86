"""READ after WRITE on one queue pair, through a key that does or does not ask for their order."""

import paths
import uverbs
from uverbs import LOCAL_WRITE, RELAXED, REMOTE_READ, REMOTE_WRITE

SIZE = 64
GID = 1
PSN = 0x1000


def loopback(context, pd):
    """A reliable connection of a queue pair with itself, and its completion queue."""
    import pyverbs.enums as e
    from pyverbs.addr import AHAttr, GlobalRoute
    from pyverbs.cq import CQ
    from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

    cq = CQ(context, 64)
    cap = QPCap(max_send_wr=32, max_recv_wr=1)
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=1))
    route = GlobalRoute(dgid=context.query_gid(1, GID), sgid_index=GID, hop_limit=1)
    attr = QPAttr(port_num=1)
    wanted = {
        "dest_qp_num": qp.qp_num, "rq_psn": PSN, "sq_psn": PSN, "path_mtu": e.IBV_MTU_1024,
        "max_rd_atomic": 4, "max_dest_rd_atomic": 4, "min_rnr_timer": 12,
        "timeout": 14, "retry_cnt": 7, "rnr_retry": 7,
        "qp_access_flags": LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ,
        "ah_attr": AHAttr(gr=route, is_global=1, port_num=1),
    }
    for name, content in wanted.items():
        setattr(attr, name, content)
    qp.to_rts(attr)
    return qp, cq


def completions(cq, count):
    """Waits for completions; an error is one of ours."""
    while count:
        done, entries = cq.poll(count)
        for entry in entries[:done]:
            if entry.status:
                raise OSError(0, f"completion with status {entry.status}")
        count -= done


def read_after_write(device, unordered_key, rounds, wait):
    """Each round writes to the buffer of the key and reads it again: in how many was what it read older.

    With `wait` the READ is posted when the WRITE has completed.
    """
    import pyverbs.enums as e
    from pyverbs.mr import MR
    from pyverbs.pd import PD
    from pyverbs.wr import SGE, SendWR

    bench = paths.opened(device, devx=True)
    pd = PD(bench.context)
    bench.pdn = uverbs.pd_number(bench.context, pd.handle)
    flags = RELAXED | REMOTE_READ | REMOTE_WRITE | (1 << 21 if unordered_key else 0)
    try:
        rkey = paths.devx_mkey(bench, flags)["rkey"]
    except OSError as error:
        return {"errno": uverbs.errno_name(error.errno)}
    local = MR(pd, 4096, LOCAL_WRITE | RELAXED)
    qp, cq = loopback(bench.context, pd)
    paths.KEPT.append((pd, local, qp, cq))
    source, result = SGE(local.buf, SIZE, local.lkey), SGE(local.buf + SIZE, SIZE, local.lkey)

    def post(number, opcode, element):
        request = SendWR(number, num_sge=1, sg=[element], opcode=opcode, send_flags=e.IBV_SEND_SIGNALED)
        request.set_wr_rdma(rkey, bench.start)
        qp.post_send(request)

    older = 0
    for number in range(rounds):
        fresh = bytes([number % 255 + 1]) * SIZE
        local.write(fresh, SIZE)
        post(2 * number, e.IBV_WR_RDMA_WRITE, source)
        if wait:
            completions(cq, 1)
        post(2 * number + 1, e.IBV_WR_RDMA_READ, result)
        completions(cq, 1 if wait else 2)
        older += local.read(SIZE, SIZE) != fresh
    return {"rounds": rounds, "older": older}
