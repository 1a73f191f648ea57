//! Processes that announced themselves, and where they serve.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{HostName, Role};
use ebb_wire::pb;

/// A process is forgotten that was silent for so long: six announcements.
const SILENCE: Duration = Duration::from_secs(60);
/// Most processes that are remembered.
const SERVICES_MAX: usize = 16_384;

/// Processes that announced themselves, by role and host.
#[derive(Default)]
pub(crate) struct Attendance(BTreeMap<(Role, HostName), Service>);

struct Service {
    address: String,
    heard: Moment,
}

impl Attendance {
    /// A process runs, and serves there.
    pub fn on_announced(&mut self, now: Moment, role: Role, host: &HostName, address: String) {
        let key = (role, host.clone());
        if self.0.len() >= SERVICES_MAX && !self.0.contains_key(&key) {
            self.0.retain(|_, service| now.since(service.heard) <= SILENCE);
            if self.0.len() >= SERVICES_MAX {
                return;
            }
        }
        self.0.insert(key, Service { address, heard: now });
    }

    /// Those that were heard of lately.
    pub fn list(&self, now: Moment) -> Vec<pb::ServiceAddress> {
        let present = self.0.iter().filter(|(_, service)| now.since(service.heard) <= SILENCE);
        let message = |((role, host), service): (&(Role, HostName), &Service)| pb::ServiceAddress {
            role: role.name().to_owned(),
            host: host.as_str().to_owned(),
            address: service.address.clone(),
        };
        present.map(message).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_process_is_listed_where_it_serves_now_until_it_is_silent() {
        let mut attendance = Attendance::default();
        let host = HostName::new("h1");
        attendance.on_announced(at(1), Role::Worker, &host, "a:1".to_owned());
        attendance.on_announced(at(2), Role::Worker, &host, "b:1".to_owned());
        attendance.on_announced(at(30), Role::PowerClient, &host, "c:1".to_owned());
        let addresses = |at: Moment| attendance.list(at).into_iter().map(|service| service.address).collect::<Vec<_>>();
        assert_eq!(addresses(at(60)), ["c:1", "b:1"]);
        assert_eq!(addresses(at(63)), ["c:1"]);
    }

    #[test]
    fn the_list_is_bounded_and_the_silent_make_room() {
        let mut attendance = Attendance::default();
        for number in 0..=SERVICES_MAX {
            let host = HostName::new(format!("h{number}"));
            attendance.on_announced(at(1), Role::Worker, &host, String::new());
        }
        assert_eq!(attendance.list(at(1)).len(), SERVICES_MAX);
        attendance.on_announced(at(100), Role::Worker, &HostName::new("late"), String::new());
        assert_eq!(attendance.list(at(100)).len(), 1);
    }
}
