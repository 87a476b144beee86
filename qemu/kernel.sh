# shellcheck shell=bash disable=SC2153
# Guest kernels. An artefact holds
#   kernel           what QEMU starts: an uncompressed ELF with a PVH entry where there is one (saves the guest the
#                    decompression, three seconds without hardware virtualisation), otherwise a bzImage
#   initramfs.cpio   busybox and the modules needed to mount the root; init itself is appended by `cx10 run`
#   modules.squashfs /lib/modules/RELEASE, where there are modules
#   release          uname -r

# Needed before the root is there. Everything else is loaded from the modules image.
BOOT_MODULES=(virtio_pci virtio_blk virtio_console squashfs overlay 9p 9pnet_virtio)

# Parts of the module tree that no RDMA test needs.
DROP_MODULES=(
    sound
    drivers/{accel,ata,atm,bluetooth,comedi,cpufreq,edac,extcon,firewire,gnss,gpio,gpu,greybus,hid,hwtracing,i2c,i3c,iio}
    drivers/{input,isdn,leds,md,media,memstick,message,mfd,misc,mmc,most,mtd,nfc,parport,pcmcia,pinctrl,platform,power}
    drivers/{regulator,rtc,soundwire,spi,staging,thermal,thunderbolt,typec,ufs,usb,video,w1,watchdog}
    drivers/net/{arcnet,can,dsa,fddi,hamradio,hippi,ieee802154,phy,plip,ppp,slip,usb,wan,wireless,wwan,wimax}
    net/{atm,ax25,bluetooth,can,ieee802154,mac80211,mac802154,netrom,nfc,rose,wireless,appletalk,x25,batman-adv}
    fs/{afs,bcachefs,befs,bfs,btrfs,ceph,coda,efs,ecryptfs,exfat,f2fs,freevxfs,gfs2,hfs,hfsplus,hpfs,jffs2,jfs,minix}
    fs/{nilfs2,ntfs,ntfs3,ocfs2,omfs,orangefs,qnx4,qnx6,reiserfs,romfs,ubifs,udf,ufs,xfs,zonefs}
)
# Of SCSI, what the initiators of iSER and SRP need.
SCSI_MODULES=(scsi_mod scsi_common sd_mod libiscsi scsi_transport_iscsi scsi_transport_srp)

build_kernel() {
    local want=$1
    if [[ $want =~ ^[0-9]+\.[0-9]+$ ]]; then
        kernel_from_debian "$want"
    elif [[ -d $want ]]; then
        kernel_from_tree "$want"
    elif [[ -f $want ]]; then
        kernel_from_file "$want"
    else
        die "kernel '$want' is neither a series (such as ${DEFAULT_KERNELS[0]}) nor a build tree nor a kernel image"
    fi
}

# ensure_busybox: sets BUSYBOX.
ensure_busybox() {
    local recipe key list outer=$WORK
    recipe=busybox-$(recipe_hash kernel.sh)
    key=$(pointer "$recipe")
    if [[ -z $key ]]; then
        apt_lists
        list=$(apt_resolve busybox-static | grep '^busybox-static ') || die "busybox-static cannot be resolved"
        key=busybox-$(printf '%s\n' "$list" | sha)
        if [[ ! -d $CACHE/$key ]]; then
            new_work_dir
            apt_unpack "$WORK/image" <<<"$list"
            publish "$WORK/image" "$key"
            WORK=$outer
        fi
        pointer "$recipe" "$key"
    fi
    BUSYBOX=$CACHE/$key/usr/bin/busybox
}

