# Addresses of every kind in one cluster: names, IPv6, and hosts that listen on all networks.
forget
cluster=names
before=$failed

check "a master with a name" on m ebb cluster init --master m.test:7000
check "it serves" start m master
check "h1 is reached by its name" prints "reaches this host at h1.test:7001" join h1 --listen 0.0.0.0:7001 --advertise h1.test:7001
check "h2 by IPv6" prints "reaches this host at [fd99::3]:7001" join h2 --listen '[fd99::3]:7001'
check "h3 listens on all networks, and names one" \
    prints "reaches this host at 10.99.0.4:7001" join h3 --listen '[::]:7001' --advertise 10.99.0.4:7001
for host in "${nodes[@]}"; do check "$host serves" serve "$host"; done
check "there are three nodes" soon 30 live 3
addresses() { equal "10.99.0.4:7001 [fd99::3]:7001 h1.test:7001" "$(on m ebb --json node list | jq -r '.[].address' | LC_ALL=C sort | xargs)"; }
check "at the addresses that they named" addresses
check "c joins, and mounts" add_client
works_so_far "$before" || return 0
check "20 MB are written" on c sh -c 'cp /srv/hosts/random /mnt/ebb/random && sync /mnt/ebb/random'
# Each copy is read alone: the other nodes have ended, and a new mount has nothing in its caches.
reads_alone() { on c sh -c 'umount /mnt/ebb && mount /mnt/ebb' && equal "$sum" "$(on c sha256sum </dev/null /mnt/ebb/random | sed 's/ .*/  -/')"; }
for host in "${nodes[@]}"; do
    read -ra others <<<"${nodes[*]/$host/}"
    stop "${others[@]}"
    check "the copy on $host is read, where no other node runs" reads_alone
    for other in "${others[@]}"; do serve "$other"; done
done
check "there are three nodes again" soon 30 live 3
check "words are counted by all workers" prints "3 words" on m sh -c 'echo a b c | ebb fs put - /words && ebb job count /words'

# --- names that lead nowhere, or to two places ---
advertise() { on h3 sh -c "sed -i 's/^advertise = .*:7001\"/advertise = \"$1\"/' /etc/ebb/host.toml && ebb node check"; }
check "a name that the master does not know" refused any "nowhere.test" advertise nowhere.test:7001
check "a name with an IPv6 and an IPv4 address" advertise h3.test:7001
check "and a host that listens on IPv4 alone" \
    on h3 sh -c 'sed -i "s/^listen = .*:7001\"/listen = \"0.0.0.0:7001\"/" /etc/ebb/host.toml && ebb node check'
check "everything is healthy" soon 30 is_healthy
