//! Work shipped to the data.

use std::fmt::Write as _;

use crate::harness::{Cluster, shell};

/// Text with words of many lengths, and characters of more than one byte.
fn text(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    let mut number = 1_u64;
    while text.len() < bytes {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let _ = write!(text, "w{:x}{}", number >> (number % 40), if number.is_multiple_of(13) { "\n— é\t" } else { " " });
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
    let expected: u64 = shell(&format!("find {} -type f | xargs cat | LC_ALL=C.UTF-8 wc -w", local.display())).parse().unwrap();
    let input: u64 = shell(&format!("find {} -type f -printf '%s\\n' | awk '{{s+=$1}} END {{print s}}'", local.display())).parse().unwrap();

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
