//! Files that several clients write while members sleep: the bytes go past the proxy, and a write waits for no sleeper.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile};
use ebb_power::PolicyKind;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, Op};

use crate::power::PowerCluster;

const INTERVAL: Duration = Duration::from_secs(20);
const NODES: usize = 9;
/// Of each write, and of each place.
const BYTES: u32 = 256 << 10;
/// What each of them writes over and over, in different places of the file.
const PLACES: u64 = 4;

/// A client with the file open, and the byte that each of its places has.
struct Sharer {
    client: Client,
    file: Handle,
    first: u64,
    has: [u8; PLACES as usize],
}

impl Sharer {
    fn offset(&self, place: u64) -> u64 {
        (self.first + place) * u64::from(BYTES)
    }

    async fn write(&mut self, world: &World, place: u64, byte: u8) -> Duration {
        let began = world.now();
        let bytes = Bytes::from(vec![byte; BYTES as usize]);
        self.client.write(self.file, self.offset(place), bytes).await.unwrap();
        self.has[place as usize] = byte;
        world.now() - began
    }

    /// Another one reads what this one has written.
    async fn verify(&self, by: &Client, file: Handle, place: u64) {
        let read = by.read(file, self.offset(place), BYTES).await.unwrap();
        let byte = self.has[place as usize];
        assert!(read.len() == BYTES as usize && read.iter().all(|one| *one == byte), "place {place} is not {byte}");
    }
}

/// A file whose copies lie evenly on the circle, so that one of them is awake nearly always.
async fn sharers(cluster: &PowerCluster) -> [Sharer; 2] {
    let root = Credentials::root();
    let one = cluster.connect("one").await.unwrap();
    let (path, layout) = ("/d".to_owned(), "power-balanced".to_owned());
    let dataset = pb::Dataset { path, layout, replicas: 3, ..Default::default() };
    let made = one
        .meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() }))
        .await
        .unwrap();
    let directory = InodeId::new(made.dataset.unwrap().root_inode);
    let made = one.create(&root, NewFile::exclusive(directory, b"shared", Access::ReadWrite)).await.unwrap();
    let other = cluster.connect("other").await.unwrap();
    let file = other.open(&root, made.attr.inode, Access::ReadWrite).await.unwrap().0;
    let sharer = |client, file, first| Sharer { client, file, first, has: [0; PLACES as usize] };
    [sharer(one, made.handle, 0), sharer(other, file, PLACES)]
}

/// Goal: two clients that write one shared file while members sleep wait for none of these. Most bytes go past the proxy.
/// What was answered outlives the proxy. Method: the file's members blink, half of
/// them at a time. The master dies, with the only proxy in it. Another client reads everything at every phase of the
/// interval, so that each member answers some of it.
#[test]
fn writers_of_one_file_wait_for_no_sleeping_member() {
    World::run(21, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
        cluster.set_fraction(0.5).await.unwrap();
        world.sleep(INTERVAL * 2 + Duration::from_secs(1)).await;
        let mut sharers = sharers(&cluster).await;
        // Until it is shared, each turn waits for members.
        for turn in 0..6 {
            for sharer in &mut sharers {
                sharer.write(&world, turn % PLACES, 1).await;
            }
        }
        let direct = |sharers: &[Sharer; 2]| sharers.iter().map(|one| one.client.metrics().direct_writes).sum::<u64>();
        let (before, end) = (direct(&sharers), world.now() + INTERVAL * 3);
        let (mut longest, mut longest_read, mut writes) = (Duration::ZERO, Duration::ZERO, 0);
        while world.now() < end {
            for place in 0..PLACES {
                for at in 0..2 {
                    longest = longest.max(sharers[at].write(&world, place, (writes % 250) as u8 + 1).await);
                    writes += 1;
                    let began = world.now();
                    sharers[at].verify(&sharers[1 - at].client, sharers[1 - at].file, place).await;
                    longest_read = longest_read.max(world.now() - began);
                }
            }
            world.sleep(Duration::from_millis(500)).await;
        }
        assert!(writes > 100, "{writes} writes");
        assert!(longest < Duration::from_secs(1), "a write took {longest:?}");
        assert!(longest_read < Duration::from_secs(1), "a read took {longest_read:?}");
        let direct = direct(&sharers) - before;
        assert!(direct * 10 > writes * 8, "{direct} of {writes} were direct");
        cluster.restart_master().await;
        let (reader, root) = (cluster.connect("reader").await.unwrap(), Credentials::root());
        let inode = reader.resolve(&root, b"/d/shared").await.unwrap().inode;
        let file = reader.open(&root, inode, Access::Read).await.unwrap().0;
        for _ in 0..8 {
            for sharer in &sharers {
                for place in 0..PLACES {
                    sharer.verify(&reader, file, place).await;
                }
            }
            world.sleep(INTERVAL / 8).await;
        }
    });
}
