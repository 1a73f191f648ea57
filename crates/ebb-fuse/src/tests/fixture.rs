//! A real mount in a directory of its own, and a runtime that serves it while the test blocks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Runtime;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::memory::MemoryVfs;
use crate::{KernelCache, Mount, MountOptions, mount_vfs};

pub struct Mounted {
    pub vfs: Arc<MemoryVfs>,
    pub caches: KernelCache,
    mount: Arc<Mount>,
    tokio: tokio::runtime::Runtime,
    directory: TempDir,
}

impl Mounted {
    pub fn new() -> Self {
        Self::with(MountOptions::default())
    }

    pub fn with(options: MountOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::at(directory, options)
    }

    pub fn at(directory: TempDir, options: MountOptions) -> Self {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let vfs = Arc::new(MemoryVfs::new());
        let heard = Mutex::new(None);
        let mount = tokio
            .block_on(async {
                let listen = |listener| *heard.lock() = Some(listener);
                mount_vfs(&Runtime::real(), Arc::clone(&vfs), options, directory.path(), listen).await
            })
            .unwrap();
        let caches = heard.into_inner().unwrap();
        Self { vfs, caches, mount: Arc::new(mount), tokio, directory }
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub fn mount(&self) -> Arc<Mount> {
        Arc::clone(&self.mount)
    }

    /// Runs `work` within the mount's runtime.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.tokio.block_on(work)
    }

    /// Makes the kernel drop its caches of an inode.
    pub fn drop_pages(&self, inode: u64) {
        self.block_on(self.caches.drop_pages(ebb_types::InodeId::new(inode)));
    }

    /// Number of waits for locks.
    pub fn waiting(&self) -> usize {
        self.vfs.state().waiting
    }

    pub fn inode(&self, name: &str) -> u64 {
        std::os::unix::fs::MetadataExt::ino(&std::fs::symlink_metadata(self.path(name)).unwrap())
    }

    /// Runs `script` with a shell in the root, and returns its output. If the script fails, the
    /// test fails.
    pub fn shell(&self, script: &str) -> String {
        let output = Command::new("sh").args(["-euc", script]).current_dir(self.root()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "`{script}` failed: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mount = Arc::clone(&self.mount);
        let outcome = self.tokio.block_on(async move { mount.stop().await });
        if !std::thread::panicking() {
            outcome.unwrap();
            assert_eq!(self.vfs.state().open_count(), 0, "files were left open");
            assert_eq!(*self.vfs.shut_downs.lock(), 1);
        }
    }
}

/// Waits until `condition` holds. If it does not within half a minute, the test fails.
pub fn eventually(event: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{event}: not within 30 s");
}
