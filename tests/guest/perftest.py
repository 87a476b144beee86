"""perftest: every tool, transport and size, and the options that change how the device is used.

perftest asks for relaxed ordering by itself, so it runs on a strict device, too: all but ib_write_lat, which watches the
last byte of its buffer and therefore leaves the flag out. perftest 25.01 does not know ConnectX-10; there it switches
inline data and the ibv_wr interface off; see perftest_strong.py.

It looks at completions and, in ib_write_lat, at the last byte of what arrives; that the data are right is what other
checks find.
"""

from harness import check, read
from perf import ALL_SIZES, one_at_a_time, variants
from rdma import device

# --- all sizes ---


@check
def the_path_mtu_is_4096():
    assert device().active_mtu() == 4096


@check
def send_carries_all_sizes_reliably():
    return variants("ib_send_bw", ["-c", "RC"], sizes=ALL_SIZES, iterations=10)


@check
def send_carries_all_sizes_reliably_one_at_a_time():
    return one_at_a_time("ib_send_lat", "-c", "RC")


@check
def send_carries_all_sizes_unreliably():
    told = variants("ib_send_bw", ["-c", "UC"], sizes=ALL_SIZES, iterations=10)
    return told + "; " + one_at_a_time("ib_send_lat", "-c", "UC")


@check
def datagrams_carry_all_sizes():
    sizes = [size for size in ALL_SIZES if size <= 4096]
    told = variants("ib_send_bw", ["-c", "UD"], sizes=sizes, iterations=20)
    return told + "; " + one_at_a_time("ib_send_lat", "-c", "UD", sizes=(2, 1024, 4096))


@check
def write_carries_all_sizes_reliably():
    return variants("ib_write_bw", ["-c", "RC"], sizes=ALL_SIZES, iterations=10)


@check
def write_shows_the_last_byte_last():
    return one_at_a_time("ib_write_lat", "-c", "RC")


@check
def write_carries_all_sizes_unreliably():
    told = variants("ib_write_bw", ["-c", "UC"], sizes=ALL_SIZES, iterations=10)
    return told + "; " + one_at_a_time("ib_write_lat", "-c", "UC")


@check
def read_carries_all_sizes():
    told = variants("ib_read_bw", [], sizes=ALL_SIZES, iterations=10)
    return told + "; " + one_at_a_time("ib_read_lat")


@check
def atomics_fetch_and_add_and_compare_and_swap():
    lists = (["-A", "FETCH_AND_ADD"], ["-A", "CMP_AND_SWAP"])
    return variants("ib_atomic_bw", *lists) + "; " + variants("ib_atomic_lat", *lists, iterations=50)


# --- other transports and other ways to use them ---


@check
def extended_connections_carry_every_operation():
    told = [
        variants("ib_send_bw", ["-c", "XRC"], sizes=[65536]),
        variants("ib_write_bw", ["-c", "XRC"], sizes=[65536]),
        variants("ib_read_bw", ["-c", "XRC"], sizes=[65536]),
        variants("ib_atomic_bw", ["-c", "XRC"]),
    ]
    return "; ".join(told)


@check
def several_queue_pairs_share_the_device():
    told = [
        variants("ib_send_bw", ["-q", 16], ["-q", 16, "-c", "UC"], sizes=[16384], iterations=50),
        variants("ib_send_bw", ["-q", 8, "-c", "UD"], sizes=[4096], iterations=50),
        variants("ib_write_bw", ["-q", 16], ["-q", 16, "-c", "UC"], sizes=[16384], iterations=50),
        variants("ib_read_bw", ["-q", 16], sizes=[16384], iterations=50),
        variants("ib_atomic_bw", ["-q", 16], iterations=50),
    ]
    return "; ".join(told)


