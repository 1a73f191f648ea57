//! One session for each cluster and host, however many file systems a program makes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ebb_api::settings::{Embedded, Settings};
use ebb_api::users::{self, table};
use ebb_client::Client;
use ebb_runtime::Runtime;
use ebb_types::Result;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::answer::Owners;

/// What a program calls itself to people that look at sessions.
const ROLE: &str = "hadoop";
/// Most names that are kept; then they are looked up again.
const NAMES_MAX: usize = 10_000;

/// A session is shared by all that name the same settings and the same host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) settings: PathBuf,
    pub(crate) host: String,
}

/// A session, once it is open, and what it knows of names.
#[derive(Default)]
pub(crate) struct Session {
    client: OnceCell<Client>,
    names: Mutex<Names>,
}

/// Names of numbers. A directory has few owners and many files.
#[derive(Default)]
struct Names {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

/// The sessions of a process, and the number of users of each.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<BTreeMap<Key, (Arc<Session>, usize)>>);

/// A use of a session.
pub(crate) struct Use {
    pub(crate) session: Arc<Session>,
    key: Key,
}

impl Sessions {
    /// Joins the session of this key; opens it if this is the first use.
    pub(crate) async fn join(&self, key: Key, read_cache_bytes: usize, dirty_bytes: usize) -> Result<Use> {
        let session = {
            let mut all = self.0.lock();
            let (session, uses) = all.entry(key.clone()).or_default();
            *uses += 1;
            session.clone()
        };
        let host = ebb_types::HostName::new(key.host.clone());
        let embedded = Embedded { host, role: ROLE.to_owned(), read_cache_bytes, dirty_bytes };
        let open = async { Settings::read(&key.settings)?.connect(Runtime::real(), embedded).await };
        match session.client.get_or_try_init(|| open).await {
            Ok(_) => Ok(Use { session, key }),
            Err(error) => {
                self.leave(&key);
                Err(error)
            }
        }
    }

    /// Ends a use. The last one ends the session, once everything written is synced and recorded.
    pub(crate) async fn end(&self, used: &Use) -> Result<()> {
        match self.leave(&used.key).as_ref().and_then(|session| session.client.get()) {
            Some(client) => client.disconnect().await,
            None => Ok(()),
        }
    }

    /// The session, if nobody uses it any more.
    fn leave(&self, key: &Key) -> Option<Arc<Session>> {
        let mut all = self.0.lock();
        let (_, uses) = all.get_mut(key)?;
        *uses -= 1;
        if *uses > 0 {
            return None;
        }
        all.remove(key).map(|(session, _)| session)
    }
}

impl Session {
    /// The client of an open session.
    pub(crate) fn client(&self) -> &Client {
        self.client.get().expect("a use is handed out only once its session is open")
    }

    /// The names of an owner and a group: the system's, else the cluster's, else the numbers.
    pub(crate) async fn owners(&self, uid: u32, gid: u32) -> Owners {
        let kept = {
            let names = self.names.lock();
            (names.users.get(&uid).cloned(), names.groups.get(&gid).cloned())
        };
        if let (Some(user), Some(group)) = kept {
            return Owners { user, group };
        }
        let mut owners = Owners { user: users::user_name(uid), group: users::group_name(gid) };
        if owners.user == uid.to_string()
            // Without an answer of the master the number is shown.
            && let Ok(rows) = table::read(self.client()).await
            && let Some((name, _)) = rows.into_iter().find(|(_, row)| row.uid == uid)
        {
            owners.user = name;
        }
        let mut names = self.names.lock();
        if names.users.len() + names.groups.len() > NAMES_MAX {
            *names = Names::default();
        }
        names.users.insert(uid, owners.user.clone());
        names.groups.insert(gid, owners.group.clone());
        owners
    }
}
