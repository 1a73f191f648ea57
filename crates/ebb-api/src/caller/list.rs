//! Directories: listed in pages, with attributes and, if asked for, the places of files.

use ebb_client::{DirEntry, EntryDetail, Summary};
use ebb_types::{Attr, ErrorKind, FileKind, InodeId, Result};

use super::Caller;
use crate::path::EbbPath;
use crate::places::{self, Place};

/// Entries asked for at a time where all are wanted.
const BATCH: u32 = 1000;
/// Files of a page whose places are asked for one by one, side by side. Their writers are asked as well.
const ASKED_MAX: usize = 16;

/// What a listing has of each entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Attributes.
    Attributes,
    /// Attributes, and where files lie.
    Places,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name; empty if a file was listed.
    pub name: Vec<u8>,
    /// Its attributes.
    pub attr: Attr,
    /// Where the file lies, if that was asked for.
    pub places: Option<Vec<Place>>,
}

/// A part of a listing.
#[derive(Clone, Debug)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Where the next part begins; none: these were the last.
    pub next: Option<u64>,
}

impl Caller {
    /// At most `limit` entries of a directory, from the start or from where another page stopped. A file is listed as one entry
    /// with an empty name.
    pub async fn list(&self, path: &EbbPath, after: Option<u64>, limit: u32, detail: Detail) -> Result<Page> {
        let attr = self.resolve(path).await?;
        if attr.kind != FileKind::Directory {
            let mut entry = Entry { name: Vec::new(), attr, places: None };
            if detail == Detail::Places && attr.kind == FileKind::File {
                entry.places = Some(self.places_of(&attr).await.map_err(|error| self.explain(error, path))?);
            }
            return Ok(Page { entries: vec![entry], next: None });
        }
        let wanted = if detail == Detail::Places { EntryDetail::Maps } else { EntryDetail::Attributes };
        let page = self.client.list_dir(&self.credentials, attr.inode, after, limit, wanted).await;
        let page = page.map_err(|error| self.explain(error, path))?;
        let next = page.entries.last().map(|entry| entry.cookie).filter(|_| !page.is_last);
        let look = places::Hosts::of(&self.client);
        let mut entries = Vec::with_capacity(page.entries.len());
        let mut unknown = Vec::new();
        for DirEntry { name, attr, map, .. } in page.entries {
            let Some(attr) = attr else { continue };
            let mut entry = Entry { name, attr, places: None };
            if detail == Detail::Places && attr.kind == FileKind::File {
                match map {
                    Some(map) => entry.places = Some(places::of_map(&map, &attr, &look)),
                    None => unknown.push(entries.len()),
                }
            }
            entries.push(entry);
        }
        for some in unknown.chunks(ASKED_MAX) {
            let asked = some.iter().map(|at| self.fresh(entries[*at].attr));
            let found = futures_util::future::join_all(asked).await;
            for (at, fresh) in some.iter().zip(found) {
                // A file that was removed since it was listed stays in the listing, without places.
                let (attr, places) = fresh?.unwrap_or((entries[*at].attr, Vec::new()));
                (entries[*at].attr, entries[*at].places) = (attr, Some(places));
            }
        }
        Ok(Page { entries, next })
    }

    /// Attributes and places of a file as its writer has them now; none if it is gone.
    async fn fresh(&self, attr: Attr) -> Result<Option<(Attr, Vec<Place>)>> {
        match self.client.get_attr(&self.credentials, attr.inode).await {
            Ok(attr) => Ok(Some((attr, self.places_of(&attr).await?))),
            Err(error) if error.kind() == ErrorKind::Stale => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where a file lies.
    pub async fn places(&self, path: &EbbPath) -> Result<Vec<Place>> {
        let attr = self.resolve(path).await?;
        if attr.kind != FileKind::File {
            return Ok(Vec::new());
        }
        self.places_of(&attr).await.map_err(|error| self.explain(error, path))
    }

    async fn places_of(&self, attr: &Attr) -> Result<Vec<Place>> {
        let locations = self.client.locations(attr.inode).await?;
        let map: Vec<_> = locations.into_iter().map(|location| location.metablock).collect();
        Ok(places::of_map(&map, attr, &places::Hosts::of(&self.client)))
    }

    /// All entries of a directory, with attributes.
    pub async fn entries(&self, directory: InodeId) -> Result<Vec<DirEntry>> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page =
                self.client.list_dir(&self.credentials, directory, after, BATCH, EntryDetail::Attributes).await?;
            after = page.entries.last().map(|entry| entry.cookie).or(after);
            all.extend(page.entries);
            if page.is_last {
                return Ok(all);
            }
        }
    }

    /// Sums over a path and everything below it, in one or few calls.
    pub async fn summarize(&self, path: &EbbPath) -> Result<Summary> {
        let attr = self.resolve(path).await?;
        self.client.summarize(&self.credentials, attr.inode).await.map_err(|error| self.explain(error, path))
    }
}
