#!/usr/bin/env bash
# Hadoop's example jobs on a running YARN: TeraGen, TeraSort, TeraValidate, WordCount and grep. Looks whether what they
# wrote is right, and whether their maps ran beside their data.
#
# Usage: tests/hadoop/mapreduce.sh RUN DIRECTORY BYTES SPLIT_BYTES
# RUN is the directory of yarn_start, DIRECTORY a URI that does not exist yet.
# EXPECT_LOCAL is the percentage of data-local maps, over all jobs, that has to be exceeded (90).
. "$(dirname "$0")/common.sh"
. "$here/counters.sh"

run=$1 directory=$2 bytes=$3 split=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
splits=(-Dmapreduce.input.fileinputformat.split.maxsize="$split")
# TeraSort would name one host for each split, and leave YARN no choice.
sorting=(-Dmapreduce.terasort.use.terascheduler=false)
# Its file that says which keys go where reaches no task from file:///.
[[ $directory != file:* ]] || sorting+=(-Dmapreduce.terasort.simplepartitioner=true)
# Letters and numbers of a small vocabulary, common words and rare ones. About six splits: a word has six bytes.
awk -v words="$split" 'BEGIN {
    srand(1)
    for (i = 1; i <= words; i++) printf "w%d%s", 10000 * rand() * rand(), i % 12 ? " " : "\n"
}' >"$scratch/text"
hadoop_fs "$run" -mkdir -p "$directory/text"
hadoop_fs "$run" -put "$scratch/text" "$directory/text/"

# job NAME ARGUMENT...
job() {
    local name=$1 code=0
    shift
    run_job "$run" "$name" $examples "$@" || code=$?
    expect "$name ends well" "$code" "$job_log"
}

job teragen teragen -Dmapreduce.job.maps=4 $((bytes / 100)) "$directory/tera"
generated=$(printf %x "$(counter CHECKSUM)")
job terasort terasort "${splits[@]}" "${sorting[@]}" -Dmapreduce.job.reduces=2 "$directory/tera" "$directory/sorted"
count_locality
job teravalidate teravalidate "$directory/sorted" "$directory/validated"
count_locality
job wordcount wordcount "${splits[@]}" "$directory/text" "$directory/words"
count_locality
job grep grep "${splits[@]}" "$directory/text" "$directory/grepped" 'w1[0-9]*7'
count_locality

mkdir "$scratch/results"
hadoop_fs "$run" -get "$directory"/{validated,words,grepped} "$scratch/results" 2>"$scratch/get" ||
    expect "the results can be read" 1 "$scratch/get"
cd "$scratch/results"
# A line with anything but the checksum is a complaint.
expect_same "TeraValidate finds every row, in order" "checksum $generated" \
    "$(cat validated/part-* | tr -s '\t\n' ' ' | sed 's/ $//')"
awk '{ for (i = 1; i <= NF; i++) count[$i]++ } END { for (word in count) print word "\t" count[word] }' \
    "$scratch/text" | LC_ALL=C sort >"$scratch/counted"
code=0
cat words/part-* | LC_ALL=C sort | diff - "$scratch/counted" >"$scratch/diff" || code=$?
expect "WordCount counts what awk counts" "$code" "$scratch/diff"
code=0
grep -oE 'w1[0-9]*7' "$scratch/text" | LC_ALL=C sort | uniq -c | awk '{ print $1 "\t" $2 }' |
    LC_ALL=C sort >"$scratch/found"
cat grepped/part-* | LC_ALL=C sort | diff - "$scratch/found" >"$scratch/diff" || code=$?
expect "grep finds what grep finds" "$code" "$scratch/diff"
code=0
[ $((all_data_local * 100)) -gt $((all_maps * ${EXPECT_LOCAL:-90})) ] || [ "${EXPECT_LOCAL:-90}" = 0 ] || code=1
expect "data-local $all_data_local of $all_maps" "$code"
finish mapreduce
