//! The keys in a cluster's directory: that of the authority, where the cluster was made, and one for each process that ran
//! here.
//!
//! Where the authority is, a process gets a certificate when it starts. Elsewhere it has the one that it got when its host
//! joined.

use std::fs;
use std::path::{Path, PathBuf};

use ebb_api::{secret, settings};
use ebb_identity::tls::Wire;
use ebb_identity::{Authority, CertifiedKey, Holder, Subject};
use ebb_rpc::{LIFETIME, SPENT};
use ebb_runtime::Runtime;
use ebb_types::{ClusterId, ErrorKind, HostName, Result, Role, bail};

use crate::private;

/// The keys in one directory.
#[derive(Clone, Debug)]
pub struct Keys {
    dir: PathBuf,
    cluster: ClusterId,
    wire: Wire,
}

impl Keys {
    /// Those of `cluster` in `dir`.
    #[must_use]
    pub fn new(dir: &Path, cluster: ClusterId, wire: Wire) -> Self {
        Self { dir: dir.to_owned(), cluster, wire }
    }

    /// Their cluster.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Makes the authority of a new cluster, and the operator's key. Both are durable when it returns.
    ///
    /// # Errors
    /// `Exists` if there is an authority.
    pub fn create(&self) -> Result<()> {
        if self.authority_path().exists() {
            bail!(Exists, "{} has an authority", self.dir.display());
        }
        let authority = Authority::create(self.cluster, Runtime::real().wall())?;
        private::replace_synced(&self.authority_path(), authority.to_pem().as_bytes())?;
        self.load(&self.operator()).map(drop)
    }

    /// What the process of this role proves itself with. An operator may be anywhere; others have their host.
    ///
    /// # Errors
    /// `NotFound` if it has no certificate, and the authority is elsewhere.
    pub fn holder(&self, role: Role, host: &HostName) -> Result<Holder> {
        let subject = match role {
            Role::Operator => self.operator(),
            _ => Subject::process(self.cluster, role, host.clone()),
        };
        let keys = self.clone();
        Holder::kept_by(Runtime::real(), self.load(&subject)?, self.wire, move |key| keys.keep(key))
    }

    /// Has a process that runs for long take its certificate anew before it expires.
    pub fn keep_fresh(&self, holder: &Holder) {
        let (keys, subject) = (self.clone(), holder.subject().clone());
        holder.follow(move || keys.load(&subject));
    }

    /// Where the key of this subject is.
    #[must_use]
    pub fn path(&self, subject: &Subject) -> PathBuf {
        match &subject.host {
            Some(host) => self.dir.join(format!("identities/{}-{host}.pem", subject.role)),
            None => self.dir.join(settings::OPERATOR),
        }
    }

    /// Keeps a key that was certified anew.
    ///
    /// # Errors
    /// That of the disk.
    pub fn keep(&self, key: &CertifiedKey) -> Result<()> {
        private::replace_synced(&self.path(key.subject()), key.to_pem().as_bytes())
    }

    /// Removes the key of a process that is no part of the cluster any more.
    ///
    /// # Errors
    /// That of the disk.
    pub fn forget(&self, role: Role, host: &HostName) -> Result<()> {
        remove(&self.path(&Subject::process(self.cluster, role, host.clone())))
    }

