"""Process 1 of the guest after init: binds the driver, reports, runs the user's command, powers off.

Everything goes over virtio-serial ports, so that kernel messages on the console never mix with it:

  org.cx10.report   JSON lines to the host: {"event": "stage"|"facts"|"run"|"exit", ...}; from the host: window sizes
  org.cx10.stdin, org.cx10.stdout, org.cx10.stderr   streams of the command
  hvc0              terminal of --shell

Parameters are in params.json beside this file (see src/run/guest.rs in the source tree, which writes it). Waits are
bounded. Modules of Python's library that are slow to import under emulation are imported where they are needed.
"""

import errno
import fcntl
import json
import os
import select
import signal
import sys
import time

HERE = "/run/cx10"
BUSYBOX = HERE + "/busybox"
VENDOR = "0x15b3"
ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "CX10": "1",
}
NETDEV_IPV4 = "192.0.2.1/24"
NETDEV_IPV6 = "2001:db8::1/64"


def read(path, default=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read().strip()
    except OSError:
        return default


def listdir(path):
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def uptime():
    return float(read("/proc/uptime", "0").split()[0])


class Report:
    """JSON lines to the host. Without the port (no virtio-console in the kernel) they go to the console."""

    def __init__(self, fd):
        self.fd = fd

    def send(self, **event):
        data = (json.dumps(event, separators=(",", ":")) + "\n").encode()
        while data:
            data = data[os.write(self.fd, data) :]

    def stage(self, name, detail=""):
        self.send(event="stage", name=name, uptime=uptime(), detail=detail)


def open_port(name):
    for port in listdir("/sys/class/virtio-ports"):
        if read(f"/sys/class/virtio-ports/{port}/name") == name:
            return os.open(f"/dev/{port}", os.O_RDWR)
    raise FileNotFoundError(errno.ENOENT, "no virtio-serial port", name)


class Process:
    """A child whose output is collected. Several run at the same time: wait for them with collect()."""

    def __init__(self, argv, timeout=20.0):
        self.argv, self.output, self.status = argv, b"", None
        self.deadline = time.monotonic() + timeout
        self.fd, child = os.pipe()
        null = os.open("/dev/null", os.O_RDONLY)
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                argv,
                ENV,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, null, 0),
                    (os.POSIX_SPAWN_DUP2, child, 1),
                    (os.POSIX_SPAWN_DUP2, child, 2),
                    (os.POSIX_SPAWN_CLOSE, self.fd),
                ],
            )
        except OSError as e:
            self.pid, self.output, self.status = 0, str(e).encode(), 127
        os.close(null)
        os.close(child)

    def text(self):
        return self.output.decode(errors="replace")


def collect(processes):
    """Reads all processes to their end or their deadline."""
    running = {p.fd: p for p in processes if p.pid}
    while running:
        left = max(0.0, min(p.deadline for p in running.values()) - time.monotonic())
        ready, _, _ = select.select(list(running), [], [], left)
        for fd in ready:
            p = running[fd]
            chunk = os.read(fd, 65536)
            if chunk and len(p.output) < 1 << 20:
                p.output += chunk
            elif not chunk:
                del running[fd]
        now = time.monotonic()
        for fd, p in list(running.items()):
            if now >= p.deadline:
                os.kill(p.pid, 9)
                p.status = 124
                p.output += b"\n[gave no answer in time]"
                del running[fd]
    for p in processes:
        if p.fd is not None:
            os.close(p.fd)
            p.fd = None
        if p.pid:
            status = os.waitstatus_to_exitcode(os.waitpid(p.pid, 0)[1])
            p.status = status if p.status is None else p.status
            p.pid = 0


def run(argv, timeout=20.0):
    p = Process(argv, timeout)
    collect([p])
    return p


