# docs/operations.md is followed to the letter: the commands of "Three machines in ten minutes" run as they stand there, with the
# address of this m.
forget
cluster=page
before=$failed

# block NUMBER: that code block of the section, without its indentation.
block() {
    awk -v wanted="$1" '/^## / { inside = /Three machines/ } !inside { next }
        /^ *```/ { open = !open; count += open; next } open && count == wanted { sub(/^   /, ""); print }' \
        /mnt/tools/operations.md | sed 's/10\.0\.0\.1/10.99.0.1/g'
}
# follow HOST NUMBER: runs the block there, as root types it.
follow() {
    local commands
    commands=$(block "$2") && [ -n "$commands" ] || { echo "the page has no block $2"; return 1; }
    on "$1" sh -exc "cd /root; PATH=/srv/hosts/bin:\$PATH; $commands"
}
hand_over() { on m cat "/root/$1.token" | on "$1" sh -c 'umask 077; cat >"/root/$1.token"' - "$1"; }
joins() {   # joins HOST: the block is written for h2
    on "$1" sh -exc "cd /root; PATH=/srv/hosts/bin:\$PATH; $(block 3 | sed "s/h2/$1/g; s/r2/r${1#h}/g")"
}
adds_its_node() {
    block 4 | on m sh -c 'cat >>/etc/ebb/host.toml'
    on m sh -exc "PATH=/srv/hosts/bin:\$PATH; $(block 3 | sed -n '/mkdir/p; /systemctl/p')"
}

check "the cluster is made" follow m 1
check "there is a token for each host" follow m 2
check "h2 gets its own" hand_over h2
check "h3, too" hand_over h3
check "h2 joins" joins h2
check "h3 joins" joins h3
check "m adds its own node" adds_its_node
for host in m h2 h3; do check "$host mounts" follow "$host" 5; done
if works_so_far "$before"; then
    check "the cluster serves" prints "serves" on m ebb cluster status
    check "there are three nodes" soon 30 live 3
    check "it is healthy" prints "healthy" on m ebb fsck
    check "what h2 writes is read on h3" eval \
        'on h2 sh -c "echo from h2 >/mnt/ebb/page && sync /mnt/ebb/page" && equal "from h2" "$(on h3 cat /mnt/ebb/page)"'
    check "and on m" equal "from h2" "$(on m cat /mnt/ebb/page)"
fi
on m umount /mnt/ebb
for host in m h2 h3; do on "$host" sh -c 'sed -i "/\/mnt\/ebb/d" /etc/fstab; rm -f /root/*.token'; done
