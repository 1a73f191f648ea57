# Ebb on the hosts of a run, each server started as on a machine of its own. Sourced. `ebb cluster up` is for hosts that
# are processes of one network.

# ebb_start RUN CLUSTER REPLICAS HOST...: CLUSTER is a directory without a cluster.
ebb_start() {
    local run=$1 cluster=$2 host replicas=$3 there
    shift 3
    "$ebb" --dir "$cluster" cluster init --master "$master:7000" --replicas "$replicas" >/dev/null
    network_of master
    start_process "$run" ebb-master "${there[@]}" "$ebb" --dir "$cluster" master
    wait_until 30 "the start of the master" ebb_serves "$cluster" 0 || {
        show_logs "$run" ebb-master
        return 1
    }
    for host; do start_block "$run" "$cluster" "$host"; done
    wait_until 30 "the start of $# block servers" ebb_serves "$cluster" $# || {
        show_logs "$run" ebb-master "${@/#/block-}"
        return 1
    }
}

# start_block RUN CLUSTER HOST: with localized storage nodes, hosts have no disks of their own.
start_block() {
    local run=$1 cluster=$2 host=$3 there rack options=()
    rack=$(rack "$host")
    case ${EBB_HADOOP_SERVED:+served-}$host in
        served-lsn*) options=(--volumes 4 --serves-hosts "$(served "${host#lsn}")") ;;
        served-*) options=(--volumes 0) ;;
    esac
    network_of "$host"
    start_process "$run" "block-$host" "${there[@]}" "$ebb" --dir "$cluster" block --host "$host" --rack "${rack#/}" \
        --listen "$(address "$host"):0" "${options[@]}"
}

# served NUMBER: the hosts of this localized storage node, with commas.
served() {
    seq -s, -f h%.0f $((($1 - 1) * EBB_HADOOP_SERVED + 1)) $(($1 * EBB_HADOOP_SERVED))
}

# ebb_serves CLUSTER COUNT: whether so many block servers live.
ebb_serves() {
    on_host master "$ebb" --dir "$1" node list --json | jq -e --argjson count "$2" 'map(select(.state == "live")) | length == $count'
}

# ebb_stop CLUSTER
ebb_stop() {
    [ ! -d "$1" ] || "$ebb" cluster down --dir "$1" >/dev/null
}
