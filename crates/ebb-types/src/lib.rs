//! The basic types of Ebb: ids, epochs, versions, units and error kinds.
//!
//! Nothing here does I/O, reads a clock or draws a random number.
//!
//! Reading order: [`ids`], [`version`], [`geometry`], [`declared`], [`node_class`], [`domain`], [`prefetch`], [`read_rule`], [`redundancy`],
//! [`encode`], [`error`], [`attr`], [`role`], [`trust`], [`copies`], [`deadlines`], [`words`].
#![forbid(unsafe_code)]

pub mod attr;
pub mod cluster_version;
pub mod copies;
pub mod deadlines;
pub mod declared;
pub mod domain;
pub mod encode;
pub mod error;
pub mod geometry;
pub mod ids;
pub mod node_class;
pub mod prefetch;
pub mod read_rule;
pub mod redundancy;
pub mod role;
pub mod snapshot;
pub mod trash;
pub mod trust;
pub mod version;
pub mod words;

pub use attr::{Attr, Credentials, FileKind, NAME_LEN_MAX, Storage, WallTime, check_name_len};
pub use copies::{LOG_COPIES_MIN, log_copies, may_lose_by_one_failure, min_copies};
pub use declared::Declared;
pub use domain::Domain;
pub use encode::Encode;
pub use error::{Error, ErrorKind, Result, Retry};
pub use geometry::{BLOCK_SIZE_DEFAULT, CHUNK_SIZE, Geometry, METABLOCK_SIZE_DEFAULT, Piece};
pub use ids::{
    BootId, ClusterId, DatasetId, Epoch, HostName, Incarnation, InodeId, MetablockId, NodeId, PlanVersion, RackName,
    RaidSetId, RequestId, SessionId, SnapshotId, VolumeId,
};
pub use node_class::NodeClass;
pub use prefetch::Prefetch;
pub use read_rule::{READ_COST_MIN, ReadRule};
pub use redundancy::{RAID_METABLOCK_SIZE_MAX, RaidCode, Redundancy};
pub use role::{Role, Roles};
pub use trust::{KERNEL_TRUST_MAX, SESSION_MARGIN};
pub use version::Version;
pub use words::{counted, human_bytes};
