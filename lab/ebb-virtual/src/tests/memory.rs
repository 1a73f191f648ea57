//! A file system in memory that keeps its promises, or breaks one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Allocate, IfLocked, Lock, LockKind};
use ebb_runtime::Runtime;
use ebb_runtime::virt::Dice;
use ebb_types::{SessionId, err};
use parking_lot::Mutex;

use crate::files::{Call, Files, Sitting};
use crate::locks::exclude_each_other;

/// A promise that is broken now and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    None,
    /// A write is acknowledged and not done.
    Loss,
    /// A write is done in part while it looks done.
    Tear,
    /// A read is answered from the content of a while ago.
    Stale,
    /// Some reads see a write and some do not, until it returns.
    Flicker,
    /// A truncation does nothing.
    NoTruncate,
    /// An append goes where another went.
    Overlap,
    /// A hole is not made.
    NoHole,
    /// A lock is granted beside another one.
    TwoLocks,
}

#[derive(Default)]
struct Store {
    files: BTreeMap<String, Vec<u8>>,
    old: BTreeMap<String, Vec<u8>>,
    /// Of each file, writes that are under way.
    coming: BTreeMap<String, BTreeMap<u64, (u64, Bytes)>>,
    next_coming: u64,
    /// Of files that were made.
    ids: BTreeMap<String, u64>,
    next_id: u64,
    locks: Vec<(String, Lock)>,
}

/// One client's view of the store.
#[derive(Clone)]
pub(super) struct Memory {
    runtime: Runtime,
    store: Arc<Mutex<Store>>,
    dice: Arc<Mutex<Dice>>,
    bug: Bug,
}

impl Memory {
    pub(super) fn new(runtime: Runtime, dice: Dice, bug: Bug) -> Self {
        Self { runtime, store: Arc::default(), dice: Arc::new(Mutex::new(dice)), bug }
    }

    fn strikes(&self, bug: Bug) -> bool {
        self.bug == bug && self.dice.lock().chance(0.05)
    }

    async fn pause(&self) {
        let span = self.dice.lock().span(Duration::from_millis(20));
        self.runtime.sleep(span).await;
    }

    fn put(data: &mut Vec<u8>, offset: usize, new: &[u8]) {
        data.resize(data.len().max(offset + new.len()), 0);
        data[offset..offset + new.len()].copy_from_slice(new);
    }
}

impl Files for Memory {
    fn write<'a>(&'a self, name: &'a str, offset: u64, data: Bytes) -> Call<'a, ()> {
        Box::pin(async move {
            if self.strikes(Bug::Loss) {
                return Ok(());
            }
            let data = if self.strikes(Bug::Tear) { data.slice(..data.len() - 300) } else { data };
            let number = {
                let mut store = self.store.lock();
                store.next_coming += 1;
                let number = store.next_coming;
                store.coming.entry(name.to_owned()).or_default().insert(number, (offset, data.clone()));
                number
            };
            self.pause().await;
            if self.bug == Bug::Flicker {
                self.runtime.sleep(Duration::from_millis(500)).await;
            }
            {
                let mut store = self.store.lock();
                let now = store.files.entry(name.to_owned()).or_default();
                let before = now.clone();
                Self::put(now, offset as usize, &data);
                store.coming.entry(name.to_owned()).or_default().remove(&number);
                if self.dice.lock().chance(0.1) {
                    store.old.insert(name.to_owned(), before);
                }
            }
            self.pause().await;
            Ok(())
        })
    }

    fn append<'a>(&'a self, name: &'a str, data: Bytes) -> Call<'a, u64> {
        Box::pin(async move {
            self.pause().await;
            let mut at = self.store.lock().files.entry(name.to_owned()).or_default().len();
            if self.strikes(Bug::Overlap) {
                at = at.saturating_sub(1024);
            }
            Self::put(self.store.lock().files.entry(name.to_owned()).or_default(), at, &data);
            self.pause().await;
            Ok(at as u64)
        })
    }

    fn truncate<'a>(&'a self, name: &'a str, len: u64) -> Call<'a, ()> {
        Box::pin(async move {
            self.pause().await;
            if self.bug != Bug::NoTruncate {
                self.store.lock().files.entry(name.to_owned()).or_default().resize(len as usize, 0);
            }
            Ok(())
        })
    }

