//! Histories that end in an unmount: a mount that is asked to leave writes everything back and ends, whatever was refused,
//! drained, switched or removed before.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::harness::{Cluster, Dice, pattern, write_synced};

const NODES: u64 = 4;
/// Steps before each unmount.
const STEPS: usize = 14;
/// Nodes that sleep are waited for; nothing else may last.
const LEAVES_WITHIN: Duration = Duration::from_secs(45);

/// One history: its steps are drawn, and shown if it fails.
fn history(cluster: &Cluster, mount: &Path, seed: u64) {
    let mut dice = Dice::new(seed);
    let mut steps = Vec::new();
    let mut drained: Option<String> = None;
    for step in 0..STEPS {
        let event = match dice.below(8) {
            0 => {
                // Beyond the quota: the refusal may come with the write, the sync or the close.
                let refused = write_synced(&mount.join(format!("full/large{step}")), &pattern(6 << 20, seed)).is_err();
                format!("6 MiB beside the quota, refused: {refused}")
            }
            1 => {
                let policy = ["tide", "blink-circular", "activation", "always-on"][dice.below(4) as usize];
                // One that would put data out of reach is refused.
                let code = cluster.ebb(&["power", "policy", policy]).code;
                format!("policy {policy}, exit code {code}")
            }
            2 => {
                let fraction = ["0.4", "0.7", "1"][dice.below(3) as usize];
                let code = cluster.ebb(&["power", "set", "--fraction", fraction]).code;
                format!("power {fraction}, exit code {code}")
            }
            3 => match drained.take() {
                Some(node) => {
                    cluster.ok(&["node", "undrain", &node]);
                    format!("undrain {node}")
                }
                None => {
                    let node = format!("n{}", dice.below(NODES) + 1);
                    cluster.ok(&["node", "drain", "--no-wait", &node]);
                    drained = Some(node.clone());
                    format!("drain {node}")
                }
            },
            4 => {
                let directory = mount.join(format!("many{step}"));
                fs::create_dir(&directory).unwrap();
                for number in 0..300 {
                    fs::write(directory.join(number.to_string()), "x").unwrap();
                }
                fs::remove_dir_all(&directory).unwrap();
                "300 files made and removed".to_owned()
            }
            5 => {
                fs::write(mount.join(format!("unsynced{step}")), pattern(3 << 20, seed)).unwrap();
                "3 MiB not synced".to_owned()
            }
            6 => {
                for entry in fs::read_dir(mount.join("full")).unwrap() {
                    fs::remove_file(entry.unwrap().path()).unwrap();
                }
                "the quota's directory emptied".to_owned()
            }
            _ => {
                std::thread::sleep(Duration::from_millis(dice.below(800)));
                "a pause".to_owned()
            }
        };
        steps.push(event);
    }
    let begun = Instant::now();
    let left = cluster.ebb(&["umount", mount.to_str().unwrap(), "--timeout", "90s"]);
    let lasted = begun.elapsed();
    assert!(left.code == 0 && lasted < LEAVES_WITHIN, "seed {seed}: {lasted:?}, {}: {steps:#?}", left.err);
    if let Some(node) = drained {
        cluster.ok(&["node", "undrain", &node]);
    }
    cluster.ok(&["power", "policy", "always-on"]);
    cluster.ok(&["power", "set", "--release"]);
}

/// `EBB_SEEDS` asks for more histories than the few of every run.
#[test]
fn a_mount_leaves_after_every_history() {
    let count = std::env::var("EBB_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(3);
    let cluster = Cluster::none();
    cluster.ok(&["cluster", "up", "--nodes", &NODES.to_string(), "--policy", "always-on", "--interval", "2s"]);
    for seed in 1..=count {
        let mount = cluster.mount(&format!("mnt{seed}"));
        if seed == 1 {
            cluster.ok(&["dataset", "create", "/full", "--replicas", "2", "--quota", "4MiB"]);
        }
        history(&cluster, &mount, seed);
    }
    cluster.healthy();
}
