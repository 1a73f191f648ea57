#!/usr/bin/env bash
# Copies of a tree with everything that POSIX knows, by rsync, tar and cp, to the file system, within it and back: hard
# links, sparse files, extended attributes, ACLs, owners, times to the nanosecond, special files and odd names. A copy
# is right if a listing of all of that and of all content is the same.
#
# Usage: tests/software/copies.sh DIRECTORY
. "$(dirname "$0")/common.sh"

begin copies "$1"
files=$(amount 200 5000)
outside=$scratch/outside
mkdir "$outside"

make() { # make DIRECTORY
    local number
    mkdir "$1" && cd "$1"
    for ((number = 0; number < files; number++)); do
        mkdir -p "d$((number % 7))/e$((number % 3))"
        seq "$number" $((number * 3)) >"d$((number % 7))/e$((number % 3))/f$number"
    done
    ln d0/e0/f0 hard-link && ln d0/e0/f0 d1/another
    ln -s d0/e0/f0 symlink && ln -s nowhere dangling && ln -s . loop
    mkfifo fifo && mknod device c 1 3 && $python -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
    truncate -s 20M sparse && printf middle | dd of=sparse bs=1 seek=10000000 conv=notrunc status=none
    truncate -s 40M only-a-hole && : >empty && head -c 3000000 /dev/urandom >random
    printf 'x' >$'new\nline' && printf 'y' >$'not-utf8-\xff\xfe' && printf z >' spaces and "quotes" ' && mkdir -- -dash
    setfattr -n user.short -v value random && setfattr -n user.long -v "$(head -c 3000 /dev/zero | tr '\0' l)" random
    setfattr -n user.directory -v yes d1 && setfattr -n trusted.secret -v 0x00ff01 random
    setfacl -m u:1234:rw,g:4321:r random && setfacl -m d:u:1234:rwx,d:g::rx d2 && setfacl -m u:1:r,m::r empty
    chown 1000:2000 random && chown -h 55:66 symlink && chmod 4755 d0/e0/f0 && chmod 2775 d3 && chmod 1777 d4 && chmod 0 d5/e2/f5
    touch -d '1999-12-31 23:59:59.123456789' random && touch -h -d '2001-02-03 04:05:06.000000001' symlink
    touch -d '1969-06-01 00:00:00' empty && touch -d '2040-01-01 00:00:00.5' sparse
    find . -depth ! -type f ! -name symlink -exec touch -h -d '2010-10-10 10:10:10.101010101' {} +
}

# Everything of a tree, one line for each thing that can differ.
listing() { # listing DIRECTORY
    cd "$1"
    find . -printf '%P|%y|%m|%U|%G|%n|%T@|%l|' \( -type f -printf '%s' -o -type d -o -printf '-' \) -printf '\0' | LC_ALL=C sort -z
    find . \( -type b -o -type c \) -exec stat -c '%n %t %T' {} +
    # Which names are one file.
    find . -type f -links +1 -printf '%i %P\n' | LC_ALL=C sort -k2 | awk '{ if (!($1 in seen)) seen[$1] = ++groups; print seen[$1], $2 }'
    find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    find . ! -type l -print0 | LC_ALL=C sort -z | xargs -0 getfacl -n -p --
    find . \( -type f -o -type d \) -print0 | LC_ALL=C sort -z | xargs -0 getfattr -h -d -m '^(user|trusted)\.' -e hex --
}

same() { # same DIRECTORY DIRECTORY
    listing "$1" | tr '\0' '\n' >"$scratch/one"
    listing "$2" | tr '\0' '\n' >"$scratch/two"
    [ "$(wc -l <"$scratch/one")" -gt "$files" ]
    diff "$scratch/one" "$scratch/two"
}

# A copy that is asked to keep holes does: few bytes of these files are data.
has_holes() {
    $python - "$1/sparse" "$1/only-a-hole" <<'END'
import os, sys

for path in sys.argv[1:]:
    with open(path, "rb") as file:
        end, at, data = os.fstat(file.fileno()).st_size, 0, 0
        while at < end:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            data += at - start
        assert data <= 1 << 20, f"{data} of {end} bytes of {path} are data"
END
}

rsync_in() { rsync -aHAXS --numeric-ids "$outside/tree/" in/ && same "$outside/tree" "$work/in" && has_holes "$work/in"; }
rsync_within() { rsync -aHAXS --numeric-ids --checksum in/ within/ && same "$work/in" "$work/within" && has_holes "$work/within"; }
rsync_back() { rsync -aHAXS --numeric-ids within/ "$outside/back/" && same "$outside/tree" "$outside/back"; }
rsync_finds_nothing_to_do() {
    local changes
    changes=$(rsync -aHAXn --numeric-ids --checksum --delete --itemize-changes in/ within/)
    echo "$changes"
    [ -z "$changes" ]
}
rsync_changes() {
    cd "$work/in"
    echo more >>d1/e1/f1 && rm d2/e2/f2 && mv d3/e0/f3 d3/renamed && ln random second-name && chmod 600 hard-link
    setfattr -x user.short random && setfacl -b random && printf new | dd of=random bs=1 seek=1000000 conv=notrunc status=none
    rsync -aHAX --numeric-ids --modify-window=-1 --delete --inplace --no-whole-file "$work/in/" "$work/within/"
    same "$work/in" "$work/within"
}
rsync_link_dest() {
    rsync -aHAX --numeric-ids in/ daily.0/ && rsync -aHAX --numeric-ids --link-dest=../daily.0 in/ daily.1/
    [ "$(stat -c %i daily.0/random)" = "$(stat -c %i daily.1/random)" ]
    diff <(cd in && find . -type f -exec sha256sum {} + | sort) <(cd daily.1 && find . -type f -exec sha256sum {} + | sort)
}
tar_in() {
    tar -C "$outside" --xattrs --xattrs-include='*' --acls --numeric-owner --sparse --format=posix -cpf "$work/tree.tar" tree
    mkdir tarred && tar -C tarred --xattrs --xattrs-include='*' --acls --numeric-owner -xpf tree.tar
    # A tar cannot hold sockets.
    same "$outside/tree" "$work/tarred/tree" && has_holes "$work/tarred/tree"
    tar -C tarred -df tree.tar
}
tar_pipe() {
    mkdir piped && tar -C tarred --xattrs --xattrs-include='*' --acls --numeric-owner --sparse -cpf - tree |
        tar -C piped --xattrs --xattrs-include='*' --acls --numeric-owner -xpf -
    same "$work/tarred/tree" "$work/piped/tree"
}
cp_in() { cp -a "$outside/tree" copied && same "$outside/tree" "$work/copied" && has_holes "$work/copied"; }
cp_within() { cp -a --sparse=always copied copied-again && same "$work/copied" "$work/copied-again"; }
mv_in() { cp -a "$outside/tree" "$outside/moving" && mv "$outside/moving" moved && same "$outside/tree" "$work/moved" && [ ! -e "$outside/moving" ]; }
removed() { rm -rf in within tarred piped copied copied-again moved daily.0 daily.1 tree.tar && [ -z "$(ls -A "$work")" ]; }

export work scratch outside files python
step() { check "$1" bash -euo pipefail -c "$(declare -f make listing same has_holes "$1"); $*"; }
step make "$outside/tree"
for name in rsync_in rsync_within rsync_back rsync_finds_nothing_to_do rsync_changes rsync_link_dest; do step "$name"; done
rm "$outside/tree/socket"
for name in tar_in tar_pipe cp_in cp_within mv_in removed; do step "$name"; done
finish
