//! A change of many paths: each one stands for itself, and the counts at the end tell what was done.

use ebb_api::path::EbbPath;
use ebb_types::{Attr, Error, Result};
use serde_json::json;

use super::{Session, walk};

/// The change of one path.
pub trait Change: Sync {
    /// Carries it out. False: there was nothing to change.
    fn apply(&self, session: &Session, path: &EbbPath, attr: &Attr) -> impl Future<Output = Result<bool>> + Send;
}

impl Session {
    /// Changes paths, and everything below them if `recursive`. Every failure is reported at once, and the rest goes on.
    /// False: something failed.
    ///
    /// # Errors
    /// That of the change, if there is one path alone.
    pub(super) async fn change_each(&self, paths: &[EbbPath], recursive: bool, change: &impl Change) -> Result<bool> {
        let mut changes = Changes::default();
        if let ([path], false) = (paths, recursive) {
            let attr = self.caller.resolve(path).await?;
            changes.changed += u64::from(change.apply(self, path, &attr).await?);
            return Ok(changes.report(self));
        }
        for top in paths {
            let mut found = Vec::new();
            let listed = if recursive {
                walk::walk(self, top, |path, attr| found.push((path.clone(), *attr))).await
            } else {
                self.caller.resolve(top).await.map(|attr| found.push((top.clone(), attr)))
            };
            // What is below comes first: a directory may lose the permission to go there.
            for (path, attr) in found.iter().rev() {
                match change.apply(self, path, attr).await {
                    Ok(has_changed) => changes.changed += u64::from(has_changed),
                    Err(error) => changes.fail(self, path, &error),
                }
            }
            if let Err(error) = listed {
                changes.fail(self, top, &error);
            }
        }
        Ok(changes.report(self))
    }
}

/// What a command changed, counted.
#[derive(Default)]
struct Changes {
    changed: u64,
    failed: Vec<serde_json::Value>,
}

impl Changes {
    /// Reports a failure at once, and keeps it for the end.
    fn fail(&mut self, session: &Session, path: &EbbPath, error: &Error) {
        session.output.warn(&error.to_string());
        self.failed.push(json!({ "path": path.to_string(), "error": error.detail() }));
    }

    /// False: something was not changed.
    fn report(self, session: &Session) -> bool {
        let is_whole = self.failed.is_empty();
        session.answer(|| json!({ "changed": self.changed, "failed": self.failed }));
        is_whole
    }
}
