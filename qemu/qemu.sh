# shellcheck shell=bash
# QEMU with vfio-user-pci: the host's own if it is new enough, otherwise Debian's, unpacked into the cache.
#
# The unpacked one is started through its own dynamic loader with its own libraries, so it sees the host's paths
# (sockets, images, kernels) and needs neither chroot nor root.

# qemu_fit BINARY: prints why not, or nothing.
qemu_fit() {
    local version
    version=$("$1" --version 2>/dev/null | sed -n '1s/^QEMU emulator version \([0-9.]*\).*/\1/p')
    [[ -n $version ]] || {
        echo "tells no version"
        return
    }
    [[ $(printf '%s\n' "$QEMU_FLOOR" "$version" | sort -V | head -n1) == "$QEMU_FLOOR" ]] || {
        echo "is $version, older than $QEMU_FLOOR"
        return
    }
    "$1" -device help 2>&1 | grep -q '"vfio-user-pci"' || echo "has no vfio-user-pci device"
}

build_qemu() {
    local host why="" recipe key list dir
    if host=$(command -v qemu-system-x86_64); then
        why=$(qemu_fit "$host")
        if [[ -z $why ]]; then
            printf 'qemu=%s\n' "$host"
            return
        fi
    fi

    recipe=qemu-$(recipe_hash qemu.sh)
    key=$(pointer "$recipe")
    if [[ -z $key || -n $UPDATE ]]; then
        [[ -z $why ]] || say "the host's $host $why; taking Debian's"
        apt_lists
        list=$(apt_resolve -t "$DEBIAN_BACKPORTS" qemu-system-x86) || true
        [[ -n $list ]] || die "qemu-system-x86 cannot be resolved in $DEBIAN_BACKPORTS"
        key=qemu-$(printf '%s\n%s\n' "$recipe" "$list" | sha)
        if [[ ! -d $CACHE/$key ]]; then
            new_work_dir
            dir=$WORK/image
            say "unpacking QEMU $(sed -n 's/^qemu-system-x86 //p' <<<"$list")"
            apt_unpack "$dir" <<<"$list"
            rm -rf "$dir"/usr/share/{doc,man,locale,icons,lintian,info,bash-completion}
            printf '%s\n' "$list" >"$dir/packages"
            cat >"$dir/run" <<'EOF'
#!/bin/sh
# Starts the QEMU in this directory with the libraries in this directory.
q=$(dirname -- "$(readlink -f -- "$0")")
lib=$q/usr/lib/x86_64-linux-gnu
QEMU_MODULE_DIR=$lib/qemu
export QEMU_MODULE_DIR
exec "$q/usr/lib64/ld-linux-x86-64.so.2" --argv0 qemu-system-x86_64 --library-path "$lib:$lib/nss" \
    "$q/usr/bin/qemu-system-x86_64" -L "$q/usr/share/qemu" -L "$q/usr/share/seabios" "$@"
EOF
            chmod 755 "$dir/run"
            why=$(qemu_fit "$dir/run")
            [[ -z $why ]] || die "Debian's QEMU $why"
            publish "$dir" "$key"
        fi
        pointer "$recipe" "$key"
    fi
    printf 'qemu=%s\n' "$CACHE/$key/run"
}