# --kernel X.Y
kernel_from_debian() {
    local series=$1 recipe key image version list dir modules
    recipe=kernel-$series-$(recipe_hash kernel.sh)
    key=$(pointer "$recipe")
    if [[ -z $key || -n $UPDATE ]]; then
        apt_lists
        image=$(private_apt_cache pkgnames linux-image- |
            grep -E "^linux-image-${series//./\\.}\.[0-9]+\+deb[0-9]+-amd64\$" | sort -V | tail -n1) || true
        [[ -n $image ]] || die "there is no linux-image-$series.* in $DEBIAN_SUITE or $DEBIAN_BACKPORTS"
        version=$(private_apt_cache show --no-all-versions "$image" | sed -n 's/^Version: //p')
        # Split since 7.x: configuration in linux-base, kernel in linux-binary, modules in linux-modules; before, all
        # in linux-image.
        list="$image $version"
        if private_apt_cache show "${image/-image-/-binary-}" >/dev/null 2>&1; then
            list=$(for part in base binary modules; do echo "${image/-image-/-$part-} $version"; done)
        fi
        key=kernel-$(printf '%s\n%s\n' "$recipe" "$list" | sha)
        if [[ ! -d $CACHE/$key ]]; then
            new_work_dir
            dir=$WORK
            say "unpacking ${image#linux-image-} ($version)"
            apt_unpack "$dir/tree" <<<"$list"
            modules=$(echo "$dir"/tree/usr/lib/modules/*)
            [[ -d $modules ]] || modules=$(echo "$dir"/tree/lib/modules/*)
            [[ -d $modules ]] || die "no modules in $image"
            mkdir "$dir/image"
            kernel_image_from_bzimage "$(find "$dir/tree" -name 'vmlinuz*' -type f | head -n1)" \
                "$(find "$dir/tree" \( -name 'config' -o -name 'config-*' \) -type f | head -n1)" "$dir/image/kernel"
            kernel_finish "${modules##*/}" "$modules" "$dir"
            publish "$dir/image" "$key"
        fi
        pointer "$recipe" "$key"
    fi
    printf 'kernel=%s\n' "$CACHE/$key"
}

# --kernel DIR, a built kernel tree
kernel_from_tree() {
    local tree release key bzimage
    tree=$(cd "$1" && pwd -P)
    bzimage=$tree/arch/x86/boot/bzImage
    [[ -f $bzimage ]] || die "$tree has no arch/x86/boot/bzImage; build it with: make -C $tree bzImage modules"
    [[ -r $tree/include/config/kernel.release ]] || die "$tree has no include/config/kernel.release; is it a built tree?"
    release=$(<"$tree/include/config/kernel.release")
    # What would be installed: the image, and every module by name, size and time.
    key=kernel-$( (
        recipe_hash kernel.sh
        sha256sum <"$bzimage"
        find "$tree" -name '*.ko' -printf '%P %s %T@\n' | LC_ALL=C sort
    ) | sha)
    if [[ ! -d $CACHE/$key ]]; then
        require_tools
        new_work_dir
        mkdir "$WORK/image" "$WORK/tree"
        if grep -qs '^CONFIG_PVH=y' "$tree/.config" && [[ -f $tree/vmlinux ]]; then
            cp "$tree/vmlinux" "$WORK/image/kernel"
        else
            cp "$bzimage" "$WORK/image/kernel"
        fi
        if grep -qs '^CONFIG_MODULES=y' "$tree/.config" && [[ -f $tree/modules.order && -s $tree/modules.order ]]; then
            command -v make >/dev/null || die "make is missing; install it with: apt-get install make"
            say "installing the modules of $release"
            make -s -C "$tree" modules_install INSTALL_MOD_PATH="$WORK/tree" INSTALL_MOD_STRIP=1 >&2 ||
                die "make modules_install failed in $tree"
            kernel_finish "$release" "$WORK/tree/lib/modules/$release" "$WORK"
        else
            kernel_finish "$release" "" "$WORK"
        fi
        publish "$WORK/image" "$key"
    fi
    printf 'kernel=%s\n' "$CACHE/$key"
}

# --kernel FILE, an image alone
kernel_from_file() {
    local file key
    file=$(readlink -f "$1")
    key=kernel-$( (
        recipe_hash kernel.sh
        sha256sum <"$file"
    ) | sha)
    if [[ ! -d $CACHE/$key ]]; then
        require_tools
        say "$file comes without modules: mlx5 and everything in qemu/kernel.sh BOOT_MODULES must be built in"
        new_work_dir
        mkdir "$WORK/image"
        cp "$file" "$WORK/image/kernel"
        kernel_finish "" "" "$WORK"
        publish "$WORK/image" "$key"
    fi
    printf 'kernel=%s\n' "$CACHE/$key"
}

