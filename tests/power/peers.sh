#!/usr/bin/env bash
# Tries the power clients on the peers that operators have: upsd of the Network UPS Tools (with its dummy driver), a
# baseboard management controller by IPMI (OpenIPMI's ipmi_sim, asked with ipmitool) and one by Redfish (sushy-tools).
#
# Nothing is installed on the machine: Debian's packages are unpacked, and the Python package goes into an environment of
# its own, below the build directory. A simulated node is a process that its controller's chassis script stops and
# continues. Then a cluster follows the UPS: on its mains, in a blackout, and when upsd is gone; and another's nodes are
# switched by IPMI.
#
# Usage: tests/power/peers.sh
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$repository/target}
peers=$target/peers
root=$peers/root
packages=(nut-server nut-client libupsclient6 openipmi libopenipmi0 ipmitool freeipmi-common libfreeipmi17 libpopt0
    libsnmp40 libwrap0 libnsl2 libtirpc3)

if [ "$(cat "$peers/unpacked" 2>/dev/null)" != "${packages[*]}" ]; then
    mkdir -p "$peers/packages" "$root"
    fetch() { (cd "$peers/packages" && apt-get download -qq "${packages[@]}" 2>"$peers/apt.log"); }
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    # Lists may be missing, or older than the packages.
    fetch || { "${as_root[@]}" apt-get update -qq && fetch; } ||
        { cat "$peers/apt.log" >&2; echo "peers: no Debian packages here; need: ${packages[*]}" >&2; exit 1; }
    for package in "$peers"/packages/*.deb; do
        dpkg -x "$package" "$root"
    done
    echo "${packages[*]}" >"$peers/unpacked"
fi
if [ ! -x "$peers/sushy/bin/sushy-emulator" ]; then
    python3 -m venv "$peers/sushy"
    "$peers/sushy/bin/pip" install -q sushy-tools==2.2.0
fi
# As the tests build them: another choice of packages has other features, and would be compiled anew.
cargo test --workspace --locked --no-run -q

work=$(mktemp -d)
started=()
ebb=$target/debug/ebb
finish() {
    for pid in "${blocks[@]:-}"; do [ -z "$pid" ] || kill -CONT "$pid" 2>/dev/null || true; done
    for dir in "$work/cluster" "$work/by-ipmi"; do
        [ ! -e "$dir/cluster.toml" ] || "$ebb" cluster down --dir "$dir" >/dev/null || true
    done
    for pid in "${started[@]}"; do
        kill -CONT "$pid" 2>/dev/null || true
        kill "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu

# Ports that nobody listens on now.
read -r nut_port ipmi_port redfish_port h1_port h2_port h3_port < <(python3 - <<'PORTS'
import socket
sockets = [socket.socket() for _ in range(6)]
for one in sockets:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))
PORTS
)

# A UPS on its mains, half charged. The dummy driver plays the file, and looks at it again when it has changed.
mkdir "$work/nut"
printf '[ups]\n  driver = dummy-ups\n  port = %s\n  mode = dummy-once\n' "$work/nut/ups.dev" >"$work/nut/ups.conf"
printf 'LISTEN 127.0.0.1 %s\n' "$nut_port" >"$work/nut/upsd.conf"
: >"$work/nut/upsd.users"
printf 'ups.status: OL\nbattery.charge: 50\nbattery.runtime: 1200\nups.realpower: 90\n' >"$work/nut/ups.dev"
chmod -R go-rwx "$work/nut"
export NUT_CONFPATH=$work/nut NUT_STATEPATH=$work/nut NUT_ALTPIDPATH=$work/nut
user=$(id -un)
"$root/lib/nut/dummy-ups" -a ups -u "$user" -D >"$work/nut/driver.log" 2>&1 &
started+=($!)
"$root/lib/nut/upsd" -u "$user" -D >"$work/nut/upsd.log" 2>&1 &
upsd=$!
started+=("$upsd")

# A node, and a controller whose chassis script freezes it.
printf 'secret' >"$work/password"
controller() { # controller NAME PORT PID-OF-THE-NODE
    local dir=$work/ipmi-$1
    mkdir "$dir"
    cat >"$dir/chassis" <<CHASSIS
#!/bin/sh
# chassis CONTROLLER get|set PARAMETER [VALUE]
case "\$2 \$3 \$4" in
    "set power 0" | "set shutdown "*) kill -STOP $3 ;;
    "set power 1") kill -CONT $3 ;;
    "get power "*) case \$(cut -d' ' -f3 /proc/$3/stat) in T) echo power:0 ;; *) echo power:1 ;; esac ;;
esac
CHASSIS
    chmod 755 "$dir/chassis"
    cat >"$dir/lan.conf" <<LAN
name "$1"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 $2
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "$dir/chassis 0x20"
  user 1 true "" "test" user 10 none md2 md5 straight
  user 2 true "ebb" "secret" admin 10 none md2 md5 straight
LAN
    cat >"$dir/commands" <<'COMMANDS'
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
mc_enable 0x20
COMMANDS
    "$root/usr/bin/ipmi_sim" -n -s "$dir" -c "$dir/lan.conf" -f "$dir/commands" >"$dir/log" 2>&1 &
    started+=($!)
}
sleep 100000 &
node=$!
started+=("$node")
controller one "$ipmi_port" "$node"

# A controller by Redfish, which takes up to eleven seconds for each change, as real ones do.
mkdir "$work/redfish"
cat >"$work/redfish/config" <<CONFIG
SUSHY_EMULATOR_STATE_DIR = "$work/redfish"
SUSHY_EMULATOR_FAKE_SYSTEMS = [
    {"uuid": "node", "name": "one", "power_state": "On", "external_notifier": False, "nics": []},
]
CONFIG
"$peers/sushy/bin/sushy-emulator" --fake --config "$work/redfish/config" --interface 127.0.0.1 --port "$redfish_port" \
    >"$work/redfish/log" 2>&1 &
started+=($!)

if ! "$target/debug/examples/peers" "127.0.0.1:$nut_port" "$work/nut/ups.dev" \
    "$root/usr/bin/ipmitool" "$ipmi_port" "$work/password" "$node" "127.0.0.1:$redfish_port"; then
    tail -n 20 "$work"/nut/*.log "$work"/ipmi-*/log "$work/redfish/log" >&2
    exit 1
