//! The checks of CI: all of `verify`, then the suites on a real mount, the peers that switch power, a file system
//! that compresses, the package, a cluster of hosts, some real software on a mount, a few power cuts, and the Hadoop
//! connector.

use crate::failure::Failure;
use crate::step::{Step, run_all};
use crate::tree::{Tree, root};
use crate::{hadoop, powercut, programs, software};

const SUITES: &str = "tests/posix/";
/// upsd, an IPMI controller and a Redfish one.
const PEERS: &str = "tests/power/peers.sh";
/// A file system that compresses.
const COMPRESSION: &str = "tests/volumes/compression.sh";
/// The Debian package: what is in it, and machines that it is installed on.
const PACKAGES: &str = "tests/packages/run.sh";
/// A cluster on five hosts that share nothing.
const HOSTS: &str = "tests/hosts/run.sh";

/// Everything. The suites run even when a check failed: one run shows all that is wrong.
pub fn run() -> Vec<Failure> {
    let mut failures = crate::verify::run();
    let suites = suites();
    if suites.is_empty() {
        return failures;
    }
    if let Err(failure) = programs::build() {
        failures.push(failure);
        return failures;
    }
    let others = [("peers", PEERS), ("compression", COMPRESSION), ("packages", PACKAGES), ("hosts", HOSTS)]
        .map(|(name, script)| (name, root().join(script).display().to_string()));
    let suites = suites.iter().map(|script| Step::program("suite", &[script]));
    let others = others.iter().map(|(name, script)| Step::program(name, &[script]));
    let steps: Vec<Step> = suites.chain(others).collect();
    failures.extend(run_all(&steps));
    failures.extend([software::run(&software::SHORT), powercut::run_short()].into_iter().filter_map(Result::err));
    failures.extend(hadoop::run_short());
    failures
}

/// Executable scripts of the folder, in order of name; others are their helpers.
fn suites() -> Vec<String> {
    use std::os::unix::fs::PermissionsExt;
    let Ok(tree) = Tree::load() else { return Vec::new() };
    let runnable = |path: &str| {
        std::fs::metadata(root().join(path)).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
    };
    let scripts = tree.ending(".sh").map(|file| file.path.clone());
    scripts
        .filter(|path| path.strip_prefix(SUITES).is_some_and(|name| !name.contains('/')) && runnable(path))
        .map(|path| root().join(path).display().to_string())
        .collect()
}
