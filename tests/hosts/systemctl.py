#!/usr/bin/env python3
"""systemctl(1) on a host where no systemd runs, as far as docs/operations.md uses it: units start as unit.py starts them.

Usage: systemctl enable --now UNIT...; systemctl daemon-reload
"""
import subprocess
import sys

match sys.argv[1:]:
    case ["enable", "--now", *units] if units:
        for unit in units:
            subprocess.run([sys.executable, "/srv/hosts/unit.py", unit], check=True)
    case ["daemon-reload"]:
        pass
    case other:
        sys.exit(f"systemctl: {other} is not known here")