# kernel_image_from_bzimage BZIMAGE CONFIG OUT: the ELF inside, if it can be started directly.
kernel_image_from_bzimage() {
    local file=$1 config=$2 out=$3 sects offset length
    [[ -f $file ]] || die "no kernel image in the package"
    if grep -qs '^CONFIG_PVH=y' "$config" && grep -qs '^CONFIG_KERNEL_ZSTD=y' "$config"; then
        # Boot protocol 2.08: setup_sects 0x1f1, payload_offset 0x248, payload_length 0x24c; the payload ends with
        # its unpacked size, which is no part of the zstd frame.
        sects=$(od -An -tu1 -j$((0x1f1)) -N1 "$file" | tr -d ' ')
        offset=$(od -An -tu4 -j$((0x248)) -N4 "$file" | tr -d ' ')
        length=$(od -An -tu4 -j$((0x24c)) -N4 "$file" | tr -d ' ')
        if dd if="$file" iflag=skip_bytes,count_bytes bs=1M status=none skip="$(((sects + 1) * 512 + offset))" \
            count="$((length - 4))" | zstd -q -d -o "$out" && [[ $(head -c 4 "$out") == $'\x7fELF' ]]; then
            return
        fi
        say "the kernel cannot be unpacked; it is started compressed"
        rm -f "$out"
    fi
    cp "$file" "$out"
}

# kernel_finish RELEASE MODULES WORK: modules image and initramfs.
kernel_finish() {
    local release=$1 modules=$2 work=$3 init=$3/initramfs m path
    mkdir -p "$init"/{bin,dev,proc,sys,newroot,lib/modules}
    ensure_busybox
    cp "$BUSYBOX" "$init/bin/busybox"
    printf '%s\n' "$release" >"$work/image/release"
    if [[ -n $modules ]]; then
        rm -rf "$modules"/{build,source,vmlinuz,System.map,config}
        for m in "${DROP_MODULES[@]}"; do
            rm -rf "$modules/kernel/$m"
        done
        for path in "$modules"/kernel/drivers/scsi/*; do
            m=${path##*/}
            [[ " ${SCSI_MODULES[*]} " == *" ${m%%.*} "* ]] || rm -rf "$path"
        done
        # Compressed modules would be unpacked by the guest; the image is compressed as a whole instead.
        say "unpacking the modules of $release"
        find "$modules" -name '*.ko.xz' -print0 | xargs -0 -r -n 64 -P "$(nproc)" xz -d -q -T1
        find "$modules" -name '*.ko.zst' -print0 | xargs -0 -r -n 64 -P "$(nproc)" zstd -d -q --rm
        find "$modules" -name '*.ko.gz' -print0 | xargs -0 -r -n 64 -P "$(nproc)" gzip -d -q
        mkdir -p "$work/base/lib"
        ln -sfn "$(dirname "$modules")" "$work/base/lib/modules"
        depmod -b "$work/base" "$release" 2>"$work/depmod.log" || {
            cat "$work/depmod.log" >&2
            die "depmod failed for $release"
        }
        for m in "${BOOT_MODULES[@]}"; do
            # Built in, or absent from this kernel: the guest's init says which one it misses.
            while read -r verb path _; do
                [[ $verb == insmod ]] || continue
                path=${path#"$work/base"}
                mkdir -p "$init/${path%/*}"
                cp "$work/base/$path" "$init/$path"
            done < <(modprobe -d "$work/base" -S "$release" --show-depends "$m" 2>/dev/null || true)
        done
        mkdir -p "$init/lib/modules/$release"
        cp "$modules"/modules.{order,builtin,builtin.modinfo} "$init/lib/modules/$release/" 2>/dev/null || true
        depmod -b "$init" "$release" 2>/dev/null || die "depmod failed for the initramfs of $release"
        say "compressing the modules of $release"
        mksquashfs "$modules" "$work/image/modules.squashfs" -comp lz4 -b 131072 -all-root -noappend -no-xattrs \
            -no-progress -quiet >&2
    fi
    (cd "$init" && find . -print0 | LC_ALL=C sort -z | cpio -0 -o -H newc -R 0:0 --quiet) >"$work/image/initramfs.cpio"
}
