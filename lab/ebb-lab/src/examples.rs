//! Examples of every command, for help texts and manual pages.

use ebb_cli::examples::Examples;

/// Every line is tried by a test: it must be a valid command line.
pub const EXAMPLES: &[Examples] = &[
    (
        "virtual",
        &[
            ("ebb-lab virtual --seeds 0..500", "five hundred clusters under faults"),
            ("ebb-lab virtual --seed 17 --json", "one of them, again and again the same"),
        ],
    ),
    ("soak", &[("ebb-lab soak --time 8h", "new seeds through the night")]),
    ("rabbit", &[("ebb-lab rabbit --out figures", "all figures, with their pictures")]),
    ("blinkfs", &[("ebb-lab blinkfs --out figures", "all figures, with their pictures")]),
    (
        "diskreduce",
        &[
            ("ebb-lab diskreduce --out figures", "all figures, with their pictures"),
            ("ebb-lab diskreduce --figure d5", "degraded reads and rebuilding alone"),
        ],
    ),
    (
        "lsn",
        &[
            ("ebb-lab lsn --figure 7 --out figures", "five hosts, by disks of their LSN"),
            ("ebb-lab lsn --against-plan plan.json", "the answer of `ebb plan lsn --within 10 --json`, built and run"),
        ],
    ),
    (
        "metablocks",
        &[
            ("ebb-lab metablocks --dir /srv/ebb", "on a running cluster"),
            (
                "ebb-lab metablocks --figure 2 --out figures",
                "Hadoop's jobs on HDFS and on Ebb, on clusters of their own",
            ),
        ],
    ),
    ("power", &[("ebb-lab power --dir /srv/ebb", "on a running cluster with a power policy")]),
    (
        "compliance",
        &[
            (
                "ebb-lab compliance --dir /srv/ebb --out figures",
                "every policy, on a running cluster and on a virtual one",
            ),
            ("ebb-lab compliance --virtual-only --policy tide", "one policy, without a cluster"),
        ],
    ),
    (
        "plan layout",
        &[(
            "ebb-lab plan layout --nodes 100 --primaries 5 --replicas 4 --layout simple,equal-work",
            "two layouts side by side",
        )],
    ),
    ("plan gears", &[("ebb-lab plan gears --primaries 100 --gear-size 1,5,10", "three sizes of a gear")]),
    (
        "plan power",
        &[("ebb-lab plan power --nodes 1000 --replicas 3 --inactive 500", "what half of the nodes keeps in reach")],
    ),
    ("plan raid", &[("ebb-lab plan raid --user-bytes 10PB --scheme 3,8+2", "three copies beside a code")]),
    (
        "plan lsn",
        &[
            ("ebb-lab plan lsn --study 20-node --lsn-disks 16", "ten applications on shared disks"),
            ("ebb-lab plan lsn --from-cluster --sample 600", "the LSN for what a running cluster does"),
        ],
    ),
    ("plan report", &[("ebb-lab plan report --out report.html", "one page with all of it")]),
    ("completions", &[("ebb-lab completions bash > ebb-lab.bash", "source this file in a shell")]),
    ("man", &[("ebb-lab man /usr/local/share/man/man1", "then `man ebb-lab-virtual`")]),
];
