#!/usr/bin/env bash
# What the package does where systemd runs: the units of a cluster of one host, mounts by fstab, an upgrade, a removal. Runs in
# a private root, beside its systemd.
#
# Usage: booted.sh FIRST.deb SECOND.deb    two revisions of the package, the newer one last
. "$(dirname "$0")/common.sh"
first=$1
second=$2
services=(ebb-master ebb-block ebb-worker ebb-proxy ebb-power-manager ebb-power-client)
running=(ebb-master ebb-block ebb-worker ebb-power-manager ebb-power-client)

property() { systemctl show -P "$2" "$1"; }   # property UNIT NAME
is_in_state() { equal "$1" "$(property "$2" ActiveState)"; }   # is_in_state STATE UNIT
journal() { journalctl -q -o cat -u "$1"; }
# in_sandbox PID COMMAND...: the command, with what the process sees of the file system, as its user
in_sandbox() {
    local pid=$1
    shift
    nsenter -t "$pid" -m setpriv --reuid ebb --regid ebb --clear-groups --no-new-privs --bounding-set=-all "$@"
}
pids() { local unit; for unit in "${running[@]}"; do property "$unit" MainPID; done; }

check "the package is installed where systemd runs" dpkg -i "$first"
are_off() {
    local unit
    for unit in "${services[@]}"; do
        equal "disabled inactive" "$(systemctl is-enabled "$unit") $(systemctl is-active "$unit")" || return 1
    done
}
check "no unit is enabled or started by that" are_off

# --- units ---
is_verified() { local said; said=$(systemd-analyze verify "${services[@]/%/.service}" ebb-node.slice 2>&1) && equal "" "$said"; }
check "systemd-analyze verify finds nothing" is_verified
# Of ten, where 10 is a service without any sandbox.
is_secure() { systemd-analyze security --no-pager --threshold=15 "$1"; }
for unit in "${services[@]}"; do
    check "the sandbox of $unit leaves an exposure of 1.5 at most" is_secure "$unit.service"
