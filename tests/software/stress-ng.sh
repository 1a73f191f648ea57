#!/usr/bin/env bash
# stress-ng's file-system stressors, and those of its other classes that work on files, one by one with --verify.
# How long each runs decides nothing but how much it tries.
#
# Usage: tests/software/stress-ng.sh DIRECTORY [STRESSOR...]
. "$(dirname "$0")/common.sh"

begin stress-ng "$1"
seconds=${SOFTWARE_SECONDS:-$(amount 1 10)}

# What asks most of a file system.
short="chmod chown copy-file dentry dir dirdeep fallocate fcntl filename flock getdent hdd iomix lockf mknod mmap msync
open rename sync-file touch utime xattr"
# All of class "filesystem" but bind-mount and binderfs, which are about other file systems, and the users of files
# among the classes io, vm, memory and pipe.
long="access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup eventfd fallocate fanotify fcntl
fiemap file-ioctl filename flock fpunch fsize fstat getdent handle hdd inode-flags inotify io iomix ioprio lease link
locka lockf lockofd mknod open procfs rename symlink sync-file touch utime verity xattr
aio aiol io-uring mmap mmapfixed msync msyncmany readahead revio rmap seek sendfile splice"

# Sizes that fit a small volume three times.
options() {
    case $1 in
        fallocate) echo --fallocate-bytes 32M ;;
        hdd) echo --hdd-bytes 32M ;;
        iomix) echo --iomix-bytes 32M ;;
        sync-file) echo --sync-file-bytes 32M ;;
        copy-file) echo --copy-file-bytes 128M ;;
        seek) echo --seek-size 32M ;;
        readahead) echo --readahead-bytes 32M ;;
        mmap) echo --mmap-file --mmap-bytes 16M ;;
        msync) echo --msync-bytes 16M ;;
    esac
}

stressors=("${@:2}")
[ "${#stressors[@]}" -gt 0 ] || read -r -d '' -a stressors <<<"$(amount "$short" "$long")" || true
for stressor in "${stressors[@]}"; do
    code=0
    # shellcheck disable=SC2046
    (cd / && timeout -k 5 600 stress-ng "--$stressor" 1 --verify --timeout "${seconds}s" --temp-path "$work" \
        --oomable --metrics-brief $(options "$stressor")) >"$scratch/log" 2>&1 </dev/null || code=$?
    case $code in
        # Not to be had here: 3 and 4, or 0 with a word.
        3 | 4) result "$stressor" skipped ;;
        0) if grep -q 'skipping stress' "$scratch/log"; then result "$stressor" skipped; else result "$stressor" ok; fi ;;
        *) judge "$stressor" "$code" ;;
    esac
    [ -z "${SOFTWARE_METRICS:-}" ] || grep "metrc.* $stressor  *[0-9]" "$scratch/log" | cut -d']' -f2 >&2 || true
    rm -rf "${work:?}"/*
done
finish
