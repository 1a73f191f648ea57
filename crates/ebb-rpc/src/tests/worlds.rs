//! Processes that freeze, crash and lose their links in a virtual world.

use std::time::Duration;

use ebb_runtime::virt::Process;
use ebb_types::ErrorKind;

use super::*;

const PORT: &str = "0.0.0.0:7001";

/// Starts (again) the server of a process; returns its address.
async fn serve_in(process: &Process) -> String {
    let runtime = process.runtime();
    let listener = runtime.listen(PORT).await.unwrap();
    let echo = Echo::new(&runtime);
    let (counters, options) = (Counters::default(), ServerOptions::default());
    let running = Server::run(runtime.clone(), listener, by_word("h1", Role::Block), counters, options, echo);
    runtime.spawn("server", running);
    format!("{}:7001", process.ip())
}

/// Calls until one is answered; how often it failed before, and how.
async fn until_answered(runtime: &Runtime, channel: &Channel) -> Vec<ErrorKind> {
    let mut failures = Vec::new();
    while let Err(error) = small_call(channel, Duration::from_secs(1)).await {
        failures.push(error.kind());
        assert!(failures.len() < 100, "{failures:?}");
        runtime.sleep(Duration::from_millis(100)).await;
    }
    failures
}

fn faults(seed: u64) -> (u64, Vec<Vec<ErrorKind>>) {
    World::run(seed, WorldOptions::default(), async |world| {
        let (server, client) = (world.process("h1"), world.process("h2"));
        let address = serve_in(&server).await;
        let runtime = client.runtime();
        let channel = connector_by_word(&runtime, "h2").channel(&address);
        assert_eq!(until_answered(&runtime, &channel).await, []);
        let mut met = Vec::new();

        // A minute of sleep: calls fail, and go well soon after it wakes.
        server.freeze();
        for _ in 0..30 {
            let error = small_call(&channel, Duration::from_secs(2)).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unreachable), "{error}");
        }
        server.thaw();
        met.push(until_answered(&runtime, &channel).await);
        assert!(met[0].len() <= 3, "{met:?}");

        // A crash in the middle of a call, and a new process at the same address.
        let waiting = channel.clone();
        let waiting = runtime.spawn("call", async move { slow_call(&waiting, 5000, LONG).await });
        runtime.sleep(Duration::from_secs(1)).await;
        server.kill();
        let before = runtime.now();
        assert_eq!(waiting.join().await.unwrap().unwrap_err().kind(), ErrorKind::Disconnected);
        assert!(runtime.now().since(before) < Duration::from_secs(1), "the break is noticed at once");
        assert_eq!(small_call(&channel, LONG).await.unwrap_err().kind(), ErrorKind::Unreachable);
        server.restart();
        serve_in(&server).await;
        met.push(until_answered(&runtime, &channel).await);

        // A cut link: as silent as a host without power.
        world.partition("h1", "h2");
        for _ in 0..10 {
            assert!(small_call(&channel, Duration::from_secs(2)).await.is_err());
        }
        world.heal();
        met.push(until_answered(&runtime, &channel).await);
        (world.trace_hash(), met)
    })
}

#[test]
fn calls_survive_faults_of_processes_and_links_and_replay_exactly() {
    for seed in 0..5 {
        assert_eq!(faults(seed), faults(seed), "seed {seed}");
    }
}