    fn read<'a>(&'a self, name: &'a str, offset: u64, len: u32) -> Call<'a, Bytes> {
        Box::pin(async move {
            self.pause().await;
            let (stale, flicker) = (self.strikes(Bug::Stale), self.bug == Bug::Flicker && self.dice.lock().coin());
            let data = {
                let store = self.store.lock();
                let old = store.old.get(name).filter(|_| stale);
                let mut data = old.or(store.files.get(name)).cloned().unwrap_or_default();
                let coming = store.coming.get(name).filter(|_| flicker);
                for (offset, new) in coming.into_iter().flat_map(BTreeMap::values) {
                    Self::put(&mut data, *offset as usize, new);
                }
                data
            };
            self.pause().await;
            let from = (offset as usize).min(data.len());
            let to = (offset as usize + len as usize).min(data.len());
            Ok(Bytes::copy_from_slice(&data[from..to]))
        })
    }

    fn fsync<'a>(&'a self, _name: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.pause().await;
            Ok(())
        })
    }

    fn push<'a>(&'a self, _name: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.pause().await;
            Ok(())
        })
    }

    fn make<'a>(&'a self, name: &'a str) -> Call<'a, u64> {
        Box::pin(async move {
            self.pause().await;
            let mut store = self.store.lock();
            store.next_id += 1;
            let id = store.next_id;
            store.files.insert(name.to_owned(), Vec::new());
            store.ids.insert(name.to_owned(), id);
            Ok(id)
        })
    }

    fn rename<'a>(&'a self, source: &'a str, target: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.pause().await;
            let mut store = self.store.lock();
            let Some(data) = store.files.remove(source) else { return Err(err!(NotFound, "no {source}")) };
            store.files.insert(target.to_owned(), data);
            store.old.remove(target);
            if let Some(id) = store.ids.remove(source) {
                store.ids.insert(target.to_owned(), id);
            }
            Ok(())
        })
    }

    fn replace<'a>(&'a self, source: &'a str, target: &'a str, kept: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.pause().await;
            {
                let mut store = self.store.lock();
                let replaced = store.files.remove(target).unwrap_or_default();
                store.files.insert(kept.to_owned(), replaced);
                store.old.remove(target);
            }
            self.rename(source, target).await
        })
    }

    fn close<'a>(&'a self, kept: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.store.lock().files.remove(kept);
            Ok(())
        })
    }

    fn link<'a>(&'a self, source: &'a str, target: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.pause().await;
            let mut store = self.store.lock();
            // There is no write between a link and the removal of the other name, so that a second copy will do.
            let Some(data) = store.files.get(source).cloned() else { return Err(err!(NotFound, "no {source}")) };
            store.files.insert(target.to_owned(), data);
            if let Some(id) = store.ids.get(source).copied() {
                store.ids.insert(target.to_owned(), id);
            }
            Ok(())
        })
    }

    fn allocate<'a>(&'a self, name: &'a str, mode: Allocate, offset: u64, len: u64) -> Call<'a, ()> {
        Box::pin(async move {
            self.pause().await;
            if mode != Allocate::ReserveKeepSize && self.bug != Bug::NoHole {
                let mut store = self.store.lock();
                let data = store.files.entry(name.to_owned()).or_default();
                let from = (offset as usize).min(data.len());
                let to = ((offset + len) as usize).min(data.len());
                data[from..to].fill(0);
            }
            self.pause().await;
            Ok(())
        })
    }

    fn lock<'a>(&'a self, name: &'a str, lock: Lock, if_locked: IfLocked) -> Call<'a, ()> {
        Box::pin(async move {
            loop {
                self.pause().await;
                {
                    let careless = self.strikes(Bug::TwoLocks);
                    let mut store = self.store.lock();
                    if lock.kind == LockKind::Unlock {
                        store
                            .locks
                            .retain(|(file, held)| file != name || (held.owner, held.sort) != (lock.owner, lock.sort));
                        return Ok(());
                    }
                    if careless
                        || !store.locks.iter().any(|(file, held)| file == name && exclude_each_other(held, &lock))
                    {
                        store.locks.push((name.to_owned(), lock));
                        return Ok(());
                    }
                }
                if if_locked == IfLocked::Fail {
                    return Err(err!(WouldBlock, "another owner has {name}"));
                }
            }
        })
    }

    fn session(&self) -> Sitting {
        Sitting { id: SessionId::new(1), is_trusted: true }
    }

    fn unlink<'a>(&'a self, name: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.pause().await;
            let mut store = self.store.lock();
            store.ids.remove(name);
            store.old.remove(name);
            store.files.remove(name).map(drop).ok_or_else(|| err!(NotFound, "no {name}"))
        })
    }

    fn list(&self) -> Call<'_, Vec<(String, u64)>> {
        Box::pin(async move {
            self.pause().await;
            Ok(self.store.lock().ids.iter().map(|(name, id)| (name.clone(), *id)).collect())
        })
    }
}
