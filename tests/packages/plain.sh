#!/usr/bin/env bash
# What the package does on a machine whose init does not run, as in a container: files, users, shells, manual pages, mount(8)
# and umount(8), an upgrade, and the way out. Process 1 of a private root.
#
# Usage: plain.sh FIRST.deb SECOND.deb    two revisions of the package, the newer one last
. "$(dirname "$0")/common.sh"
first=$1
second=$2
export EBB_DIR=/var/lib/ebb
spaced='/srv/a cluster'
at='/mnt/with a blank'

# The machine may have it.
dpkg -P ebb >/dev/null 2>&1 || true
rm -rf /var/lib/ebb /etc/ebb
check "the package is installed where no init runs" dpkg -i "$first"

# --- files ---
is_of_the_system() {
    local entry uid home shell
    entry=$(getent passwd ebb) && IFS=: read -r _ _ uid _ _ home shell <<<"$entry" && [ "$uid" -lt 1000 ] &&
        equal "/var/lib/ebb /usr/sbin/nologin L" "$home $shell $(passwd -S ebb | cut -d' ' -f2)"
}
check "its user is one of the system, without a password and a shell" is_of_the_system
are_roots() {
    local files
    mapfile -t files < <(dpkg -L ebb)
    equal "" "$(find "${files[@]}" -maxdepth 0 ! -type l \( ! -user root -o ! -group root -o -perm /6022 \))"
}
check "its files are root's, and nobody else's to change" are_roots
is_verified() { [ -s /var/lib/dpkg/info/ebb.md5sums ] && equal "" "$(dpkg --verify ebb)"; }
check "dpkg knows the sums of its files" is_verified
check "the helpers are where mount(8) looks" test -x /sbin/mount.ebb -a -x /sbin/umount.ebb -a -x /sbin/mount.fuse.ebb -a -x /sbin/umount.fuse.ebb
check "nothing is made in /var/lib and /etc before the host joins" test ! -e /var/lib/ebb -a ! -e /etc/ebb
check "no unit is enabled" equal "" "$(find /etc/systemd/system -name 'ebb*')"
version=$(dpkg-query -f '${Version}' -W ebb)
check "the program is of the package's version" equal "${version%-*}" "$(ebb --version | cut -d" " -f2)"

# --- shells and pages ---
bash_completes() {
    equal cluster "$(bash -c '. /usr/share/bash-completion/completions/ebb
        COMP_WORDS=(ebb clus) COMP_CWORD=1
        "$(complete -p ebb | sed "s/.*-F \([^ ]*\).*/\1/")" ebb clus ebb
        printf "%s\n" "${COMPREPLY[@]}"')"
}
zsh_completes() { zsh -n /usr/share/zsh/vendor-completions/_ebb && equal _ebb "$(zsh -fc 'autoload -Uz compinit; compinit -u -D; print ${_comps[ebb]}')"; }
fish_completes() { equal cluster "$(HOME=/tmp fish -c 'complete -C "ebb clus"' | cut -f1)"; }
for shell in bash zsh fish; do
    if command -v "$shell" >/dev/null; then
        check "$shell completes" "${shell}_completes"
    else
        echo "skipped $shell completes: it is not installed"
    fi
done
check "man finds the pages" man -w ebb ebb-mount mount.ebb umount.ebb mount.fuse.ebb umount.fuse.ebb ebb-host.toml

