use std::sync::Arc;

use ebb_rpc::Connector;
use ebb_types::{ClusterId, ErrorKind, Role};

use super::*;
use crate::Carried;
use crate::testkit::{FakeSource, Namespace, prose, virt, words};

fn request(message: &impl ebb_wire::Message, method: Method) -> Request {
    let peer = ebb_rpc::PeerInfo::by_word("client", Role::Operator);
    Request {
        method,
        message: message.encode_to_vec().into(),
        payload: bytes::Bytes::new(),
        peer: Arc::new(peer),
        deadline: std::time::Duration::from_secs(9),
        caller: ebb_rpc::Caller::default(),
    }
}

#[test]
fn each_split_has_its_count_or_its_failure() {
    let mut namespace = Namespace::new(&["h1"]);
    let files: Vec<u64> = (0..40).map(|seed| namespace.add_file(1, prose(500, seed), &[&[1]])).collect();
    let source = FakeSource::new(Arc::new(namespace));
    source.broken.lock().push(files[7]);
    virt(3, async |runtime| {
        let worker = Worker::new(&runtime, source.clone(), Counters::default(), Counters::default());
        let splits: Vec<_> = files.iter().map(|inode| source.namespace.split(*inode, 0)).collect();
        let whole = pb::CountWords { splits: splits.clone(), use_locations: true, ..Default::default() };
        let reply = worker.count_words(whole).await.unwrap();
        for (index, inode) in files.iter().enumerate() {
            let failure = ebb_wire::convert::failure(reply.failures.get(index).cloned());
            if index == 7 {
                assert_eq!(failure.unwrap_err().kind(), ErrorKind::Corrupt);
            } else {
                failure.unwrap();
                assert_eq!(reply.words[index], words(&source.namespace.file(*inode).unwrap().data));
            }
        }
        assert_eq!(reply.read_bytes, 39 * 500);
        // Without a failure there is no list of them.
        let good = pb::CountWords { splits: splits[..5].to_vec(), use_locations: true, ..Default::default() };
        assert!(worker.count_words(good).await.unwrap().failures.is_empty());
        let many = pb::CountWords {
            splits: vec![pb::Split::default(); SPLITS_MAX + 1],
            use_locations: true,
            ..Default::default()
        };
        let refused = worker.handle(request(&many, Method::CountWords)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let other = worker.handle(request(&pb::Fsck::default(), Method::Fsck)).await.unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Unsupported);
    });
}

/// Each byte that the client's connections carry while tasks run is reported once, however tasks overlap.
#[test]
fn traffic_is_shared_out_once() {
    virt(5, async |runtime| {
        // Real traffic between two hosts, by calls to a worker of another host.
        let namespace = Arc::new(Namespace::new(&["h1"]));
        let identity = |host: &str| Identity::by_word(ClusterId::new(1), host, Role::Worker);
        let listener = runtime.listen("127.0.0.1:0").await.unwrap();
        let address = listener.address();
        let far = Worker::new(&runtime, FakeSource::new(namespace), Counters::default(), Counters::default());
        let (counters, options) = (Counters::default(), ServerOptions::default());
        let server = Server::run(runtime.clone(), listener, identity("h2"), counters, options, Arc::new(far));
        runtime.spawn("server", server);
        let counters = Counters::default();
        let channel = Connector::new(runtime.clone(), identity("h1"), counters.clone()).channel(&address);
        let talk = async || {
            channel.call(&pb::Counters {}, std::time::Duration::from_secs(5)).await.unwrap();
        };
        let meter = Meter::new(counters.clone());
        talk().await;
        let idle = counters.read().network_bytes();
        let first = meter.start_task();
        talk().await;
        let second = meter.start_task();
        talk().await;
        let counted = first.read().network_bytes;
        drop(first);
        talk().await;
        let counted = counted + second.read().network_bytes;
        drop(second);
        let busy = counters.read().network_bytes();
        assert_eq!(counted, busy - idle, "traffic before the first task is charged to none");
        talk().await;
        let third = meter.start_task();
        assert_eq!(third.read(), Carried::default(), "traffic between tasks is charged to none");
    });
}
