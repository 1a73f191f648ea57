#!/usr/bin/env bash
# Process 1 of a host: a root of its own (an overlay of this machine's), and namespaces of its own for mounts, processes, names and
# network. Nothing that a host writes is seen by another one. Its network card comes from outside.
#
# Usage, by lib.sh: host.sh STAGE NAME TOOLS    what is written on the host is below STAGE/upper; TOOLS appears there as /srv/hosts
set -euo pipefail
stage=$1
name=$2
tools=$3

mount --make-rprivate /
mkdir "$stage/upper" "$stage/work" "$stage/root"
mount -t overlay -o "lowerdir=/,upperdir=$stage/upper,workdir=$stage/work" overlay "$stage/root"
[ -x "$stage/root/usr/bin/dpkg" ] || { echo "/usr is on another file system than /" >&2; exit 1; }
cd "$stage/root"
# The machine may be in a cluster itself.
rm -rf var/lib/ebb etc/ebb srv/hosts
# Else the package's installation would end with an index of all pages of the machine.
rm -f var/lib/man-db/auto-update
mkdir -p srv/hosts mnt/ebb
mount --rbind "$tools" srv/hosts
mount -t proc proc proc
# Settings of the kernel are the machine's.
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=0755 tmpfs dev
mkdir dev/shm
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s /proc/self/fd dev/fd
for device in null zero full random urandom fuse; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir .outside
pivot_root . .outside
umount -l /.outside
rmdir /.outside
cd /

echo "$name" >/etc/hostname
hostname "$name"
ip link set lo up
: >/.ready
# It adopts the daemons, and sees when they end. What it waits for never comes: it ends with the test.
mkfifo /run/never
exec 3<>/run/never
while :; do read -r -u 3 _ || true; done