# --- mounts ---
mkdir -p /mnt/ebb "$at" /mnt/users
check "a cluster of one node is up" ebb cluster up --nodes 1 --replicas 1
check "another one, in a directory with a blank, is up" ebb --dir "$spaced" cluster up --nodes 1 --replicas 1
cat >/etc/fstab <<'FSTAB'
ebb                /mnt/ebb                ebb  _netdev,nofail,x-systemd.requires=network-online.target,host=h1,prefetch=25,read_cache=64MiB,direct_min=1MiB,timeout=30s  0 0
/srv/a\040cluster  /mnt/with\040a\040blank  ebb  noauto,comment=two,noatime  0 0
FSTAB
quietly() { equal "" "$("$@" 2>&1)"; }
is_mounted() { findmnt -n "$1"; }
is_not_mounted() { ! findmnt -n "$1"; }
# has MOUNTPOINT WORD...: the mount table has it with these options
has() {
    local entry word
    entry=,$(findmnt -n -o FSTYPE,OPTIONS "$1" | tr -s ' ' ,),
    shift
    for word in fuse.ebb "$@"; do [[ $entry == *",$word,"* ]] || { echo "$word is not in $entry"; return 1; }; done
}
# has_arguments MOUNTPOINT WORDS
has_arguments() {
    local pid line
    pid=$(mount_pid "$1") && line=$(tr '\0' ' ' <"/proc/$pid/cmdline") && [[ $line == *"$2"* ]] || { echo "$line"; return 1; }
}
prints() { # prints WORDS COMMAND...
    local said
    said=$("${@:2}" 2>&1) && [[ $said == *"$1"* ]] || { echo "$said"; return 1; }
}
has_ended() { ! kill -0 "$1" 2>/dev/null; }
check "mount -a mounts, and says nothing" quietly mount -a
check "it is nosuid and nodev unless asked" has /mnt/ebb rw nosuid nodev
check "mount -a sees that it is mounted" quietly mount -a
check "options of fstab reach ebb mount" \
    has_arguments /mnt/ebb "--host h1 --prefetch 25% --read-cache 64MiB --direct-min 1048576"
check "a mount with blanks in its paths" mount "$at"
check "it is of its own cluster" has_arguments "$at" "--dir $spaced"
check "programs write" dd if=/dev/urandom of=/mnt/ebb/random bs=1M count=32 status=none
sum=$(sha256sum </mnt/ebb/random)
is_same() { equal "$sum" "$(sha256sum <"$1")"; }
pid=$(mount_pid /mnt/ebb)
check "umount unmounts, and says nothing" quietly umount /mnt/ebb
check "when it returns, the process of the mount has ended" has_ended "$pid"
check "nothing is mounted then" is_not_mounted /mnt/ebb
check "a read-only mount" mount -t ebb -o ro ebb /mnt/ebb
check "it has what was written" is_same /mnt/ebb/random
check "it is read-only" refused 1 "Read-only file system" touch /mnt/ebb/new
check "umount by type" umount -t fuse.ebb /mnt/ebb
check "mount -r, and -w after it" mount -t ebb -r -w ebb /mnt/ebb
check "it is writable" touch /mnt/ebb/new
check "options of a mount cannot be changed" refused 1 "unmount it, and mount it again" mount -o remount,ro /mnt/ebb
is_busy() (cd /mnt/ebb && refused 32 "is in use by" umount /mnt/ebb)
check "a mount in use stays, and its users are named" is_busy
check "umount -l" umount -l /mnt/ebb
check "nothing is mounted after it" is_not_mounted /mnt/ebb
check "allow_suid, allow_dev and noexec" mount -t ebb -o allow_suid,allow_dev,noexec none /mnt/ebb
flags_are_set() { has /mnt/ebb noexec && ! has /mnt/ebb nosuid && ! has /mnt/ebb nodev; }
check "the mount table has them" flags_are_set
does_not_run() { cp /bin/true /mnt/ebb/true && refused 126 "Permission denied" bash -c /mnt/ebb/true; }
check "a program on it cannot be run" does_not_run
check "umount -f" umount -f /mnt/ebb
check "an unknown option is refused by its name" \
    refused 1 'unknown option "colour=red"' mount -t ebb -o ro,colour=red ebb /mnt/ebb
