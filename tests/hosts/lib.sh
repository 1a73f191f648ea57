# What the scenarios share; sourced by run.sh, never run.
#
# The shell that sources it is process 1 of the place where all hosts are: their wires meet there. When it ends, all ends.

hosts=(m h1 h2 h3 c)
nodes=(h1 h2 h3)
declare -A init=() number=([m]=1 [h1]=2 [h2]=3 [h3]=4 [c]=5)
passed=0
failed=0
# What the hosts are a cluster of now; nothing: they are in none.
cluster=''

# --- checks ---

# check SENTENCE COMMAND...: one line with the result; what the command printed only if it failed.
check() {
    local sentence=$1 said begin=$SECONDS
    shift
    if said=$("$@" 2>&1); then
        passed=$((passed + 1))
        echo "ok      $sentence$(took $begin)"
        [ -z "${EBB_HOSTS_VERBOSE:-}" ] || [ -z "$said" ] || sed 's/^/        /' <<<"$said"
    else
        failed=$((failed + 1))
        echo "FAILED  $sentence$(took $begin)"
        sed 's/^/        /' <<<"${said:-nothing was printed}"
    fi
}
took() { [ $((SECONDS - $1)) -lt 5 ] || echo " ($((SECONDS - $1)) s)"; }

leave_out() { echo "skipped $1: $2"; }   # leave_out SENTENCE REASON

# refused CODE WORDS COMMAND...: the command ends with this code (`any`: not 0), and its error has these words.
refused() {
    local wanted=$1 words=$2 said code=0
    shift 2
    said=$("$@" 2>&1) || code=$?
    [ "$code" != 0 ] && { [ "$wanted" = any ] || [ "$code" = "$wanted" ]; } && [[ $said == *"$words"* ]] ||
        { echo "code $code, and not the words \"$words\": $said"; return 1; }
    echo "$said"
}

# prints WORDS COMMAND...
prints() {
    local said
    said=$("${@:2}" 2>&1) && [[ $said == *"$1"* ]] || { echo "not the words \"$1\": $said"; return 1; }
}

equal() { [ "$1" = "$2" ] || { printf 'wanted: %s\nfound:  %s\n' "$1" "$2"; return 1; }; }   # equal WANTED FOUND
fails() { ! "$@"; }

# soon SECONDS COMMAND...: the command succeeds within this time.
soon() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { "$@"; return; }
        sleep 0.1
    done
}

# --- hosts ---

# boot HOST: makes the host, and plugs its wire in.
boot() {
    local host=$1 stage=/mnt/$1 parent at=${number[$1]}
    mkdir "$stage"
    # A command of a host that the kernel killed with it is no message for this terminal.
    unshare --mount --pid --fork --kill-child --uts --ipc --net "$here/host.sh" "$stage" "$host" /mnt/tools </dev/null &
    parent=$!
    soon 20 test -e "$stage/upper/.ready" || { echo "hosts: $host does not come up" >&2; return 1; }
    init[$host]=$(tr -d ' ' <"/proc/$parent/task/$parent/children")
    ip link add "w-$host" type veth peer name eth0 netns "${init[$host]}"
    ip link set "w-$host" master wire up
    on "$host" sh -s "$at" <<'SETUP'
        ip link set eth0 up
        ip addr add "10.99.0.$1/24" dev eth0
        ip addr add "fd99::$1/64" dev eth0 nodad
        printf '127.0.0.1 localhost\n10.99.0.1 m.test\n10.99.0.2 h1.test\nfd99::4 h3.test\n10.99.0.4 h3.test\n' >/etc/hosts
        # Of this host alone, with a number that another host gives to somebody else.
        useradd -u $((3000 + $1)) -M "user$1"
SETUP
}

# on HOST COMMAND...: runs it there, for a minute at most.
on() {
    local host=$1
    shift
    nsenter --target "${init[$host]}" --mount --uts --ipc --net --pid -- \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 LD_LIBRARY_PATH="${libraries:-}" \
        timeout -k 5 60 "$@"
}

cut_off() { ip link set "w-$1" down; }
plug_in() { ip link set "w-$1" up; }

# --- daemons ---

start() { on "$1" /usr/bin/python3 /srv/hosts/unit.py "ebb-$2" "${@:3}"; }   # start HOST ROLE [NAME=VALUE...]
pid_of() { on "$1" cat "/run/ebb-$2.pid"; }
log_of() { on "$1" cat "/var/log/ebb-$2.log"; }
is_running() { on "$1" sh -c "kill -0 \$(cat /run/ebb-$2.pid)" 2>/dev/null; }

