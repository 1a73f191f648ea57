#!/usr/bin/env bash
# Installs what Ebb's build, demo and tests need and this machine lacks. Says nothing when nothing is missing.
set -euo pipefail

missing=()
PATH="$PATH:/usr/sbin"              # where Debian has some of these
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}
need protoc protobuf-compiler     # message types are generated at build time
need cc gcc
need mold mold                    # links in a fraction of the time, which counts on two cores
need fusermount3 fuse3
need jq jq                        # the demo reads JSON
need setfattr attr
need setfacl acl
need fio fio
need xz xz-utils
need bonnie++ bonnie++            # `ebb lab metablocks`
need mkfs.xfs xfsprogs            # `cargo xtask powercut`
need mkfs.ext4 e2fsprogs
need mkfs.btrfs btrfs-progs       # tests/volumes
need ip iproute2                  # tests/hosts
need lintian lintian              # tests/packages
need mandoc mandoc
need man man-db
need dpkg-shlibdeps dpkg-dev      # packaging/build.sh
need strip binutils
need zsh zsh                      # completions are tried in each shell
need fish fish
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)    # the Redfish emulator of tests/power

if [ "${#missing[@]}" -gt 0 ]; then
    echo "setup: installing ${missing[*]}"
    as_root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null 2>&1 || { echo "setup: need root (or sudo) to install: ${missing[*]}" >&2; exit 1; }
        as_root=(sudo)
    fi
    command -v apt-get >/dev/null 2>&1 || { echo "setup: no apt-get here; install by hand: ${missing[*]}" >&2; exit 1; }
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq "${missing[@]}" >/dev/null
fi

command -v cargo >/dev/null 2>&1 || { echo "setup: no cargo: install Rust 1.95.0 (https://rustup.rs)" >&2; exit 1; }
[ -e /dev/fuse ] || { echo "setup: no /dev/fuse: load the kernel's fuse module (modprobe fuse)" >&2; exit 1; }
