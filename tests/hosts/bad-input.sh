# What goes wrong when people join hosts: tokens, clocks, addresses, certificates, disks. Each is refused with a reason, nothing
# is broken by it, and the next attempt succeeds.
need two-nodes eval 'found_cluster && add_nodes h1 h2 && add_client' || return 0
join_with() { on "$1" sh -c 'printf "%s\n" "$1" | { shift; exec ebb "$@"; }' - "$2" node join --token - "${@:3}"; }   # join_with HOST TOKEN [OPTION...]
is_in_none() { on "$1" test ! -e /var/lib/ebb/cluster.toml; }

# --- tokens ---
one=$(token --host h3)
check "a word that is no token" refused any "this is no token" join_with h3 secret
check "an empty file" refused any "this is no token" join_with h3 ''
check "a token that was cut off" refused any "cut off" join_with h3 "${one%??????????}"
check "a token with a letter changed" refused any "cut off" join_with h3 "${one:0:300}$(tr 'A-Za-z' 'B-ZAb-za' <<<"${one:300:1}")${one:301}"
check "a token of another host" refused any "is of host h3" join_with h3 "$one" --host h9
check "a token as a file that is not there" refused any "No such file" on h3 ebb node join --token /tmp/nowhere
used=$(token --role mount)
join_with h3 "$used" >/dev/null && on h3 sh -c 'rm -rf /var/lib/ebb /etc/ebb'
check "a token that was used" refused any "used already, by host h3" join_with h3 "$used"
late=$(token --lifetime 1s)
expired() { [ "$(date +%s%N)" -gt "$(on m ebb --json identity list --trust | jq '[.tokens[] | select(.used | not) | .until_ns] | min')" ]; }
soon 10 expired
check "a token that has expired" refused any "expired" join_with h3 "$late"
gone=$(token --role mount)
on m ebb identity revoke --role joiner >/dev/null
check "a token that was withdrawn" refused any "revoked" join_with h3 "$gone"
one=$(token --host h3)
check "a name that another host has" refused any "host h1 is in the cluster" join_with h3 "$(token)" --host h1
check "nothing of all that is left on h3" is_in_none h3

# --- addresses ---
while read -r address words; do
    check "the address $address" refused any "$words" join_with h3 "$one" --advertise "$address"
done <<'WRONG'
10.99.0.4 HOST:PORT
fd99::4:7001 brackets
0.0.0.0:7001 other hosts
h3.test:0 port
h3.test:70000 port
WRONG
check "listening on all networks, without a word of how others get there" refused any "advertise" join_with h3 "$one" --listen 0.0.0.0:7001
check "the address of another host" refused any "--listen 10.99.0.2:7001" join_with h3 "$one" --listen 10.99.0.2:7001
check "nothing of all that is left on h3" is_in_none h3

# --- clocks ---
faketime=/srv/hosts/root/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketime.so.1
clock() { echo "LD_PRELOAD=$faketime FAKETIME=$1 FAKETIME_DONT_FAKE_MONOTONIC=1"; }
# shellcheck disable=SC2046  # the words are several
join_at() { on h3 env $(clock "$1") sh -c 'printf "%s\n" "$1" | exec ebb node join --token -' - "$one"; }
if on h3 test -e "$faketime"; then
    check "a host whose clock is two hours behind" refused any "clock" join_at -2h
    check "a host whose clock is two days ahead" refused any "48 h 0 min ahead" join_at +2d
else
    leave_out "clocks that are wrong" "there is no libfaketime"
fi

# --- a join that is killed, and one without room; the same token all the time ---
killed() {
    # The moments are arbitrary: whatever was written then, it goes on.
    local moment
    for moment in 0.004 0.008 0.012 0.016 0.020 0.025 0.030 0.040 0.060; do
        join_killed "$moment" || return
        ! on h3 test -e /var/lib/ebb/cluster.toml || break
    done
}
join_killed() { on h3 sh -c 'printf "%s\n" "$1" >/tmp/token; timeout -s KILL "$2" ebb node join --token /tmp/token >/dev/null 2>&1 || true' - "$one" "$1"; }
# Page by page more room, until it is enough.
grows_into_it() {
    local pages
    on h3 sh -c 'rm -rf /var/lib/ebb; mkdir -m 0700 /var/lib/ebb; mount -t tmpfs -o size=64k,mode=0700 tmpfs /var/lib/ebb; head -c 64k /dev/zero >/var/lib/ebb/ballast'
    for pages in $(seq 15 -1 1); do
        ! join_with h3 "$one" >/tmp/said 2>&1 || { [ "$pages" -lt 14 ]; return; }
        [[ $(cat /tmp/said) == *"space"* ]] || { cat /tmp/said; return 1; }
        on h3 sh -c 'head -c $(($1 * 4096)) /dev/zero >/var/lib/ebb/ballast' - "$pages"
    done
    cat /tmp/said
    return 1
}
check "a disk without room: joined as soon as there is some, with the same token" grows_into_it
on h3 sh -c 'umount /var/lib/ebb; rm -rf /etc/ebb'
one=$(token --host h3)
check "joins that are killed" killed
joins_or_has() { is_in_none h3 || on h3 rm -r /var/lib/ebb /etc/ebb && one=$(token --host h3); join_with h3 "$one"; }
check "the same token joins after them" eval '! is_in_none h3 || join_with h3 "$one"'
check "it serves" serve h3
check "there are three nodes" soon 30 live 3
stop h3