# end SIGNAL HOST ROLE: sends the signal, and waits for the end.
end() {
    on "$2" sh -c "kill -$1 \$(cat /run/ebb-$3.pid)" && soon 30 fails is_running "$2" "$3"
}

# stop HOST...: all daemons there end as their units would end them.
stop() {
    local host role
    for host in "$@"; do
        for role in worker block master; do
            ! is_running "$host" "$role" || end TERM "$host" "$role"
        done
    done
}

# has_panicked: the daemons of any host, since the cluster was made; prints where.
has_panicked() {
    local host found=1
    for host in "${hosts[@]}"; do
        ! on "$host" sh -c 'cat /var/log/ebb-*.log /var/lib/ebb/log/*.log 2>/dev/null | grep -A 3 panicked' || found=0
    done
    return $found
}

# --- clusters ---

token() { on m ebb node token "$@" 2>/dev/null; }
# join HOST [OPTION...]: with a token for all that a node does.
join() { token | on "$1" ebb node join --token - "${@:2}"; }
serve() { start "$1" block && start "$1" worker; }
live() { equal "$1" "$(on m ebb --json node list | jq '[.[] | select(.state == "live")] | length')"; }
is_healthy() { on m ebb fsck && on m ebb cluster status; }
mounted() { on "$1" findmnt -n -t fuse.ebb /mnt/ebb; }

# found_cluster [OPTION...]: of a master alone.
found_cluster() { on m ebb cluster init --master 10.99.0.1:7000 "$@" && start m master; }

# add_nodes HOST...
add_nodes() {
    local host
    for host in "$@"; do join "$host" && serve "$host" || return; done
    soon 30 live $#
}

# add_client: the host c, which may mount and nothing else.
add_client() {
    token --role mount | on c ebb node join --token - || return
    on c sh -c 'grep -q /mnt/ebb /etc/fstab 2>/dev/null || echo "ebb /mnt/ebb ebb _netdev,nofail 0 0" >>/etc/fstab'
    on c mount /mnt/ebb
}

# works_so_far BEFORE: no check has failed since there were BEFORE failures. Without a cluster, all others would wait in vain.
works_so_far() { [ "$failed" = "$1" ] || { echo "--      the rest is left out"; return 1; }; }

# need KIND COMMAND...: the hosts are a cluster of this kind; otherwise the command makes it, of hosts that are in none.
need() {
    [ "$cluster" != "$1" ] || return 0
    forget
    cluster=$1
    shift
    local said
    # Its checks are those of the scenario `make`.
    said=$("$@" 2>&1) || { check "there is a cluster to begin with" sh -c 'echo "$1"; false' - "$said"; cluster=broken; return 1; }
}
usual() { found_cluster && add_nodes "${nodes[@]}" && add_client && on h1 mount -t ebb ebb /mnt/ebb; }

# forget: no host is in a cluster.
forget() {
    local host
    for host in "${hosts[@]}"; do plug_in "$host"; done
    for host in c "${nodes[@]}"; do
        ! mounted "$host" >/dev/null || on "$host" umount /mnt/ebb || on "$host" umount -l /mnt/ebb
    done
    stop c "${nodes[@]}" m
    for host in "${hosts[@]}"; do
        on "$host" sh -c 'rm -rf /var/lib/ebb /etc/ebb /srv/ebb /var/log/ebb-*.log'
    done
    cluster=''
}

# --- a writer on c, which goes on until it is told to end ---

begin_writing() {   # begin_writing NAME
    on c rm -f /tmp/note /tmp/note.end
    on c sh -c "setsid python3 /srv/hosts/writer.py write /mnt/ebb/$1 /tmp/note </dev/null >/tmp/writer.log 2>&1 & echo \$! >/tmp/writer.pid"
    soon 20 goes_on 1
}
acknowledged() { on c sh -c 'cat /tmp/note 2>/dev/null || echo 0'; }
goes_on() { [ "$(acknowledged)" -ge "$1" ]; }   # goes_on COUNT: so many blocks are acknowledged
# proceeds SECONDS: blocks are acknowledged that are written from now on. The first of them may have been sent before.
proceeds() { soon "$1" goes_on $(($(acknowledged) + 3)) || { on c tail -n 5 /tmp/writer.log; return 1; }; }
writes_no_more() { on c sh -c '! kill -0 $(cat /tmp/writer.pid) 2>/dev/null'; }
end_writing() {
    on c touch /tmp/note.end
    soon 30 writes_no_more && equal '' "$(on c cat /tmp/writer.log)"
}
# has_written HOST NAME: every acknowledged block is read there.
has_written() { on "$1" python3 /srv/hosts/writer.py compare "/mnt/ebb/$2" "$(acknowledged)"; }
