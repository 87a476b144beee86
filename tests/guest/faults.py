"""Traffic over a wire with faults, which tests/guest.rs asks `cx10 run --wire-fault` for.

Nothing of it shows but in time and in the counters.
"""

from harness import check, read
from perf import variants
from rdma import device


@check
def reliable_connections_do_not_notice():
    told = [
        variants("ib_send_bw", ["-c", "RC"], ["-q", 8], ["-e"], sizes=[65536], iterations=100),
        variants("ib_write_bw", ["-c", "RC"], ["-q", 8], sizes=[65536], iterations=100),
        variants("ib_read_bw", ["-c", "RC"], ["-q", 8], sizes=[65536], iterations=100),
        variants("ib_atomic_bw", ["-A", "FETCH_AND_ADD"], ["-A", "CMP_AND_SWAP"], iterations=500),
        variants("ib_send_lat", ["-c", "RC"], sizes=[4096], iterations=100),
    ]
    return "; ".join(told)


@check
def the_counters_tell_of_losses_and_doubles():
    names = ("packet_seq_err", "out_of_sequence", "duplicate_request", "local_ack_timeout_err")
    found = {name: int(read(f"{device().port}/hw_counters/{name}")) for name in names}
    assert all(found.values()), found
    return str(found)
