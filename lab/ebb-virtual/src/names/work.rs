//! The clients' work on names: replace by rename, make exclusively, move, exchange, remove, look up, list and read
//! whole files, all in one directory with few names. A path is walked as a kernel walks it: a name is looked up, and
//! then the inode is asked for that it led to.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Created, EntryDetail, Handle, IfExists, NewFile, NewName, Rename, RenameMode};
use ebb_runtime::Runtime;
use ebb_runtime::virt::Dice;
use ebb_types::{Credentials, ErrorKind, InodeId, Result, err};

use super::{Answer, File, Name, Operation, Record};
use crate::workload::Board;

/// The directory, in the run's own.
const DIRECTORY: &[u8] = crate::files::NAMES.as_bytes();
/// Names that clients meet at.
const NAMES: u64 = 4;
/// Bytes of a file: its number, and then zeroes.
const LEN: usize = 600;
/// Between the steps of an operation at most.
const STEP_MAX: Duration = Duration::from_millis(20);
/// A kernel begins again once; in a cluster with faults a step may take longer than anything is kept.
const WALKS_MAX: usize = 6;
/// Entries of one call for a listing.
const PAGE: u32 = 100;
/// So many changes without an answer at most. Each stays under way for the rest of the history, and the checker has room for
/// [`super::check::OPEN_MAX`]; clients only look from then on.
const UNANSWERED_MAX: usize = super::check::OPEN_MAX * 3 / 4;
/// In so little time nothing goes that a name led to.
const PROMPT: Duration = Duration::from_secs(1);

/// One client's work on names.
pub struct Names {
    board: Board,
    /// Which client.
    number: usize,
    client: Client,
    runtime: Runtime,
    directory: InodeId,
}

impl Names {
    /// The directory is made in this one if it is not there.
    pub async fn new(board: Board, number: usize, client: Client, runtime: Runtime, above: &str) -> Result<Self> {
        let root = Credentials::root();
        let above = client.resolve(&root, above.as_bytes()).await?.inode;
        let made = match client.make_dir(&root, NewName { parent: above, name: DIRECTORY, mode: 0o755, umask: 0 }).await
        {
            Err(error) if error.kind() == ErrorKind::Exists => client.lookup(&root, above, DIRECTORY).await?,
            made => made?,
        };
        Ok(Self { board, number, client, runtime, directory: made.inode })
    }

    /// Works until the run ends, resting a little between operations.
    pub async fn run(self, mut dice: Dice, pause_max: Duration) {
        while !self.board.is_done() {
            self.step(&mut dice).await;
            self.runtime.sleep(dice.span(pause_max)).await;
        }
    }

    async fn step(&self, dice: &mut Dice) {
        let one = dice.below(NAMES);
        let other = (one + dice.between(1, NAMES - 1)) % NAMES;
        let (one, other) = (Name(one as usize), Name(other as usize));
        let may_change = self.board.history.lock().names_unanswered() < UNANSWERED_MAX;
        match dice.below(if may_change { 100 } else { 45 }) {
            0..30 => {
                let rest = dice.span(STEP_MAX);
                self.record_operation(Operation::Read(one), self.read(one, rest)).await;
            }
            30..37 => self.list().await,
            37..45 => self.record_operation(Operation::Look(one), self.look_up(one)).await,
            45..62 => self.put(one, dice).await,
            62..65 => self.fell_a_tree().await,
            65..80 => self.put_new(one, dice).await,
            80..88 => {
                let unlinked = async { self.client.unlink(&root(), self.directory, &text(one)).await.map(done) };
                self.record_operation(Operation::Unlink(one), unlinked).await;
            }
            88..92 => {
                self.record_operation(Operation::Move(one, other), self.rename(&text(one), other, RenameMode::Replace))
                    .await
            }
            92..96 => {
                self.record_operation(
                    Operation::MoveNew(one, other),
                    self.rename(&text(one), other, RenameMode::NoReplace),
                )
                .await
            }
            _ => {
                self.record_operation(
                    Operation::Exchange(one, other),
                    self.rename(&text(one), other, RenameMode::Exchange),
                )
                .await
            }
        }
    }

