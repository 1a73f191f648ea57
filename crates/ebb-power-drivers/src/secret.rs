//! Small files of an operator: secrets, and certificates.

use std::path::Path;

use bytes::Bytes;
use ebb_runtime::{OpenMode, Runtime};
use ebb_types::{Result, bail};

/// Largest file that is read. A bundle of all public authorities has a fifth of it.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest secret.
const SECRET_BYTES_MAX: usize = 4_096;

/// The bytes of a small file. `Invalid` if it is large.
pub(crate) async fn read_small(runtime: &Runtime, path: &Path) -> Result<Bytes> {
    let file = runtime.disk().open(path, OpenMode::ReadOnly).await?;
    let len = file.len().await?;
    if len > FILE_BYTES_MAX {
        bail!(Invalid, "{}: {len} bytes; at most {FILE_BYTES_MAX} are read", path.display());
    }
    file.read_at(0, usize::try_from(len).unwrap_or(0)).await
}

/// A secret in a file of its own, without the end of its line. It is read at each use, so that it can be replaced.
pub(crate) async fn read_secret(runtime: &Runtime, path: &Path) -> Result<String> {
    let bytes = read_small(runtime, path).await?;
    let text = String::from_utf8_lossy(&bytes);
    let secret = text.trim();
    let is_plain = secret.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if secret.is_empty() || secret.len() > SECRET_BYTES_MAX || !is_plain {
        bail!(Invalid, "{}: it must contain the secret alone, in visible ASCII", path.display());
    }
    Ok(secret.to_owned())
}