@check
def both_directions_run_at_the_same_time():
    told = [
        variants("ib_send_bw", ["-b"], ["-b", "-c", "UC"], ["-b", "-q", 4], sizes=[65536], iterations=50),
        variants("ib_send_bw", ["-b", "-c", "UD"], sizes=[4096]),
        variants("ib_write_bw", ["-b"], ["-b", "-c", "UC"], ["-b", "-q", 4], sizes=[65536], iterations=50),
        variants("ib_read_bw", ["-b"], ["-b", "-q", 4], sizes=[65536], iterations=50),
        variants("ib_atomic_bw", ["-b"], iterations=50),
    ]
    return "; ".join(told)


@check
def events_wake_the_waiting():
    told = [
        variants("ib_send_bw", ["-e"], ["-e", "-c", "UC"], sizes=[65536]),
        variants("ib_send_bw", ["-e", "-c", "UD"], sizes=[2048]),
        variants("ib_send_lat", ["-e"], ["-e", "-c", "UC"], ["-e", "-c", "UD"], sizes=[64], iterations=50),
        variants("ib_read_bw", ["-e"], sizes=[65536]),
        variants("ib_read_lat", ["-e"], sizes=[64], iterations=50),
        variants("ib_atomic_bw", ["-e"]),
        variants("ib_atomic_lat", ["-e"], iterations=50),
    ]
    return "; ".join(told)


@check
def queue_pairs_share_a_receive_queue():
    lists = (["--use-srq"], ["--use-srq", "-q", 8], ["--use-srq", "-q", 4, "-e"])
    told = [
        variants("ib_send_bw", *lists, sizes=[16384], iterations=50),
        variants("ib_send_bw", ["--use-srq", "-c", "UD"], sizes=[2048]),
        variants("ib_send_lat", ["--use-srq"], sizes=[64]),
    ]
    return "; ".join(told)


@check
def immediate_data_come_with_writes():
    lists = (["--write_with_imm"], ["--write_with_imm", "-c", "UC"], ["--write_with_imm", "-q", 4])
    told = variants("ib_write_bw", *lists, sizes=[16384], iterations=50)
    return told + "; " + variants("ib_write_lat", *lists[:2], sizes=[64], iterations=50)


@check
def small_messages_travel_in_the_work_queue_entry():
    told = [
        variants("ib_send_lat", ["-I", 64], ["-I", 200, "-c", "UD"], sizes=[64], iterations=50),
        variants("ib_send_bw", ["-I", 200], sizes=[200]),
        variants("ib_write_lat", ["-I", 220], sizes=[220], iterations=50),
        variants("ib_write_bw", ["-I", 128, "-c", "UC"], sizes=[128]),
    ]
    return "; ".join(told)


@check
def lists_of_requests_ring_one_doorbell():
    lists = (["-l", 16], ["-l", 16, "-q", 4], ["-l", 32, "--use_old_post_send"], ["-t", 8, "-Q", 1], ["-t", 64, "-Q", 16])
    told = variants("ib_write_bw", *lists, sizes=[4096], iterations=320)
    return told + "; " + variants("ib_send_bw", ["-l", 16, "--recv_post_list=16"], sizes=[4096], iterations=320)


@check
def every_path_mtu_carries_a_message_of_many_packets():
    lists = [["-m", mtu] for mtu in (256, 512, 1024, 2048, 4096)]
    told = variants("ib_send_bw", *lists, sizes=[65536], iterations=10)
    return told + "; " + variants("ib_read_bw", *lists[:2], sizes=[65536], iterations=10)


@check
def queue_pairs_are_connected_by_the_connection_manager():
    told = [
        variants("ib_send_bw", ["-R"], ["-R", "-q", 4], ["-R", "-c", "UD"], sizes=[2048], iterations=50),
        variants("ib_write_lat", ["-R"], sizes=[64], iterations=50),
        variants("ib_read_bw", ["-R"], sizes=[65536], iterations=50),
    ]
    return "; ".join(told)


@check
def nothing_was_lost_on_the_way():
    """The counters of what only happens when packets are lost or come twice."""
    names = ("packet_seq_err", "out_of_sequence", "duplicate_request", "local_ack_timeout_err", "implied_nak_seq_err")
    found = {name: read(f"{device().port}/hw_counters/{name}") for name in names}
    assert set(found.values()) == {"0"}, found
