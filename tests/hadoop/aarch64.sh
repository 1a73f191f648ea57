#!/usr/bin/env bash
# Builds the connector's library for aarch64, into one jar with that for x86_64, and tries it: a JVM for aarch64 in an emulator makes,
# lists and reads files on a cluster of this machine.
#
# The compiler's library comes from rustup; the linker, the emulator and the JVM come from Debian. The JVM is unpacked into
# EBB_HADOOP_CACHE: nothing for another machine is installed on this one.
#
# Usage: tests/hadoop/aarch64.sh
# Ends with 77 when that cannot be had.
. "$(dirname "$0")/common.sh"

target=aarch64-unknown-linux-gnu
root=$cache/aarch64
java=$root/usr/lib/jvm/java-17-openjdk-arm64/bin/java

need_tools() {
    local missing=()
    command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user-static)
    install_packages "${missing[@]}"
    rustup target add "$target" >/dev/null 2>&1 || skip "rustup has no library for $target"
}

# Debian's packages for aarch64, by lists of their own.
need_jvm() {
    local lists=$root.lists options package
    [ ! -x "$java" ] || return 0
    echo "fetching a JVM for aarch64 into $cache"
    rm -rf "$root" "$lists"
    mkdir -p "$root" "$lists"/{lists/partial,archives/partial}
    options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::lists="$lists/lists"
        -o Dir::State::status=/dev/null -o APT::Sandbox::User=root -o Dir::Cache="$lists" -o Dir::Cache::archives="$lists/archives")
    apt-get "${options[@]}" update -qq || skip "apt-get could not read Debian's lists for aarch64"
    for package in openjdk-17-jre-headless libc6 libgcc-s1 libstdc++6 zlib1g; do
        (cd "$lists/archives" && apt-get "${options[@]}" download -qq "$package") || skip "apt-get could not fetch $package for aarch64"
    done
    for package in "$lists"/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
    rm -rf "$lists"
}

bash "$here/install.sh"
need_tools
need_jvm

cd "$repository"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
cargo build --locked -q -p ebb-java --target "$target"
built=${CARGO_TARGET_DIR:-$repository/target}/$target/debug

work=$(mktemp -d "${TMPDIR:-/tmp}/ebb-aarch64.XXXXXX")
cluster=$work/cluster
stop() {
    trap '' INT TERM
    "$ebb" --dir "$cluster" cluster down >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap stop EXIT
mkdir "$work/library"
aarch64-linux-gnu-strip --strip-debug -o "$work/library/libebb_java.so" "$built/libebb_java.so"
EBB_AARCH64_DIR=$work/library bash "$here/jar.sh"

write_hosts "$work/run"
take_connector "$work/run"
cp "$here/log4j.properties" "$work/run/conf"
write_xml "$work/run/conf/core-site.xml" fs.defaultFS ebb://test/ fs.ebb.cluster.test "$cluster"
"$ebb" --dir "$cluster" cluster up --nodes 3 >/dev/null

# emulated ARGUMENT...: `hadoop fs`, by the JVM for aarch64.
emulated() {
    qemu-aarch64-static -L "$root" "$java" -Xmx256m "${jvm[@]}" -cp "$(class_path "$work/run")" \
        org.apache.hadoop.fs.FsShell "$@" 2>>"$work/log"
}

seq 1 400000 >"$work/numbers"
emulated -mkdir -p /from/aarch64 && emulated -put "$work/numbers" /from/aarch64/ || { tail -n 20 "$work/log" >&2 && exit 1; }
"$ebb" --dir "$cluster" fs cat /from/aarch64/numbers | cmp - "$work/numbers"
"$ebb" --dir "$cluster" fs put "$work/numbers" /from/x86_64
emulated -cat /from/x86_64 | cmp - "$work/numbers"
emulated -ls -R /from | awk '{ print $5, $8 }' | grep -E '/numbers$|x86_64$'
echo "aarch64: a JVM in an emulator wrote what x86_64 reads, and read what x86_64 wrote"
