# Hosts as network namespaces, and the links between them with a speed. Sourced; needs root.
#
# Each host has one link to the switch of its rack. With two racks, one link joins the two switches. `master` has a link
# without limit to the switch of the first rack: what it says is no part of what is measured. A namespace is named
# EBB_HADOOP_LINKS-HOST, and those of switches EBB_HADOOP_LINKS-rN.

# Mbit/s of the links of hosts lsnN and of the link between racks; empty: those of all others.
lsn_rate=
# Bytes that the kernel hands to a link at once. It does not cut them further, as a real card would.
packet=16000

# links_allowed: whether this user may make them here.
links_allowed() {
    [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v tc >/dev/null && unshare -n true 2>/dev/null
}

# links_up RACKS MBIT_PER_SECOND HOST...: sets EBB_HADOOP_LINKS, EBB_HADOOP_RACKS, network and master.
links_up() {
    local rate=$2 number name wide=${lsn_rate:-$2}
    export EBB_HADOOP_LINKS=ebb$$ EBB_HADOOP_RACKS=$1 EBB_HADOOP_NETWORK=10.77.0
    network=$EBB_HADOOP_NETWORK
    master=$network.200
    shift 2
    for ((number = 1; number <= EBB_HADOOP_RACKS; number++)); do
        add_namespace "r$number"
        ip -n "$EBB_HADOOP_LINKS-r$number" link add dev bridge0 type bridge
        ip -n "$EBB_HADOOP_LINKS-r$number" link set dev bridge0 up
    done
    add_host master r1 "$master"
    for name; do
        local switch
        switch=$(rack "$name")
        local own=$rate
        [[ $name != lsn* ]] || own=$wide
        add_host "$name" "${switch#/}" "$(address "$name")"
        limit "$name" eth0 "$own" dst "$@"
        limit "${switch#/}" "$name" "$own" src "$@"
    done
    [ "$EBB_HADOOP_RACKS" = 2 ] || return 0
    add_link r1 trunk r2 trunk
    for name in r1 r2; do
        ip -n "$EBB_HADOOP_LINKS-$name" link set dev trunk master bridge0
        limit "$name" trunk "$wide" dst "$@"
    done
}

add_namespace() {
    ip netns add "$EBB_HADOOP_LINKS-$1"
    on_host "$1" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv4.tcp_congestion_control=reno
    ip -n "$EBB_HADOOP_LINKS-$1" link set lo up
}

# add_link FROM DEVICE TO DEVICE
add_link() {
    ip -n "$EBB_HADOOP_LINKS-$1" link add dev "$2" type veth peer name "$4" netns "$EBB_HADOOP_LINKS-$3"
    ip -n "$EBB_HADOOP_LINKS-$1" link set dev "$2" gso_max_size "$packet" up
    ip -n "$EBB_HADOOP_LINKS-$3" link set dev "$4" gso_max_size "$packet" up
}

# add_host HOST SWITCH ADDRESS
add_host() {
    add_namespace "$1"
    add_link "$1" eth0 "$2" "$1"
    ip -n "$EBB_HADOOP_LINKS-$1" address add "$3/24" dev eth0
    ip -n "$EBB_HADOOP_LINKS-$2" link set dev "$1" master bridge0
}

# limit NAMESPACE DEVICE MBIT_PER_SECOND dst|src HOST...: of what it sends. Connections have about equal shares, and take what others
# leave: in one queue, those that came first keep later ones down. Each host to which, or from which, it is sent has four
# queues, by the last bits of the ports.
limit() {
    local name=$1 device=$2 rate=$3 side=$4 class=10 host ports
    shift 4
    local tc=(tc -n "$EBB_HADOOP_LINKS-$name") whole=(ceil "${rate}mbit" burst 64kb cburst 64kb quantum 16000)
    "${tc[@]}" qdisc add dev "$device" root handle 1: htb default 2
    "${tc[@]}" class add dev "$device" parent 1: classid 1:1 htb rate "${rate}mbit" "${whole[@]}"
    "${tc[@]}" class add dev "$device" parent 1:1 classid 1:2 htb rate 1mbit "${whole[@]}"
    for host; do
        for ports in 0:0 0:1 1:0 1:1; do
            "${tc[@]}" class add dev "$device" parent 1:1 classid "1:$class" \
                htb rate "$((rate * 1000 / 4 / ($# + 1)))kbit" "${whole[@]}"
            "${tc[@]}" qdisc add dev "$device" parent "1:$class" bfifo limit 256kb
            "${tc[@]}" filter add dev "$device" parent 1: protocol ip u32 match ip "$side" "$(address "$host")" \
                match ip sport "${ports%:*}" 1 match ip dport "${ports#*:}" 1 flowid "1:$class"
            class=$((class + 1))
        done
    done
}

# links_down: no process may be in the namespaces by then.
links_down() {
    local name
    [ -n "${EBB_HADOOP_LINKS:-}" ] || return 0
    for name in $(ip netns list | awk -v own="$EBB_HADOOP_LINKS-" 'index($1, own) == 1 { print $1 }'); do
        ip netns del "$name"
    done
    unset EBB_HADOOP_LINKS EBB_HADOOP_RACKS
}

# link_bytes HOST...: what each link has carried so far, by direction: a line "LINK BYTES" for each.
link_bytes() {
    local name
    for name; do device_bytes "$name" eth0 "$name"; done
    [ "$EBB_HADOOP_RACKS" != 2 ] || device_bytes r1 trunk trunk
}

# device_bytes NAMESPACE DEVICE LINK
device_bytes() {
    ip -n "$EBB_HADOOP_LINKS-$1" -s -j link show dev "$2" |
        jq -r --arg link "$3" '.[].stats64 | "\($link)-out \(.tx.bytes)", "\($link)-in \(.rx.bytes)"'
}
