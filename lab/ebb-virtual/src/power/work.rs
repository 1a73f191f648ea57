//! The programs in a cluster that follows its power, and the promises made to them.
//!
//! Each file has one writer, and one value at a time in all of its bytes: numbers that rise. So a reader can check
//! whether a value is as new as it must be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile, NewName};
use ebb_layout::LayoutKind;
use ebb_runtime::virt::{Dice, World};
use ebb_types::{Credentials, InodeId, Result, err};
use ebb_wire::pb;
use pb::meta_op::{CreateDataset, Op};

/// Bytes of a file.
pub const BYTES: usize = 64 << 10;

/// The knowledge about one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// The last value that a write was begun with.
    pub begun: u32,
    /// The last value that an fsync acknowledged, or a reader was shown: later reads may not show less.
    pub least: u32,
}

/// The record of all files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// By file.
    pub files: Vec<Known>,
    /// Writes begun.
    pub writes: u64,
    /// Writes that returned.
    pub acked: u64,
    /// Calls of fsync that returned.
    pub firm: u64,
    /// Reads that returned.
    pub reads: u64,
    /// Violations that readers found.
    pub complaints: Vec<String>,
    /// Metablocks of the file that is kept, all synced.
    pub kept: u32,
}

impl Ledger {
    /// Of so many files that were never written.
    #[must_use]
    pub fn of(files: usize) -> Self {
        Self { files: vec![Known::default(); files], ..Self::default() }
    }

    /// A read that began when `before` was known has shown these bytes.
    pub fn verify_read(&mut self, file: usize, before: Known, bytes: &[u8]) {
        self.reads += 1;
        let known = &mut self.files[file];
        let value = match one_value(bytes) {
            Ok(value) => value,
            Err(found) => return self.complaints.push(format!("f{file}: {found}")),
        };
        if value < before.least || value > known.begun {
            let (least, most) = (before.least, known.begun);
            self.complaints.push(format!("f{file} shows {value}; {least} was acknowledged, {most} written last"));
        }
        known.least = known.least.max(value.min(known.begun));
    }
}

/// The value that all bytes show; nothing is zero.
fn one_value(bytes: &[u8]) -> std::result::Result<u32, String> {
    let mut words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let Some(first) = words.next() else { return Ok(0) };
    match words.find(|word| *word != first) {
        None => Ok(first),
        Some(other) => Err(format!("is a mixture of {first} and {other}")),
    }
}

/// The bytes of a value.
#[must_use]
pub fn content(value: u32) -> Bytes {
    value.to_le_bytes().repeat(BYTES / 4).into()
}

/// Opens a file by its number.
pub async fn open(client: &Client, directory: &str, file: usize, access: Access) -> Result<Handle> {
    let path = format!("{directory}/f{file}");
    let found = client.resolve(&Credentials::root(), path.as_bytes()).await?;
    Ok(client.open(&Credentials::root(), found.inode, access).await?.0)
}

/// Makes a file in a directory.
pub async fn make(client: &Client, directory: InodeId, file: usize) -> Result<u64> {
    let name = format!("f{file}");
    let credentials = Credentials::root();
    let made = client.create(&credentials, NewFile::exclusive(directory, name.as_bytes(), Access::ReadWrite)).await?;
    client.close(made.handle).await;
    Ok(made.attr.inode.raw())
}

/// Where the file is that is kept.
pub const KEPT: &str = "/kept";

/// Makes the directory `/d`, on an expansion chain.
pub async fn make_chain(client: &Client, nodes: usize) -> Result<InodeId> {
    let dataset = pb::Dataset {
        path: "/d".to_owned(),
        layout: "equal-work".to_owned(),
        replicas: 3,
        primaries: if nodes < 6 { 1 } else { 2 },
        block_size: BYTES as u64,
        metablock_size: BYTES as u64,
        replication: "pipeline".to_owned(),
        ..Default::default()
    };
    let root = Credentials::root();
    let made = client.make_dir(&root, NewName { parent: InodeId::ROOT, name: b"d", mode: 0o755, umask: 0 }).await?;
    client.meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() })).await?;
    Ok(made.inode)
}

/// Makes the file that is kept, on a chain or circle of all nodes.
pub async fn make_kept(client: &Client, nodes: usize, layout: LayoutKind) -> Result<InodeId> {
    // Gears are whole.
    let primaries = if nodes.is_multiple_of(2) || layout != LayoutKind::Geared { 2 } else { 1 };
    let dataset = pb::Dataset {
        path: KEPT.to_owned(),
        layout: layout.to_string(),
        replicas: 2,
        primaries: if layout.has_primaries() { primaries } else { 0 },
        gear_size: if layout == LayoutKind::Geared { primaries } else { 0 },
        block_size: KEPT_BYTES as u64,
        metablock_size: KEPT_BYTES as u64,
        ..Default::default()
    };
    let root = Credentials::root();
    let made =
        client.meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() })).await?;
    let directory = InodeId::new(made.dataset.unwrap_or_default().root_inode);
    let access = Access::ReadWrite;
    let made = client.create(&root, NewFile::exclusive(directory, b"all", access)).await?;
    client.close(made.handle).await;
    Ok(made.attr.inode)
}

