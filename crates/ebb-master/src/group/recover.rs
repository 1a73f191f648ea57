//! Recovery of the group from disk at the start: the newest checkpoint, and in parallel the log behind it.
//!
//! A damaged checkpoint is skipped if nothing is lost by that. The checkpoint before it (or the beginning) and a log
//! without a gap, at least up to the damaged one, have everything. The damaged one is set aside and reported, because a
//! disk that changes bytes is failing.

use std::collections::VecDeque;
use std::path::Path;

use ebb_meta::Machine;
use ebb_runtime::Runtime;
use ebb_types::{ClusterId, Error, ErrorKind, Result, bail, err};
use ebb_wire::pb;
use raft::eraftpb::{ConfState, Entry};

use super::{GroupOptions, SELF_ID};
use crate::log::{Batch, Checkpoint, CheckpointWriter, OLDER, Recovered, Wal};

/// A position in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct At {
    pub index: u64,
    pub term: u64,
}

/// State from which a group starts.
pub(super) struct Start {
    pub wal: Wal,
    pub machine: Machine,
    pub at: At,
    pub recovered: Recovered,
    pub commands: Commands,
}

/// Commands of the entries behind the checkpoint, decoded in parallel to other work. A decoding error counts only when
/// its entry is applied, because the end of a log need not be committed.
#[derive(Debug, Default)]
pub(super) struct Commands(VecDeque<(u64, Result<pb::Command>)>);

impl Commands {
    fn decode(entries: &VecDeque<Entry>) -> Self {
        let commands = entries.iter().filter(|entry| !entry.data.is_empty());
        Self(commands.map(|entry| (entry.index, decode(entry))).collect())
    }

    /// The command of an entry.
    ///
    /// Errors: `Unsupported` for a command of a newer release, `Corrupt` for one that cannot be decoded.
    pub(super) fn command_of(&mut self, entry: &Entry) -> Result<pb::Command> {
        while let Some((index, command)) = self.0.pop_front_if(|(index, _)| *index <= entry.index) {
            if index == entry.index {
                return command;
            }
        }
        decode(entry)
    }
}

/// Decodes an entry. I-113: an unknown entry must end the master. If it were skipped, the state would differ from the
/// log.
fn decode(entry: &Entry) -> Result<pb::Command> {
    ebb_meta::decode_known(&entry.data).map_err(|error| error.context(format_args!("entry {} of the log", entry.index)))
}

/// Reads checkpoint and log. An empty directory gets a new log.
///
/// Errors: `Corrupt` if damage loses acknowledged changes; otherwise those of the disk.
pub(super) async fn recover(
    runtime: &Runtime,
    dir: &Path,
    cluster: ClusterId,
    options: &GroupOptions,
) -> Result<Start> {
    CheckpointWriter::new(runtime.clone(), dir.to_owned()).clean().await?;
    let mut checkpoints = Checkpoint::list(runtime, dir).await?;
    let mut damaged: Vec<(u64, Error)> = Vec::new();
    loop {
        let index = checkpoints.pop();
        match read(runtime, dir, cluster, options, index).await {
            Ok(start) => {
                check_complete(&start, dir, &damaged)?;
                set_aside(runtime, dir, &damaged, start.at.index).await;
                return check_start(start, dir).await;
            }
            Err(Failed::Checkpoint(error)) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) => {
                damaged.push((index.unwrap_or_default(), error));
            }
            Err(Failed::Checkpoint(error) | Failed::Log(error)) => return Err(explain(error, &damaged)),
        }
    }
}

enum Failed {
    Checkpoint(Error),
    Log(Error),
}