def wait_until(condition, seconds):
    """Polls; tells the condition's last value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() >= end:
            return value
        time.sleep(0.05)


# --- the device ---


def pci_devices():
    found = []
    for bdf in listdir("/sys/bus/pci/devices"):
        path = f"/sys/bus/pci/devices/{bdf}"
        if read(path + "/vendor") == VENDOR:
            found.append(bdf)
    return found


def pci_driver(bdf):
    try:
        return os.path.basename(os.readlink(f"/sys/bus/pci/devices/{bdf}/driver"))
    except OSError:
        return None


def netdevs(bdf):
    return listdir(f"/sys/bus/pci/devices/{bdf}/net")


def rdma_devices(bdf):
    return listdir(f"/sys/bus/pci/devices/{bdf}/infiniband")


def bind(report, bdfs, problems):
    """Loads the driver; an mlx5_core that does not know the id is told it."""
    p = run(["modprobe", "mlx5_core"], 150.0)
    if p.status and not os.path.isdir("/sys/bus/pci/drivers/mlx5_core"):
        problems.append(f"modprobe mlx5_core: {p.text().strip()}")
        return
    told = False
    for bdf in bdfs:
        if pci_driver(bdf) or told:
            continue
        path = f"/sys/bus/pci/devices/{bdf}"
        device = read(path + "/device")
        aliases = read("/sys/module/mlx5_core/uevent") + run(["modinfo", "-F", "alias", "mlx5_core"]).text()
        if f"v0000{VENDOR[2:].upper()}d0000{device[2:].upper()}" in aliases:
            continue  # known, so the probe failed: the kernel log tells why
        report.stage("new_id", f"this kernel's mlx5_core does not know {VENDOR[2:]}:{device[2:]}, telling it")
        try:
            with open("/sys/bus/pci/drivers/mlx5_core/new_id", "w", encoding="ascii") as f:
                f.write(f"{VENDOR[2:]} {device[2:]}\n")
        except OSError as e:
            problems.append(f"new_id: {e}")
        told = True


def write_sysctl(path, value):
    try:
        with open("/proc/sys/" + path, "w", encoding="ascii") as f:
            f.write(value)
    except OSError:
        pass


def bring_up(report, bdf, index, problems):
    """Netdev up with an address of each family (each makes a RoCE GID), RDMA port active."""
    # The auxiliary drivers of mlx5_core: udev would load them by alias.
    run(["modprobe", "-a", "-q", "mlx5_ib", "ib_uverbs", "rdma_ucm", "ib_umad"], 60.0)
    nets = wait_until(lambda: netdevs(bdf), 10.0)
    if not nets:
        problems.append(f"{bdf}: the driver made no network device")
    for net in nets:
        report.stage("netdev", net)
        write_sysctl(f"net/ipv6/conf/{net}/accept_dad", "0")
        write_sysctl(f"net/ipv6/conf/{net}/accept_ra", "0")
        ipv4 = NETDEV_IPV4.replace(".1/", f".{index + 1}/")
        ipv6 = NETDEV_IPV6.replace("::1/", f"::{index + 1}/")
        batch = f"{HERE}/ip-{net}"
        with open(batch, "w", encoding="ascii") as f:
            f.write(f"addr add {ipv4} dev {net}\naddr add {ipv6} dev {net} nodad\nlink set {net} up\n")
        p = run(["ip", "-batch", batch], 60.0)
        if p.status:
            problems.append(f"{net}: {p.text().strip()}")
    devices = wait_until(lambda: rdma_devices(bdf), 10.0)
    if not devices:
        problems.append(f"{bdf}: the driver made no RDMA device")
    for device in devices:
        port = f"/sys/class/infiniband/{device}/ports/1"
        state = wait_until(lambda: read(port + "/state").endswith("ACTIVE"), 20.0)
        if state:
            report.stage("rdma", device)
        else:
            problems.append(f"{device}: port 1 is {read(port + '/state') or 'absent'} after 20 s")


# --- facts ---


def kernel_log():
    """All kernel messages: level, seconds, text."""
    lines = []
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return lines
    while True:
        try:
            record = os.read(fd, 8192).decode(errors="replace")
        except BlockingIOError:
            break
        except OSError as e:
            if e.errno == errno.EPIPE:  # overwritten while reading
                continue
            break
        head, _, text = record.partition(";")
        fields = head.split(",")
        lines.append({"level": int(fields[0]) & 7, "time": int(fields[2]) / 1e6, "text": text.split("\n")[0]})
    os.close(fd)
    return lines


def interesting(line):
    text = line["text"]
    return line["level"] <= 4 or "mlx5" in text or "infiniband" in text


def json_of(process):
    try:
        return json.loads(process.output)
    except ValueError:
        return None


def gids(device):
    found = []
    base = f"/sys/class/infiniband/{device}/ports/1"
    for index in sorted(listdir(base + "/gids"), key=int):
        gid = read(f"{base}/gids/{index}")
        if gid and gid != "0000:0000:0000:0000:0000:0000:0000:0000":
            found.append({"index": int(index), "gid": gid, "type": read(f"{base}/gid_attrs/types/{index}")})
    return found


def facts(bdfs, problems):
    jobs = {("rdma",): ["rdma", "-j", "link"], ("devlink",): ["devlink", "-j", "dev", "info"]}
    for bdf in bdfs:
        jobs["lspci", bdf] = ["lspci", "-nn", "-vv", "-D", "-s", bdf]
        for net in netdevs(bdf):
            jobs["ethtool", net] = ["ethtool", "-i", net]
            jobs["addr", net] = ["ip", "-j", "addr", "show", "dev", net]
        for device in rdma_devices(bdf):
            jobs["devinfo", device] = ["ibv_devinfo", "-v", "-d", device]
    jobs = {key: Process(argv) for key, argv in jobs.items()}
    collect(list(jobs.values()))
    devices = []
    for bdf in bdfs:
        path = f"/sys/bus/pci/devices/{bdf}"
        devices.append(
            {
                "bdf": bdf,
                "id": f"{read(path + '/vendor')[2:]}:{read(path + '/device')[2:]}",
                "revision": read(path + "/revision"),
                "driver": pci_driver(bdf),
                "lspci": jobs["lspci", bdf].text(),
                "netdevs": [
                    {
                        "name": net,
                        "operstate": read(f"/sys/class/net/{net}/operstate"),
                        "mac": read(f"/sys/class/net/{net}/address"),
                        "ethtool": jobs["ethtool", net].text(),
                        "addresses": [
                            f"{a['local']}/{a['prefixlen']}"
                            for link in json_of(jobs["addr", net]) or []
                            for a in link.get("addr_info", [])
                        ],
                    }
                    for net in netdevs(bdf)
                ],
                "rdma": [
                    {
                        "name": device,
                        "state": read(f"/sys/class/infiniband/{device}/ports/1/state"),
                        "firmware": read(f"/sys/class/infiniband/{device}/fw_ver"),
                        "board_id": read(f"/sys/class/infiniband/{device}/board_id"),
                        "gids": gids(device),
                        "devinfo": jobs["devinfo", device].text(),
                    }
                    for device in rdma_devices(bdf)
                ],
            }
        )
    return {
        "release": os.uname().release,
        "version": os.uname().version,
        "cpus": os.cpu_count(),
        "devices": devices,
        "rdma_link": json_of(jobs["rdma",]),
        "devlink": json_of(jobs["devlink",]),
        "kernel_log": [line for line in kernel_log() if interesting(line)],
        "problems": problems,
        "uptime": uptime(),
    }


# --- the user's command ---


def enter(params):
    """Where the command runs: the host's current directory if it is shared, else the home directory."""
    os.chdir("/host" if params.get("share") and listdir("/host") else "/root")


