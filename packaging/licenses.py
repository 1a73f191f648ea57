#!/usr/bin/env python3
"""Prints names, versions, authors and license texts of the libraries that are linked into a package's program.

Their licenses ask for that where the program is given away. A text that several libraries share is printed once.

Usage: cargo metadata --format-version 1 --locked --filter-platform TARGET | licenses.py PACKAGE
"""
import json
import pathlib
import sys

NAMES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")

metadata = json.load(sys.stdin)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}


def is_macro(package):
    """A macro runs in the compiler: nothing of it is linked, nor of what it needs."""
    return any("proc-macro" in target["kind"] for target in package["targets"])


def is_linked(dependency):
    return any(kind["kind"] is None for kind in dependency["dep_kinds"]) and not is_macro(packages[dependency["pkg"]])


linked = set()
waiting = [one["id"] for one in metadata["packages"] if one["name"] == sys.argv[1] and one["source"] is None]
if not waiting:
    sys.exit(f"licenses.py: the workspace has no package {sys.argv[1]}")
while waiting:
    name = waiting.pop()
    if name not in linked:
        linked.add(name)
        waiting.extend(dependency["pkg"] for dependency in nodes[name]["deps"] if is_linked(dependency))

foreign = sorted((packages[name] for name in linked if packages[name]["source"]), key=lambda one: (one["name"], one["version"]))
texts = {}
print("Libraries of others in this program. After the list are their license texts, as they come with them.\n")
print("The standard library of Rust: MIT OR Apache-2.0, (c) The Rust Project contributors")
for package in foreign:
    authors = f", by {', '.join(package['authors'])}" if package["authors"] else ""
    title = f"{package['name']} {package['version']}"
    print(f"{title}: {package['license'] or 'see its text'}{authors}")
    folder = pathlib.Path(package["manifest_path"]).parent
    found = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name.upper().startswith(NAMES)]
    if package["license_file"]:
        found.append(folder / package["license_file"])
    for path in dict.fromkeys(found):
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        texts.setdefault(text, []).append(title)
    if not found and not package["license"]:
        sys.exit(f"licenses.py: {title} names no license")
for text, titles in texts.items():
    print(f"\n{'-' * 80}\n{', '.join(dict.fromkeys(titles))}:\n\n{text}")
