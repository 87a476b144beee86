"""Checks of the driver's life, all in one boot; started by tests/guest.rs through `cx10 run`, see harness.py."""

import glob
import json
import os
import re
import sys

from harness import LogIsQuiet, check, main, read, run, wait, write

VENDOR, DEVICES = "0x15b3", ("0x2101", "0x1021")
DRIVER = "/sys/bus/pci/drivers/mlx5_core"


def function():
    """The PCI address of the device."""
    for path in glob.glob("/sys/bus/pci/devices/*"):
        if read(path + "/vendor") == VENDOR and read(path + "/device") in DEVICES:
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
