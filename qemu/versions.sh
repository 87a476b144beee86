# shellcheck shell=bash disable=SC2034
# What the lab is made of. Sourced by lib.sh; everything that a user may have to raise is here and nowhere else.

# vfio-user-pci entered QEMU in 10.1; 11.1 is the first release whose client passes 64-bit DMA counts correctly.
QEMU_FLOOR=11.1

# Where the packages come from. The guest root is built from the release, QEMU and the newer kernels from its backports.
DEBIAN_MIRROR=${CX10_DEBIAN_MIRROR:-http://deb.debian.org/debian}
DEBIAN_SUITE=trixie
DEBIAN_BACKPORTS=trixie-backports

# Kernels that the tests run on (`--kernel X.Y`, the newest Debian package of that series).
DEFAULT_KERNELS=(7.3 6.12)

# Packages of the guest root, without recommendations. Nothing here is configured by maintainer scripts: see root.sh.
ROOT_PACKAGES=(
    # a usable shell
    base-files base-passwd bash coreutils dash diffutils findutils gawk grep gzip hostname less libc-bin mount
    ncurses-base ncurses-bin procps sed tar util-linux
    # the device
    ethtool iproute2 iputils-ping kmod pciutils
    # RDMA user space: drivers, examples, benchmarks, Python bindings with rdma-core's own tests
    ibverbs-providers ibverbs-utils perftest python3-pyverbs rdma-core rdmacm-utils
    # what those tests declare the device's structures with
    python3-scapy
    # NVMe over RDMA, and a file system on it
    e2fsprogs nvme-cli
    # NFS over RDMA, iSER
    nfs-common nfs-kernel-server open-iscsi
    # tools of people who debug drivers
    strace tcpdump
)
