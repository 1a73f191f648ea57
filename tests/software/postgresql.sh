#!/usr/bin/env bash
# PostgreSQL under pgbench: the postmaster and all that belongs to it are ended with kill -9 in the middle of
# transactions, on Ebb also the mount. On Ebb block servers are killed under them, too, and come back: that neither
# pgbench nor the server may notice. Started again, the database must have recovered, with each acknowledged
# transaction there as a whole, sound indexes (amcheck), and at the end sound page checksums (pg_checksums).
#
# Usage: tests/software/postgresql.sh DIRECTORY
. "$(dirname "$0")/common.sh"

begin postgresql "$1"
# The newest that is installed, not by way of Debian's wrappers, which ask for clusters of theirs.
programs=$(printf "%s\n" /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
victims=(server)
if on_ebb; then
    victims=(server mount both block-server)
fi
rounds=$(amount 4 20)
clients=4
RANDOM=${SOFTWARE_SEED:-1}
data=$work/data
# It refuses to run as root; sockets and logs stay outside.
export PGHOST=$scratch PGUSER=postgres PGDATABASE=postgres PGPORT=54321
as_postgres=()
if [ "$(id -u)" = 0 ]; then
    chown postgres "$work" "$scratch"
    as_postgres=(setpriv --reuid postgres --regid postgres --init-groups)
fi

start() {
    # What the last one left behind when it was killed names this socket and this directory.
    rm -f "$scratch"/.s.PGSQL.*
    (cd / && "${as_postgres[@]}" "$programs/pg_ctl" -s -w -t 120 -D "$data" -l "$scratch/server.log" \
        -o "-c listen_addresses= -c unix_socket_directories=$scratch -c port=$PGPORT \
            -c shared_buffers=16MB -c checkpoint_timeout=30s -c max_wal_size=64MB -c min_wal_size=32MB" start)
}

kill_server() {
    local postmaster
    postmaster=$(head -n 1 "$scratch/pid")
    # Its children have groups of their own; stopped, it starts no more of them.
    kill -STOP "$postmaster"
    kill -9 $(pgrep -P "$postmaster") "$postmaster" 2>/dev/null || true
    until ! kill -0 "$postmaster" 2>/dev/null; do sleep 0.05; done
}

# Nothing of it is left, whatever happens.
trap '[ ! -s "$data/postmaster.pid" ] || { head -n 1 "$data/postmaster.pid" >"$scratch/pid" && kill_server; }; rm -rf "$work" "$scratch"' EXIT

query() { "$programs/psql" -X -q -A -t -v ON_ERROR_STOP=1 -c "$1"; }

make() {
    "${as_postgres[@]}" "$programs/initdb" --data-checksums --no-instructions -D "$data" >/dev/null &&
        start &&
        query "CREATE EXTENSION amcheck;
               CREATE TABLE account (id integer PRIMARY KEY, balance integer NOT NULL, filler text DEFAULT repeat('x', 80));
               CREATE TABLE moved (round integer, client integer, number integer, source integer, target integer,
                                   amount integer, PRIMARY KEY (round, client, number));
               INSERT INTO account SELECT id, 100 FROM generate_series(1, 1000) AS id;"
}

# What pgbench's log has: it notes a transaction when its END was answered. Buffered, so it is counted when pgbench ended.
prove() { # prove ROUND
    local client last found
    for ((client = 0; client < clients; client++)); do
        acknowledged=$(cat "$scratch"/told.* | awk -v client="$client" '$1 == client' | wc -l)
        found=$(query "SELECT count(*), coalesce(min(number), 1), coalesce(max(number), 0)
                       FROM moved WHERE round = $1 AND client = $client")
        echo "client $client: $acknowledged acknowledged, found (count|first|last) $found"
        case $found in
            "$acknowledged|1|$acknowledged" | "$((acknowledged + 1))|1|$((acknowledged + 1))") ;;
            *) return 1 ;;
        esac
    done
    wrong=$(query "SELECT count(*) FROM account WHERE balance != 100
        - coalesce((SELECT sum(amount) FROM moved WHERE source = id), 0)
        + coalesce((SELECT sum(amount) FROM moved WHERE target = id), 0)") || return 1
    echo "accounts that differ from the notes: $wrong"
    [ "$wrong" = 0 ] || return 1
    query "SELECT bt_index_parent_check(oid, true, true) FROM pg_class WHERE relname IN ('account_pkey', 'moved_pkey');
           SELECT count(*) FROM verify_heapam('account'), verify_heapam('moved')" | grep -v '^$' | grep -vx 0 && return 1
    return 0
}

# Counted in what is done, so that the same happens on a slow machine.
await() { # await ROUND COUNT: until so many transfers are there
    until [ "$(query "SELECT count(*) FROM moved WHERE round = $1")" -ge "$2" ]; do
        kill -0 "$bench" || { cat "$scratch/bench"; return 1; }
    done
}

# A block server is killed under the transactions, and started again under them.
block_server_under_them() { # block_server_under_them ROUND TRANSFERS
    local host=h$((1 + RANDOM % 4))
    kill_block_server "$host"
    await "$1" $(($2 + 100)) || return 1
    block_server_again "$host"
    await "$1" $(($2 + 200)) || return 1
    ! grep -E 'ERROR|PANIC|FATAL' "$scratch/bench" && ! tail -n "+$((lines + 1))" "$scratch/server.log" | grep -E 'ERROR|PANIC|FATAL'
}

round() { # round NUMBER VICTIM
    local wanted bench lines
    head -n 1 "$data/postmaster.pid" >"$scratch/pid"
    wanted=$((200 + RANDOM % 500))
    rm -f "$scratch"/told.*
    "$programs/pgbench" -n -c "$clients" -j 1 -T 300 -f "$here/transfer.sql" -D n=0 -D "round=$1" \
        --log --log-prefix="$scratch/told" >"$scratch/bench" 2>&1 &
    bench=$!
    lines=$(wc -l <"$scratch/server.log")
    await "$1" "$wanted" || return 1
    case $2 in
        server) kill_server ;;
        mount) kill_mount; mount_again; kill_server ;;
        both) kill_mount; kill_server; mount_again ;;
        block-server) block_server_under_them "$1" "$wanted" || { kill_server; return 1; }; kill_server ;;
    esac
    wait "$bench" || true
    start && prove "$1"
}

code=0
make >"$scratch/log" 2>&1 || code=$?
judge "made" "$code"
for ((number = 1; number <= rounds; number++)); do
    victim=${victims[((number - 1) % ${#victims[@]})]}
    code=0
    round "$number" "$victim" >"$scratch/log" 2>&1 || code=$?
    echo "the victim: $victim" >>"$scratch/log"
    [ "$code" -eq 0 ] || tail -n 20 "$scratch/server.log" >>"$scratch/log"
    judge "round $number" "$code"
done
check "stopped" "${as_postgres[@]}" "$programs/pg_ctl" -s -w -m fast -D "$data" stop
check "page checksums" "${as_postgres[@]}" "$programs/pg_checksums" --check -D "$data"
finish
