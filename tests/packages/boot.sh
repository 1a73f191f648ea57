#!/usr/bin/env bash
# Process 1 of a private root with systemd, which starts nothing of the machine's: no disks, no clocks, no other services.
set -euo pipefail

# As in any container, systemd leaves alone what it cannot write: see private-root.sh. On a machine it would do this itself:
# an unmount must reach the sandboxes of services, too.
mount --make-rshared /
: >/etc/fstab
keep=' systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket systemd-sysusers.service systemd-tmpfiles-setup.service '
for link in /{etc,usr/lib}/systemd/system/{sysinit,basic,sockets,timers,paths,local-fs,remote-fs,swap,multi-user,getty}.target.wants/*; do
    unit=$(basename "$link")
    if [ "$unit" = '*' ] || [[ $unit == *.target ]] || [[ $keep == *" $unit "* ]]; then continue; fi
    ln -sf /dev/null "/etc/systemd/system/$unit"
done
# It forbids packages to start and stop units, in images of containers.
rm -f /usr/sbin/policy-rc.d
# The machine may have the package.
dpkg -P ebb >/dev/null 2>&1 || true
rm -rf /var/lib/ebb /etc/ebb
exec /lib/systemd/systemd --system --unit=multi-user.target --show-status=0
