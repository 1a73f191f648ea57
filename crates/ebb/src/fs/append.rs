//! `ebb fs append`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_api::path::EbbPath;
use ebb_client::{Access, Handle, NewFile, NewName};
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
        let (parent, name) = self.caller.parent(target).await?;
        let name = NewName { parent, name, mode: 0o666, umask: umask() };
        let new = NewFile { name, ..NewFile::or_existing(parent, name.name, Access::Write) };
        let made = self
            .caller
            .client
            .create(&self.caller.credentials, new)
            .await
            .map_err(|error| self.caller.explain(error, target))?;
        let (mut done, mut bytes) = (Ok(()), 0);
        for (source, mut input) in inputs {
            done = self.append_one(made.handle, source, &mut input, &mut bytes).await;
            if done.is_err() {
                break;
            }
        }
        let synced = self.caller.client.fsync(made.handle).await;
        self.caller.client.close(made.handle).await;
        done.and(synced).map_err(|error| self.caller.explain(error, target))?;
        self.answer(|| json!({ "path": target.to_string(), "bytes": bytes }));
        Ok(())
    }

    /// Appends one source, and adds to the number of appended bytes.
    async fn append_one(
        &self,
        handle: Handle,
        source: &Path,
        input: &mut (dyn Read + Send),
        bytes: &mut u64,
    ) -> Result<()> {
        loop {
            let mut buffer = Vec::with_capacity(STEP as usize);
            let read = tokio::task::block_in_place(|| input.take(u64::from(STEP)).read_to_end(&mut buffer));
            read.map_err(|error| err!(Io, "reading {}: {error}", source.display()))?;
            if buffer.is_empty() {
                return Ok(());
            }
            let length = buffer.len() as u64;
            self.caller.client.append(handle, Bytes::from(buffer)).await?;
            *bytes += length;
        }
    }
}

fn open(source: &Path) -> Result<Box<dyn Read + Send>> {
    if source.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin()));
    }
    let file = File::open(source).map_err(|error| Error::from_io(&error, source.display()))?;
    Ok(Box::new(file))
}
