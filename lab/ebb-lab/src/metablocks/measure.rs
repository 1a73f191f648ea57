//! Searches and readers, each on a file of its own.

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, Unit};
use ebb_figures::metablocks::{Cost, Placing, Setting, Speeds};
use ebb_types::{Credentials, Prefetch, Result, bail};
use ebb_worker::{JobOptions, Locality, Pattern, SEARCH_BUFFER, Task, count_words};

use super::site::{Made, NEEDLE, Site};

/// Bytes of a random read.
const RANDOM_READ: u64 = 8 << 10;
/// Random reads of one measurement.
const RANDOM_READS: u64 = 1000;
/// Random reads of one measurement if each fetches a block of up to 16 MiB.
const BLOCK_READS: u64 = 100;

/// A search for the needles by the workers.
pub async fn search(site: &Site, setting: Setting, prefetch: Prefetch, placing: Placing) -> Result<Cost> {
    let file = site.file(setting, prefetch).await?;
    let locality = match placing {
        Placing::Located => Locality::Located,
        Placing::Blind => Locality::Blind,
    };
    let task = Task::Lines(Pattern::new(Bytes::from_static(NEEDLE))?);
    let options = JobOptions { task, locality, buffer_bytes: Some(SEARCH_BUFFER), ..JobOptions::default() };
    let (path, root) = (file.path.clone(), Credentials::root());
    let client = site.bystander();
    let counted =
        count_words(&site.runtime, client, &root, path.as_bytes(), &site.workers, &options, &mut |_| ()).await;
    site.unlink(file).await?;
    let report = counted?;
    if report.failed > 0 || report.words != site.needles() {
        let (found, all) = (report.words, site.needles());
        bail!(Internal, "a search of {path} found {found} lines of {all}, and {} splits failed", report.failed);
    }
    Ok(Cost {
        seconds: report.seconds,
        network_bytes: report.network_bytes as f64,
        asked_bytes: site.size() as f64,
        unused_bytes: None,
    })
}

/// One program that reads a file from one end to the other.
pub async fn sequential(site: &Site, setting: Setting, prefetch: Prefetch, unit: Unit) -> Result<Cost> {
    let size = site.size();
    with_reader(site, setting, prefetch, unit, async |client, handle| {
        let mut at = 0;
        while at < size {
            at += read(client, handle, at, SEARCH_BUFFER).await?;
        }
        Ok(at)
    })
    .await
}

/// One program that reads at random places.
pub async fn random(site: &Site, setting: Setting, prefetch: Prefetch, unit: Unit) -> Result<Cost> {
    let size = site.size();
    let reads = if unit == Unit::Blocks { BLOCK_READS } else { RANDOM_READS };
    with_reader(site, setting, prefetch, unit, async |client, handle| {
        let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
        let mut asked = 0;
        for _ in 0..reads {
            // Marsaglia's xorshift: the same places in every case.
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            let at = (dice >> 11) % (size / RANDOM_READ) * RANDOM_READ;
            asked += read(client, handle, at, RANDOM_READ).await?;
        }
        Ok(asked)
    })
    .await
}

/// Random and sequential reads, as speeds.
pub async fn speeds(site: &Site, setting: Setting, unit: Unit) -> Result<Speeds> {
    let speed = |cost: Cost| cost.asked_bytes / cost.seconds.max(1e-9);
    let sequential = speed(sequential(site, setting, setting.prefetch, unit).await?);
    let random = speed(random(site, setting, setting.prefetch, unit).await?);
    Ok(Speeds { random, sequential })
}

/// Makes a file, lets `work` read it with a client of its own, and removes it. `work` returns the bytes that it
/// requested.
async fn with_reader(
    site: &Site,
    setting: Setting,
    prefetch: Prefetch,
    unit: Unit,
    work: impl AsyncFnOnce(&Client, Handle) -> Result<u64>,
) -> Result<Cost> {
    let file = site.file(setting, prefetch).await?;
    let client = site.client(|options| options.unit = unit).await?;
    let cost = cost_of(site, &client, &file, work).await;
    client.disconnect().await?;
    site.unlink(file).await?;
    cost
}

async fn cost_of(
    site: &Site,
    client: &Client,
    file: &Made,
    work: impl AsyncFnOnce(&Client, Handle) -> Result<u64>,
) -> Result<Cost> {
    let (handle, _) = client.open(&Credentials::root(), file.inode, Access::Read).await?;
    let (counters, started) = (client.counters(), site.runtime.now());
    let before = counters.read().network_bytes();
    let asked = work(client, handle).await?;
    let seconds = site.runtime.now().since(started).as_secs_f64();
    let network_bytes = (counters.read().network_bytes() - before) as f64;
    client.close(handle).await;
    let metrics = client.metrics();
    let unused_bytes = Some((metrics.ahead_bytes - metrics.used_ahead_bytes) as f64);
    Ok(Cost { seconds, network_bytes, asked_bytes: asked as f64, unused_bytes })
}

async fn read(client: &Client, handle: Handle, at: u64, len: u64) -> Result<u64> {
    let data = client.read(handle, at, len as u32).await?;
    if data.is_empty() {
        bail!(Internal, "nothing could be read at {at}, within the file");
    }
    Ok(data.len() as u64)
}
