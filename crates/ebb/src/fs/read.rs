//! `ebb fs cat`, `head`, `tail` and `checksum`.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use ebb_api::path::EbbPath;
use ebb_cli::output::{print_line, put_json};
use ebb_cli::units::ByteSize;
use ebb_client::{Access, Handle};
use ebb_types::{Attr, FileKind, Result, bail, err};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::Session;

/// Unit in which the command line reads and writes: the default block.
pub const STEP: u32 = 1 << 20;
/// Between looks for new bytes of a file.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Options of `ebb fs head`.
#[derive(Debug, Args)]
pub struct HeadArgs {
    /// Files to print.
    #[arg(required = true)]
    pub paths: Vec<EbbPath>,
    /// Number of lines.
    #[arg(short = 'n', long, default_value_t = 10)]
    pub lines: u64,
    /// Number of bytes, in place of lines.
    #[arg(short = 'c', long, conflicts_with = "lines")]
    pub bytes: Option<ByteSize>,
}

/// Options of `ebb fs tail`.
#[derive(Debug, Args)]
pub struct TailArgs {
    /// File to print.
    pub path: EbbPath,
    /// Number of lines.
    #[arg(short = 'n', long, default_value_t = 10)]
    pub lines: u64,
    /// Number of bytes, in place of lines.
    #[arg(short = 'c', long, conflicts_with = "lines")]
    pub bytes: Option<ByteSize>,
    /// Print appended bytes, until a signal ends the command.
    #[arg(short, long)]
    pub follow: bool,
}

/// The attributes, if they are those of a regular file.
///
/// # Errors
/// `IsDirectory` or `Invalid` if not.
pub fn must_be_regular(path: &EbbPath, attr: Attr) -> Result<Attr> {
    match attr.kind {
        FileKind::File => Ok(attr),
        FileKind::Directory => bail!(IsDirectory, "{path} is a directory"),
        _ => bail!(Invalid, "{path} is not a regular file"),
    }
}

impl Session {
    /// The attributes of a regular file.
    ///
    /// # Errors
    /// `IsDirectory` or `Invalid` if it is none, and those of a look-up.
    pub async fn regular(&self, path: &EbbPath) -> Result<Attr> {
        let attr = self.caller.resolve(path).await?;
        must_be_regular(path, attr)
    }

    /// Reads a file from front to back and hands each part on.
    pub async fn read_whole(&self, path: &EbbPath, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.read_from(path, 0, |data| sink(data).map(|()| Go::On)).await.map(drop)
    }

    /// Reads a file from an offset on, until its end or until `sink` has enough. Returns where it stopped.
    async fn read_from(&self, path: &EbbPath, offset: u64, mut sink: impl FnMut(&[u8]) -> Result<Go>) -> Result<u64> {
        let attr = self.regular(path).await?;
        let (handle, _) = self.caller.client.open(&self.caller.credentials, attr.inode, Access::Read).await?;
        let done = self.read_open(handle, offset, &mut sink).await.map_err(|error| self.caller.explain(error, path));
        self.caller.client.close(handle).await;
        done
    }

    async fn read_open(
        &self,
        handle: Handle,
        mut offset: u64,
        sink: &mut impl FnMut(&[u8]) -> Result<Go>,
    ) -> Result<u64> {
        loop {
            let data = self.caller.client.read(handle, offset, STEP).await?;
            if data.is_empty() {
                return Ok(offset);
            }
            offset += data.len() as u64;
            if sink(&data)? == Go::Enough {
                return Ok(offset);
            }
        }
    }

    pub(super) async fn cat(&self, paths: &[EbbPath]) -> Result<()> {
        for path in paths {
            self.read_whole(path, print).await?;
        }
        Ok(())
    }

    pub(super) async fn head(&self, args: &HeadArgs) -> Result<()> {
        let paths = self.expand(args.paths.clone()).await?;
        for path in &paths {
            if paths.len() > 1 {
                print_line(&format!("==> {path} <=="));
            }
            let mut left = args.bytes.map_or(args.lines, |size| size.0);
            if left == 0 {
                continue;
            }
            self.read_from(path, 0, |data| {
                let (taken, rest) = match args.bytes {
                    Some(_) => first_bytes(data, left),
                    None => first_lines(data, left),
                };
                left = rest;
                print(taken)?;
                Ok(if left == 0 { Go::Enough } else { Go::On })
            })
            .await?;
        }
        Ok(())
    }

