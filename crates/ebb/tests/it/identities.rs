//! Who may use a cluster: certificates that are issued, and those that are not believed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::{Cluster, pattern, wait_for};

/// A directory with the settings of a cluster and no authority, as on another host.
fn elsewhere(cluster: &Cluster, name: &str) -> PathBuf {
    let place = cluster.path(name);
    std::fs::create_dir_all(place.join("identities")).unwrap();
    std::fs::copy(cluster.dir().join("cluster.toml"), place.join("cluster.toml")).unwrap();
    place
}

/// Has a new key certified in a cluster, and put where a process of this role looks for it.
fn certify(by: &Cluster, role: &str, place: &Path) {
    let file = place.join(format!("identities/{role}.pem"));
    let file = file.to_str().unwrap();
    let issued = by.json(&["identity", "issue", "--role", role, "--out", file]);
    assert_eq!((issued["role"].as_str(), issued["file"].as_str()), (Some(role), Some(file)), "{issued}");
}

#[test]
fn a_process_elsewhere_needs_a_certificate_of_this_cluster() {
    let (cluster, other) = (Cluster::up(1), Cluster::none());
    let bytes = pattern(300_000, 1);
    cluster.put("/f", &bytes);
    let place = elsewhere(&cluster, "elsewhere");
    let ask = |arguments: &[&str]| cluster.ebb(&[&["--dir", place.to_str().unwrap()], arguments].concat());
    let refused = ask(&["fs", "ls", "/"]);
    assert!(refused.code != 0 && refused.err.contains("no certificate for the operator"), "{}", refused.err);
    // One of another cluster's authority, which names this one: a forged one.
    other.ok(&["cluster", "init", "--master", "127.0.0.1:7000"]);
    let toml = std::fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    let id = toml.lines().find(|line| line.starts_with("cluster =")).unwrap();
    let forged = std::fs::read_to_string(other.dir().join("cluster.toml")).unwrap();
    let own = forged.lines().find(|line| line.starts_with("cluster =")).unwrap().to_owned();
    std::fs::write(other.dir().join("cluster.toml"), forged.replace(&own, id)).unwrap();
    certify(&other, "operator", &place);
    let refused = ask(&["fs", "ls", "/"]);
    assert!(refused.code != 0 && refused.err.contains("another cluster"), "{}", refused.err);
    std::fs::remove_file(place.join("identities/operator.pem")).unwrap();
    certify(&cluster, "operator", &place);
    let listed = ask(&["fs", "cat", "/f"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    let shown = ask(&["identity", "show", place.join("identities/operator.pem").to_str().unwrap()]);
    assert!(shown.out.starts_with("operator in cluster "), "{}", shown.out);
    // Only where the authority is, others are certified.
    let refused = ask(&["identity", "issue", "--role", "mount", "--host", "h9", "--out", "/dev/null/x"]);
    assert!(refused.code != 0 && refused.err.contains("where the cluster was made"), "{}", refused.err);
    cluster.ok(&["cluster", "down"]);
}

#[test]
fn a_program_acts_for_its_user_and_no_other() {
    let cluster = Cluster::up(1);
    cluster.put("/f", &pattern(1000, 1));
    cluster.ok(&["fs", "chmod", "600", "/f"]);
    let settings = cluster.path("settings");
    std::fs::create_dir(&settings).unwrap();
    let file = settings.join("identity.pem");
    let issue = |user: &str, lifetime: &str| {
        let _ = std::fs::remove_file(&file);
        let out = file.to_str().unwrap();
        cluster.ok(&["identity", "issue", "--role", "program", "--user", user, "--lifetime", lifetime, "--out", out]);
    };
    let toml = std::fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    let lines: String = toml
        .lines()
        .filter(|line| line.starts_with("cluster") || line.starts_with("masters"))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(settings.join("main.toml"), lines).unwrap();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let connect = async || {
        let embedded = ebb_api::settings::Embedded {
            host: ebb_types::HostName::new("h7"),
            role: "test".to_owned(),
            read_cache_bytes: 1 << 20,
            dirty_bytes: 1 << 20,
        };
        let settings = ebb_api::settings::Settings::read(&settings.join("main.toml"))?;
        settings.connect(ebb_runtime::Runtime::real(), embedded).await
    };
    let user = |uid: u32| ebb_types::Credentials { uid, gid: uid, groups: Vec::new() };
    let read_as = |uid: u32| {
        tokio.block_on(async {
            let client = connect().await?;
            let found = client.lookup(&user(uid), ebb_types::InodeId::ROOT, b"f").await;
            client.disconnect().await?;
            found.map(drop)
        })
    };
    issue("daemon", "1h");
    read_as(1).unwrap();
    let refused = read_as(0).unwrap_err();
    assert_eq!(refused.kind(), ebb_types::ErrorKind::Unauthorized, "{refused}");
    assert!(refused.detail().contains("acts for user 0"), "{refused}");
    // What the client asks for by itself is asked for that user, too: maps, leases, commits.
    cluster.ok(&["fs", "mkdir", "/own"]);
    cluster.ok(&["fs", "chown", "daemon", "/own"]);
    tokio.block_on(async {
        let client = connect().await.unwrap();
        let daemon = user(1);
        let own = client.lookup(&daemon, ebb_types::InodeId::ROOT, b"own").await.unwrap();
        let file = ebb_client::NewFile::exclusive(own.inode, b"g", ebb_client::Access::ReadWrite);
        let made = client.create(&daemon, file).await.unwrap();
        client.write(made.handle, 0, pattern(300_000, 7).into()).await.unwrap();
        client.fsync(made.handle).await.unwrap();
        client.close(made.handle).await;
        let (handle, _) = client.open(&daemon, made.attr.inode, ebb_client::Access::Read).await.unwrap();
        assert!(client.read(handle, 0, 300_000).await.unwrap() == pattern(300_000, 7));
        client.close(handle).await;
        // Another user's file is neither opened nor described by its number.
        let other = client.lookup(&daemon, ebb_types::InodeId::ROOT, b"f").await.unwrap();
        let refused = client.open(&daemon, other.inode, ebb_client::Access::Read).await.unwrap_err();
        assert_eq!(refused.kind(), ebb_types::ErrorKind::AccessDenied, "{refused}");
        client.disconnect().await.unwrap();
    });
    assert!(cluster.get("/own/g") == pattern(300_000, 7));
    // It holds for a second, and gives nothing afterwards.
    issue("daemon", "1s");
    wait_for("end of the certificate", Duration::from_secs(30), || {
        read_as(1).is_err_and(|error| error.kind() == ebb_types::ErrorKind::Unauthorized)
    });
    cluster.ok(&["cluster", "down"]);
}

#[test]
fn plain_bytes_are_chosen_by_name_for_the_whole_cluster() {
    let cluster = Cluster::none();
    cluster.ok(&["cluster", "up", "--nodes", "1", "--wire", "plain"]);
    let bytes = pattern(3_000_000, 1);
    cluster.put("/f", &bytes);
    // A process that wants encryption does not speak in the clear with the others.
    let place = elsewhere(&cluster, "elsewhere");
    let toml = std::fs::read_to_string(place.join("cluster.toml")).unwrap();
    std::fs::write(place.join("cluster.toml"), toml.replace("wire = \"plain\"\n", "")).unwrap();
    certify(&cluster, "operator", &place);
    let refused = cluster.ebb(&["--dir", place.to_str().unwrap(), "fs", "ls", "/"]);
    assert!(refused.code != 0 && refused.err.contains("`wire`"), "{}", refused.err);
    cluster.ok(&["cluster", "down"]);
    cluster.ok(&["cluster", "up", "--wire", "encrypted"]);
    let out = cluster.path("out");
    cluster.ok(&["fs", "get", "/f", out.to_str().unwrap()]);
    assert!(std::fs::read(out).unwrap() == bytes);
    cluster.ok(&["cluster", "down"]);
}

#[test]
fn bad_input_is_refused_with_the_way_on() {
    let cluster = Cluster::none();
    for (arguments, words) in [
        (vec!["cluster", "init", "--master", "10.0.0.1"], "HOST:PORT"),
        (vec!["cluster", "init", "--master", "fd00::1:7000"], "brackets"),
        (vec!["cluster", "init", "--master", "h:7000", "--wire", "open"], "plain"),
    ] {
        let refused = cluster.ebb(&arguments);
        assert!(refused.code != 0 && refused.err.contains(words), "{arguments:?}: {}", refused.err);
        assert!(!cluster.dir().join("cluster.toml").exists(), "nothing is left behind");
    }
    let made = cluster.json(&["cluster", "init", "--master", "10.0.0.1:7000"]);
    assert_eq!(made["authority"].as_str().unwrap().len(), 64, "{made}");
    let again = cluster.ebb(&["cluster", "init", "--master", "10.0.0.1:7000"]);
    assert!(again.code != 0 && again.err.contains("already"), "{}", again.err);
    let out = cluster.path("out.pem");
    let out = out.to_str().unwrap();
    for (arguments, words) in [
        (vec!["--role", "cli"], "the roles are master, block"),
        (vec!["--role", "block"], "--host HOST"),
        (vec!["--role", "program"], "--user"),
        (vec!["--role", "mount", "--host", "h1", "--user", "root"], "speaks for every user"),
        (vec!["--role", "program", "--user", "nobody-is-called-so"], "no user"),
        (vec!["--role", "mount", "--host", "a/b"], "letters, digits"),
    ] {
        let refused = cluster.ebb(&[&["identity", "issue", "--out", out][..], &arguments].concat());
        assert!(refused.code != 0 && refused.err.contains(words), "{arguments:?}: {}", refused.err);
        assert!(!Path::new(out).exists(), "nothing is left behind");
    }
    cluster.ok(&["identity", "issue", "--role", "mount", "--host", "h9", "--out", out]);
    let again = cluster.ebb(&["identity", "issue", "--role", "mount", "--host", "h9", "--out", out]);
    assert!(again.code != 0 && again.err.contains("out.pem"), "{}", again.err);
}
