"""What the driver finds out about its device: resource dumps and the firmware tracer, where the device has them.

On a strict device the driver's own keys for both are refused, as kernels up to 7.3 ask for strong order; then the same
tools say what a user sees.
"""

import json
import os
import re
import subprocess

import rdma
from harness import check, kernel_log, read, run, wait, write

TRACING = "/sys/kernel/tracing"
DEVICE = rdma.mlx5()
PCI = os.path.basename(os.path.realpath(f"/sys/class/infiniband/{DEVICE.name}/device"))


def devlink(*argv):
    return json.loads(run("devlink", "-j", "health", *argv))


def reporters():
    """The reporters of the device, and of its port, which is an auxiliary device."""
    found = {}
    for handle, entries in devlink("show")["health"].items():
        found.update({entry["reporter"]: handle for entry in entries})
    return found


def dump(reporter):
    handle = reporters()[reporter]
    run("devlink", "health", "dump", "clear", handle, "reporter", reporter, ok=False)
    return run("devlink", "health", "dump", "show", handle, "reporter", reporter)


def segments(data):
    """The segments of a resource dump: (type, bytes)."""
    found = []
    while data:
        length = int.from_bytes(data[:2], "big") * 4
        assert 4 <= length <= len(data), f"a segment of {length} bytes where {len(data)} are left"
        found.append((int.from_bytes(data[2:4], "big"), data[:length]))
        data = data[length:]
    return found


def resource(kind, key, *argv):
    """The resource with the greatest number and its raw dump, as the RDMA tool shows them."""
    entries = json.loads(run("rdma", "-j", "-d", "resource", "show", kind, *argv))

    def number(entry):
        # Keys are hexadecimal, without a mark of it.
        return int(str(entry[key]), 16 if key == "lkey" else 10)

    at = max(range(len(entries)), key=lambda i: number(entries[i]))
    raw = json.loads(run("rdma", "-j", "-r", "resource", "show", kind, *argv))
    assert len(raw) == len(entries), f"{entries}, {raw}"
    return number(entries[at]), bytes(raw[at]["data"])


if not DEVICE.strict:

    @check
    def raw_resources_are_what_the_query_commands_return():
        told = []
        link = f"{DEVICE.name}/1"
        # Waits for a peer that never comes, with a queue pair and a region.
        with subprocess.Popen(["ibv_rc_pingpong", "-d", DEVICE.name, "-g", DEVICE.gid]) as server:
            try:
                # Queue pair 1 has another number in the device.
                queue = ("qp", "lqpn", "link", link)
                wait("a queue pair", lambda: resource(*queue)[0] > 1)
                qpn, data = resource(*queue)
                kinds = [kind for kind, _ in segments(data)]
                assert kinds == [0xFFFE, 0xFFFA, 0x4000, 0xFFFB], kinds
                segment = segments(data)[2][1]
                assert int.from_bytes(segment[8:12], "big") == qpn, f"{qpn:#x}: {segment[:16].hex()}"
                # query_qp_out.qpc behind the segment's head and 24 bytes; the queue pair is initialized.
                assert segment[16 + 24] >> 4 == 1, segment.hex()
                told.append(f"QP {qpn:#x}: {len(data)} bytes")
                lkey, data = resource("mr", "lkey", "dev", DEVICE.name)
                segment = segments(data)[2][1]
                assert int.from_bytes(segment[8:12], "big") == lkey >> 8, f"{lkey:#x}: {segment[:16].hex()}"
                told.append(f"MR {lkey:#x}: {len(data)} bytes")
            finally:
                server.terminate()
        return ", ".join(told)

    @check
    def the_reporters_of_the_queues_dump_contexts_and_rings():
        told = []
        for reporter, parts in {"tx": ("SX Slice", "SQs"), "rx": ("RX Slice", "RQs")}.items():
            text = dump(reporter)
            missing = [part for part in parts if part not in text]
            assert not missing, f"{reporter}: {missing} in {text[:2000]}"
            # The head of a dump and of what it was asked for, once for the slice and for each queue at least.
            heads = len(re.findall(r"00\s+04\s+ff\s+fe", text))
            assert heads >= 2, f"{reporter}: {heads} dumps in {text[:3000]}"
            told.append(f"{reporter}: {len(text)} characters")
        return ", ".join(told)

    @check
    def the_trace_tells_what_the_device_does():
        enable = f"{TRACING}/events/mlx5/mlx5_fw/enable"
        if not os.path.exists(enable):
            run("mount", "-t", "tracefs", "tracefs", TRACING)
        write(enable, "1")
        write(f"{TRACING}/trace", "")
        run("ethtool", "-g", DEVICE.net)
        run("ip", "link", "set", DEVICE.net, "mtu", "3000")
        run("ip", "link", "set", DEVICE.net, "mtu", str(rdma.MTU))
        lines = wait("a traced command", lambda: [l for l in read(f"{TRACING}/trace").splitlines() if "CREATE_SQ" in l])
        write(enable, "0")
        # DEVICE [TIME] LOST [SOURCE] MESSAGE
        pattern = re.compile(rf"mlx5_fw: {re.escape(PCI)} \[0x[0-9a-f]+\] 0 \[0x10\] CREATE_SQ op_mod 0x0 uid 0x0 slot \d+$")
        assert any(pattern.search(line) for line in lines), lines[:3]
        return f"{len(read(f'{TRACING}/trace').splitlines())} lines, as {lines[0].split('mlx5_fw: ')[1]!r}"

    @check
    def the_firmware_reporter_dumps_its_state():
        text = dump("fw")
        # The kernel leaves the newest message out, which ends the dump.
        for part in ("dump fw traces", "core dump: interface step 1", "QP 0x", "RQ 0x"):
            assert part in text, f"{part!r} is not in {text[-3000:]}"
        queues = len(re.findall(r"(?:EQ|CQ|QP|SQ|RQ) 0x[0-9a-f]+: ", text))
        return f"{queues} queues in {len(text)} characters"

    @check
    def the_vnic_reporter_diagnoses_and_is_traced():
        write(f"{TRACING}/events/mlx5/mlx5_fw/enable", "1")
        write(f"{TRACING}/trace", "")
        text = run("devlink", "health", "diagnose", reporters()["vnic"], "reporter", "vnic")
        assert "invalid_command" in text, text
        lines = wait("a trace", lambda: [l for l in read(f"{TRACING}/trace").splitlines() if "QUERY_VNIC_ENV" in l])
        write(f"{TRACING}/events/mlx5/mlx5_fw/enable", "0")
        return lines[0].split("mlx5_fw: ")[1]

else:

    @check
    def the_drivers_own_keys_are_refused():
        log = kernel_log()
        for text in ("FWTracer: Failed to create mkey", "Resource dump: Failed to create mkey"):
            assert any(text in line for line in log), f"{text!r} is not in the log"
        return "; ".join(line for line in log if "FWTracer" in line or "esource dump" in line)

    @check
    def without_them_dumps_do_not_exist():
        handles = reporters()
        show = ["devlink", "health", "dump", "show", handles["fw"], "reporter", "fw"]
        told = subprocess.run(show, capture_output=True, text=True, check=False)
        assert told.returncode and "Operation not supported" in told.stderr, told
        text = dump("tx")
        assert "SQ" in text and "data" not in text, text
        raw = subprocess.run(
            ["rdma", "-r", "resource", "show", "mr", "dev", DEVICE.name], capture_output=True, text=True, check=False
        )
        assert "data" not in raw.stdout, raw
        return f"fw: {told.stderr.strip()}; tx: queues without data; raw MR: {raw.stderr.strip() or raw.stdout.strip()!r}"