def argv_of(params):
    # Latin-1 keeps every byte of an argument that is not UTF-8.
    return [arg.encode("latin-1") for arg in params["command"]]


def default_signals():
    """What Python ignores would stay ignored in the command: a pipe that breaks ends it, as in any shell."""
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)


def spawn_failure(error):
    return 126 if error.errno in (errno.EACCES, errno.ENOEXEC) else 127


def open_streams():
    """The ports of the command's streams, which can be opened only once."""
    return [open_port("org.cx10." + name) for name in ("stdin", "stdout", "stderr")]


def run_command(params, ports, env):
    """Runs the command with pipes: the ports stay open for the next one, so they are not given to it directly."""
    pipes = [os.pipe() for _ in ports]
    for fd in ports:
        os.set_blocking(fd, False)
    child_ends = (pipes[0][0], pipes[1][1], pipes[2][1])
    ours = (pipes[0][1], pipes[1][0], pipes[2][0])
    pid = os.fork()
    if pid == 0:
        for target, fd in enumerate(child_ends):
            os.dup2(fd, target)
        os.closerange(3, 1024)
        os.setsid()
        default_signals()
        try:
            enter(params)
            os.execvpe(argv_of(params)[0], argv_of(params), ENV | params.get("env", {}) | env)
        except OSError as e:
            os.write(2, f"cx10: {params['command'][0]}: {e.strerror}\n".encode())
            os._exit(spawn_failure(e))
    for fd in child_ends:
        os.close(fd)
    for fd in ours:
        os.set_blocking(fd, False)
    pump(pid, ports, ours)
    return status_of(pid)


