//! Open files: their bytes and their space.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use ebb_types::{Attr, BLOCK_SIZE_DEFAULT, Credentials, InodeId, Result, err};
use ebb_wire::pb::meta_op;

use super::{Client, READS_AHEAD};
use crate::read::READ_MAX;
use crate::types::{
    Access, Advice, Allocate, CopyRange, Created, Handle, IfExists, NewFile, NewName, Privileges, Seek, SetAttr,
    UnnamedFile, WriteAt,
};

impl Client {
    /// Opens a file that exists.
    pub async fn open(&self, credentials: &Credentials, inode: InodeId, access: Access) -> Result<(Handle, Attr)> {
        let (shared, credentials) = (self.shared.clone(), credentials.clone());
        let work = async move { shared.open(&credentials, inode, access).await };
        self.opening(work, |opened| opened.0).await
    }

    /// Makes a file and opens it, or opens the one that is there, as `new` says.
    pub async fn create(&self, credentials: &Credentials, new: NewFile<'_>) -> Result<Created> {
        let NewFile { name: NewName { parent, name, mode, umask }, if_exists, access, hosts } = new;
        let (parent, name) = (parent.raw(), name.to_vec());
        let (exclusive, replace) = (if_exists == IfExists::Fail, if_exists == IfExists::Replace);
        let create = meta_op::Create { parent, name, mode, umask, exclusive, replace, ..Default::default() };
        let (shared, credentials, hosts) = (self.shared.clone(), credentials.clone(), hosts.to_vec());
        let work = async move { shared.create(&credentials, create, access, hosts).await };
        self.opening(work, |created| created.handle).await
    }

    /// Makes a file without a name. It is gone once it is closed, unless [`Client::link`] gives it a name before.
    pub async fn create_unnamed(&self, credentials: &Credentials, new: UnnamedFile<'_>) -> Result<(Handle, Attr)> {
        let UnnamedFile { directory, mode, umask, linkable, access, hosts } = new;
        let parent = directory.raw();
        let create = meta_op::Create { parent, mode, umask, unnamed: true, linkable, ..Default::default() };
        let (shared, credentials, hosts) = (self.shared.clone(), credentials.clone(), hosts.to_vec());
        let work = async move { shared.create(&credentials, create, access, hosts).await };
        self.opening(work, |created| created.handle).await.map(|Created { handle, attr, .. }| (handle, attr))
    }

