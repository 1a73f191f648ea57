//! `ebb node check`: whether the cluster reaches this host.

use std::sync::Arc;

use ebb_cli::directory::ClusterDir;
use ebb_cli::host::HostFile;
use ebb_cli::{Context, admin};
use ebb_rpc::{Answer, Counters, Request, Server, ServerOptions, Service, ServiceFuture};
use ebb_runtime::Runtime;
use ebb_types::{ErrorKind, HostName, Result, Role, bail};
use ebb_wire::{Method, pb};
use serde_json::json;

/// Checks that the master reaches this host's block server at the address that others are told.
pub async fn run(context: &Context) -> Result<()> {
    let cluster = context.cluster()?;
    match HostFile::read(&cluster.path)? {
        Some(settings) if settings.block.is_some() => {
            let address = reachable(&cluster, &settings).await?;
            let sentence = format!("the master reaches this host at {address}");
            context.output.answer(&sentence, &json!({ "reached": true, "address": address }));
            Ok(())
        }
        _ => bail!(Invalid, "{} names no block server", ebb_cli::host::path(&cluster.path).display()),
    }
}

/// Has the master connect to the block server's address, and returns it. If no block server runs, this command stands in for
/// it meanwhile.
///
/// # Errors
/// `Unreachable` says what the master saw, and what to correct.
pub(super) async fn reachable(cluster: &ClusterDir, settings: &HostFile) -> Result<String> {
    let runtime = Runtime::real();
    let host = HostName::new(settings.host.clone().unwrap_or_default());
    let place = settings.block.as_ref().map(ebb_cli::host::BlockPlace::place).unwrap_or_default();
    let file = ebb_cli::host::path(&cluster.path).display().to_string();
    let identity = cluster.identity(&host, Role::Block)?;
    let standing_in = match runtime.listen(place.listen()).await {
        Ok(listener) => {
            let (counters, bounds) = (Counters::default(), ServerOptions::default());
            let server = Server::run(runtime.clone(), listener, identity, counters, bounds, Arc::new(StandIn));
            Some(runtime.spawn("stand-in", server))
        }
        // The block server itself.
        Err(error) if error.kind() == ErrorKind::Busy => None,
        Err(error) => return Err(error.context(format_args!("{file}: [block] listen = {:?}", place.listen()))),
    };
    let address = place.advertised(place.listen())?;
    let master = cluster.connector(&runtime, &host, Role::Block)?.channel(&cluster.masters()?[0]);
    let called_back = master.call(&pb::CallBack { address: address.clone() }, admin::ASK).await;
    drop(standing_in);
    match called_back {
        Ok(_) => Ok(address),
        Err(error) if error.kind() == ErrorKind::Unreachable => bail!(
            Unreachable,
            "this host is in the cluster, but its master does not reach it at {address} ({error}): open the port in the \
             firewall, or correct [block] listen and advertise in {file}; then run `ebb node check`"
        ),
        Err(error) => Err(error),
    }
}

/// Answers in place of a block server, to show that it is reached.
struct StandIn;

impl Service for StandIn {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        Box::pin(async move {
            match request.method {
                Method::Counters => Ok(Answer::new(&pb::CountersReply::default())),
                _ => bail!(Unavailable, "the block server of this host is not started yet"),
            }
        })
    }
}
