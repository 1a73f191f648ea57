//! Examples of every command, for help texts and manual pages.

use ebb_cli::examples::Examples;

/// Every line is tried by a test: it must be a valid command line.
pub const EXAMPLES: &[Examples] = &[
    (
        "cluster init",
        &[(
            "ebb cluster init --dir /srv/ebb --master 10.0.0.1:7000",
            "on the host of the master; identities for the others are issued there",
        )],
    ),
    (
        "identity issue",
        &[
            ("ebb identity issue --role block --host h2 --out h2.pem", "for the block server of another host"),
            ("ebb identity issue --role program --user alice --lifetime 7d --out job.pem", "for a job of one user"),
        ],
    ),
    ("identity show", &[("ebb identity show job.pem", "whom it certifies, and until when")]),
    (
        "identity list",
        &[
            ("ebb identity list", "all in the cluster's directory"),
            ("ebb identity list --trust", "tokens that were given out, and what was withdrawn"),
        ],
    ),
    (
        "identity revoke",
        &[
            ("ebb identity revoke --host h2", "everything on a host that was stolen"),
            ("ebb identity revoke --role program --user alice", "the jobs of one user"),
        ],
    ),
    (
        "cluster up",
        &[
            ("ebb cluster up --dir /srv/ebb --nodes 6", "make a cluster of six nodes, or start it again"),
            ("ebb cluster up --nodes 9 --policy tide", "with a power policy; the directory is $EBB_DIR"),
        ],
    ),
    (
        "cluster status",
        &[
            ("ebb cluster status", "processes, copies, slow nodes"),
            ("ebb cluster status --json | jq .verdict", "for a monitoring system"),
        ],
    ),
    (
        "cluster raise-version",
        &[("ebb cluster raise-version", "after all nodes were upgraded: use what the new release brought")],
    ),
    ("cluster down", &[("ebb cluster down", "end all processes and mounts")]),
    (
        "mount",
        &[
            ("ebb mount /mnt/ebb", "in the background"),
            ("ebb mount --read-only --foreground /mnt/ebb", "in this terminal, until a signal comes"),
        ],
    ),
    ("umount", &[("ebb umount /mnt/ebb", "flush everything and unmount")]),
    (
        "fs ls",
        &[
            ("ebb fs ls -lh /data", "sizes for people"),
            ("ebb fs ls -R '/data/*.csv'", "patterns are quoted, so that the shell leaves them"),
        ],
    ),
    ("fs cat", &[("ebb fs cat /data/a.txt | less", "print a file")]),
    ("fs head", &[("ebb fs head -n 20 /data/a.txt", "the first 20 lines")]),
    ("fs tail", &[("ebb fs tail -f /logs/today", "and what is appended, until ctrl-C")]),
    (
        "fs put",
        &[
            ("ebb fs put -r ~/data /", "copy a directory to /data"),
            ("tar c src | ebb fs put - /src.tar", "copy standard input"),
        ],
    ),
    ("fs get", &[("ebb fs get -rp /data ~/copy", "copy a tree with times and permission bits")]),
    ("fs getmerge", &[("ebb fs getmerge --newline /out all.txt", "the files of a directory in one local file")]),
    ("fs cp", &[("ebb fs cp -rn /a/. /b", "copy what is not there yet")]),
    ("fs append", &[("ebb fs append today.log /logs/all", "append a local file")]),
    ("fs mv", &[("ebb fs mv /a/x /a/y /b", "move two files into a directory")]),
    (
        "fs rm",
        &[
            ("ebb fs rm -r /tmp/old", "remove a tree"),
            ("ebb fs rm -r --skip-trash /tmp/old", "at once, also where a trash would keep it"),
        ],
    ),
    ("fs mkdir", &[("ebb fs mkdir -p /a/b/c", "with the directories above")]),
    ("fs touch", &[("ebb fs touch /a/done", "create an empty file, or set its times to now")]),
    ("fs test", &[("ebb fs test -e /a/done", "exit code 0 if it exists, else 1")]),
    ("fs find", &[("ebb fs find /data --name '*.tmp' --min-size 1GiB", "large files by name")]),
    ("fs stat", &[("ebb fs stat /data/a", "attributes and dataset")]),
    ("fs du", &[("ebb fs du -sh /data", "one sum for people")]),
    ("fs count", &[("ebb fs count /data", "directories, files and bytes")]),
    ("fs df", &[("ebb fs df", "free and used space")]),
    ("fs ln", &[("ebb fs ln -s /data/v2 /data/current", "a symbolic link")]),
    ("fs chmod", &[("ebb fs chmod -R u=rwX,go=rX /data", "as chmod(1)")]),
    ("fs chown", &[("ebb fs chown -R root:root /data", "owner and group")]),
    ("fs chgrp", &[("ebb fs chgrp root /data", "the group alone")]),
    ("fs getfacl", &[("ebb fs getfacl /data", "as getfacl(1)")]),
    (
        "fs setfacl",
        &[
            ("ebb fs setfacl -m u:root:rw /data/a", "let a user read and write"),
            ("ebb fs setfacl -R -m g:root:rX,d:g:root:rX /data", "a group, in a tree and in what is made there"),
            ("ebb fs setfacl -b /data/a", "permission bits alone again"),
        ],
    ),
    ("fs trash list", &[("ebb fs trash list", "what `ebb fs rm` moved there, and until when it is kept")]),
    ("fs trash restore", &[("ebb fs trash restore /data/old", "bring it back to its path")]),
    ("fs trash empty", &[("ebb fs trash empty /data", "free the space now")]),
    ("fs locations", &[("ebb fs locations --why /data/big", "nodes of each metablock, and why copies move")]),
    ("fs checksum", &[("ebb fs checksum /data/a", "SHA-256 of the contents")]),
    (
        "dataset create",
        &[
            ("ebb dataset create /s --replicas 2 --layout striped", "two copies, round-robin over all disks"),
            ("ebb dataset create /cold --redundancy raid6", "cold data as 8+2: 1.25 bytes for each byte"),
            ("ebb dataset create /eq --layout equal-work --primaries 2", "any number of nodes shares a read equally"),
        ],
    ),
    (
        "dataset set",
        &[
            ("ebb dataset set /s --quota 2TiB", "a limit of the bytes"),
            ("ebb dataset set /s --redundancy 4+2 --delay 7d", "trade copies for check metablocks after a week"),
            ("ebb dataset set /s --read-rule nearest --prefetch 25%", "how it is read"),
        ],
    ),
    ("dataset set-active", &[("ebb dataset set-active /eq 4", "read from four nodes, whatever more power there is")]),
    ("dataset show", &[("ebb dataset show /eq", "settings, and how the data lie on the nodes")]),
    ("raid status", &[("ebb raid status", "what is encoded, and what waits")]),
    (
        "raid list",
        &[
            ("ebb raid list", "all RAID sets"),
            ("ebb raid list --troubled /cold", "those of a tree that have lost a part"),
        ],
    ),
    ("raid show", &[("ebb raid show 1234", "slots and rows of one, with their nodes")]),
    ("raid encode", &[("ebb raid encode /cold/2025", "now, whatever their age")]),
    ("raid repack", &[("ebb raid repack /cold", "give back the room of removed files")]),
    ("dataset list", &[("ebb dataset list", "layout, copies and use of each")]),
    (
        "dataset rm",
        &[("ebb dataset rm /old", "a dataset without files"), ("ebb dataset rm -r /old", "with all its files")],
    ),
    (
        "power set",
        &[
            ("ebb power set --fraction 0.5", "half of the power that all nodes draw at most"),
            ("ebb power set --release", "the power source decides again"),
        ],
    ),
    (
        "power follow",
        &[
            ("ebb power follow solar.csv --compress 60 --forecast signal", "a trace, an hour in a minute, known ahead"),
            ("ebb power follow grid.csv --grams-per-hour 50", "what 50 g of CO2 an hour allow, by a trace in g/kWh"),
            (
                "ebb power follow --carbon https://api.carbonintensity.org.uk/intensity --grams-per-hour 50",
                "the same by a service",
            ),
            (
                "ebb power follow --openadr https://vtn.example.org/openadr3/3.1.0 --client-id ebb --client-secret-file /etc/ebb/vtn",
                "events of a grid operator",
            ),
        ],
    ),
    ("power policy", &[("ebb power policy tide", "change the policy")]),
    ("power status", &[("ebb power status --follow", "nodes that are awake, watts beside the budget")]),
    ("node list", &[("ebb node list --why", "nodes, and what their copies wait for")]),
    ("node add", &[("ebb node add --count 2", "two more nodes")]),
    (
        "node token",
        &[
            ("ebb node token > h2.token", "for one new host, which names itself"),
            ("ebb node token --host c7 --role mount --lifetime 1d", "for a client's host, within a day"),
        ],
    ),
    (
        "node join",
        &[
            ("ebb node join --token h2.token", "on the new host; it has its own name, and one volume"),
            (
                "ebb node join --token - --host h2 --rack r2 --listen 10.0.0.2:7001 --volume /srv/a --volume /srv/b",
                "with a name, an address and two disks; the token comes from standard input",
            ),
        ],
    ),
    ("node check", &[("ebb node check", "on a host that has joined: does the master reach it?")]),
    ("node attach", &[("ebb node attach h1 4711", "a NodeManager and its containers sleep with the node")]),
    ("node detach", &[("ebb node detach h1 4711", "it runs on while the node sleeps")]),
    ("node drain", &[("ebb node drain n3", "move all replicas off a node")]),
    ("node undrain", &[("ebb node undrain n3", "let it take data again")]),
    ("node remove", &[("ebb node remove n3", "move its data to others, and take it out for good")]),
    ("node readmit", &[("ebb node readmit n3", "begin a node anew whose directory went back in time")]),
    ("node start", &[("ebb node start n3", "start its block server")]),
    ("node stop", &[("ebb node stop n3", "unless data would be out of reach")]),
    (
        "user add",
        &[
            ("ebb user add etl=5001", "a user that the hosts do not know"),
            ("ebb user add etl=5001 --groups 100,200", "with its groups"),
        ],
    ),
    ("user list", &[("ebb user list", "the cluster's table")]),
    ("user remove", &[("ebb user remove etl", "its files keep the number")]),
    (
        "yarn follow",
        &[
            ("ebb yarn follow --rm http://rm:8088", "until it is ended"),
            ("ebb yarn follow --rm http://rm:8088 --absent 60s --lead 120s", "absences of more than a minute are long"),
        ],
    ),
    (
        "snapshot take",
        &[
            (
                "ebb snapshot take /data before-the-upgrade",
                "the files of then are at /data/.snapshot/before-the-upgrade",
            ),
            ("ebb snapshot take /data hourly --wait 10s", "or none, if writers do not answer in time"),
        ],
    ),
    ("snapshot list", &[("ebb snapshot list /data", "names, times, and what they keep")]),
    ("snapshot show", &[("ebb snapshot show /data monday", "with its number of files")]),
    ("snapshot remove", &[("ebb snapshot remove /data monday", "what it alone has is freed in the background")]),
    ("snapshot rename", &[("ebb snapshot rename /data monday baseline", "under another name")]),
    (
        "fsck",
        &[
            ("ebb fsck", "compare the map with the replicas"),
            ("ebb fsck --parity", "compare the rows of all RAID sets with their slots"),
            ("ebb fsck --scrub /data", "read and verify every byte of a tree"),
        ],
    ),
    ("job count", &[("ebb job count /data", "count words where the data lie")]),
    ("job grep", &[("ebb job grep needle /data", "count lines with a text")]),
    ("lab", &[("ebb lab virtual --seeds 0..500", "the same as `ebb-lab virtual`")]),
    ("plan", &[("ebb plan gears --primaries 100", "the same as `ebb-lab plan gears`")]),
    ("completions", &[("ebb completions bash > ebb.bash", "source this file in a shell")]),
    ("man", &[("ebb man /usr/local/share/man/man1", "then `man ebb-fs-put`")]),
    ("block", &[("ebb block", "as host.toml says, on a host that has joined")]),
    ("worker", &[("ebb worker", "for jobs on the data of this host")]),
    ("proxy", &[("ebb proxy --name proxy-2", "one more, in a cluster with proxies apart")]),
    ("power-manager", &[("ebb power-manager --policy tide", "publish plans by this policy from now on")]),
    ("power-client", &[("ebb power-client", "put nodes to sleep, and wake them, by the plans")]),
    ("master accept-loss", &[("ebb master accept-loss", "go on with an older directory of the master")]),
];