    /// The authority, if it is here.
    ///
    /// # Errors
    /// `Invalid` if its file is damaged, `NotPermitted` if others can read it.
    pub fn authority(&self) -> Result<Option<Authority>> {
        let path = self.authority_path();
        match secret::read(&path) {
            Ok(text) => {
                Authority::from_pem(&text, self.cluster).map(Some).map_err(|error| error.context(path.display()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where the authority is, or would be.
    #[must_use]
    pub fn authority_path(&self) -> PathBuf {
        self.dir.join("authority.pem")
    }

    fn operator(&self) -> Subject {
        Subject { cluster: self.cluster, role: Role::Operator, host: None, user: None }
    }

    fn load(&self, subject: &Subject) -> Result<CertifiedKey> {
        subject.check()?;
        let (path, now) = (self.path(subject), Runtime::real().wall());
        let kept = match secret::read(&path) {
            Ok(text) => Some(CertifiedKey::from_pem(&text).map_err(|error| error.context(path.display()))?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let kept = match kept {
            Some(key) if key.subject().cluster != subject.cluster => bail!(
                Invalid,
                "{} is of cluster {}, and this host is in cluster {}",
                path.display(),
                key.subject().cluster,
                subject.cluster
            ),
            Some(key) if key.subject() != subject => {
                bail!(Invalid, "{} is of the {}, not of the {subject}", path.display(), key.subject())
            }
            Some(key) if !key.validity().is_spent(now, SPENT) => return Ok(key),
            kept => kept,
        };
        match (self.authority()?, kept) {
            (Some(authority), _) => {
                let key = authority.issue(subject, now, LIFETIME)?;
                self.keep(&key)?;
                Ok(key)
            }
            (None, Some(kept)) => Ok(kept),
            (None, None) => bail!(
                NotFound,
                "{} has no certificate for the {subject}, and the cluster's authority is not here: get one with `ebb node join`",
                self.dir.display()
            ),
        }
    }
}

/// Removes the secret of a cluster from before there were certificates: nothing is proved by it any more.
///
/// # Errors
/// That of the disk.
pub fn forget_secret(dir: &Path) -> Result<()> {
    remove(&dir.join("secret"))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ebb_types::Error::from_io(&error, path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn where_the_authority_is_processes_are_certified_and_elsewhere_they_are_not() {
        let temp = tempfile::tempdir().unwrap();
        let keys = Keys::new(temp.path(), ClusterId::new(7), Wire::Encrypted);
        let host = HostName::new("h1");
        let error = keys.holder(Role::Block, &host).unwrap_err();
        assert!(error.kind() == ErrorKind::NotFound && error.detail().contains("ebb node join"), "{error}");
        keys.create().unwrap();
        assert_eq!(keys.create().unwrap_err().kind(), ErrorKind::Exists);
        let first = keys.holder(Role::Block, &host).unwrap();
        assert_eq!(first.subject().host, Some(host.clone()));
        let path = keys.path(first.subject());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(keys.holder(Role::Block, &host).unwrap().key().serial(), first.key().serial(), "it is kept");
        // Another one's key, by its file's name.
        fs::copy(keys.path(&keys.operator()), &path).unwrap();
        assert_eq!(keys.holder(Role::Block, &host).unwrap_err().kind(), ErrorKind::Invalid);
        fs::remove_file(&path).unwrap();
        fs::remove_file(keys.authority_path()).unwrap();
        assert_eq!(keys.holder(Role::Block, &host).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(keys.holder(Role::Operator, &host).is_ok(), "what is kept is used");
    }

    #[test]
    fn a_spent_certificate_is_made_anew_where_the_authority_is() {
        let temp = tempfile::tempdir().unwrap();
        let keys = Keys::new(temp.path(), ClusterId::new(7), Wire::Encrypted);
        keys.create().unwrap();
        let spent = Runtime::real().wall().0 - i64::try_from(LIFETIME.as_nanos()).unwrap() / 10 * 9;
        let old = keys.authority().unwrap().unwrap().issue(&keys.operator(), ebb_types::WallTime(spent), LIFETIME);
        keys.keep(&old.unwrap()).unwrap();
        let new = keys.holder(Role::Operator, &HostName::new("h1")).unwrap();
        assert!(!new.key().validity().is_spent(Runtime::real().wall(), 1));
        assert_eq!(
            CertifiedKey::from_pem(&fs::read_to_string(keys.path(&keys.operator())).unwrap()).unwrap().serial(),
            new.key().serial()
        );
    }
}
