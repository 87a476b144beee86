"""What of perftest runs only where the device is one that perftest knows and that grants strongly ordered keys.

ib_write_lat watches the last byte of its buffer, which is of no use in a region with relaxed ordering. Inline data and
the ibv_wr interface are used on devices that perftest 25.01 has in its table.
"""

from harness import check
from perf import one_at_a_time, variants
from rdma import device


@check
def write_shows_the_last_byte_last():
    assert not device().strict, "for profiles that grant strongly ordered keys"
    return one_at_a_time("ib_write_lat", "-c", "RC") + "; " + one_at_a_time("ib_write_lat", "-c", "UC")


@check
def immediate_data_come_with_single_writes():
    lists = (["--write_with_imm"], ["--write_with_imm", "-c", "UC"])
    return variants("ib_write_lat", *lists, sizes=[64], iterations=50)


@check
def small_messages_travel_in_the_work_queue_entry():
    told = [
        variants("ib_send_lat", ["-I", 64], ["-I", 64, "-c", "UC"], ["-I", 64, "-c", "UD"], sizes=[64], iterations=50),
        variants("ib_send_bw", ["-I", 200], ["-I", 200, "-c", "UD"], ["-I", 200, "-q", 4], sizes=[200]),
        variants("ib_write_lat", ["-I", 220], sizes=[220], iterations=50),
        variants("ib_write_bw", ["-I", 128, "-c", "UC"], ["-I", 128, "-l", 16], sizes=[128], iterations=160),
    ]
    return "; ".join(told)


@check
def both_post_interfaces_are_used():
    told = [variants("ib_send_bw", [], ["--use_old_post_send"], sizes=[4096])]
    for tool in ("ib_write_bw", "ib_read_bw"):
        told.append(variants(tool, [], ["--use_old_post_send"], ["-l", 16], sizes=[4096], iterations=160))
    told.append(variants("ib_atomic_bw", [], ["--use_old_post_send"]))
    return "; ".join(told)
