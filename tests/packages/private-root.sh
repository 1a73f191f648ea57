#!/usr/bin/env bash
# Runs a command in a root of its own: an overlay of this machine's, with namespaces of its own for mounts, processes, names,
# network and control groups. What the command installs, writes and starts is gone when it ends.
#
# SHARE appears there as /srv/packages. The command is process 1: when it ends, all that it has started ends.
#
# Usage: private-root.sh SHARE COMMAND...
# With `private-root.sh --try` it ends with 0 if this machine can do that, and prints why otherwise.
set -euo pipefail

if [ "${1:-}" = --try ]; then
    [ "$(id -u)" = 0 ] || { echo "it needs root"; exit 1; }
    for program in unshare pivot_root ip; do
        command -v "$program" >/dev/null || { echo "there is no $program"; exit 1; }
    done
    [ -e /dev/fuse ] || { echo "there is no /dev/fuse"; exit 1; }
    share=$(mktemp -d)
    trap 'rmdir "$share"' EXIT
    said=$("$0" "$share" /usr/bin/dpkg --version 2>&1) || { echo "no root of its own: ${said##*$'\n'}"; exit 1; }
    exit 0
fi

if [ "${1:-}" != --inside ]; then
    # A control group of its own, below the one of this shell, and only it is seen inside.
    scratch=$(mktemp -d)
    groups=$scratch/groups
    mkdir "$groups" "$scratch/stage"
    mount -t cgroup2 cgroup2 "$groups"
    group=$groups$(sed -n 's/^0:://p' /proc/self/cgroup)/ebb-packages-$$
    leave() {
        local code=$?
        # Whoever is left in it has been killed with process 1, and may still be ending.
        for _ in $(seq 50); do
            ! find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || break
            sleep 0.1
        done
        umount "$groups"
        rmdir "$groups" "$scratch/stage" "$scratch"
        exit "$code"
    }
    mkdir "$group"
    trap leave EXIT
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        # Killed with this script, however that ends, and process 1 with it. It takes no other signal.
        exec setpriv --pdeathsig KILL \
            unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup "$0" --inside "$scratch/stage" "$@"
    ) &
    child=$!
    trap 'kill -KILL "$child"; exit 143' TERM INT
    wait "$child"
    exit
fi
shift

stage=$1
share=$2
shift 2
mount --make-rprivate /
mount -t tmpfs -o mode=0755,size=75% ebb-packages "$stage"
cd "$stage"
mkdir upper work root
mount -t overlay -o "lowerdir=/,upperdir=$stage/upper,workdir=$stage/work" overlay root
[ -x root/usr/bin/dpkg ] || { echo "no root of its own: /usr is on another file system than /" >&2; exit 1; }
cd root

mkdir -p srv/packages
mount --bind "$share" srv/packages
mount -t proc proc proc
# Settings of the kernel are the machine's.
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=0755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
for device in null zero full random urandom tty fuse; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
ip link set lo up

mkdir -p .outside
pivot_root . .outside
umount -l /.outside
rmdir /.outside
cd /
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb \
    container=ebb-packages "$@"