check "so is one that Ebb cannot keep" refused 1 'unknown option "strictatime"' mount -t ebb -o strictatime ebb /mnt/ebb
check "and nothing is mounted" is_not_mounted /mnt/ebb
check "mount -s passes it over" mount -s -t ebb -o colour=red ebb /mnt/ebb
check "umount after it" umount /mnt/ebb
check "mount -f -v shows the command" \
    prints "/usr/bin/ebb mount --dir /var/lib/ebb --read-only -- /mnt/ebb" mount -fv -t ebb -o ro ebb /mnt/ebb
check "and mounts nothing" is_not_mounted /mnt/ebb
check "a value that ebb refuses is wrong usage" refused 1 "prefetch" mount -t ebb -o prefetch=much ebb /mnt/ebb
check "a cluster that is not there is a mount that failed" refused 32 "/srv/nowhere" mount -t ebb /srv/nowhere /mnt/ebb
# Another namespace of mounts: what is mounted there is not seen here.
mounts_elsewhere() {
    mount -N "$1" -t ebb ebb /mnt/ebb && is_not_mounted /mnt/ebb && nsenter -t "$1" -m findmnt -n /mnt/ebb &&
        umount -N "$1" /mnt/ebb && ! nsenter -t "$1" -m findmnt -n /mnt/ebb
}
mkfifo /run/elsewhere
unshare --mount --propagation private sh -c 'echo >/run/elsewhere; exec sleep 600' &
elsewhere=$!
read -r _ </run/elsewhere
check "mount -N and umount -N" mounts_elsewhere "$elsewhere"
kill "$elsewhere"
check "umount with blanks in the path" umount "$at"
check "the host's directory is closed to users" refused 32 "can use its directory" \
    setpriv --reuid 65534 --regid 65534 --clear-groups /sbin/mount.ebb ebb /mnt/users

# --- upgrade ---
check "a mount before the upgrade" mount /mnt/ebb
pid=$(mount_pid /mnt/ebb)
check "the package is upgraded" dpkg -i "$second"
check "the mount keeps its process" equal "$pid" "$(mount_pid /mnt/ebb)"
check "with the program that it was started with" equal "/usr/bin/ebb (deleted)" "$(readlink "/proc/$pid/exe")"
check "which goes on serving" is_same /mnt/ebb/random
check "the new program unmounts it" umount /mnt/ebb
check "the same package once more" dpkg -i "$second"

# --- the way out ---
check "a mount before the package is removed" mount /mnt/ebb
mkdir /etc/ebb
echo 'host = "h1"' >/etc/ebb/host.toml
check "the package is removed" dpkg -r ebb
check "a mount outlives it" is_same /mnt/ebb/random
check "settings and data are kept" test -f /etc/ebb/host.toml -a -f /var/lib/ebb/cluster.toml
check "umount without the helper" umount /mnt/ebb
check "a purge says what it keeps" prints "/var/lib/ebb is kept" dpkg -P ebb
check "the data" test -f /var/lib/ebb/cluster.toml
check "not settings and logs" test ! -e /etc/ebb -a ! -e /var/lib/ebb/log
files_left() { find /usr /etc /var/lib/dpkg/info /var/lib/systemd -xdev -path /usr/lib/debug -prune -o \( -name 'ebb*' -o -name '*mount*.ebb*' -o -name _ebb \) -print; }
check "no file of the package is left" equal "" "$(files_left)"
check "the package is installed again" dpkg -i "$second"
# Their files in run/ are gone, so `ebb cluster down` does not know them.
pkill -f ' --dir /var/lib/ebb' || true
have_ended() { ! pgrep -f ' --dir /var/lib/ebb'; }
check "its old daemons end" soon 30 have_ended
check "its cluster is up again" ebb cluster up --nodes 1
reads_again() { equal "$sum" "$(ebb fs cat /random | sha256sum)"; }
check "with the data" reads_again
check "the cluster is down" ebb cluster down
rm -r /var/lib/ebb
check "a purge of a host without data" dpkg -P ebb
check "leaves no directory" test ! -e /var/lib/ebb -a ! -e /etc/ebb
