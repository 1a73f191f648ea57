//! `ebb fs append`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_api::EbbPath;
use ebb_api::caller::NewMode;
use ebb_api::file::{Closing, CreateFile};
use ebb_api::first::FirstCopies;
use ebb_client::IfExists;
use ebb_types::{Error, Result, err};
use serde_json::json;

use super::read::STEP;
use super::{Session, umask};

impl Session {
    /// Appends local files to a file. Each step of 1 MiB is one append: another program's appends may lie between them,
    /// and never within one.
    pub(super) async fn append(&self, sources: &[PathBuf], target: &EbbPath) -> Result<()> {
        // Sources are opened first: a wrong name changes nothing.
        let mut inputs = Vec::new();
        for source in sources {
            inputs.push((source, open(source)?));
        }
        let mode = NewMode { mode: 0o666, umask: umask() };
        let new = CreateFile { mode, if_exists: IfExists::Open, first: FirstCopies::Layout };
        let file = self.caller.create(target, new).await?;
        let (mut done, mut bytes) = (Ok(()), 0);
        for (source, mut input) in inputs {
            done = append_one(&file, source, &mut input, &mut bytes).await;
            if done.is_err() {
                break;
            }
        }
        done.and(file.close(Closing::Synced).await)?;
        self.answer(|| json!({ "path": target.to_string(), "bytes": bytes }));
        Ok(())
    }
}

/// Appends one source, and adds to the number of appended bytes.
async fn append_one(file: &ebb_api::File, source: &Path, input: &mut (dyn Read + Send), bytes: &mut u64) -> Result<()> {
    loop {
        let mut buffer = Vec::with_capacity(STEP as usize);
        let read = tokio::task::block_in_place(|| input.take(u64::from(STEP)).read_to_end(&mut buffer));
        read.map_err(|error| err!(Io, "reading {}: {error}", source.display()))?;
        if buffer.is_empty() {
            return Ok(());
        }
        let length = buffer.len() as u64;
        file.append(Bytes::from(buffer)).await?;
        *bytes += length;
    }
}

fn open(source: &Path) -> Result<Box<dyn Read + Send>> {
    if source.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin()));
    }
    let file = File::open(source).map_err(|error| Error::from_io(&error, source.display()))?;
    Ok(Box::new(file))
}