fi

# A cluster that stretches the UPS: 120 kJ, half of which are left beyond the reserve, over ten minutes are 100 W.
export EBB_DIR=$work/cluster
wait_status() { # wait_status WHAT JQ-CONDITION
    local deadline=$((SECONDS + 90))
    until "$ebb" power status --json 2>/dev/null | jq -e "$2" >/dev/null; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "peers: no $1" >&2; "$ebb" power status >&2; exit 1; }
        sleep 0.2
    done
}
# The driver looks at whole seconds: each word is later than the one before by more than that.
said=$(date +%s)
ups_says() { # ups_says STATUS
    printf 'ups.status: %s\nbattery.charge: 60\n' "$1" >"$work/nut/ups.dev"
    said=$((said + 60))
    touch -d "@$said" "$work/nut/ups.dev"
}
ups_says OL
"$ebb" cluster up --nodes 3 --policy blink-circular --interval 2s >/dev/null
wait_status "cluster at full power" '.budget_watts == 115 and (.source | startswith("no source"))'
if "$ebb" power follow --ups "ups@127.0.0.1:1" >/dev/null 2>&1; then
    echo "peers: a UPS that nobody answers for was followed" >&2
    exit 1
fi
deadline=$((SECONDS + 90))
until "$ebb" power follow --ups "ups@127.0.0.1:$nut_port" --bridge 600s --ups-joules 120000 >/dev/null; do
    [ "$SECONDS" -lt "$deadline" ] || { echo "peers: the UPS cannot be followed" >&2; exit 1; }
    sleep 0.5
done
wait_status "UPS on its mains" '.budget_watts == 115 and (.source | startswith("UPS ups"))'
ups_says 'OB DISCHRG'
wait_status "blackout" '.budget_watts > 99 and .budget_watts < 112 and ([.nodes[] | select(.active_s < 2)] | length) == 3'
kill "$upsd"
wait_status "fallback without upsd" '.budget_watts == 77.5 and (.source | startswith("fallback: the power source has been silent"))'
echo "peers: a cluster that follows a UPS ok"

# A cluster whose nodes are switched through controllers by IPMI.
"$ebb" cluster down >/dev/null
export EBB_DIR=$work/by-ipmi
"$ebb" cluster up --nodes 3 >/dev/null
mkdir "$EBB_DIR/power"
printf 'kind = "ipmi"\nprogram = "%s"\n' "$root/usr/bin/ipmitool" >"$EBB_DIR/power/client.toml"
blocks=()
for host in h1 h2 h3; do
    port=${host}_port
    blocks+=("$("$ebb" node list --json | jq -r --arg host "$host" '.[] | select(.host == $host) | .pid')")
    controller "$host" "${!port}" "${blocks[-1]}"
    printf '[nodes.%s]\naddress = "127.0.0.1:%s"\nuser = "ebb"\npassword_file = "%s"\ncipher_suite = 3\n' "$host" "${!port}" "$work/password"
done >>"$EBB_DIR/power/client.toml"
frozen() { # block servers that are stopped
    local pid count=0
    for pid in "${blocks[@]}"; do
        [ "$(cut -d' ' -f3 "/proc/$pid/stat")" != T ] || count=$((count + 1))
    done
    echo "$count"
}
wait_frozen() { # wait_frozen COUNT
    local deadline=$((SECONDS + 90))
    until [ "$(frozen)" = "$1" ]; do
        [ "$SECONDS" -lt "$deadline" ] || { echo "peers: $(frozen) of $1 nodes are off" >&2; "$ebb" power status >&2; exit 1; }
        sleep 0.2
    done
}
"$ebb" fs put "$0" /script
"$ebb" cluster up --nodes 3 --policy blink-circular --interval 15s --transition 2s >/dev/null
wait_status "cluster that follows its power" '.policy == "blink-circular"'
"$ebb" power set --watts 70 >/dev/null
wait_frozen 2
[ "$("$ebb" fs checksum /script)" = "$(sha256sum <"$0" | cut -d' ' -f1)" ] || { echo "peers: not the same bytes" >&2; exit 1; }
"$ebb" power set --release >/dev/null
wait_frozen 0
echo "peers: a cluster that is switched by IPMI ok"