# --- an address that others do not reach ---
again() { on h3 sh -c 'rm -rf /var/lib/ebb /etc/ebb'; one=$(token --host h3); join_with h3 "$one" "$@"; }
# h3 was a node: the new one has its name, and none of its data.
check "a port where nobody listens" refused any "does not reach it at 10.99.0.4:7009" again --listen 10.99.0.4:7001 --advertise 10.99.0.4:7009
corrected() { on h3 sed -i '/^advertise/d' /etc/ebb/host.toml && on h3 ebb node check; }
check "corrected as the error says" corrected
nft() { on h3 /srv/hosts/root/usr/sbin/nft "$@"; }
if on h3 test -x /srv/hosts/root/usr/sbin/nft && nft add table inet wall 2>/dev/null; then
    nft 'add chain inet wall input { type filter hook input priority 0; }'
    nft add rule inet wall input tcp dport 7001 drop
    check "a firewall that drops" refused any "open the port in the firewall" again
    nft delete table inet wall
    check "it is opened" on h3 ebb node check
else
    leave_out "a firewall" "there is no nft, or not in this kernel"
fi
check "it serves" serve h3
check "there are three nodes" soon 30 live 3

# --- certificates and directories of others ---
check "data are written" on c sh -c 'cp /srv/hosts/random /mnt/ebb/random && sync /mnt/ebb/random'
stop h3
other_cluster() {
    on m sh -c 'ebb --dir /tmp/other cluster init --master 10.99.0.1:7000 && cd /tmp/other &&
        ebb --dir . identity issue --role block --host h3 --out block.pem' >/dev/null
    on m cat /tmp/other/block.pem | on h3 sh -c 'cd /var/lib/ebb/identities; cp -p block-h3.pem /tmp; cat >block-h3.pem'
}
other_cluster
check "the certificate of another cluster" refused any "cluster" start h3 block
on h3 sh -c 'cat /tmp/block-h3.pem >/var/lib/ebb/identities/block-h3.pem'
check "its own again" serve h3
check "there are three nodes" soon 30 live 3
stop h3
# h2's directory, with its keys and its replicas, also runs on h3.
twin() {
    on h3 sh -c 'mv /var/lib/ebb /var/lib/ebb.own; mv /etc/ebb /etc/ebb.own'
    on h2 tar -C / -c var/lib/ebb etc/ebb | on h3 tar -C / -x
    on h3 sed -i 's/10\.99\.0\.3/10.99.0.4/' /etc/ebb/host.toml
    start h3 block
}
is_refused() { soon 10 prints "is refused" log_of h3 block; }
check "a copy of h2's directory starts on h3" twin
check "it is not served while h2 is" is_refused
reads() { equal "$sum" "$(on m ebb fs cat /random | sha256sum)"; }
check "h2 goes on, and the data are right" eval 'is_running h2 block && reads'
stop h3
on h3 sh -c 'rm -rf /var/lib/ebb /etc/ebb; mv /var/lib/ebb.own /var/lib/ebb; mv /etc/ebb.own /etc/ebb'
# Its replicas alone, with h3's own keys.
replicas() {
    on h3 sh -c 'mv /var/lib/ebb/nodes/h3 /tmp/h3'
    on h2 tar -C /var/lib/ebb/nodes/h2 -c . | on h3 sh -c 'mkdir /var/lib/ebb/nodes/h3; tar -C /var/lib/ebb/nodes/h3 -x'
    on h3 sh -c ': >/var/log/ebb-block.log'
    start h3 block
}
check "a copy of its replicas alone starts there" replicas
check "it is not served either" is_refused
stop h3
on h3 sh -c 'rm -rf /var/lib/ebb/nodes/h3; mv /tmp/h3 /var/lib/ebb/nodes/h3'
check "h2 goes on, and the data are right" eval 'is_running h2 block && reads'
check "h3 serves with its own" serve h3
check "there are three nodes" soon 30 live 3

# --- settings ---
broken() { on h3 sh -c 'cp -p /etc/ebb/host.toml /tmp; sed -i "$1" /etc/ebb/host.toml' - "$1"; start h3 block; local code=$?; on h3 cp -p /tmp/host.toml /etc/ebb/; return $code; }
end TERM h3 block
check "a word that host.toml does not know" refused any "/etc/ebb/host.toml" broken 's/\[block\]/[blok]/'
check "a volume that is not there" refused any "/srv/ebb/disk7" broken 's/\[block\]/[block]\nvolumes = ["\/srv\/ebb\/disk7"]/'
check "h3 serves again" start h3 block
check "everything is healthy" soon 60 is_healthy
