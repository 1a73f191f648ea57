# What YARN's nodes offer while a power plan lets hosts sleep. Sourced after common.sh.

# rooms: number of hosts that offer room.
rooms() {
    curl -sf "http://$master:8088/ws/v1/cluster/nodes?states=RUNNING" |
        jq '[.nodes.node[] | select(.availMemoryMB + .usedMemoryMB > 0)] | length'
}
# has_rooms COUNT
has_rooms() { [ "$(rooms)" = "$1" ]; }

# sleep_along RUN CLUSTER HOST...: from now on NodeManagers, with their containers, are frozen with their hosts.
sleep_along() {
    local run=$1 cluster=$2 host
    shift 2
    for host; do
        "$ebb" --dir "$cluster" node attach "$host" "$(cat "$run/pids/nodemanager-$host")" >/dev/null
    done
}

# follow_power CLUSTER HOSTS OPTION...: has a power manager with these options.
follow_power() {
    local cluster=$1 hosts=$2
    shift 2
    "$ebb" --dir "$cluster" cluster up --nodes "$hosts" "$@" >/dev/null
    wait_until 60 "an answer about power" "$ebb" --dir "$cluster" power status --json
}
