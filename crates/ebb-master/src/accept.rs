//! The file `accept-loss` in the master's data directory: an operator's order to accept that everything after this log
//! is lost.
//!
//! ```text
//! ebb accept-loss 1
//! without 3
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use ebb_runtime::Runtime;
use ebb_types::{NodeId, Result, bail};

const NAME: &str = "accept-loss";
const FIRST: &str = "ebb accept-loss 1";

/// Writes the order for the master's next start. `without` are nodes that need not report.
pub async fn write(runtime: &Runtime, data_dir: &Path, without: &BTreeSet<NodeId>) -> Result<()> {
    let lines: String = without.iter().map(|node| format!("without {}\n", node.raw())).collect();
    runtime.disk().replace(&data_dir.join(NAME), format!("{FIRST}\n{lines}").into()).await
}

/// Reads the order. `None` if there is none; otherwise the nodes that need not report.
///
/// Errors: `Corrupt` if the file cannot be decoded.
pub(crate) async fn read(runtime: &Runtime, data_dir: &Path) -> Result<Option<BTreeSet<NodeId>>> {
    let path = data_dir.join(NAME);
    if !runtime.disk().exists(&path).await? {
        return Ok(None);
    }
    let bytes = runtime.disk().read_replaced(&path).await?;
    decode(std::str::from_utf8(&bytes).unwrap_or_default(), &path).map(Some)
}

fn decode(text: &str, path: &Path) -> Result<BTreeSet<NodeId>> {
    let mut lines = text.lines();
    let is_first = lines.next() == Some(FIRST);
    let nodes = lines.map(|line| line.strip_prefix("without ")?.parse().ok().map(NodeId::new));
    match nodes.collect::<Option<BTreeSet<NodeId>>>().filter(|_| is_first) {
        Some(nodes) => Ok(nodes),
        None => bail!(
            Corrupt,
            "{} does not read as an accepted loss: remove it, and say it again with `ebb master accept-loss --dir DIR`",
            path.display()
        ),
    }
}

/// Removes the order after it was carried out.
pub(crate) async fn clear(runtime: &Runtime, data_dir: &Path) -> Result<()> {
    let disk = runtime.disk();
    disk.remove_file(&data_dir.join(NAME)).await?;
    disk.sync_dir(data_dir).await
}

/// Entry point of `ebb-fuzz`: whether the bytes decode as an order.
#[doc(hidden)]
#[must_use]
pub fn fuzz(bytes: &[u8]) -> bool {
    decode(std::str::from_utf8(bytes).unwrap_or_default(), Path::new(NAME)).is_ok()
}

/// Valid files as samples for `ebb-fuzz`.
#[doc(hidden)]
#[must_use]
pub fn fuzz_samples() -> Vec<Vec<u8>> {
    let nodes: String = (1..20).map(|node| format!("without {node}\n")).collect();
    vec![format!("{FIRST}\n").into_bytes(), format!("{FIRST}\n{nodes}").into_bytes()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_loss_reads_as_it_was_written() {
        let path = Path::new("/d/accept-loss");
        assert_eq!(decode("ebb accept-loss 1\n", path).unwrap(), BTreeSet::new());
        let two = BTreeSet::from([NodeId::new(3), NodeId::new(7)]);
        assert_eq!(decode("ebb accept-loss 1\nwithout 7\nwithout 3\n", path).unwrap(), two);
        for other in ["", "ebb accept-loss 2\n", "ebb accept-loss 1\nwithout all\n"] {
            assert!(decode(other, path).unwrap_err().to_string().contains("say it again"));
        }
    }
}
