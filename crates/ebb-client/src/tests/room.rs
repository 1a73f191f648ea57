//! Room that is reserved and not used: it is in no other client's way.

use std::time::Duration;

use ebb_wire::pb::meta_op::{Op, SetDataset};

use super::harness::{BLOCK, create, pattern, read_all, root, run};
use crate::Access;

/// Room for 16 first promises.
const QUOTA: u64 = 16 * BLOCK;
const FILES: u64 = 60;
const SIZE: usize = 5000;

#[test]
fn many_small_files_need_no_more_room_than_they_have_bytes() {
    run(91, 3, |cluster| async move {
        let client = cluster.client("client").await;
        let directory = cluster.small_dataset(&client, 3).await;
        let dataset = client.get_attr(&root(), directory).await.unwrap().storage.dataset;
        let quota = SetDataset { dataset: dataset.raw(), quota_bytes: Some(QUOTA), ..Default::default() };
        client.meta(&root(), Op::SetDataset(quota)).await.unwrap();
        // All at once, and after a while: files are closed and still known here.
        for number in 0..FILES {
            let (handle, _) = create(&client, directory, &format!("f{number}")).await;
            client.write(handle, 0, pattern(number, SIZE)).await.unwrap();
            client.close(handle).await;
            if number == FILES / 2 {
                cluster.world.sleep(Duration::from_secs(7)).await;
            }
        }
        for number in 0..FILES {
            let found = client.lookup(&root(), directory, format!("f{number}").as_bytes()).await.unwrap();
            let handle = client.open(&root(), found.inode, Access::Read).await.unwrap().0;
            assert_eq!(read_all(&client, handle).await.unwrap(), pattern(number, SIZE));
            client.close(handle).await;
        }
        // What is really used up is refused.
        let (handle, _) = create(&client, directory, "large").await;
        let refused = client.write(handle, 0, pattern(1, QUOTA as usize)).await.unwrap_err();
        assert_eq!(refused.kind(), ebb_types::ErrorKind::QuotaExceeded);
    });
}

/// Goal: what one client has closed, and keeps the leases of, is in no other client's way either.
#[test]
fn room_of_files_that_another_client_has_closed_comes_back() {
    run(92, 3, |cluster| async move {
        let (one, two) = (cluster.client("h0").await, cluster.client("h1").await);
        let directory = cluster.small_dataset(&one, 3).await;
        let dataset = one.get_attr(&root(), directory).await.unwrap().storage.dataset;
        let quota = SetDataset { dataset: dataset.raw(), quota_bytes: Some(QUOTA), ..Default::default() };
        one.meta(&root(), Op::SetDataset(quota)).await.unwrap();
        for number in 0..12 {
            let (handle, _) = create(&one, directory, &format!("f{number}")).await;
            one.write(handle, 0, pattern(number, SIZE)).await.unwrap();
            one.close(handle).await;
        }
        cluster.world.sleep(Duration::from_secs(15)).await;
        let (handle, _) = create(&two, directory, "large").await;
        let large = pattern(99, (QUOTA - 2 * BLOCK) as usize);
        two.write(handle, 0, large.clone()).await.unwrap();
        assert_eq!(read_all(&two, handle).await.unwrap(), large);
    });
}
