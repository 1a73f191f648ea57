//! `/dev/fuse`: one message per read, one reply per write.

use std::fs::OpenOptions;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ebb_types::{Error, Result, err};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl};

use crate::abi::OUT_HEADER;

/// Path of the device of the kernel's FUSE module.
pub const PATH: &str = "/dev/fuse";

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const CLONE: rustix::ioctl::Opcode = 0x8004_e500;

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message is in the buffer.
    Message,
    /// The file system has been unmounted: no more messages will come.
    Unmounted,
}

/// One descriptor of a mount's connection. A reply goes through the descriptor that brought the request.
#[derive(Debug)]
pub struct Device {
    fd: OwnedFd,
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Device {
    /// Opens the device. It is not yet connected to a mount.
    pub fn open() -> Result<Self> {
        match OpenOptions::new().read(true).write(true).open(PATH) {
            Ok(file) => Ok(Self { fd: file.into() }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(err!(Unavailable, "{PATH} is missing: load the kernel module with `modprobe fuse`"))
            }
            Err(error) => Err(Error::from_io(&error, format!("opening {PATH}"))),
        }
    }

    /// The device behind a descriptor that the mount helper sent.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Opens another descriptor of the same connection with its own queue, so that readers do not
    /// contend.
    pub fn another(&self) -> Result<Self> {
        let other = Self::open()?;
        let source = self.fd.as_raw_fd() as u32;
        // SAFETY: the request reads one u32 behind the pointer, which `Setter` provides, and writes nothing.
        unsafe { ioctl(&other.fd, Setter::<CLONE, u32>::new(source)) }
            .map_err(|error| Error::from_io(&error.into(), format!("joining {PATH} to a mount")))?;
        Ok(other)
    }

    /// Waits for the next message and puts it into `buffer`, whose capacity must hold the largest one.
    pub fn receive(&self, buffer: &mut Vec<u8>) -> Result<Received> {
        loop {
            buffer.clear();
            match rustix::io::read(&self.fd, spare_capacity(buffer)) {
                Ok(_) => return Ok(Received::Message),
                // ENOENT: the request was withdrawn while it was read (fuse(4)).
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                // ENODEV: unmounted. ECONNABORTED: unmounted by force, or the last file behind a
                // lazy unmount was closed.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::Unmounted),
                Err(error) => return Err(Error::from_io(&error.into(), format!("reading {PATH}"))),
            }
        }
    }

    /// Answers request `unique` with `body`.
    pub fn reply(&self, unique: u64, body: &[u8]) {
        self.send(unique, 0, body);
    }

    /// Answers request `unique` with an error number.
    pub fn refuse(&self, unique: u64, errno: i32) {
        self.send(unique, -errno, &[]);
    }

    fn send(&self, unique: u64, error: i32, body: &[u8]) {
        let mut header = [0; OUT_HEADER];
        header[..4].copy_from_slice(&((OUT_HEADER + body.len()) as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&error.to_ne_bytes());
        header[8..].copy_from_slice(&unique.to_ne_bytes());
        match rustix::io::writev(&self.fd, &[IoSlice::new(&header), IoSlice::new(body)]) {
            // ENOENT: the caller was killed and the request withdrawn. ENODEV: unmounted meanwhile.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::PERM) => {}
            Err(error) => {
                tracing::error!(unique, body_len = body.len(), %error, "the kernel refused a reply");
                // The caller must not hang on a reply that was malformed.
                if error == Errno::INVAL && !body.is_empty() {
                    self.send(unique, -libc::EIO, &[]);
                }
            }
        }
    }

    /// Sends a message that answers no request. ENOENT counts as success: the kernel has nothing to
    /// forget.
    pub fn notify(&self, message: &[u8]) -> Result<()> {
        match rustix::io::write(&self.fd, message) {
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::PERM) => Ok(()),
            Err(error) => Err(Error::from_io(&error.into(), format!("notifying {PATH}"))),
        }
    }

    /// Sends a message whose last byte has no memory behind it. The kernel takes the message, and
    /// then finds that it cannot fetch this byte.
    pub fn notify_without_data(&self, message: &[u8]) -> Result<()> {
        let parts = [
            libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() },
            libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 1 },
        ];
        // SAFETY: the call reads `message` behind the first pointer. It answers EFAULT for the second one, which is
        // null.
        let written = unsafe { libc::writev(self.fd.as_raw_fd(), parts.as_ptr(), parts.len() as libc::c_int) };
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            _ if written >= 0 => Err(err!(Internal, "the kernel found data of a notification that has none")),
            Some(libc::EFAULT | libc::ENOENT | libc::ENODEV | libc::EPERM) => Ok(()),
            _ => Err(Error::from_io(&error, format!("notifying {PATH}"))),
        }
    }
}
