//! Work shipped to the data.

use std::fmt::Write as _;

use crate::harness::{Cluster, shell};

/// Text with words of many lengths, and characters of more than one byte.
fn text(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    let mut number = 1_u64;
    while text.len() < bytes {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let _ =
            write!(text, "w{:x}{}", number >> (number % 40), if number.is_multiple_of(13) { "\n— é\t" } else { " " });
    }
    text
}

#[test]
fn words_are_counted_where_they_lie() {
    let cluster = Cluster::up(4);
    let local = cluster.path("t");
    std::fs::create_dir_all(local.join("sub")).unwrap();
    for index in 0..40 {
        std::fs::write(local.join(format!("sub/f{index}")), text(20_000 + index * 777)).unwrap();
    }
    std::fs::write(local.join("large"), text(9 << 20)).unwrap();
    cluster.ok(&["dataset", "create", "/d", "--block", "256KiB", "--metablock", "1MiB"]);
    cluster.ok(&["fs", "put", "-r", local.to_str().unwrap(), "/d"]);
    let expected: u64 =
        shell(&format!("find {} -type f | xargs cat | LC_ALL=C.UTF-8 wc -w", local.display())).parse().unwrap();
    let input: u64 =
        shell(&format!("find {} -type f -printf '%s\\n' | awk '{{s+=$1}} END {{print s}}'", local.display()))
            .parse()
            .unwrap();

    let near = cluster.json(&["lab", "wordcount", "/d"]);
    assert_eq!(near["words"], expected);
    assert!(near["splits"].as_u64().unwrap() >= 49);
    assert_eq!(near["local_splits"], near["splits"]);
    let bytes = near["network_bytes"].as_u64().unwrap();
    assert!(bytes * 20 < input, "{bytes} network bytes for {input} bytes of input by location");

    let far = cluster.json(&["lab", "wordcount", "/d", "--no-locations"]);
    assert_eq!(far["words"], expected);
    let bytes = far["network_bytes"].as_u64().unwrap();
    assert!(bytes * 2 > input, "{bytes} network bytes for {input} bytes of input without locations");
}

#[test]
fn words_written_a_moment_ago_are_counted() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    std::fs::create_dir(mount.join("t")).unwrap();
    let mut expected = 0;
    for round in 0..3_usize {
        // Nothing is synced or committed yet when the count begins: new files first, then other bytes of one length.
        for index in 0..30 {
            let words = if (index + round).is_multiple_of(2) { "a b c d e " } else { "words long " };
            std::fs::write(mount.join(format!("t/f{index}")), words.repeat(100)).unwrap();
        }
        expected = (0..30).map(|index| if (index + round).is_multiple_of(2) { 500 } else { 200 }).sum();
        assert_eq!(cluster.json(&["lab", "wordcount", "/t"])["words"], expected, "round {round}");
    }
    assert_eq!(expected, 15 * 700);
}