    /// Does it and records the answer. An operation that is never answered, because its client dies, is recorded too.
    async fn record_operation(&self, operation: Operation, work: impl Future<Output = Result<Answer>>) {
        let (board, client) = (&self.board, self.number);
        let start = board.now();
        let record = Record { client, operation, answer: Answer::Unknown, start, end: u64::MAX };
        let number = board.history.lock().begin_name(record);
        let result = work.await;
        let mut end = board.now();
        let answer = match &result {
            Ok(answer) => *answer,
            Err(error) if error.kind() == ErrorKind::NotFound => Answer::Missing,
            Err(error) if error.kind() == ErrorKind::Exists => Answer::Exists,
            Err(error) => {
                tracing::debug!(client, ?operation, %error, "it is not known whether it was done");
                end = u64::MAX;
                Answer::Unknown
            }
        };
        tracing::trace!(client, ?operation, ?result, start, end, "a name was used");
        board.history.lock().end_name(number, answer, end);
    }

    async fn look_up(&self, name: Name) -> Result<Answer> {
        self.client.lookup(&root(), self.directory, &text(name)).await.map(done)
    }

    /// For each name a listing shows whether it was there at some time meanwhile; not all at one moment.
    async fn list(&self) {
        let start = self.board.now();
        let listed = self.listed().await;
        let end = self.board.now();
        tracing::trace!(client = self.number, ?listed, start, end, "names were listed");
        let Ok(listed) = listed else { return };
        let mut history = self.board.history.lock();
        for name in (0..NAMES as usize).map(Name) {
            let answer = if listed.contains(&text(name)) { Answer::Done } else { Answer::Missing };
            let look = Operation::Look(name);
            let number =
                history.begin_name(Record { client: self.number, operation: look, answer, start, end: u64::MAX });
            history.end_name(number, answer, end);
        }
    }

    async fn listed(&self) -> Result<BTreeSet<Vec<u8>>> {
        let (mut names, mut after) = (BTreeSet::new(), None);
        loop {
            let page = self.client.read_dir(&root(), self.directory, after, PAGE, EntryDetail::Names).await?;
            after = page.entries.last().map(|entry| entry.cookie).or(after);
            let is_last = page.is_last || page.entries.is_empty();
            names.extend(page.entries.into_iter().map(|entry| entry.name));
            if is_last {
                return Ok(names);
            }
        }
    }

    async fn read(&self, name: Name, rest: Duration) -> Result<Answer> {
        let began = self.runtime.now();
        let mut last = err!(Stale, "a name was never looked up");
        for _ in 0..WALKS_MAX {
            let found = self.client.lookup(&root(), self.directory, &text(name)).await?;
            self.runtime.sleep(rest).await;
            match self.client.open(&root(), found.inode, Access::Read).await {
                Ok((handle, _)) => {
                    let data = self.read_up_to_size(found.inode, handle).await;
                    self.client.close(handle).await;
                    return self.inspect(name, &data?);
                }
                Err(error) if error.kind() == ErrorKind::Stale => last = error,
                Err(error) => return Err(error),
            }
            if self.runtime.now().since(began) < PROMPT {
                let complaint = format!("{name:?} led client {} to a file that is gone: {last}", self.number);
                self.board.history.lock().complain("linear", complaint);
            }
        }
        Err(last.context("looked up again and again"))
    }

    /// As a kernel reads: it asks for the size, and not for bytes beyond it.
    async fn read_up_to_size(&self, inode: InodeId, handle: Handle) -> Result<Bytes> {
        let size = self.client.get_attr(&root(), inode).await?.size;
        let data = self.client.read(handle, 0, LEN as u32 * 2).await?;
        Ok(data.slice(..data.len().min(size as usize)))
    }