/// Reads one checkpoint (`None` means the beginning) and the log behind it.
async fn read(
    runtime: &Runtime,
    dir: &Path,
    cluster: ClusterId,
    options: &GroupOptions,
    index: Option<u64>,
) -> Result<Start, Failed> {
    let checkpoint = async {
        match index {
            Some(index) => Checkpoint::read(runtime, dir, index, cluster).await.map(Some),
            None => Ok(None),
        }
    };
    let log = async {
        let (wal, recovered) = Wal::open(runtime, dir, cluster, options.wal.clone(), index.unwrap_or_default()).await?;
        let (recovered, commands) = runtime
            .compute(move || {
                let commands = Commands::decode(&recovered.entries);
                (recovered, commands)
            })
            .await;
        Ok::<_, Error>((wal, recovered, commands))
    };
    let (checkpoint, log) = tokio::join!(biased; checkpoint, log);
    let (machine, at) = match checkpoint.map_err(Failed::Checkpoint)? {
        Some(Checkpoint { machine, index, term }) => (machine, At { index, term }),
        None => (Machine::new(), At::default()),
    };
    let (wal, recovered, commands) = log.map_err(Failed::Log)?;
    Ok(Start { wal, machine, at, recovered, commands })
}

/// Refuses to continue from an older checkpoint unless the log has everything that the damaged ones had.
fn check_complete(start: &Start, dir: &Path, damaged: &[(u64, Error)]) -> Result<()> {
    let last = start.recovered.entries.back().map_or(start.at.index, |entry| entry.index);
    match damaged.first() {
        Some((index, _)) if *index > last => {
            let error = err!(Corrupt, "{}: the log ends with entry {last}, before that checkpoint", dir.display());
            Err(explain(error, damaged))
        }
        _ => Ok(()),
    }
}

/// The error with the damage behind it, and the remedy.
fn explain(error: Error, damaged: &[(u64, Error)]) -> Error {
    if damaged.is_empty() {
        return error;
    }
    let found: Vec<String> = damaged.iter().map(|(_, error)| error.to_string()).collect();
    err!(
        Corrupt,
        "{}. What is older does not make up for it: {error}. Copy the data directory away; then restore the damaged file, or \
         the whole directory, from the newest saved copy; {OLDER}",
        found.join("; ")
    )
}

async fn set_aside(runtime: &Runtime, dir: &Path, damaged: &[(u64, Error)], from: u64) {
    for (index, error) in damaged {
        match Checkpoint::set_aside(runtime, dir, *index).await {
            Ok(aside) => tracing::error!(
                %error, aside = %aside.display(), from,
                "a checkpoint is damaged; the one before it and the log have everything. Is the disk dying?"
            ),
            Err(failed) => tracing::error!(%error, %failed, "a damaged checkpoint could not be set aside"),
        }
    }
}

async fn check_start(mut start: Start, dir: &Path) -> Result<Start> {
    if start.recovered.conf_state.voters.is_empty() {
        if start.at.index > 0 {
            bail!(
                Corrupt,
                "{}: there is a checkpoint up to entry {} but no log; restore the data directory from the newest saved copy; {OLDER}",
                dir.display(),
                start.at.index
            );
        }
        let conf_state = ConfState { voters: vec![SELF_ID], ..Default::default() };
        start.wal.append(Batch { conf_state: Some(conf_state.clone()), ..Default::default() }).await?;
        start.recovered.conf_state = conf_state;
    }
    Ok(start)
}

#[cfg(test)]
mod tests {
    use ebb_wire::Message;
    use ebb_wire::pb::command::Command as Change;

    use super::*;

    fn entry(index: u64, data: Vec<u8>) -> Entry {
        Entry { index, term: 1, data, ..Default::default() }
    }

    #[test]
    fn an_entry_of_a_newer_release_ends_the_replay() {
        let known = pb::Command { now_ns: 1, command: Some(Change::CloseSession(7)), step: 0 };
        // A field with a number that no release has used, behind everything that is known.
        let newer = [known.encode_to_vec(), vec![0xf8, 0x07, 1]].concat();
        let entries = [entry(5, known.encode_to_vec()), entry(6, newer)];
        let mut commands = Commands::decode(&entries.iter().cloned().collect());
        assert_eq!(commands.command_of(&entries[0]), Ok(known));
        let refused = commands.command_of(&entries[1]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("entry 6 of the log: says something"), "{refused}");
    }
}
