#!/usr/bin/env python3
"""Writes a file block by block, each with fsync, and keeps a note of how many were acknowledged; or compares it with that.

Usage: writer.py write FILE NOTE    until there is NOTE.end, or an error; NOTE has the number of blocks
       writer.py compare FILE COUNT    the first COUNT blocks are as they were written, and the others whole or absent
"""
import hashlib
import os
import sys

BLOCK = 64 << 10


def block(number):
    """No two blocks are alike, and no part of one is."""
    return b"".join(hashlib.sha512(b"%d %d" % (number, part)).digest() for part in range(BLOCK // 64))


def write(path, note):
    with open(path, "wb", buffering=0) as file, open(note, "w") as count:
        number = 0
        while not os.path.exists(f"{note}.end"):
            data = block(number)
            while data:
                data = data[file.write(data):]
            os.fsync(file.fileno())
            number += 1
            count.seek(0)
            count.write(f"{number}\n")
            count.flush()


def compare(path, count):
    with open(path, "rb") as file:
        number = 0
        while found := file.read(BLOCK):
            # What was not acknowledged may be there in part: zeros, or a cut.
            if found != block(number) and number < count:
                sys.exit(f"block {number} of {count} is not what was written")
            number += 1
    if number < count:
        sys.exit(f"{number} blocks are there, {count} were acknowledged")


if sys.argv[1] == "write":
    write(sys.argv[2], sys.argv[3])
else:
    compare(sys.argv[2], int(sys.argv[3]))