    fn inspect(&self, name: Name, data: &[u8]) -> Result<Answer> {
        if data.is_empty() {
            return Ok(Answer::Empty);
        }
        let number = data.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).unwrap_or_default();
        if data != contents(File(number)) {
            let complaint = format!("{name:?} has {} bytes that are no file: {number}", data.len());
            self.board.history.lock().complain("linear", complaint);
        }
        Ok(Answer::File(File(number)))
    }

    /// A synced file that no other client knows, and its name.
    async fn temporary(&self) -> Result<(InodeId, Vec<u8>, File)> {
        let file = File(self.board.history.lock().next_file());
        let name = format!(".{}", file.0).into_bytes();
        let inode = self.fill(&name, file).await?;
        Ok((inode, name, file))
    }

    async fn fill(&self, name: &[u8], file: File) -> Result<InodeId> {
        let root = root();
        let made = self.client.create(&root, NewFile::exclusive(self.directory, name, Access::Write));
        let Created { handle, attr, .. } = made.await?;
        let filled = match self.client.write(handle, 0, contents(file)).await {
            Ok(()) => self.client.fsync(handle).await,
            failed => failed,
        };
        self.client.close(handle).await;
        filled.map(|()| attr.inode)
    }

    async fn put(&self, name: Name, dice: &mut Dice) {
        // A file that was made in part under a name of its own disturbs no other.
        let Ok((_, temporary, file)) = self.temporary().await else { return };
        self.runtime.sleep(dice.span(STEP_MAX)).await;
        self.record_operation(Operation::Put(name, file), self.rename(&temporary, name, RenameMode::Replace)).await;
    }

    /// A tree that no other client knows is made and removed in one step. Its name is gone then. What was below it goes later, while
    /// faults go on. It lies beside the directory under test, which has files alone.
    async fn fell_a_tree(&self) {
        let root = root();
        let name = format!(".tree{}", self.board.history.lock().next_file()).into_bytes();
        let mut parent = InodeId::ROOT;
        for name in [name.as_slice(), b"below"] {
            let made = self.client.make_dir(&root, NewName { parent, name, mode: 0o755, umask: 0 }).await;
            let Ok(made) = made else { return };
            parent = made.inode;
            // A file whose writer holds its lease, and may hold bytes, when it goes.
            let made = self.client.create(&root, NewFile::exclusive(parent, b"file", Access::Write)).await;
            let Ok(file) = made else { return };
            let _ = self.client.write(file.handle, 0, contents(File(0))).await;
            self.client.close(file.handle).await;
        }
        if self.client.remove_tree(&root, InodeId::ROOT, &name).await.is_err() {
            return;
        }
        match self.client.lookup(&root, InodeId::ROOT, &name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => tracing::debug!(%error, "it is not known whether a removed tree is gone"),
            Ok(_) => self.board.history.lock().complain("linear", format!("{name:?} was removed and is there")),
        }
    }

    /// By link, by a rename that does not replace, by O_EXCL, or over what is there.
    async fn put_new(&self, name: Name, dice: &mut Dice) {
        let way = dice.below(4);
        if way == 0 || way == 3 {
            let file = File(self.board.history.lock().next_file());
            let mut made = None;
            let making = async {
                let (root, text) = (root(), text(name));
                let new = NewFile::exclusive(self.directory, &text, Access::Write);
                let if_exists = if way == 0 { new.if_exists } else { IfExists::Replace };
                made = Some(self.client.create(&root, NewFile { if_exists, ..new }).await?.handle);
                Ok(Answer::Done)
            };
            let operation = if way == 0 { Operation::Make(name, file) } else { Operation::MakeOver(name, file) };
            self.record_operation(operation, making).await;
            if let Some(handle) = made {
                self.runtime.sleep(dice.span(STEP_MAX)).await;
                // A client that finds it empty may do so for ever.
                let _ = self.client.write(handle, 0, contents(file)).await;
                self.client.close(handle).await;
            }
            return;
        }
        let Ok((inode, temporary, file)) = self.temporary().await else { return };
        if way == 1 {
            self.record_operation(Operation::PutNew(name, file), self.rename(&temporary, name, RenameMode::NoReplace))
                .await;
            return;
        }
        let linking = async { self.client.link(&root(), inode, self.directory, &text(name)).await.map(done) };
        self.record_operation(Operation::PutNew(name, file), linking).await;
        // One that stays disturbs no other.
        let _ = self.client.unlink(&root(), self.directory, &temporary).await;
    }

    async fn rename(&self, source: &[u8], target: Name, mode: RenameMode) -> Result<Answer> {
        let target = text(target);
        let rename = Rename {
            source_parent: self.directory,
            source_name: source,
            target_parent: self.directory,
            target_name: &target,
            mode,
        };
        self.client.rename(&root(), rename).await.map(done)
    }
}

fn root() -> Credentials {
    Credentials::root()
}

fn text(Name(name): Name) -> Vec<u8> {
    format!("n{name}").into_bytes()
}

fn contents(file: File) -> Bytes {
    let mut data = vec![0; LEN];
    data[..4].copy_from_slice(&file.0.to_le_bytes());
    data.into()
}

fn done<T>(_: T) -> Answer {
    Answer::Done
}
