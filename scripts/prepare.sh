# shellcheck shell=bash
# Sourced by run and test: what they need on this machine. As root missing Debian packages are installed by name,
# otherwise they are named.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PATH=$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    printf '%s: error: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# install PACKAGE...: makes sure that they are there; nothing to do for an empty list.
install() {
    (($#)) || return 0
    if [[ $(id -u) != 0 ]]; then
        die "packages are missing on this machine; install them with: apt-get install $*"
    fi
    command -v apt-get >/dev/null || die "these Debian packages are missing, and there is no apt-get: $*"
    say "installing $*"
    local log
    log=$(mktemp)
    # The lists of a fresh machine are empty, those of an old one may name versions that are gone.
    if ! { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "$@"; } \
        </dev/null >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        die "cannot install: $*"
    fi
    rm -f "$log"
}

# install_commands COMMAND:PACKAGE...: the packages of those commands that are missing.
install_commands() {
    local tool missing=()
    for tool in "$@"; do
        command -v "${tool%%:*}" >/dev/null || missing+=("${tool#*:}")
    done
    install "${missing[@]}"
}

prepare_rust() {
    # Linking needs the C library's own files, which gcc only recommends.
    command -v cc >/dev/null || install gcc libc6-dev
    if ! command -v cargo >/dev/null; then
        # Debian 13's compiler is new enough, Debian 12's is not.
        # shellcheck source=/dev/null
        if (source /etc/os-release && [[ ${ID-} == debian && ${VERSION_ID-0} -ge 13 ]]); then
            install cargo ca-certificates
        else
            die "cargo is missing; install Rust with rustup (https://rustup.rs), or on Debian 13 with: apt-get install cargo"
        fi
    fi
}

prepare_images() {
    local missing
    missing=$("$ROOT/qemu/images" --missing)
    # Package names, separated by spaces.
    # shellcheck disable=SC2086
    install $missing
}
