# shellcheck shell=bash
# The guest's root: Debian packages unpacked into a read-only squashfs image, shared by all kernels.
#
# No maintainer script runs. What they would have made and the guest needs is made here: users, a few links, compiled
# Python modules (under emulation, compiling them in the guest would cost seconds at every start of Python).

build_root() {
    local recipe key list dir
    recipe=root-$(recipe_hash root.sh)
    key=$(pointer "$recipe")
    if [[ -z $key || -n $UPDATE ]]; then
        apt_lists
        list=$(apt_resolve "${ROOT_PACKAGES[@]}") || true
        [[ -n $list ]] || die "the packages of the guest root cannot be resolved"
        key=root-$(printf '%s\n%s\n' "$recipe" "$list" | sha)
        if [[ ! -d $CACHE/$key ]]; then
            new_work_dir
            dir=$WORK/root
            say "unpacking the guest root, $(wc -l <<<"$list") packages"
            apt_unpack "$dir" <<<"$list"
            finish_root "$dir"
            say "compressing the guest root"
            mkdir "$WORK/image"
            # LZ4 is the cheapest to read for a guest without hardware virtualisation.
            mksquashfs "$dir" "$WORK/image/root.squashfs" -comp lz4 -b 131072 -all-root -noappend -no-xattrs \
                -no-progress -quiet >&2
            printf '%s\n' "$list" >"$WORK/image/packages"
            publish "$WORK/image" "$key"
        fi
        pointer "$recipe" "$key"
    fi
    printf 'root=%s\n' "$CACHE/$key/root.squashfs"
}

finish_root() {
    local dir=$1 python lib=$1/usr/lib/x86_64-linux-gnu
    rm -rf "$dir"/usr/share/{man,locale,icons,lintian,info,bash-completion} "$dir"/var/cache/*
    # Keep what documentation contains in test programs and examples, drop the rest.
    find "$dir/usr/share/doc" -mindepth 1 -maxdepth 1 -type d ! -name '*rdma*' ! -name '*verbs*' ! -name 'perftest' \
        -exec rm -rf {} +
    mkdir -p "$dir"/{dev,proc,sys,run,tmp,root,host,mnt,etc}
    # rdma-core's own tests: Debian compresses the long ones, and Python does not import those.
    find "$dir/usr/share/doc/rdma-core/tests" -name '*.py.gz' -exec gzip -d {} +
    # Protocols that scapy has beside its core.
    rm -rf "$dir"/usr/lib/python3/dist-packages/scapy/{contrib,modules,tools}
    chmod 1777 "$dir/tmp"
    chmod 700 "$dir/root"

    cp "$dir/usr/share/base-passwd/passwd.master" "$dir/etc/passwd"
    sed -i 's#^root:\*:#root::#' "$dir/etc/passwd"
    cp "$dir/usr/share/base-passwd/group.master" "$dir/etc/group"
    printf 'cx10\n' >"$dir/etc/hostname"
    printf '127.0.0.1 localhost cx10\n::1 localhost cx10\n' >"$dir/etc/hosts"
    printf 'passwd: files\ngroup: files\nhosts: files\n' >"$dir/etc/nsswitch.conf"
    : >"$dir/etc/fstab"
    ln -sf /proc/self/mounts "$dir/etc/mtab"
    # The installed system's alternatives.
    ln -sf gawk "$dir/usr/bin/awk"
    ln -sf less "$dir/usr/bin/pager"
    # Verbs programs lock memory; the guest has one user, root, so no limits file is needed.

    python=$(find "$dir/usr/bin" -name 'python3.[0-9]*' -type f -printf '%f\n' | sort -V | tail -n1)
    [[ -n $python ]] || die "the guest root has no Python"
    # The guest's own Python, started through the guest's own loader. Processes of one thread each: its own
    # worker processes would be started without the loader.
    say "compiling the guest's Python modules"
    local part pid pids=()
    for part in "$dir/usr/lib/$python" "$dir/usr/lib/python3/dist-packages" "$dir/usr/share/doc/rdma-core/tests"; do
        PYTHONHOME=$dir/usr "$dir/usr/lib64/ld-linux-x86-64.so.2" --library-path "$lib" "$dir/usr/bin/$python" -I -S \
            -m compileall -q -j 1 --invalidation-mode unchecked-hash -s "$dir" -p / "$part" >/dev/null &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || die "cannot compile the guest's Python modules"
    done
}
