# shellcheck shell=bash
# Shared by the image recipes: messages, the private apt, and the cache.
#
# Packages are taken out of Debian's archives by a private apt (its own lists, cache and empty package status below the
# cache directory) and unpacked with dpkg-deb. Neither needs root, namespaces or a change to the host's own package
# sources, and both exist on every Debian and derivative.

say() { printf 'images: %s\n' "$*" >&2; }
die() {
    printf 'images: error: %s\n' "$*" >&2
    exit 1
}

# What building needs on the host: command and the Debian package that has it.
HOST_TOOLS=(
    apt-get:apt dpkg-deb:dpkg flock:util-linux mksquashfs:squashfs-tools cpio:cpio zstd:zstd xz:xz-utils depmod:kmod
)
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# missing_packages: the packages that building needs and the host lacks, on one line.
missing_packages() {
    local tool missing=()
    for tool in "${HOST_TOOLS[@]}"; do
        command -v "${tool%%:*}" >/dev/null 2>&1 || missing+=("${tool#*:}")
    done
    [[ -r $KEYRING ]] || missing+=(debian-archive-keyring)
    echo "${missing[*]}"
}

# require_tools: called where something is about to be built; what is in the cache needs no tools.
require_tools() {
    local missing
    missing=$(missing_packages)
    [[ -z $missing ]] || die "packages are missing on this machine; install them with: apt-get install $missing"
}

CACHE=${CX10_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cx10}
PATH=$PATH:/usr/sbin:/sbin

sha() { sha256sum | cut -c1-16; }

# recipe_hash FILE...: the recipe itself as a cache key.
recipe_hash() { (cd "$HERE" && cat versions.sh lib.sh "$@") | sha; }

# new_work_dir: a directory for a build, removed at exit whatever happens.
WORK=
WORK_DIRS=()
cleanup() {
    local d
    for d in "${WORK_DIRS[@]}"; do
        chmod -R u+w -- "$d" 2>/dev/null || true
        rm -rf -- "$d"
    done
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
new_work_dir() {
    WORK=$(mktemp -d "$CACHE/build.XXXXXX")
    WORK_DIRS+=("$WORK")
}

# publish DIR NAME: put a finished artefact in place in one step.
publish() {
    local from=$1 name=$2
    chmod 755 "$from"
    rm -rf -- "${CACHE:?}/$name"
    mv -T -- "$from" "$CACHE/$name"
}

# pointer NAME [DIR]: read or set which artefact a recipe resolved to, so that a later run needs no network.
pointer() {
    local file=$CACHE/index/$1
    if (($# == 2)); then
        mkdir -p "$CACHE/index"
        printf '%s\n' "$2" >"$file.new.$$"
        mv -f "$file.new.$$" "$file"
    elif [[ -r $file ]]; then
        local dir
        dir=$(<"$file")
        if [[ -d $CACHE/$dir ]]; then
            touch "$CACHE/$dir"
            printf '%s\n' "$dir"
        fi
    fi
}

# The private apt. Written anew each time, so that a changed mirror takes effect.
apt_setup() {
    require_tools
    local apt=$CACHE/apt
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial,etc}
    : >"$apt/state/status"
    local suite
    for suite in "$DEBIAN_SUITE" "$DEBIAN_BACKPORTS"; do
        printf 'deb [arch=amd64 signed-by=%s] %s %s main\n' "$KEYRING" "$DEBIAN_MIRROR" "$suite"
    done >"$apt/etc/sources.list"
    cat >"$apt/apt.conf" <<EOF
Dir::State "$apt/state";
Dir::State::status "$apt/state/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Get::AllowUnauthenticated "false";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
EOF
}

private_apt_get() { apt-get -q -c "$CACHE/apt/apt.conf" "$@"; }
private_apt_cache() { apt-cache -c "$CACHE/apt/apt.conf" "$@"; }

# apt_lists: fetch the package lists, once in a run.
APT_FRESH=
apt_lists() {
    [[ -n $APT_FRESH ]] && return
    apt_setup
    say "reading the package lists of $DEBIAN_SUITE and $DEBIAN_BACKPORTS"
    local log=$CACHE/apt/update.log
    if ! private_apt_get update >"$log" 2>&1 || grep -q '^E:' "$log"; then
        cat "$log" >&2
        if grep -q NO_PUBKEY "$log"; then
            die "the host's debian-archive-keyring is older than $DEBIAN_SUITE; run: apt-get update && apt-get install debian-archive-keyring"
        fi
        die "cannot read the package lists from $DEBIAN_MIRROR (set CX10_DEBIAN_MIRROR to use another mirror)"
    fi
    APT_FRESH=1
}

# apt_resolve ARG...: "package version" lines that installing ARGs into an empty system would bring.
apt_resolve() {
    private_apt_get install -s -y --no-install-recommends "$@" |
        sed -n 's/^Inst \([^ ]*\) (\([^ ]*\) .*/\1 \2/p' | LC_ALL=C sort
}

# apt_unpack DIR < "package version" lines: download and unpack them.
apt_unpack() {
    local dir=$1 debs deb
    local -a want=()
    while read -r name version; do
        want+=("$name=$version")
    done
    ((${#want[@]})) || die "nothing to unpack"
    debs=$(mktemp -d "$WORK/debs.XXXXXX")
    mkdir -p "$dir"
    (cd "$debs" && private_apt_get download "${want[@]}") >"$debs/log" 2>&1 || {
        cat "$debs/log" >&2
        die "download failed"
    }
    # base-files first: it brings /bin, /lib and /sbin as links into /usr.
    for deb in "$debs"/base-files_*.deb "$debs"/*.deb; do
        [[ -e $deb ]] || continue
        dpkg-deb -x "$deb" "$dir" || die "cannot unpack ${deb##*/}"
    done
    rm -rf -- "$debs"
}
