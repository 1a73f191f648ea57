#!/usr/bin/env bash
# Tries Ebb as it is used on several machines. Five hosts are made of namespaces: m (the master's), h1, h2, h3 (nodes) and c (a
# client). Each has files, users, processes and a network card of its own, and nothing is shared. On each the Debian package is
# installed; daemons run as its units say, and the cluster is made with tokens.
#
# Usage: tests/hosts/run.sh [SCENARIO...]    without one, all: make page names bad-input killed partitioned drained attacks
# EBB_PACKAGE names a package that is there already; otherwise packaging/build.sh makes it.
# It needs root. Where hosts cannot be made it says so, and ends with 0. Nothing is left when it ends, however it ends.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
all=(make page names bad-input killed partitioned drained attacks)

skip() {
    echo "skipped hosts: $1"
    echo "hosts: 0 passed, 0 failed"
    exit 0
}

# package: prints the path of the package, which is made if need be.
package() { [ -n "${EBB_PACKAGE:-}" ] && realpath "$EBB_PACKAGE" || "$repository/packaging/build.sh"; }

# unpack_tools DIRECTORY: what the attackers and the networks need. Nothing is installed on the machine.
unpack_tools() {
    local packages=(tcpdump libpcap0.8 libibverbs1 libnl-3-200 libnl-route-3-200 libdbus-1-3 nftables libnftables1
        libnftnl11 libmnl0 libedit2 libbsd0 libxtables12 libgmp10 libjansson4 libfaketime)
    [ "$(cat "$1/unpacked" 2>/dev/null)" != "${packages[*]}" ] || return 0
    mkdir -p "$1/packages" "$1/root"
    fetch() { (cd "$1/packages" && apt-get download -qq "${packages[@]}" 2>"$1/apt.log"); }
    # Lists may be missing, or older than the packages.
    fetch "$1" || { apt-get update -qq && fetch "$1"; } || return 1
    local file
    for file in "$1"/packages/*.deb; do dpkg -x "$file" "$1/root"; done
    echo "${packages[*]}" >"$1/unpacked"
}

if [ "${1:-}" != --inside ]; then
    for scenario in "$@"; do
        [[ " ${all[*]} " == *" $scenario "* ]] || { echo "there is no scenario $scenario; there are: ${all[*]}" >&2; exit 2; }
    done
    [ "$(id -u)" = 0 ] || skip "they need root"
    for program in unshare nsenter pivot_root setpriv ip dpkg jq openssl python3 protoc; do
        command -v "$program" >/dev/null || skip "there is no $program"
    done
    [ -e /dev/fuse ] || skip "there is no /dev/fuse"
    said=$(unshare --mount --pid --fork --kill-child --uts --ipc --net "$0" --inside try 2>&1) || skip "${said##*$'\n'}"
    file=$(package)
    tools=${CARGO_TARGET_DIR:-$repository/target}/hosts
    unpack_tools "$tools" || { cat "$tools/apt.log" >&2; tools=''; }
    # Ended by force, this process takes all others with it.
    exec unshare --mount --pid --fork --kill-child --uts --ipc --net "$0" --inside "$file" "$tools" "$@"
fi
shift

. "$here/lib.sh"
mount --make-rprivate /
# Mounts of others would be held here after they are unmounted there.
awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | while read -r place; do umount -l "$(printf '%b' "$place")"; done
mount -t proc proc /proc
mount -t tmpfs -o mode=0755,size=75% ebb-hosts /mnt
ip link set lo up
ip link add wire type bridge mcast_snooping 0
ip link set wire up
mkdir /mnt/tools
if [ "$1" = try ]; then
    boot c
    # FUSE is not in every container that has namespaces.
    on c sh -c 'exec 3<>/dev/fuse' || { echo "/dev/fuse cannot be opened"; exit 1; }
    exit 0
fi
file=$1
if [ -n "$2" ]; then
    cp -r "$2/root" /mnt/tools/root
    libraries=/srv/hosts/root/usr/lib/$(uname -m)-linux-gnu:/srv/hosts/root/lib/$(uname -m)-linux-gnu
fi
shift 2
[ $# -gt 0 ] || set -- "${all[@]}"
cp "$file" /mnt/tools/ebb.deb
cp "$here"/*.py "$repository/docs/operations.md" /mnt/tools/
mkdir /mnt/tools/bin
ln -s ../systemctl.py /mnt/tools/bin/systemctl
cp -r "$repository/crates/ebb-wire" /mnt/tools/wire
head -c 20000000 /dev/urandom >/mnt/tools/random
sum=$(sha256sum </mnt/tools/random)

for host in "${hosts[@]}"; do boot "$host"; done
installs() {
    local host installing=()
    for host in "${hosts[@]}"; do
        on "$host" dpkg --force-unsafe-io -i /srv/hosts/ebb.deb &
        installing+=($!)
    done
    for host in "${installing[@]}"; do wait "$host" || return; done
}
check "the package is installed on each host" installs
[ "$failed" = 0 ] || exit 1
# What fails is said by the checks, and the next ones go on.
set +e
for scenario; do
    begin=$SECONDS
    . "$here/$scenario.sh"
    check "no process has panicked" fails has_panicked
    echo "--      $scenario: $((SECONDS - begin)) s"
done
forget
[ ! -s /mnt/attacks ] || cat /mnt/attacks
echo "hosts: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