done
for example in volumes:ebb-block suspend:ebb-power-client; do
    place=/etc/systemd/system/${example#*:}.service.d
    install -D -m 0644 -t "$place" "/usr/share/doc/ebb/examples/${example%:*}.conf"
    check "so it is with the example ${example%:*}.conf" is_verified
    rm -r "$place"
done
systemctl daemon-reload

# --- a cluster ---
is_skipped() {
    systemctl enable --now ebb-block && equal "inactive no success" \
        "$(property ebb-block ActiveState) $(property ebb-block ConditionResult) $(property ebb-block Result)"
}
check "before the host has joined, an enabled unit is skipped and does not fail" is_skipped
check "a cluster is made" ebb cluster init --master 127.0.0.1:7000 --host h1 --replicas 1
check "its settings are for the daemons to read, too" setpriv --reuid ebb --regid ebb --clear-groups test -r /etc/ebb/host.toml
mkdir -p /srv/ebb/disk1
cat >>/etc/ebb/host.toml <<'SETTINGS'

[block]
listen = "127.0.0.1:7001"
volumes = ["/srv/ebb/disk1"]

[worker]
listen = "127.0.0.1:7002"

[power-manager]
listen = "127.0.0.1:7004"

[power-client]
listen = "127.0.0.1:7005"
SETTINGS
check "the master starts" systemctl enable --now ebb-master
check "the directory has been given to the user ebb" equal "ebb 700 ebb" \
    "$(stat -c '%U %a' /var/lib/ebb) $(stat -c %U /var/lib/ebb/authority.pem)"
# As while the disk is not mounted: the mount point is root's.
disk_is_missed() {
    ! systemctl restart ebb-block && [[ $(journal ebb-block) == *"/srv/ebb/disk1"* ]] && [ -z "$(ls -A /srv/ebb/disk1)" ]
}
check "a block server without its disk names it, and writes nothing in its place" disk_is_missed
mount -t tmpfs -o mode=0700,uid=ebb,gid=ebb,size=512M tmpfs /srv/ebb/disk1
systemctl reset-failed ebb-block
for unit in "${running[@]:1}"; do
    check "$unit starts" systemctl restart "$unit"
done
check "the cluster is healthy" soon 30 ebb cluster status
# What the unit asks for, or as much as systemd itself may have.
files_max=$(awk '/^Max open files/ { print ($5 < 524288) ? $5 : 524288 }' /proc/1/limits)
is_confined() {
    local pid
    pid=$(property "$1" MainPID) && equal "ebb notify" "$(stat -c %U "/proc/$pid") $(property "$1" Type)" &&
        equal "0000000000000000 0000000000000000 1" \
            "$(awk '/^(CapEff|CapBnd|NoNewPrivs):/ { print $2 }' "/proc/$pid/status" | tr '\n' ' ' | sed 's/ $//')" &&
        equal "$files_max" "$(awk '/^Max open files/ { print $4 }' "/proc/$pid/limits")" &&
        refused 1 "Read-only file system" in_sandbox "$pid" touch /var/x /etc/ebb/x
}
for unit in "${running[@]}"; do
    check "$unit is the user ebb's, without rights, and writes nowhere else" is_confined "$unit"
done
block=$(property ebb-block MainPID)
check "the block server writes to its disk" in_sandbox "$block" touch /srv/ebb/disk1/probe
check "what sleeps together is in one slice" equal "ebb-node.slice ebb-node.slice system.slice" \
    "$(property ebb-block Slice) $(property ebb-worker Slice) $(property ebb-master Slice)"
print_to_journal() {
    local unit
    for unit in ebb-master ebb-block ebb-power-manager ebb-power-client; do
        [ -n "$(journalctl -q -o cat "_PID=$(property "$unit" MainPID)")" ] || { echo "$unit printed nothing"; return 1; }
    done
    equal "" "$(find /var/lib/ebb/log -type f)"
}
check "the daemons print to the journal, and to no file" print_to_journal

# --- mounts ---
mkdir -p /mnt/ebb
echo 'ebb /mnt/ebb ebb _netdev,nofail 0 0' >/etc/fstab
systemctl daemon-reload
check "systemd mounts the line of fstab" systemctl start mnt-ebb.mount
is_remote() {
    [[ $(property mnt-ebb.mount WantedBy) == *remote-fs.target* && $(property mnt-ebb.mount After) == *network-online.target* ]]
}
check "when the network is there" is_remote
check "programs write" dd if=/dev/urandom of=/mnt/ebb/random bs=1M count=64 status=none
sum=$(sha256sum </mnt/ebb/random)
is_same() { equal "$sum" "$(sha256sum </mnt/ebb/random)"; }
has_ended() { ! kill -0 "$1" 2>/dev/null; }
mount_process=$(mount_pid /mnt/ebb)
check "systemd unmounts it" systemctl stop mnt-ebb.mount
check "and waits until everything is written back" has_ended "$mount_process"
check "it is mounted by hand" mount /mnt/ebb
mount_process=$(mount_pid /mnt/ebb)
check "it has what was written" is_same

# --- failures ---
kill -KILL "$block"
is_back() { is_in_state active ebb-block && [ "$(property ebb-block MainPID)" != "$block" ]; }
check "a block server that was killed is started again" soon 60 is_back
check "its data are there" is_same
block=$(property ebb-block MainPID)
kill -STOP "$block"
check "a frozen block server is restarted" timeout 60 systemctl restart ebb-block
check "and runs" is_in_state active ebb-block
settings_are_wrong() {
    ! systemctl restart ebb-worker && is_in_state failed ebb-worker && [[ $(journal ebb-worker) == */etc/ebb/host.toml*line* ]]
}
cp -p /etc/ebb/host.toml /root/host.toml
echo 'colour = "red"' >>/etc/ebb/host.toml
check "wrong settings are named with their line, and not tried again" settings_are_wrong
cp -p /root/host.toml /etc/ebb/host.toml
check "the worker starts with the right ones" systemctl start ebb-worker

# --- power ---
# A plan needs more nodes than one. This is what the power client does to them then, with the rights that it has.
client=$(property ebb-power-client MainPID)
is_frozen() { [[ $(</proc/"$1"/status) == *"State:"?T* ]]; }
freezes() {
    local pid
    for pid in "$(property ebb-block MainPID)" "$(property ebb-worker MainPID)"; do
        in_sandbox "$client" sh -c "test -d /proc/$pid && kill -STOP $pid" && soon 5 is_frozen "$pid" &&
            in_sandbox "$client" kill -CONT "$pid" || return 1
    done
}
check "the power client may freeze block server and worker, and wake them" freezes
check "and no process of another user" refused 1 "" in_sandbox "$client" kill -STOP "$mount_process"

# --- upgrade ---
before=$(pids)
check "the package is upgraded" dpkg -i "$second"
are_new() {
    local now pid
    now=$(pids)
    for unit in "${running[@]}"; do is_in_state active "$unit" || return 1; done
    for pid in $now; do
        [[ $'\n'$before$'\n' != *$'\n'$pid$'\n'* ]] && equal /usr/bin/ebb "$(readlink "/proc/$pid/exe")" || return 1
    done
}
check "all daemons that ran are started with the new program" are_new
check "one that did not run is not started" is_in_state inactive ebb-proxy
check "the mount keeps its process" equal "$mount_process" "$(mount_pid /mnt/ebb)"
check "and its data" is_same
check "programs write on" touch /mnt/ebb/after
check "umount" umount /mnt/ebb
are_enabled() { equal "enabled enabled disabled" "$(systemctl is-enabled ebb-master ebb-block ebb-worker | xargs)"; }
check "enabled units stay enabled" are_enabled

# --- removal ---
check "the package is removed" dpkg -r ebb
none_runs() { ! systemctl is-active "${services[@]}" && ! pgrep -u ebb; }
check "its daemons have ended" none_runs
check "it is installed again" dpkg -i "$first"
check "its units are enabled as before" are_enabled
check "its daemons start" systemctl start "${running[@]}"
check "with the data" equal "$sum" "$(timeout 60 ebb fs cat /random | sha256sum)"
check "a purge" dpkg -P ebb
check "leaves no trace of the units" equal "" "$(find /etc/systemd /run/systemd/generator /var/lib/systemd -name 'ebb*')"
check "and keeps the data" test -f /var/lib/ebb/authority.pem -a -n "$(ls -A /srv/ebb/disk1)"
