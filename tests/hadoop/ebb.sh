# Ebb on the hosts of a run, each server started as on a machine of its own. Sourced. `ebb cluster up` is for hosts that
# are processes of one network.

# ebb_start RUN CLUSTER REPLICAS HOST...: CLUSTER is a directory that does not exist yet.
ebb_start() {
    local run=$1 cluster=$2 host replicas=$3 there rack
    shift 3
    mkdir -m 700 "$cluster"
    printf 'cluster = "00000000000000eb"\nmasters = ["%s:7000"]\nreplicas = %s\n' "$master" "$replicas" >"$cluster/cluster.toml"
    (umask 077 && od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' >"$cluster/secret")
    network_of master
    start_process "$run" ebb-master "${there[@]}" "$ebb" --dir "$cluster" master
    wait_until 30 "the start of the master" ebb_serves "$cluster" 0 || {
        show_logs "$run" ebb-master
        return 1
    }
    for host; do
        network_of "$host"
        rack=$(rack "$host")
        start_process "$run" "block-$host" "${there[@]}" "$ebb" --dir "$cluster" block --host "$host" \
            --rack "${rack#/}" --listen "$(address "$host"):0"
    done
    wait_until 30 "the start of $# block servers" ebb_serves "$cluster" $# || {
        show_logs "$run" ebb-master "${@/#/block-}"
        return 1
    }
}

# ebb_serves CLUSTER COUNT: whether so many block servers live.
ebb_serves() {
    on_host master "$ebb" --dir "$1" node list --json | jq -e --argjson count "$2" 'map(select(.state == "live")) | length == $count'
}

# ebb_stop CLUSTER
ebb_stop() {
    [ ! -d "$1" ] || "$ebb" cluster down --dir "$1" >/dev/null
}
