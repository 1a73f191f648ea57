//! Listening and connecting.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ebb_types::{ErrorKind, Result, bail, err};

use super::pipe::Pipe;
use super::{HostId, ListenSlot, Network, PipeId, State, Wakes, ends};
use crate::backend::Work;
use crate::net::{Accept, Listener, Stream};
use crate::virt::dice::nanos;
use crate::virt::executor::GroupId;

/// Connections that wait to be accepted; further ones are left unanswered (`net.core.somaxconn` is 4096, ours 1024).
const BACKLOG: usize = 1024;

/// SYN is sent again after 1, 2, 4 ... 64 s, and given up after 127 s (tcp_syn_retries is 6).
const SYN_TRIES: u32 = 7;

/// The only ports that port 0 can become.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// Listens for a process on its host.
pub(in crate::virt) fn listen(network: &Arc<Network>, host: HostId, group: GroupId, address: &str) -> Result<Listener> {
    let mut state = network.state.lock();
    let (target, port) = match state.parse(host, address) {
        Err(error) if error.kind() == ErrorKind::Unreachable => (None, 0),
        parsed => parsed.map(|(target, port)| (Some(target), port))?,
    };
    if target != Some(host) {
        bail!(Invalid, "cannot listen on {address}: no interface of this machine has this address");
    }
    let port = if port == 0 { state.free_port(host) } else { port };
    if state.listeners.contains_key(&(host, port)) {
        bail!(Busy, "cannot listen on {address}: another process has this port; stop it or choose another port");
    }
    state.next_listener += 1;
    let number = state.next_listener;
    state.listeners.insert((host, port), ListenSlot { number, group, backlog: VecDeque::new(), wakers: Vec::new() });
    let ip = if address.starts_with("127.") { "127.0.0.1".to_owned() } else { Network::ip(host) };
    Ok(Listener::new(ListenEnd { network: network.clone(), host, port, number, address: format!("{ip}:{port}") }))
}

/// Connects a process to an address. Until the target answers, tries again as a kernel does, for 127 s at most.
pub(in crate::virt) async fn connect(
    network: Arc<Network>,
    host: HostId,
    group: GroupId,
    address: String,
) -> Result<Stream> {
    let (target, port) = network.state.lock().parse(host, &address)?;
    for attempt in 0..SYN_TRIES {
        network.wait(host, target).await;
        match network.dial(host, group, target, port) {
            Dial::Connected(outgoing) => {
                let stream = ends::stream(&network, outgoing, address);
                network.wait(target, host).await;
                return Ok(stream);
            }
            Dial::Refused => {
                network.wait(target, host).await;
                bail!(Unreachable, "cannot connect to {address}: connection refused");
            }
            Dial::Unanswered => {
                let pause_ns = nanos(Duration::from_secs(1 << attempt));
                let at_ns = network.executor.now_ns() + pause_ns;
                network.executor.sleep_until(at_ns).await;
            }
        }
    }
    bail!(Unreachable, "cannot connect to {address}: no answer")
}

enum Dial {
    /// The client's outgoing direction.
    Connected(PipeId),
    Refused,
    Unanswered,
}

impl Network {
    /// Waits for as long as a packet takes.
    async fn wait(&self, source: HostId, target: HostId) {
        let latency_ns = self.state.lock().latency_ns(self, source, target);
        let at_ns = self.executor.now_ns() + latency_ns;
        self.executor.sleep_until(at_ns).await;
    }

    /// The request to connect reaches the target's kernel.
    fn dial(&self, host: HostId, group: GroupId, target: HostId, port: u16) -> Dial {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        if !state.is_open(self, host, target) || !state.is_open(self, target, host) {
            let names = format!("{} to {}", state.hosts[host.0].name, state.hosts[target.0].name);
            self.trace.fault(self.executor.now_ns(), "held_connect", names);
            return Dial::Unanswered;
        }
        let outgoing = PipeId(state.next_pipe);
        let client_port = state.free_port(host);
        let Some(slot) = state.listeners.get_mut(&(target, port)) else { return Dial::Refused };
        if slot.backlog.len() >= BACKLOG {
            return Dial::Unanswered;
        }
        let peer = format!("{}:{client_port}", Network::ip(host));
        slot.backlog.push_back((outgoing, peer));
        wakes.0.append(&mut slot.wakers);
        let server_group = slot.group;
        state.next_pipe += 2;
        state.pipes.insert(outgoing, Pipe::new((host, group), (target, server_group)));
        state.pipes.insert(outgoing.back(), Pipe::new((target, server_group), (host, group)));
        self.trace.event(self.executor.now_ns(), "connect", &[outgoing.0, u64::from(port)], &[]);
        Dial::Connected(outgoing)
    }
}

impl State {
    /// `ip:port` or `name:port`, as seen from a host.
    fn parse(&self, from: HostId, address: &str) -> Result<(HostId, u16)> {
        let malformed = || err!(Invalid, "{address:?} is no address: write ip:port, as in 127.0.0.1:7001");
        let (name, port) = address.rsplit_once(':').ok_or_else(malformed)?;
        let port = port.parse::<u16>().map_err(|_| malformed())?;
        let target = if let Some(named) = self.hosts.iter().position(|host| host.name == name) {
            HostId(named)
        } else {
            let ip = *address.parse::<SocketAddrV4>().map_err(|_| malformed())?.ip();
            if ip.is_loopback() || ip == Ipv4Addr::UNSPECIFIED {
                from
            } else {
                let found = (0..self.hosts.len()).map(HostId).find(|host| Network::ip(*host) == ip.to_string());
                found.ok_or_else(|| err!(Unreachable, "no host of this world has the address {ip}"))?
            }
        };
        Ok((target, port))
    }

    /// The next port without a listener.
    fn free_port(&mut self, host: HostId) -> u16 {
        loop {
            let port = self.hosts[host.0].next_port;
            self.hosts[host.0].next_port = if port >= *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 };
            if !self.listeners.contains_key(&(host, port)) {
                return port;
            }
        }
    }
}

/// A listening socket as its program holds it.
struct ListenEnd {
    network: Arc<Network>,
    host: HostId,
    port: u16,
    number: u64,
    address: String,
}

impl Accept for ListenEnd {
    fn accept(&self) -> Work<'_, Result<Stream>> {
        Box::pin(async move {
            let (incoming, peer) = poll_fn(|cx| {
                let mut state = self.network.state.lock();
                let slot = state.listeners.get_mut(&(self.host, self.port)).filter(|slot| slot.number == self.number);
                let Some(slot) = slot else {
                    return Poll::Ready(Err(err!(ShuttingDown, "{} is closed: its process ended", self.address)));
                };
                match slot.backlog.pop_front() {
                    Some(first) => Poll::Ready(Ok(first)),
                    None => {
                        slot.wakers.push(cx.waker().clone());
                        Poll::Pending
                    }
                }
            })
            .await?;
            Ok(ends::stream(&self.network, incoming.back(), peer))
        })
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}

impl Drop for ListenEnd {
    fn drop(&mut self) {
        let mut wakes = Wakes::default();
        let mut state = self.network.state.lock();
        let key = (self.host, self.port);
        if state.listeners.get(&key).is_none_or(|slot| slot.number != self.number) {
            return;
        }
        let Some(mut slot) = state.listeners.remove(&key) else { return };
        wakes.0.append(&mut slot.wakers);
        drop(state);
        // Connections that the listener did not accept are closed: building their ends and dropping them does that.
        for (incoming, peer) in slot.backlog {
            drop(ends::stream(&self.network, incoming.back(), peer));
        }
    }
}
