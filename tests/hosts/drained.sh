# A node leaves the cluster in order, its keys are worth nothing afterwards, and its host joins anew.
need usual usual || return 0

check "20 MB are written" on c sh -c 'cp /srv/hosts/random /mnt/ebb/drained && sync /mnt/ebb/drained'
check "three copies on three nodes: a drain says why it waits" refused 1 "there is no place for a copy" on m ebb node drain h3 --timeout 6s
check "two copies are enough" on m ebb dataset set / --replicas 2
check "h3 is drained" on m ebb node drain h3
check "nothing is missing" on m ebb fsck
check "h3 is removed" prints "has left the cluster" on m ebb node remove h3
check "two nodes are left" soon 30 live 2
stop h3
check "its block server starts again, and is refused" eval 'start h3 block && soon 20 prints "were revoked" log_of h3 block && live 2'
check "its worker is refused" refused any "were revoked" start h3 worker
stop h3
check "a join needs the old directory away" refused any "this host is in cluster" join h3
check "the old directory is put away" on h3 sh -c 'mv /var/lib/ebb /var/lib/ebb.old && mv /etc/ebb /etc/ebb.old'
check "h3 joins with a new token" join h3
check "it serves" serve h3
check "there are three nodes" soon 30 live 3
check "three copies again" on m ebb dataset set / --replicas 3
copies() { equal 3 "$(on m ebb --json fs locations /drained | jq '[.metablocks[].replicas | length] | min')"; }
check "the new node has its part" soon 60 copies
reads() { equal "$sum" "$("$@" | sha256sum)"; }
check "data are the same on c" reads on c cat /mnt/ebb/drained
check "and where no other node runs" eval 'stop h1 h2 && reads on m ebb fs cat /drained'
check "all nodes are back" eval 'serve h1 && serve h2 && soon 30 live 3'
check "everything is healthy" soon 60 is_healthy