def status_of(pid):
    """Exit status as a shell gives it."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 128 - code if code < 0 else code


def pump(pid, ports, ours):
    """Moves the streams until the command has ended and its output is with the host.

    A process that the command left in the background may hold the pipes open: after the command's end only what is
    already there is moved.
    """
    flows = {  # source -> (destination, held data)
        ports[0]: [ours[0], b""],
        ours[1]: [ports[1], b""],
        ours[2]: [ports[2], b""],
    }
    child = os.pidfd_open(pid)
    ended = None
    closed = set()
    while True:
        poll = select.poll()
        for source, (destination, held) in flows.items():
            if held:
                poll.register(destination, select.POLLOUT)
            else:
                poll.register(source, select.POLLIN)
        if ended is None:
            poll.register(child, select.POLLIN)
        ready = poll.poll(None if ended is None else 20)
        events = dict(ready)
        if child in events:
            ended = time.monotonic()
            flows.pop(ports[0], None)
            continue
        moved = False
        for source, flow in list(flows.items()):
            destination, held = flow
            if (destination if held else source) not in events:
                continue
            try:
                if held:
                    # A port that the host has left takes nothing, and says so only here.
                    if events[destination] & (select.POLLHUP | select.POLLERR):
                        raise BrokenPipeError
                    flow[1] = held[os.write(destination, held) :]
                    moved = True
                else:
                    flow[1] = os.read(source, 65536)
                    moved = moved or bool(flow[1])
                    if not flow[1]:  # end of the stream
                        if source == ports[0]:
                            os.close(destination)
                            closed.add(destination)
                        del flows[source]
            except BlockingIOError:
                pass
            except OSError:  # the command closed its input, or the host went away: then the command's pipe breaks
                end = destination if source == ports[0] else source
                os.close(end)
                closed.add(end)
                del flows[source]
        if ended is not None and not moved and not any(held for _, held in flows.values()):
            break
        if ended is not None and time.monotonic() - ended > 60:
            break
    # What is still held are the ends of the command's pipes.
    for fd in {child, *ours} - closed:
        os.close(fd)


def start_anew(report, bdfs, problems):
    """Unbinds and binds the driver: another life of the device. Whether all came up."""
    for index, bdf in enumerate(bdfs):
        for action in ("unbind", "bind"):
            p = run([BUSYBOX, "sh", "-c", f"echo {bdf} >/sys/bus/pci/drivers/mlx5_core/{action}"], 150.0)
            if p.status:
                problems.append(f"{bdf}: {action}: {p.text().strip()}")
                return False
        bring_up(report, bdf, index, problems)
    return not problems


def run_with_seeds(params, bdfs, report):
    """Runs the command once with each seed of a range, on a driver that was started anew: each life of the device has the
    next seed, the first one began at boot. Seed, status and seconds of each, and what kept it from the others."""
    first, last = params["seeds"]
    ports, runs, problems = open_streams(), [], []
    for seed in range(first, last + 1):
        if seed > first and not start_anew(report, bdfs, problems):
            rest = str(seed) if seed == last else f"{seed} to {last}"
            told = [f"seed {seed}: {problem}" for problem in problems]
            return runs, [*told, f"the command was not run with seeds {rest}"]
        report.stage("seed", str(seed))
        start = time.monotonic()
        status = run_command(params, ports, {"CX10_SEED": str(seed)})
        runs.append({"seed": seed, "status": status, "seconds": round(time.monotonic() - start, 3)})
        report.send(event="run", **runs[-1])
    return runs, []


def run_shell(params, report):
    """A login shell on hvc0. Window sizes come from the host on the report port."""
    import struct
    import termios
    import threading

    tty = os.open("/dev/hvc0", os.O_RDWR | os.O_NOCTTY)

    def resize(size):
        fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("HHHH", size[0], size[1], 0, 0))

    def listen():
        data = b""
        while True:
            chunk = os.read(report.fd, 4096)
            if not chunk:
                return
            *lines, data = (data + chunk).split(b"\n")
            for line in lines:
                try:
                    resize(json.loads(line)["window"])
                except (ValueError, KeyError, OSError):
                    pass

    if params.get("window"):
        resize(params["window"])
    pid = os.fork()
    if pid == 0:
        os.setsid()
        fcntl.ioctl(tty, termios.TIOCSCTTY, 0)
        for target in range(3):
            os.dup2(tty, target)
        os.closerange(3, 1024)
        default_signals()
        enter(params)
        env = ENV | {"TERM": params.get("term", "linux"), "PS1": r"cx10:\w\$ "} | params.get("env", {})
        os.execve("/bin/bash", ["-bash", "--noprofile", "--norc"], env)
    threading.Thread(target=listen, daemon=True).start()
    status = status_of(pid)
    # The session's end hung the terminal up; opened anew it tells when the last output is out.
    try:
        termios.tcdrain(os.open("/dev/hvc0", os.O_RDWR | os.O_NOCTTY))
    except (OSError, termios.error):
        pass
    return status


def main():
    os.environ.update(ENV)  # programs are looked up along this PATH
    with open(HERE + "/params.json", encoding="utf-8") as f:
        params = json.load(f)
    run([BUSYBOX, "ip", "link", "set", "lo", "up"])
    write_sysctl("kernel/hostname", read("/etc/hostname", "cx10"))
    report = Report(open_port("org.cx10.report"))
    report.stage("booted", os.uname().release)
    problems = []
    bdfs = pci_devices()
    if bdfs:
        bind(report, bdfs, problems)
    elif params.get("expect_device", True):
        problems.append("no PCI device of vendor 15b3")
    for index, bdf in enumerate(bdfs):
        driver = pci_driver(bdf)
        if driver:
            report.stage("bound", f"{bdf} {driver}")
            bring_up(report, bdf, index, problems)
        else:
            problems.append(f"{bdf}: no driver bound")
    report.send(event="facts", facts=facts(bdfs, problems))
    status, runs, lacking = None, [], []
    if params.get("shell"):
        report.stage("shell")
        status = run_shell(params, report)
    elif params.get("command"):
        report.stage("command")
        if params.get("seeds"):
            runs, lacking = run_with_seeds(params, bdfs, report)
            status = next((r["status"] for r in runs if r["status"]), 1 if lacking else 0)
        else:
            status = run_command(params, open_streams(), {})
    log = [line for line in kernel_log() if interesting(line)]
    report.send(event="exit", status=status, runs=runs, problems=lacking, kernel_log=log, uptime=uptime())


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # pylint: disable=broad-except
        # Process 1 must not return. The host sees a guest that ended without "exit" and shows the console.
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        time.sleep(1)
    os.sync()
    os.execv(BUSYBOX, ["busybox", "poweroff", "-f"])