    /// Runs an open to its end even if the caller goes away, and then closes the file: the master counts its opens.
    async fn opening<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
        handle: impl Fn(&T) -> Handle + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let shared = self.shared.clone();
        self.shared.runtime.run_or_spawn("open a file", async move {
            if let Err(Ok(opened)) = sender.send(work.await) {
                shared.close(handle(&opened));
            }
        });
        receiver.await.map_err(|_| err!(ShuttingDown, "the client is shutting down"))?
    }

    /// Reports for close(2) an error of earlier background work that this handle has not reported yet. Data goes on in
    /// the background. A handle for reading reports nothing, and leaves the error to the writers (as Linux's NFS client,
    /// fs/nfs/file.c).
    pub async fn flush(&self, handle: Handle) -> Result<()> {
        let file = self.shared.handles.get(handle)?;
        if file.access == Access::Read { Ok(()) } else { file.check_sticky() }
    }

    /// Forgets the handle.
    pub async fn close(&self, handle: Handle) {
        self.shared.close(handle);
    }

    /// The same, from where nothing can be awaited.
    pub fn close_now(&self, handle: Handle) {
        self.shared.close(handle);
    }

    /// Bytes from `offset`, fewer only at the end of the file.
    pub async fn read(&self, handle: Handle, offset: u64, len: u32) -> Result<Bytes> {
        let file = self.shared.handles.get(handle)?;
        let len = u64::from(len);
        if len <= READ_MAX {
            let data = self.shared.read(&file, offset, len).await?.into_bytes();
            self.shared.served.count(&file, data.len());
            return Ok(data);
        }
        let mut out = BytesMut::new();
        while (out.len() as u64) < len {
            let wanted = (len - out.len() as u64).min(READ_MAX);
            let part = self.shared.read(&file, offset + out.len() as u64, wanted).await?.into_bytes();
            out.extend_from_slice(&part);
            if (part.len() as u64) < wanted {
                break;
            }
        }
        self.shared.served.count(&file, out.len());
        Ok(out.freeze())
    }

    /// Reads from `offset` into `out`, and returns the number of bytes: fewer than there is room for only at the end of
    /// the file. What several layers have is copied once, and not twice as by [`Client::read`].
    pub async fn read_into(&self, handle: Handle, offset: u64, out: &mut [u8]) -> Result<usize> {
        let file = self.shared.handles.get(handle)?;
        let mut done = 0;
        for part in out.chunks_mut(READ_MAX as usize) {
            let found = self.shared.read(&file, offset.saturating_add(done as u64), part.len() as u64).await?;
            done += found.copy_to(part);
            if found.len() < part.len() {
                break;
            }
        }
        self.shared.served.count(&file, done);
        Ok(done)
    }

    /// CRC-32C of the first `length` bytes, by the checksums that members keep: no byte is read, where they say them.
    ///
    /// # Errors
    /// `Invalid` if the file has fewer bytes.
    pub async fn checksum(&self, handle: Handle, length: u64) -> Result<u32> {
        self.shared.checksum(handle, length).await
    }

    /// How the program is going to read through this handle.
    pub fn advise(&self, handle: Handle, advice: Advice) -> Result<()> {
        self.shared.handles.get(handle)?.advise(advice);
        Ok(())
    }

    /// How far the program is going to read through this handle: up to an offset, and little beyond, as a task does with its
    /// split of a file. Nothing is fetched ahead beyond it, and what is read there not in whole blocks (metablocks paper, G9).
    pub fn expect_end(&self, handle: Handle, end: u64) -> Result<()> {
        self.shared.handles.get(handle)?.expect_end(end);
        Ok(())
    }

    /// Writes all of `data`.
    pub async fn write(&self, handle: Handle, offset: u64, data: Bytes) -> Result<()> {
        self.write_to(handle, WriteAt::Offset(offset), data, Privileges::OfOpener).await.map(drop)
    }

    /// Writes at the end of the file as it is when the write lease is held; returns where.
    pub async fn append(&self, handle: Handle, data: Bytes) -> Result<u64> {
        self.write_to(handle, WriteAt::End, data, Privileges::OfOpener).await
    }

    /// Writes all of `data` to its place; returns the offset. Privileges that go, go in one step with the bytes: no
    /// reader sees the bytes with set-user-id or set-group-id still set.
    pub async fn write_to(&self, handle: Handle, place: WriteAt, data: Bytes, privileges: Privileges) -> Result<u64> {
        let (file, len) = (self.shared.handles.get(handle)?, data.len());
        let at = self.shared.write(&file, place, data, privileges).await?;
        self.shared.served.count(&file, len);
        Ok(at)
    }

    /// Sets attributes through an open file: a size needs no permission but that of its opener.
    ///
    /// # Errors
    /// `TakenOver` if a size is set, and another client took the file over after it was opened.
    pub async fn set_attr_through(&self, handle: Handle, credentials: &Credentials, set: SetAttr) -> Result<Attr> {
        let file = self.shared.handles.get(handle)?;
        self.shared.set_attr_of(credentials, file.inode.id, &set, Some(&file)).await
    }

    /// Takes a file over from whoever else has it open: everything written before is received by the members, and every
    /// handle that was opened before, but for this one, may write to it no more. Its writes fail with `TakenOver`.
    ///
    /// # Errors
    /// `Invalid` if the file is not open for writing, `TakenOver` if it was taken over from this handle. Another one if it is not
    /// known whether it was taken over: then it is opened anew, and taken over again.
    pub async fn take_over(&self, handle: Handle) -> Result<()> {
        let file = self.shared.handles.get(handle)?;
        self.shared.take_over(&file).await
    }

    /// Returns when everything written is on stable storage of every member of every set.
    pub async fn fsync(&self, handle: Handle) -> Result<()> {
        let file = self.shared.handles.get(handle)?;
        self.shared.fsync(&file).await
    }

    /// Returns when everything written has been received by every member of every set. It survives the death of this client, and
    /// not that of the members' processes: that is what [`Client::fsync`] is for.
    pub async fn push(&self, handle: Handle) -> Result<()> {
        let file = self.shared.handles.get(handle)?;
        self.shared.push(&file).await
    }

    /// Forgets the handle, and returns when everything written has been received by every member of every set, as [`Client::push`].
    /// Fails if a write through it failed, or is not received; the handle is gone all the same.
    pub async fn push_and_close(&self, handle: Handle) -> Result<()> {
        let file = self.shared.handles.get(handle)?;
        let pushed = if file.access.writes() { self.shared.push(&file).await } else { Ok(()) };
        self.shared.close(handle);
        pushed
    }

    /// fallocate(2).
    pub async fn allocate(&self, handle: Handle, mode: Allocate, offset: u64, len: u64) -> Result<()> {
        let file = self.shared.handles.get(handle)?;
        self.shared.allocate(&file, mode, offset, len).await
    }

    /// The next data or hole at or after `offset`; kind `NoSuchOffset` beyond the end.
    pub async fn seek(&self, handle: Handle, offset: u64, whence: Seek) -> Result<u64> {
        let file = self.shared.handles.get(handle)?;
        self.shared.seek(&file, offset, whence).await
    }

    /// Copies a range between two open files, block by block through the caches, reading ahead of its writes.
    /// Returns the number of bytes.
    pub async fn copy_range(&self, copy: CopyRange) -> Result<u64> {
        let CopyRange { source, source_offset, target, target_offset, len } = copy;
        let (mut done, mut asked) = (0, 0);
        let mut reads = VecDeque::new();
        loop {
            while reads.len() < READS_AHEAD && asked < len {
                let (client, offset) = (self.clone(), source_offset + asked);
                let wanted = (len - asked).min(BLOCK_SIZE_DEFAULT);
                let read = async move { client.read(source, offset, wanted as u32).await };
                reads.push_back((wanted, self.shared.runtime.spawn("read to copy", read)));
                asked += wanted;
            }
            let Some((wanted, read)) = reads.pop_front() else { return Ok(done) };
            let data = read.join().await??;
            let count = data.len() as u64;
            if count > 0 {
                self.write(target, target_offset + done, data).await?;
                done += count;
            }
            if count < wanted {
                return Ok(done);
            }
        }
    }
}
