# A cluster is made step by step, as README.Debian of the package says, and used from several hosts.
forget
cluster=usual
before=$failed

check "the cluster is made on the master's host" prints "start the master" on m ebb cluster init --master 10.99.0.1:7000
check "the master serves" start m master
for host in "${nodes[@]}"; do
    check "$host joins, and the master reaches it" prints "the master reaches this host" join "$host"
    check "its block server and its worker serve" serve "$host"
done
check "there are three nodes" soon 30 live 3
addresses() { equal "$(printf '10.99.0.%s:7001\n' 2 3 4)" "$(on m ebb --json node list | jq -r '.[].address')"; }
check "at the addresses from which they reach the master" addresses
check "c joins as a client, and mounts by /etc/fstab" add_client
check "it is mounted" mounted c
check "a host with a node mounts, too" on h1 mount -t ebb ebb /mnt/ebb
works_so_far "$before" || return 0

# --- data ---
check "20 MB are written on c" on c sh -c 'cp /srv/hosts/random /mnt/ebb/random && sync /mnt/ebb/random'
reads() { equal "$sum" "$("$@" | sha256sum)"; }
check "they are the same on h1" reads on h1 cat /mnt/ebb/random
check "they are the same for the operator on m" reads on m ebb fs cat /random
copies() { equal 3 "$(on m ebb --json fs locations /random | jq '[.metablocks[].replicas | length] | min')"; }
check "each byte has three copies" soon 30 copies
check "words are written" on c sh -c 'mkdir /mnt/ebb/words; for n in 1 2 3 4 5 6; do yes a b c | head -n 50000 >/mnt/ebb/words/$n; done; sync -f /mnt/ebb'
counted() {
    local job
    job=$(on m ebb --json job count /words) || return
    jq -e '.words == 900000 and .failed == 0 and .local_splits == .splits' <<<"$job" || { echo "$job"; return 1; }
}
check "workers of other hosts count them where they lie" counted

# --- users, keys, ports ---
check "a user of c has a private file" on c sh -c 'echo mine >/mnt/ebb/own && chown user5: /mnt/ebb/own && chmod 0600 /mnt/ebb/own'
as() { on "$1" setpriv --reuid "$2" --regid "$2" --clear-groups "${@:3}"; }   # as HOST USER COMMAND...
check "the user reads it" as c 3005 cat /mnt/ebb/own
check "another user does not" refused 1 "Permission denied" as c 65534 cat /mnt/ebb/own
check "nor a user of another host" refused 1 "Permission denied" as h1 3002 cat /mnt/ebb/own
keys() { equal "$2" "$(on "$1" sh -c 'cd /var/lib/ebb; echo authority* identities/* | tr " " "\n" | sed "s/.*\///" | grep -v "[*]" | xargs')"; }
check "a node has the keys of its own roles" keys h1 "block-h1.pem mount-h1.pem worker-h1.pem"
check "a client has one" keys c "mount-c.pem"
closed() {
    local host
    for host in "${hosts[@]}"; do
        equal '' "$(on "$host" find /var/lib/ebb -perm /077 ! -type s ! -type l)" || return
        refused any "Permission denied" as "$host" 65534 cat /var/lib/ebb/cluster.toml || return
    done
}
check "no file in /var/lib/ebb is open to others" closed
owners() { equal "ebb" "$(on "$1" sh -c 'for pid in $(cat /run/ebb-*.pid); do stat -c %U /proc/$pid; done' | sort -u)"; }
check "daemons run as the user ebb on m" owners m
check "and on h1" owners h1
ports() { equal "$2" "$(on "$1" ss -Hltn | awk '{ print $4 }' | sort | xargs)"; }
check "m listens at the ports of master and proxy alone" ports m "10.99.0.1:7000 10.99.0.1:7003"
check "h1 at those of block server and worker" ports h1 "10.99.0.2:7001 10.99.0.2:7002"
check "c at none" ports c ""
check "a client's host is no operator's" refused any "no certificate for the operator" on c ebb fs ls /
check "nor is a node's" refused any "no certificate for the operator" on h1 ebb node drain h2

# --- a day later ---
check "umount, and mount -a" on c sh -c 'umount /mnt/ebb && mount -a'
check "the data are there" reads on c cat /mnt/ebb/random
check "everything is healthy" soon 30 is_healthy
check "all daemons end when they are asked to" stop "${nodes[@]}" m
starts() { start m master && local host && for host in "${nodes[@]}"; do serve "$host" || return; done; }
check "and start again" starts
check "mounts go on" reads on c cat /mnt/ebb/random
check "everything is healthy again" soon 30 is_healthy
