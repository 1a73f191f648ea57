#!/usr/bin/env bash
# Gets what the scripts of this folder run: a JDK and Maven from Debian, Hadoop's jars from Maven Central, Spark from
# PyPI. Says nothing, and asks nobody, when nothing is missing. Ends with 77 when it cannot be had.
#
# Usage: tests/hadoop/install.sh [spark | programs]
# With `programs`, the JDK and Maven alone.
# EBB_PYSPARK is the version of Spark (4.1.4, the last whose own Hadoop is 3.4: the connector meets two Hadoops).
. "$(dirname "$0")/common.sh"

pyspark=${EBB_PYSPARK:-4.1.4}

need_programs() {
    local missing=()
    command -v javac >/dev/null || missing+=(openjdk-17-jdk-headless)
    command -v mvn >/dev/null || missing+=(maven)
    command -v jq >/dev/null || missing+=(jq)
    command -v curl >/dev/null || missing+=(curl)
    install_packages "${missing[@]}"
}

need_java_17() {
    local version
    version=$(javac -version 2>&1 | sed 's/[^0-9]*\([0-9]*\).*/\1/')
    [ "$version" -ge 17 ] || skip "Hadoop 3.5 needs a JDK of version 17 or later; this is $version"
}

# The jars of this pom.xml; a changed one brings them anew.
need_jars() {
    local new=$cache/jars.new
    cmp -s "$here/pom.xml" "$cache/jars/pom.xml" && return
    echo "fetching Hadoop's jars into $cache"
    rm -rf "$new"
    mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$new" >"$cache/maven.log" 2>&1 || {
        tail -n 5 "$cache/maven.log"
        skip "Maven could not fetch Hadoop's jars"
    }
    cp "$here/pom.xml" "$new/pom.xml"
    rm -rf "$cache/jars"
    mv "$new" "$cache/jars"
}

need_classes() {
    local source
    for source in "$here"/*.java; do
        [ "$cache/classes/$(basename "$source" .java).class" -nt "$source" ] && continue
        mkdir -p "$cache/classes"
        # -proc:none: the jars have annotation processors, which are not meant for this.
        javac -proc:none -nowarn -cp "$cache/jars/*" -d "$cache/classes" "$source"
    done
}

need_spark() {
    [ "$(cat "$cache/spark/version" 2>/dev/null)" != "$pyspark" ] || return 0
    echo "fetching Spark $pyspark into $cache"
    rm -rf "$cache/spark"
    python3 -m venv "$cache/spark" || skip "this Python makes no environments (Debian: python3-venv)"
    "$cache/spark/bin/pip" install -q "pyspark==$pyspark" || skip "pip could not install pyspark $pyspark"
    echo "$pyspark" >"$cache/spark/version"
}

mkdir -p "$cache"
need_programs
need_java_17
[ "${1:-}" != programs ] || exit 0
need_jars
need_classes
if [ "${1:-}" = spark ]; then
    need_spark
fi
