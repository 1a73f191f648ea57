//! Servers that end: requests that they began are answered, and callers of the others learn that theirs were not begun.

use std::time::Duration;

use ebb_runtime::{Runtime, Task};
use ebb_types::{ErrorKind, Result};
use ebb_wire::frame::GOODBYE;
use ebb_wire::{FrameHeader, Message, Method, pb};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use super::greedy::{opening, proved};
use super::*;

/// A server of [`Echo`] that can be stopped.
struct Stoppable {
    address: String,
    echo: Arc<Echo>,
    stop: oneshot::Sender<()>,
    server: Task<Result<()>>,
}

impl Stoppable {
    async fn start(runtime: &Runtime, options: ServerOptions) -> Self {
        let echo = Echo::new(runtime);
        let listener = runtime.listen("127.0.0.1:0").await.unwrap();
        let address = listener.address();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let (identity, counters) = (identity("h1", Role::Block), Counters::default());
        let (own, service) = (runtime.clone(), echo.clone());
        let serving = Server::run_until(own, listener, identity, counters, options, service, stopped);
        Self { address, echo, stop, server: runtime.spawn("server", serving) }
    }

    /// How long its end took.
    async fn end(self, runtime: &Runtime) -> Duration {
        let began = runtime.now();
        self.stop.send(()).unwrap();
        self.server.join().await.unwrap().unwrap();
        runtime.now().since(began)
    }
}

async fn a_server_that_stops_answers_its_open_requests(runtime: Runtime) {
    let site = Stoppable::start(&runtime, ServerOptions::default()).await;
    let channel = connector(&runtime, "h2").channel(&site.address);
    let waiting = channel.clone();
    let call = runtime.spawn("call", async move { slow_call(&waiting, 300, LONG).await });
    eventually(&runtime, "the call runs", || site.echo.running.load(Ordering::SeqCst) == 1).await;
    site.end(&runtime).await;
    call.join().await.unwrap().unwrap();
    assert_eq!(small_call(&channel, LONG).await.unwrap_err().kind(), ErrorKind::Unreachable);
}

both!(a_server_that_stops_answers_its_open_requests);

/// If the connection just broke, callers could not distinguish such calls from those that were carried out.
async fn calls_that_a_stopping_server_did_not_take_are_not_of_unknown_fate(runtime: Runtime) {
    let options = ServerOptions { requests_per_connection_max: 1, ..ServerOptions::default() };
    let site = Stoppable::start(&runtime, options).await;
    let (echo, channel) = (site.echo.clone(), connector(&runtime, "h2").channel(&site.address));
    let slow = channel.clone();
    let slow = runtime.spawn("slow", async move { slow_call(&slow, 300, LONG).await });
    eventually(&runtime, "the call runs", || echo.running.load(Ordering::SeqCst) == 1).await;
    let behind: Vec<_> = (0..20)
        .map(|_| {
            let channel = channel.clone();
            runtime.spawn("behind", async move { small_call(&channel, LONG).await })
        })
        .collect();
    // They are in the socket by then.
    runtime.sleep(Duration::from_millis(100)).await;
    let took = site.end(&runtime).await;
    assert!(took < Duration::from_millis(900), "the caller closes the connection, and is not waited for: {took:?}");
    slow.join().await.unwrap().unwrap();
    for call in behind {
        assert_eq!(call.join().await.unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
    }
    assert_eq!(echo.answered.load(Ordering::SeqCst), 1);
}

both!(calls_that_a_stopping_server_did_not_take_are_not_of_unknown_fate);

/// Of a caller that does not close its end, either.
async fn a_request_that_was_cut_off_by_the_stop_is_refused(runtime: Runtime) {
    let site = Stoppable::start(&runtime, ServerOptions::default()).await;
    let echo = site.echo.clone();
    let mut stream = proved(&runtime, &site.address, &identity("h2", Role::Mount)).await.unwrap();
    stream.write.write_all(&opening(Method::WriteReplica, &pb::WriteReplica::default(), 1 << 20)).await.unwrap();
    stream.write.write_all(&pattern(0, 1 << 19)).await.unwrap();
    stream.write.flush().await.unwrap();
    runtime.sleep(Duration::from_millis(100)).await;
    let took = site.end(&runtime).await;
    assert!((900..3000).contains(&took.as_millis()), "it waits for a second: {took:?}");
    let mut goodbyes = Vec::new();
    loop {
        let mut header = [0; ebb_wire::HEADER_LEN];
        if stream.read.read_exact(&mut header).await.is_err() {
            break;
        }
        let header = FrameHeader::decode(&header).unwrap();
        let mut message = vec![0; header.message_len as usize];
        stream.read.read_exact(&mut message).await.unwrap();
        let failure = pb::Failure::decode(&*message).unwrap();
        goodbyes.push((header.request == GOODBYE, ErrorKind::from_raw(failure.kind)));
    }
    assert_eq!(goodbyes, [(false, ErrorKind::ShuttingDown), (true, ErrorKind::ShuttingDown)]);
    assert_eq!(echo.answered.load(Ordering::SeqCst), 0);
}

both!(a_request_that_was_cut_off_by_the_stop_is_refused);
