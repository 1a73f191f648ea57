# What the scripts of this folder share; sourced, never run.
#
# A run has a directory of its own, RUN: conf/ (XML), hosts (names and addresses), lib/ (the connector), logs/, pids/.
# Each host hN is an address of the loopback network, 127.0.1.N. Java is told the names by -Djdk.net.hosts.file, so
# neither root nor namespaces are needed, and no packet leaves the machine.
#
# EBB_HADOOP_CACHE    downloads and what is built of them (~/.cache/ebb-hadoop)
# EBB_HADOOP_NETWORK  the first three numbers of the addresses (127.0.1): another one for a second run beside the first
# EBB_HADOOP_LINKS    set by links.sh: hosts have networks of their own, and links between them
# EBB_HADOOP_RACKS    racks (2)
# EBB_HADOOP_SERVED   hosts that each localized storage node serves: lsn1 is in rack r1 with the first so many, and so on
# EBB_HADOOP_JAR      the connector's jar (connectors/hadoop/target/ebb-hadoop-*.jar)
# EBB                 the program (target/debug/ebb)

set -euo pipefail
# A JVM that is interrupted ends by itself, and the script around it would go on.
trap 'exit 130' INT
trap 'exit 143' TERM

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
cache=${EBB_HADOOP_CACHE:-$HOME/.cache/ebb-hadoop}
network=${EBB_HADOOP_NETWORK:-127.0.1}
ebb=${EBB:-${CARGO_TARGET_DIR:-$repository/target}/debug/ebb}
# Where the NameNode and the ResourceManager listen: an address that no hN has.
master=$network.200
# The exit code that says: not run, and nothing is wrong.
skipped=77

# For JVMs that live for seconds: starting them costs more than what they compute.
jvm=(-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -XX:-UsePerfData -Djava.net.preferIPv4Stack=true)

# address HOST: of h3, 127.0.1.3; of lsn3, 127.0.1.103.
address() {
    case $1 in
        lsn*) echo "$network.$((100 + ${1#lsn}))" ;;
        *) echo "$network.${1#h}" ;;
    esac
}

# rack HOST: in turn, as `ebb cluster up` gives racks to its hosts; that of its localized storage node, if there are any.
rack() {
    case $1 in
        lsn*) echo "/r${1#lsn}" ;;
        *)
            if [ -n "${EBB_HADOOP_SERVED:-}" ]; then
                echo "/r$(((${1#h} - 1) / EBB_HADOOP_SERVED + 1))"
            else
                echo "/r$(((${1#h} - 1) % ${EBB_HADOOP_RACKS:-2} + 1))"
            fi
            ;;
    esac
}

# network_of HOST: puts before a command, by the array `there`, what makes it run in the network of a host.
network_of() {
    there=()
    [ -z "${EBB_HADOOP_LINKS:-}" ] || there=(nsenter --net="/run/netns/$EBB_HADOOP_LINKS-$1")
}

# on_host HOST COMMAND...
on_host() {
    local host=$1 there
    shift
    network_of "$host"
    "${there[@]}" "$@"
}

# write_hosts RUN HOST...: with a hosts file of its own, Java knows no other names: not even this machine's.
write_hosts() {
    local run=$1 host
    shift
    mkdir -p "$run"/{conf,lib,logs,pids}
    {
        echo "127.0.0.1 localhost"
        echo "127.0.0.1 $(hostname)"
        echo "$master master"
        for host; do echo "$(address "$host") $host"; done
    } >"$run/hosts"
    for host; do
        # By address, too: Hadoop asks for racks by address.
        printf '%s %s\n%s %s\n' "$host" "$(rack "$host")" "$(address "$host")" "$(rack "$host")"
    done >"$run/racks"
}