/// Writes to own files and syncs, until work is over or something fails.
pub async fn write_on(
    world: &World,
    client: &Client,
    directory: &str,
    own: &[usize],
    ledger: &parking_lot::Mutex<Ledger>,
    dice: &mut Dice,
    done: &AtomicBool,
) -> Result<()> {
    let mut handles = Vec::new();
    for file in own {
        handles.push((*file, open(client, directory, *file, Access::ReadWrite).await?));
    }
    while !done.load(Ordering::Relaxed) {
        let (file, handle) = *dice.pick(&handles);
        let value = {
            let mut ledger = ledger.lock();
            ledger.writes += 1;
            ledger.files[file].begun += 1;
            ledger.files[file].begun
        };
        client.write(handle, 0, content(value)).await?;
        ledger.lock().acked += 1;
        if dice.chance(0.8) {
            client.fsync(handle).await?;
            let mut ledger = ledger.lock();
            ledger.firm += 1;
            ledger.files[file].least = ledger.files[file].least.max(value);
        }
        world.sleep(dice.span(Duration::from_millis(150))).await;
    }
    Ok(())
}

/// Reads one file and judges it.
pub async fn read_once(
    client: &Client,
    directory: &str,
    file: usize,
    ledger: &parking_lot::Mutex<Ledger>,
) -> Result<()> {
    let handle = open(client, directory, file, Access::Read).await?;
    let before = ledger.lock().files[file];
    let read = client.read(handle, 0, u32::try_from(BYTES).map_err(|_| err!(Internal, "a file is small"))?).await;
    client.close(handle).await;
    ledger.lock().verify_read(file, before, &read?);
    Ok(())
}

/// Metablocks of a burst.
const BURST: u32 = 24;

/// Writes a new file as fast as it goes, syncs, reads it again and removes it, until work is over or something fails.
pub async fn burst_on(
    world: &World,
    client: &Client,
    directory: InodeId,
    ledger: &parking_lot::Mutex<Ledger>,
    dice: &mut Dice,
    done: &AtomicBool,
) -> Result<()> {
    let root = Credentials::root();
    while !done.load(Ordering::Relaxed) {
        // Its name is its own: of one that died some are left.
        let (value, name) = (dice.below(1 << 30) as u32, format!("burst{:x}", dice.below(u64::MAX)));
        let access = Access::ReadWrite;
        let made = client.create(&root, NewFile::exclusive(directory, name.as_bytes(), access)).await?;
        for block in 0..BURST {
            client.write(made.handle, u64::from(block) * BYTES as u64, content(value + block)).await?;
        }
        client.fsync(made.handle).await?;
        ledger.lock().firm += 1;
        world.sleep(dice.span(Duration::from_secs(2))).await;
        for block in 0..BURST {
            let bytes = client.read(made.handle, u64::from(block) * BYTES as u64, BYTES as u32).await?;
            let found = one_value(&bytes);
            if found != Ok(value + block) {
                let complaint = format!("block {block} of {name} shows {found:?}, {} was written", value + block);
                ledger.lock().complaints.push(complaint);
            }
        }
        client.close(made.handle).await;
        client.unlink(&root, directory, name.as_bytes()).await?;
    }
    Ok(())
}

/// Bytes of a metablock of the file that is kept: three that are granted ahead are no burst.
pub const KEPT_BYTES: usize = 16 << 10;
/// Metablocks that it has at most.
const KEPT_MAX: u32 = 160;

/// Makes the file that is kept longer by a metablock at a time, each synced, by so many at most.
pub async fn keep_on(
    world: &World,
    client: &Client,
    file: InodeId,
    ledger: &parking_lot::Mutex<Ledger>,
    most: u32,
    dice: &mut Dice,
    done: &AtomicBool,
) -> Result<()> {
    let handle = client.open(&Credentials::root(), file, Access::ReadWrite).await?.0;
    let end = ledger.lock().kept.saturating_add(most);
    while !done.load(Ordering::Relaxed) && ledger.lock().kept < end {
        let next = ledger.lock().kept;
        if next < KEPT_MAX {
            client.write(handle, u64::from(next) * KEPT_BYTES as u64, content(next + 1).slice(..KEPT_BYTES)).await?;
            client.fsync(handle).await?;
            ledger.lock().kept += 1;
        }
        world.sleep(dice.span(Duration::from_millis(300))).await;
    }
    client.close(handle).await;
    Ok(())
}

/// Reads it all, and judges it.
pub async fn read_kept(client: &Client, file: InodeId, ledger: &parking_lot::Mutex<Ledger>) -> Result<()> {
    let handle = client.open(&Credentials::root(), file, Access::Read).await?.0;
    let kept = ledger.lock().kept;
    for number in 0..kept {
        let bytes = client.read(handle, u64::from(number) * KEPT_BYTES as u64, KEPT_BYTES as u32).await?;
        let found = one_value(&bytes);
        if found != Ok(number + 1) {
            let complaint =
                format!("metablock {number} of the kept file shows {found:?}, and {} was synced", number + 1);
            ledger.lock().complaints.push(complaint);
        }
    }
    client.close(handle).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_fall_behind_or_were_never_written_are_reported() {
        let mut ledger = Ledger::of(1);
        ledger.files[0] = Known { begun: 5, least: 3 };
        let before = ledger.files[0];
        ledger.verify_read(0, before, &content(4));
        assert_eq!((ledger.complaints.len(), ledger.files[0].least), (0, 4), "a value that was shown must stay");
        let before = ledger.files[0];
        ledger.verify_read(0, before, &content(3));
        ledger.verify_read(0, before, &content(6));
        ledger.verify_read(0, before, &[content(4), content(5)].concat());
        ledger.verify_read(0, before, b"");
        assert_eq!(ledger.complaints.len(), 4, "{:?}", ledger.complaints);
    }
}
