#!/usr/bin/env bash
# Builds the connector's jar, with the native library of the build that is there.
#
# Usage: tests/hadoop/jar.sh
# EBB_AARCH64_DIR is where a libebb_java.so for aarch64 is, if the jar is to have that, too (aarch64.sh builds one).
. "$(dirname "$0")/common.sh"

bash "$here/install.sh" programs
# Each JVM writes itself a copy of the library: with what a debugger needs it would be four times as large.
library=$(mktemp -d)
trap 'rm -rf "$library"' EXIT
strip --strip-debug -o "$library/libebb_java.so" "$(library_folder)/libebb_java.so"
mvn -q -B -f "$repository/connectors/hadoop/pom.xml" package -DskipTests "-Debb.native.dir=$library" \
    ${EBB_AARCH64_DIR:+"-Debb.native.aarch64.dir=$EBB_AARCH64_DIR"}
ls -l "$repository"/connectors/hadoop/target/ebb-hadoop-*.jar | awk '{ print $NF, $5, "bytes" }'