# write_xml FILE [NAME VALUE]...
write_xml() {
    local file=$1
    shift
    {
        echo '<configuration>'
        while [ $# -gt 0 ]; do
            echo "  <property><name>$1</name><value>$2</value></property>"
            shift 2
        done
        echo '</configuration>'
    } >"$file"
}

# library_folder: where the newest build of the connector's library is. With the tests it is built into deps/.
library_folder() {
    local library
    library=$(ls -t "$(dirname "$ebb")"/{,deps/}libebb_java.so 2>/dev/null | head -n 1)
    [ -n "$library" ] || { echo "there is no libebb_java.so beside $ebb: cargo build" >&2; return 1; }
    dirname "$library"
}

# take_connector RUN: puts the jar where the run finds it.
take_connector() {
    local jar=${EBB_HADOOP_JAR:-} built
    for built in "$repository"/connectors/hadoop/target/ebb-hadoop-*.jar; do
        [[ -n $jar || ! -f $built || $built =~ (sources|tests) ]] || jar=$built
    done
    [ -x "$ebb" ] || skip "$ebb is not there: cargo build"
    [ -f "$jar" ] || skip "the connector's jar is not there: run tests/hadoop/jar.sh, or set EBB_HADOOP_JAR"
    cp "$jar" "$1/lib/"
}

# class_path RUN
class_path() {
    echo "$1/conf:$1/lib/*:$cache/classes:$cache/jars/*"
}

# in_java RUN HEAP ARGUMENT...: a command, as an array `java_command`, that runs Java with Hadoop's classes.
in_java() {
    local run=$1 heap=$2
    shift 2
    java_command=(java "-Xmx$heap" "${jvm[@]}" "-Djdk.net.hosts.file=$run/hosts" -cp "$(class_path "$run")" "$@")
}

# hadoop RUN CLASS ARGUMENT...: runs one of Hadoop's programs to its end, where the ResourceManager is.
hadoop() {
    local java_command
    in_java "$1" 256m "${@:2}"
    on_host master "${java_command[@]}"
}

# hadoop_fs RUN ARGUMENT...: `hadoop fs`.
hadoop_fs() {
    hadoop "$1" org.apache.hadoop.fs.FsShell "${@:2}"
}

# start_process RUN NAME COMMAND...: in the background; its pid is in RUN/pids/NAME, what it says in RUN/logs/NAME.
start_process() {
    local run=$1 name=$2
    shift 2
    setsid "$@" >"$run/logs/$name" 2>&1 </dev/null &
    echo $! >"$run/pids/$name"
    # The shell need not say that it ended.
    disown $!
}

# start_server RUN NAME HOST HEAP ARGUMENT...: a Java process that stands for a host. It goes by the variable that YARN
# sets for containers, so that servers and tasks find out by the same rule where they are.
start_server() {
    local run=$1 name=$2 host=$3 heap=$4 java_command there
    shift 4
    in_java "$run" "$heap" "$@"
    network_of "$host"
    NM_HOST=$host start_process "$run" "$name" "${there[@]}" "${java_command[@]}"
}

# is_running PID: a zombie does not count.
is_running() {
    [ -r "/proc/$1/stat" ] && [ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c1)" != Z ]
}

# stop_processes RUN NAME...: by SIGTERM, all at once, and by SIGKILL after 20 s. What does not run is no error.
stop_processes() {
    local run=$1 name pid tries
    shift
    signal_processes "$run" TERM "$@"
    for name; do
        [ -f "$run/pids/$name" ] || continue
        pid=$(cat "$run/pids/$name")
        for ((tries = 0; tries < 200; tries++)); do
            is_running "$pid" || break
            sleep 0.1
        done
    done
    kill_processes "$run" "$@"
}

# kill_processes RUN NAME...: by SIGKILL.
kill_processes() {
    local run=$1 name
    shift
    signal_processes "$run" KILL "$@"
    for name; do rm -f "$run/pids/$name"; done
}

# signal_processes RUN SIGNAL NAME...: a pid that another process has got since is left alone.
signal_processes() {
    local run=$1 signal=$2 name pid
    shift 2
    for name; do
        pid=$(cat "$run/pids/$name" 2>/dev/null) || continue
        belongs_to_run "$run" "$pid" || continue
        kill "-$signal" "$pid" 2>/dev/null || true
    done
}

# belongs_to_run RUN PID: whether its command names the run's directory.
belongs_to_run() {
    tr '\0' ' ' 2>/dev/null <"/proc/$2/cmdline" | grep -qF "$1/"
}

# kill_java DIRECTORY: each Java process whose command names something below this directory.
kill_java() {
    local process
    for process in /proc/[0-9]*; do
        [ "$(cat "$process/comm" 2>/dev/null)" = java ] || continue
        belongs_to_run "$1" "${process#/proc/}" || continue
        kill -9 "${process#/proc/}" 2>/dev/null || true
    done
}

# wait_until SECONDS WHAT COMMAND...: false, with a sentence, when the time is over.
wait_until() {
    local end=$((SECONDS + $1)) seconds=$1 what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        if [ "$SECONDS" -ge "$end" ]; then
            echo "$what did not happen within $seconds s" >&2
            return 1
        fi
        sleep 0.2
    done
}

# show_logs RUN NAME...: the end of each.
show_logs() {
    local run=$1 name
    shift
    for name; do
        [ -f "$run/logs/$name" ] || continue
        echo "the end of $run/logs/$name:" >&2
        tail -n 15 "$run/logs/$name" | sed 's/^/    /' >&2
    done
}

# install_packages PACKAGE...: of Debian. Ends with 77 if they cannot be had.
install_packages() {
    local as_root=()
    [ $# -gt 0 ] || return 0
    command -v apt-get >/dev/null || skip "$* are missing, and there is no apt-get to install them"
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    echo "installing $*"
    { "${as_root[@]}" apt-get update -qq && DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq \
        --no-install-recommends "$@" >/dev/null; } || skip "apt-get could not install $*"
}

# skip WHY: ends the script.
skip() {
    echo "skipped: $1"
    exit "$skipped"
}

# need_memory MIB WHAT: ends the script if less is free.
need_memory() {
    local free
    free=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
    [ "$free" -ge "$1" ] || skip "$2 need $1 MiB of memory; $free are free"
}

# expect NAME CODE [LOG]: prints and counts one check; the end of LOG is shown when it failed.
passes=0 failures=0
expect() {
    if [ "$2" = 0 ]; then
        passes=$((passes + 1))
        echo "  ok      $1"
    else
        failures=$((failures + 1))
        echo "  FAILED  $1"
        if [ -n "${3:-}" ] && [ -f "$3" ]; then
            tail -n 30 "$3" | sed 's/^/    /' >&2
        fi
    fi
}

# expect_same NAME EXPECTED FOUND: of two values.
expect_same() {
    if [ "$2" = "$3" ]; then expect "$1" 0; else expect "$1: $2 was expected, $3 found" 1; fi
}

# finish SUITE: prints the counts; false if a check failed or none passed.
finish() {
    echo "$1: $passes passed, $failures failed"
    [ "$failures" = 0 ] && [ "$passes" -gt 0 ]
}
