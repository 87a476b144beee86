"""Checks that run inside the guest, all in one boot; started by tests/guest.rs through `cx10 run`.

Prints one JSON line for each check: {"check": name, "ok": bool, "detail": text, "seconds": number}, and at the end
{"done": number of checks}. The exit status is 1 if one failed. A check is a function whose name says the claim; it
fails by raising.
"""

import glob
import json
import os
import re
import subprocess
import sys
import time
import traceback

VENDOR, DEVICE = "0x15b3", "0x2101"
DRIVER = "/sys/bus/pci/drivers/mlx5_core"
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read().strip()


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def run(*argv, ok=True):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    if ok and done.returncode:
        raise AssertionError(f"{' '.join(argv)}: status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def wait(what, condition, seconds=30.0):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


def function():
    """The PCI address of the device."""
    for path in glob.glob("/sys/bus/pci/devices/*"):
        if read(path + "/vendor") == VENDOR and read(path + "/device") == DEVICE:
            return os.path.basename(path)
    raise AssertionError("no such PCI function")


def pci(name=""):
    return f"/sys/bus/pci/devices/{function()}/{name}"


def bound():
    return os.path.exists(f"{DRIVER}/{function()}")


def names(directory):
    return sorted(os.listdir(pci(directory))) if os.path.isdir(pci(directory)) else []


def there():
    """Waits for the netdev and the RDMA device."""
    net = wait("network device", lambda: names("net"))[0]
    rdma = wait("RDMA device", lambda: names("infiniband"))[0]
    return net, rdma


def up():
    """Waits for both devices, brings the netdev up, waits for the port."""
    net, rdma = there()
    run("ip", "link", "set", net, "up")
    wait("carrier", lambda: read(f"/sys/class/net/{net}/carrier") == "1")
    wait("active port", lambda: read(f"/sys/class/infiniband/{rdma}/ports/1/state") == "4: ACTIVE")
    return net, rdma


def unbind():
    write(DRIVER + "/unbind", function())
    assert not bound()


def bind():
    write(DRIVER + "/bind", function())
    assert bound()


def allowed():
    """kernel-log.allow as one regular expression; the host applies it once more to the whole run."""
    with open("kernel-log.allow", encoding="utf-8") as f:
        patterns = [line.rstrip("\n") for line in f if line.strip() and not line.startswith("#")]
    return re.compile("|".join(".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns))


def kernel_log():
    return [line for line in run("dmesg", "--notime", "--level=emerg,alert,crit,err,warn").splitlines() if line]


class LogIsQuiet:
    """No new kernel message of level warning or worse, but for the allowed ones."""

    def __enter__(self):
        self.before = len(kernel_log())

    def __exit__(self, kind, *_):
        if kind is None:
            pattern = allowed()
            new = [line for line in kernel_log()[self.before :] if not pattern.fullmatch(line)]
            assert not new, "the kernel says: " + "; ".join(new[:5])


def address(net, suffix):
    run("ip", "addr", "replace", f"192.0.2.{suffix}/24", "dev", net)
    run("ip", "addr", "replace", f"2001:db8::{suffix}/64", "dev", net, "nodad")


# --- bring-up ---


@check
def the_driver_is_bound_and_the_port_is_active():
    assert bound()
    net, rdma = up()
    assert run("ethtool", "-i", net).splitlines()[0] == "driver: mlx5_core"
    assert read(f"/sys/class/infiniband/{rdma}/node_type") == "1: CA"
    assert read(f"/sys/class/infiniband/{rdma}/ports/1/link_layer") == "Ethernet"


@check
def relaxed_ordering_is_enabled_in_pci_express():
    text = run("lspci", "-vv", "-s", function())
    assert "RlxdOrd+" in text, text
    assert "Express (v2) Endpoint" in text, text


@check
def both_address_families_have_a_roce_v2_gid():
    net, rdma = up()
    address(net, 1)
    base = f"/sys/class/infiniband/{rdma}/ports/1"

    def roce_v2():
        found = set()
        for index in os.listdir(base + "/gids"):
            try:
                if read(f"{base}/gid_attrs/types/{index}") == "RoCE v2":
                    found.add(read(f"{base}/gids/{index}"))
            except OSError:  # an empty entry
                pass
        return found

    want = {"0000:0000:0000:0000:0000:ffff:c000:0201", "2001:0db8:0000:0000:0000:0000:0000:0001"}
    wait(f"GIDs {want}", lambda: want <= roce_v2())


@check
def user_space_opens_the_device():
    text = run("ibv_devinfo", "-v")
    for want in ("hca_id:", "PORT_ACTIVE", "link_layer:\t\tEthernet", "vendor_id:\t\t\t0x02c9"):
        assert want in text, f"{want!r} is not in: {text}"


@check
def devlink_and_rdma_know_the_device():
    info = json.loads(run("devlink", "-j", "dev", "info"))["info"]
    entry = info[f"pci/{function()}"]
    assert entry["driver"] == "mlx5_core", entry
    assert entry["versions"]["running"]["fw.version"], entry
    link = json.loads(run("rdma", "-j", "link"))
    assert [port["state"] for port in link] == ["ACTIVE"], link


@check
def statistics_can_be_read():
    net, rdma = up()
    assert "rx_packets" in run("ethtool", "-S", net)
    run("ethtool", net)
    run("ethtool", "-g", net)
    run("ethtool", "-l", net)
    run("ethtool", "-c", net)
    counters = glob.glob(f"/sys/class/infiniband/{rdma}/ports/1/*counters/*")
    assert counters, "no counters"
    for path in counters:
        assert re.fullmatch(r"-?\d+", read(path)), path


@check
def the_mtu_can_be_changed_and_the_link_modes_read():
    net, rdma = up()
    with LogIsQuiet():
        for mtu, active in ((9000, 4096), (1500, 1024)):
            run("ip", "link", "set", net, "mtu", str(mtu))
            assert read(f"/sys/class/net/{net}/mtu") == str(mtu)
            found = re.search(r"active_mtu:\s+(\d+)", run("ibv_devinfo", "-d", rdma))
            assert found and int(found[1]) == active, found
    text = run("ethtool", net)
    assert "Link detected: yes" in text, text
    assert re.search(r"Speed: \d+Mb/s", text), text
    assert re.search(r"Supported link modes:\s+\d+", text), text


# --- the way down and up again ---


@check
def the_netdev_goes_down_and_up():
    net, _ = up()
    with LogIsQuiet():
        for _ in range(3):
            run("ip", "link", "set", net, "down")
            assert read(f"/sys/class/net/{net}/operstate") == "down"
            up()


@check
def ten_unbinds_and_binds_leave_the_kernel_log_clean():
    with LogIsQuiet():
        for _ in range(10):
            unbind()
            assert not names("net") and not names("infiniband")
            bind()
            up()


@check
def the_rdma_driver_alone_goes_and_comes():
    with LogIsQuiet():
        run("modprobe", "-r", "mlx5_ib")
        assert not names("infiniband")
        run("modprobe", "mlx5_ib")
        there()


@check
def a_function_level_reset_of_the_unbound_function_is_survived():
    methods = read(pci("reset_method"))
    assert "flr" in methods.split(), f"reset methods: {methods}"
    write(pci("reset_method"), "flr")
    with LogIsQuiet():
        unbind()
        write(pci("reset"), "1")
        bind()
        up()


@check
def devlink_reload_rebuilds_the_device():
    with LogIsQuiet():
        for _ in range(2):
            run("devlink", "dev", "reload", f"pci/{function()}", "action", "driver_reinit")
            up()


@check
def the_last_unbind_is_clean():
    """tests/guest.rs then finds nothing left in the device: no page, no object, no key."""
    with LogIsQuiet():
        unbind()


def main():
    failed = 0
    wanted = sys.argv[1:]
    checks = [c for c in CHECKS if not wanted or any(word in c.__name__ for word in wanted)]
    for function_ in checks:
        start = time.monotonic()
        try:
            function_()
            ok, detail = True, ""
        except Exception as error:  # pylint: disable=broad-except
            ok, failed = False, failed + 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            detail = f"{type(error).__name__}: {error} (line {where.lineno}: {where.line})"
        seconds = round(time.monotonic() - start, 1)
        print(json.dumps({"check": function_.__name__, "ok": ok, "detail": detail, "seconds": seconds}), flush=True)
    print(json.dumps({"done": len(checks)}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
