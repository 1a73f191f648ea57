//! Random operations against a byte array, under faults.

use std::time::Duration;

use ebb_runtime::virt::Dice;

use super::harness::{Blocks, METABLOCK, create, pattern, read_all, root, run_with};
use crate::{Access, Allocate, SetAttr};

const SPAN: u64 = 3 * METABLOCK;

struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset as usize + data.len();
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        self.0[offset as usize..end].copy_from_slice(data);
    }

    fn zero(&mut self, offset: u64, len: u64) {
        let end = ((offset + len) as usize).min(self.0.len());
        if (offset as usize) < end {
            self.0[offset as usize..end].fill(0);
        }
    }
}

fn below(dice: &mut Dice, bound: u64) -> u64 {
    dice.below(bound)
}

/// Operations of two clients on one file, one after the other, while members die and come back.
fn exercise(blocks: Blocks, seed: u64, steps: usize, faults: bool) {
    run_with(blocks, seed, 5, |cluster| async move {
        let mut dice = cluster.world.dice("operations");
        let mut options = cluster.options("h0");
        options.read_cache_bytes = 300_000;
        let one = cluster.client_with(options).await;
        let two = cluster.client("other").await;
        let dir = cluster.small_dataset(&one, 3).await;
        let (first, inode) = create(&one, dir, "file").await;
        let (second, _) = two.open(&root(), inode, Access::ReadWrite).await.unwrap();
        let mut model = Model(Vec::new());
        let mut dead: Option<usize> = None;
        for step in 0..steps {
            let (client, handle) = if below(&mut dice, 4) == 0 { (&two, second) } else { (&one, first) };
            let offset = below(&mut dice, SPAN);
            let len = if below(&mut dice, 3) == 0 { below(&mut dice, 200_000) } else { below(&mut dice, 5000) };
            match below(&mut dice, 16) {
                0..6 => {
                    let data = pattern(seed ^ step as u64, len as usize);
                    client.write(handle, offset, data.clone()).await.unwrap();
                    if !data.is_empty() {
                        model.write(offset, &data);
                    }
                }
                6 => {
                    let data = pattern(step as u64, (len / 10) as usize);
                    let at = client.append(handle, data.clone()).await.unwrap();
                    assert_eq!(at, model.0.len() as u64);
                    model.write(at, &data);
                }
                7..11 => {
                    let got = client.read(handle, offset, len as u32).await.unwrap();
                    let start = (offset as usize).min(model.0.len());
                    let end = ((offset + len) as usize).min(model.0.len());
                    assert!(got == model.0[start..end], "seed {seed}, step {step}: {offset}+{len}");
                }
                11 => {
                    let set = SetAttr { size: Some(offset), by_handle: true, ..SetAttr::default() };
                    client.set_attr(&root(), inode, set).await.unwrap();
                    model.0.resize(offset as usize, 0);
                }
                12 => {
                    let len = len.max(1);
                    client.allocate(handle, Allocate::PunchHole, offset, len).await.unwrap();
                    model.zero(offset, len);
                }
                13 => client.fsync(handle).await.unwrap(),
                14 => cluster.world.sleep(Duration::from_millis(below(&mut dice, 3000))).await,
                _ if faults => match dead.take() {
                    Some(node) => {
                        cluster.restart_node(node).await;
                        cluster.world.sleep(Duration::from_millis(below(&mut dice, 12_000))).await;
                    }
                    None => {
                        let node = below(&mut dice, 5) as usize;
                        cluster.kill_node(node);
                        dead = Some(node);
                        match below(&mut dice, 3) {
                            0 => cluster.restart_node(dead.take().unwrap()).await,
                            1 => cluster.world.sleep(Duration::from_millis(below(&mut dice, 9000))).await,
                            _ => {}
                        }
                    }
                },
                _ => {}
            }
            let size = client.get_attr(&root(), inode).await.unwrap().size;
            assert_eq!(size, model.0.len() as u64, "seed {seed}, step {step}");
        }
        one.fsync(first).await.unwrap();
        two.fsync(second).await.unwrap();
        assert!(read_all(&one, first).await.unwrap() == model.0, "seed {seed}, at the end");
        one.disconnect().await.unwrap();
        assert!(read_all(&two, second).await.unwrap() == model.0, "seed {seed}, on the other client");
        two.disconnect().await.unwrap();
        let third = cluster.client("third").await;
        let (handle, _) = third.open(&root(), inode, Access::Read).await.unwrap();
        assert!(read_all(&third, handle).await.unwrap() == model.0, "seed {seed}, on a new client");
    });
}

#[test]
fn a_file_behaves_as_an_array_of_bytes() {
    for seed in 0..4 {
        exercise(Blocks::Real, seed, 150, false);
        exercise(Blocks::Fake, seed, 150, false);
    }
}

#[test]
fn a_file_behaves_as_an_array_of_bytes_while_members_die_and_restart() {
    for seed in 100..108 {
        exercise(Blocks::Real, seed, 120, true);
        exercise(Blocks::Fake, seed, 120, true);
    }
}
