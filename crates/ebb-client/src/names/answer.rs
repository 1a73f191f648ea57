//! The master's answers about names and attributes, in types.

use ebb_types::{Attr, Error, InodeId, Result, err};
use ebb_wire::attributes::optional_attr;
use ebb_wire::pb;

/// An answer about names and attributes, or to a change of them.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Attributes of the inode that the request is about.
    pub attr: Option<Attr>,
    /// Of a change: the directories whose entries it changed, as they are now.
    pub parents: Vec<Attr>,
    /// Inodes whose attributes, and names if they are directories, this client may keep.
    pub leased: Vec<InodeId>,
    /// The rest of the message.
    pub rest: pb::MetaReply,
}

impl Answer {
    /// The attributes that every answer to such a request has.
    ///
    /// # Errors
    /// `Protocol` if they are missing.
    pub fn attr(&self) -> Result<Attr> {
        self.attr.ok_or_else(|| err!(Protocol, "an answer came without attributes"))
    }

    /// Whether this client may keep the answer's statements on an inode.
    pub fn is_leased(&self, inode: InodeId) -> bool {
        self.leased.contains(&inode)
    }
}

impl TryFrom<pb::MetaReply> for Answer {
    type Error = Error;

    fn try_from(mut rest: pb::MetaReply) -> Result<Self> {
        let attr = optional_attr(rest.attr)?;
        let parents = std::mem::take(&mut rest.parents).into_iter().map(Attr::try_from).collect::<Result<_>>()?;
        let leased = std::mem::take(&mut rest.leased).into_iter().map(InodeId::new).collect();
        Ok(Self { attr, parents, leased, rest })
    }
}
