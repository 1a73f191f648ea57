//! Directories in which this client renames just now: of their names the kernel is told nothing to keep.
//!
//! A kernel moves what it keeps of a name when its own rename is answered, and not when it is done. Meanwhile another mount may
//! have renamed back, and a program here may have looked the old name up again. Then the kernel moves a fresh entry to a name
//! that does not lead there any more, and would believe it for seconds. A name that may not be kept is asked for at
//! its next use.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{Credentials, InodeId, Result};
use ebb_wire::pb::meta_op::{self, Op};
use parking_lot::Mutex;

use crate::shared::Shared;

/// Between the answer to a rename and its end in the kernel, on a busy machine.
const LINGER: Duration = Duration::from_millis(200);

/// Directories with renames under way, or that have just ended.
#[derive(Debug, Default)]
pub(crate) struct Moving(Mutex<BTreeMap<InodeId, Renames>>);

#[derive(Debug, Default)]
struct Renames {
    under_way: u32,
    /// Names may be kept again from here on, if none is under way.
    until: Moment,
}

impl Moving {
    fn begin(&self, directory: InodeId) {
        self.0.lock().entry(directory).or_default().under_way += 1;
    }

    fn end(&self, directory: InodeId, now: Moment) {
        let mut directories = self.0.lock();
        if let Some(renames) = directories.get_mut(&directory) {
            renames.under_way -= 1;
            renames.until = now.after(LINGER);
        }
        directories.retain(|_, renames| renames.under_way > 0 || now < renames.until);
    }

    /// Whether a kernel must not keep names of the directory now.
    pub fn is_moving(&self, directory: InodeId, now: Moment) -> bool {
        self.0.lock().get(&directory).is_some_and(|renames| renames.under_way > 0 || now < renames.until)
    }
}

/// A rename in two directories, or twice in one.
///
/// Cancel-safety: dropped with its call, it counts as ended.
struct UnderWay<'a> {
    shared: &'a Shared,
    directories: [InodeId; 2],
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let now = self.shared.runtime.now();
        self.directories.iter().for_each(|directory| self.shared.moving.end(*directory, now));
    }
}

impl Shared {
    /// renameat2 with NOREPLACE and EXCHANGE.
    pub async fn rename(self: &std::sync::Arc<Self>, credentials: &Credentials, rename: meta_op::Rename) -> Result<()> {
        let directories = [rename.source_parent, rename.target_parent].map(InodeId::new);
        directories.iter().for_each(|directory| self.moving.begin(*directory));
        let _under_way = UnderWay { shared: self, directories };
        self.displacing(credentials, Op::Rename(rename)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_kept_again_a_moment_after_the_last_rename() {
        let at = |ms| Moment::default().after(Duration::from_millis(ms));
        let (moving, directory) = (Moving::default(), InodeId::new(7));
        assert!(!moving.is_moving(directory, at(0)));
        moving.begin(directory);
        moving.begin(directory);
        moving.end(directory, at(1000));
        assert!(moving.is_moving(directory, at(9000)), "one is under way");
        moving.end(directory, at(9000));
        assert!(moving.is_moving(directory, at(9199)) && !moving.is_moving(InodeId::new(8), at(9000)));
        assert!(!moving.is_moving(directory, at(9200)));
        moving.begin(InodeId::new(8));
        moving.end(InodeId::new(8), at(9300));
        assert_eq!(moving.0.lock().len(), 1, "what is over is forgotten");
    }
}
