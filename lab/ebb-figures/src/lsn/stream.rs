//! Files as tasks use them: from the beginning to the end, in requests of a piece.

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile};
use ebb_types::{Credentials, InodeId, Result};

use super::bed::{PIECE, SCALE};

/// Sums of parts may be as much too large.
pub const ROUNDING: f64 = 1e-6;

static ZEROS: [u8; PIECE as usize] = [0; PIECE as usize];

/// A new file that is written from the beginning on. Less than a piece is held back until the end.
pub struct Writer {
    client: Client,
    handle: Handle,
    /// Its inode.
    pub inode: InodeId,
    /// Given so far, in bytes as they are stored.
    given: f64,
    /// Written so far.
    at: u64,
}

impl Writer {
    /// Makes the file.
    pub async fn create(client: &Client, directory: InodeId, name: &str) -> Result<Self> {
        let new = NewFile::exclusive(directory, name.as_bytes(), Access::ReadWrite);
        let made = client.create(&Credentials::root(), new).await?;
        Ok(Self { client: client.clone(), handle: made.handle, inode: made.attr.inode, given: 0.0, at: 0 })
    }

    /// Appends so many bytes of the paper's data.
    pub async fn append(&mut self, bytes: f64) -> Result<()> {
        self.given += bytes / SCALE as f64;
        while self.given + ROUNDING - self.at as f64 >= PIECE as f64 {
            self.write(PIECE).await?;
        }
        Ok(())
    }

    async fn write(&mut self, len: u64) -> Result<()> {
        self.client.write(self.handle, self.at, Bytes::from_static(&ZEROS[..len as usize])).await?;
        self.at += len;
        Ok(())
    }

    async fn write_rest(&mut self) -> Result<()> {
        let rest = ((self.given - ROUNDING).ceil() as u64).saturating_sub(self.at).min(PIECE);
        if rest > 0 { self.write(rest).await } else { Ok(()) }
    }

    /// Makes all of it safe, and closes it. The bytes of the file.
    pub async fn close_synced(mut self) -> Result<u64> {
        self.write_rest().await?;
        self.client.fsync(self.handle).await?;
        self.client.close(self.handle).await;
        Ok(self.at)
    }

    /// Closes it when its members have all of it, in memory at least. The bytes of the file.
    pub async fn close_pushed(mut self) -> Result<u64> {
        self.write_rest().await?;
        self.client.push_and_close(self.handle).await?;
        Ok(self.at)
    }
}

/// An open file that is read from the beginning on.
pub struct Reader {
    client: Client,
    handle: Handle,
    size: u64,
    /// Asked for so far, in bytes as they are stored.
    asked: f64,
    /// Read so far.
    at: u64,
}

impl Reader {
    /// Opens a file of so many bytes.
    pub async fn open(client: &Client, inode: InodeId, size: u64) -> Result<Self> {
        let handle = client.open(&Credentials::root(), inode, Access::Read).await?.0;
        Ok(Self { client: client.clone(), handle, size, asked: 0.0, at: 0 })
    }

    /// Reads on by so many bytes of the paper's data: whole pieces, and never less than that.
    pub async fn read(&mut self, bytes: f64) -> Result<()> {
        self.asked += bytes / SCALE as f64;
        while (self.at as f64) < self.asked - 0.5 && self.at < self.size {
            let len = PIECE.min(self.size - self.at);
            self.client.read(self.handle, self.at, len as u32).await?;
            self.at += len;
        }
        Ok(())
    }

    /// Closes it.
    pub async fn close(self) {
        self.client.close(self.handle).await;
    }
}