    pub(super) async fn tail(&self, args: &TailArgs) -> Result<()> {
        let attr = self.regular(&args.path).await?;
        let (handle, opened) = self.caller.client.open(&self.caller.credentials, attr.inode, Access::Read).await?;
        let done = async {
            let start = match args.bytes {
                Some(bytes) => opened.size.saturating_sub(bytes.0),
                None => self.start_of_lines(handle, opened.size, args.lines).await?,
            };
            let mut at = self.read_open(handle, start, &mut |data| print(data).map(|()| Go::On)).await?;
            if !args.follow {
                return Ok(());
            }
            // A signal ends it.
            loop {
                tokio::time::sleep(LOOK_AGAIN).await;
                let size = self.caller.client.get_attr(&self.caller.credentials, attr.inode).await?.size;
                // The file was cut: what follows is new.
                at = if size < at { 0 } else { at };
                at = self.read_open(handle, at, &mut |data| print(data).map(|()| Go::On)).await?;
            }
        };
        let done = done.await.map_err(|error| self.caller.explain(error, &args.path));
        self.caller.client.close(handle).await;
        done
    }

    /// Where the last lines of a file begin.
    async fn start_of_lines(&self, handle: Handle, size: u64, lines: u64) -> Result<u64> {
        let mut left = lines;
        let mut end = size;
        while end > 0 {
            let start = end.saturating_sub(u64::from(STEP));
            let data = self.caller.client.read(handle, start, (end - start) as u32).await?;
            for (at, byte) in data.iter().enumerate().rev() {
                // The newline at the very end ends the last line, and begins none.
                if *byte == b'\n' && start + at as u64 + 1 < size {
                    if left <= 1 {
                        return Ok(if lines == 0 { size } else { start + at as u64 + 1 });
                    }
                    left -= 1;
                }
            }
            end = start;
        }
        Ok(if lines == 0 { size } else { 0 })
    }

    pub(super) async fn checksum(&self, paths: &[EbbPath]) -> Result<()> {
        let mut sums = Vec::new();
        for path in paths {
            let mut hash = Sha256::new();
            self.read_whole(path, |data| {
                hash.update(data);
                Ok(())
            })
            .await?;
            let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            sums.push((path, hex));
        }
        if self.output.json() {
            let object = |(path, hex): &(&EbbPath, String)| {
                let mut object = json!({"sha256": hex});
                put_json(&mut object, "path", path.as_bytes());
                object
            };
            let list: Vec<_> = sums.iter().map(object).collect();
            self.output.print_json(&json!(list));
        } else if let [(_, hex)] = sums.as_slice() {
            print_line(hex);
        } else {
            sums.iter().for_each(|(path, hex)| print_line(&format!("{hex}  {path}")));
        }
        Ok(())
    }
}

/// Whether a reader wants more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Go {
    On,
    Enough,
}

/// Prints bytes as they are.
fn print(data: &[u8]) -> Result<()> {
    // A pipe or a terminal may block for long.
    match tokio::task::block_in_place(|| std::io::stdout().write_all(data)) {
        Ok(()) => Ok(()),
        // The reader has gone (`ebb fs cat ... | head`): no error of ours, and nothing left to do.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(err!(Io, "standard output: {error}")),
    }
}

/// The first bytes, and how many are still wanted.
fn first_bytes(data: &[u8], wanted: u64) -> (&[u8], u64) {
    let len = usize::try_from(wanted).unwrap_or(usize::MAX).min(data.len());
    (&data[..len], wanted - len as u64)
}

/// The first lines, and how many are still wanted.
fn first_lines(data: &[u8], wanted: u64) -> (&[u8], u64) {
    let mut left = wanted;
    for (at, byte) in data.iter().enumerate() {
        if *byte == b'\n' {
            left -= 1;
            if left == 0 {
                return (&data[..=at], 0);
            }
        }
    }
    (data, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_cut_at_lines_or_bytes() {
        assert_eq!(first_lines(b"a\nb\nc", 2), (&b"a\nb\n"[..], 0));
        assert_eq!(first_lines(b"a\nb", 2), (&b"a\nb"[..], 1));
        assert_eq!(first_bytes(b"abc", 2), (&b"ab"[..], 0));
        assert_eq!(first_bytes(b"abc", 5), (&b"abc"[..], 2));
    }
}
