#!/usr/bin/env python3
"""Starts a daemon as its unit says, on a host where no systemd runs. Returns when it has said READY=1.

Followed are ConditionPathExists, StateDirectory (with systemd's way of giving it to the user), User, Group, UMask,
LimitNOFILE, NoNewPrivileges, CapabilityBoundingSet, Type=notify and ExecStart. The rest of a sandbox is systemd's, and so
is Restart: a daemon that was killed stays away until it is started again.

Usage: unit.py UNIT [NAME=VALUE...]    with these variables; its pid is in /run/UNIT.pid, its output in /var/log/UNIT.log
"""
import os
import pathlib
import pwd
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import time

UNITS = pathlib.Path("/usr/lib/systemd/system")
READY_WITHIN_S = 60


def settings(unit):
    """The last value of each setting: the unit's, then those of the drop-ins of its prefix."""
    found = {}
    for path in [UNITS / f"{unit}.service", *sorted((UNITS / f"{unit.split('-')[0]}-.service.d").glob("*.conf"))]:
        for line in path.read_text().splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                found[name.strip()] = value.strip()
    return found


def give_state(name, mode, user, group):
    """As systemd: only a directory that is another one's is given away, with all in it. Later files keep their owner."""
    path = pathlib.Path("/var/lib") / name
    path.mkdir(mode=0o755, exist_ok=True)
    if path.owner() != user or path.group() != group:
        for folder, _, files in os.walk(path):
            for entry in [folder, *(os.path.join(folder, file) for file in files)]:
                shutil.chown(entry, user, group)
    path.chmod(mode)


def main(unit, variables):
    of = settings(unit)
    condition = of.get("ConditionPathExists")
    if condition and not os.path.exists(condition):
        sys.exit(f"{unit} is skipped: there is no {condition}")
    user, group = of["User"], of["Group"]
    for name in of["StateDirectory"].split():
        give_state(name, int(of["StateDirectoryMode"], 8), user, group)
    # Its contents stay root's, whatever their modes are.
    (pathlib.Path("/etc") / of["ConfigurationDirectory"]).mkdir(mode=0o755, exist_ok=True)

    notify = f"/run/{unit}.notify"
    pathlib.Path(notify).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(notify)
    os.chmod(notify, 0o777)
    listener.settimeout(0.05)

    entry = pwd.getpwnam(user)
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8", "NOTIFY_SOCKET": notify,
        "USER": user, "LOGNAME": user, "HOME": entry.pw_dir, "SHELL": entry.pw_shell,
        **dict(variable.split("=", 1) for variable in variables),
    }
    privileges = ["setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups"]
    if of["NoNewPrivileges"] == "yes":
        privileges.append("--no-new-privs")
    if of["CapabilityBoundingSet"] == "":
        privileges += ["--inh-caps=-all", "--bounding-set=-all"]
    # In a container root may not raise it.
    files = min(int(of["LimitNOFILE"]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    journal = open(f"/var/log/{unit}.log", "ab")
    begins = journal.tell()
    daemon = subprocess.Popen(
        privileges + shlex.split(of["ExecStart"]), env=environment, cwd="/", umask=int(of["UMask"], 8),
        stdin=subprocess.DEVNULL, stdout=journal, stderr=journal, start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
    )
    pathlib.Path(f"/run/{unit}.pid").write_text(f"{daemon.pid}\n")
    until = time.monotonic() + READY_WITHIN_S
    while daemon.poll() is None and time.monotonic() < until:
        try:
            if b"READY=1" in listener.recv(4096).split(b"\n"):
                return
        except TimeoutError:
            pass
    with open(f"/var/log/{unit}.log", errors="replace") as log:
        log.seek(begins)
        print(log.read()[-2000:])
    if daemon.returncode is None:
        daemon.kill()
        sys.exit(f"{unit} is not ready after {READY_WITHIN_S} s")
    sys.exit(f"{unit} has ended with code {daemon.returncode}")


main(sys.argv[1], sys.argv[2:])
