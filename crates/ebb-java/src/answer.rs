//! Structured answers as bytes, which `Answer.java` reads: big-endian numbers, and texts with their length before them.

use ebb_api::places::{Place, Serves};
use ebb_types::{Attr, FileKind};

/// Owner and group of a file, by name.
pub(crate) struct Owners {
    pub(crate) user: String,
    pub(crate) group: String,
}

/// An answer in the making.
#[derive(Default)]
pub(crate) struct Answer(Vec<u8>);

impl Answer {
    pub(crate) fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn int(mut self, value: usize) -> Self {
        let value = i32::try_from(value).unwrap_or(i32::MAX);
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// A count or size. None of ours passes 2^63.
    pub(crate) fn size(self, value: u64) -> Self {
        self.long(i64::try_from(value).unwrap_or(i64::MAX))
    }

    pub(crate) fn bytes(mut self, value: &[u8]) -> Self {
        self = self.int(value.len());
        self.0.extend_from_slice(value);
        self
    }

    /// A file's status. `target`: of a symbolic link.
    pub(crate) fn status(self, attr: &Attr, owners: &Owners, target: &[u8]) -> Self {
        let kind = match attr.kind {
            FileKind::File => 0,
            FileKind::Directory => 1,
            FileKind::Symlink => 2,
            _ => 3,
        };
        self.byte(kind)
            .size(attr.inode.raw())
            .size(if attr.kind == FileKind::File { attr.size } else { 0 })
            .long(attr.mtime.0)
            .long(attr.atime.0)
            .int(attr.mode as usize & 0o7777)
            .bytes(owners.user.as_bytes())
            .bytes(owners.group.as_bytes())
            .int(attr.storage.replicas as usize)
            .size(attr.storage.geometry.metablock_size)
            .byte(u8::from(attr.has_xattrs))
            .bytes(target)
    }

    /// That it was not asked for, or that it is no file.
    pub(crate) fn no_places(mut self) -> Self {
        self.0.extend((-1_i32).to_be_bytes());
        self
    }

    /// Where a file lies.
    pub(crate) fn places(self, places: &[Place]) -> Self {
        places.iter().fold(self.int(places.len()), |answer, place| {
            let answer = answer.size(place.offset).size(place.length).int(place.hosts.len());
            place.hosts.iter().fold(answer, |answer, host| {
                let (state, wakes_in_ms) = match host.serves {
                    Serves::Now => (0, 0),
                    Serves::In(wait) => (1, i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)),
                    Serves::Never => (2, -1),
                };
                answer
                    .bytes(host.host.as_str().as_bytes())
                    .bytes(host.rack.as_bytes())
                    .bytes(format!("v{}", host.volume).as_bytes())
                    .byte(state)
                    .long(wakes_in_ms)
            })
        })
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_big_endian_and_texts_have_their_length() {
        let answer = Answer::default().byte(7).int(258).long(-1).size(u64::MAX).bytes(b"ab").finish();
        let wanted = [&[7][..], &[0, 0, 1, 2], &[255; 8], &i64::MAX.to_be_bytes(), &[0, 0, 0, 2, b'a', b'b']].concat();
        assert_eq!(answer, wanted);
    }
}
