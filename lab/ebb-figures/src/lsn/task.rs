//! A task carries out the simulator's list of steps: it reads, computes and writes with the real client.

use ebb_client::Client;
use ebb_sim::program::{Step, Work};
use ebb_types::{InodeId, Result, bail};

use super::bed::Host;
use super::stream::{Reader, Writer};

/// A file that a task has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// The file.
    pub inode: InodeId,
    /// Its bytes, as they are stored.
    pub size: u64,
}

/// A task while it runs.
pub struct Task {
    /// Where it runs.
    pub host: Host,
    /// Its name, of which its files have theirs.
    name: String,
    /// Directories of shuffle data and of output.
    directories: (InodeId, InodeId),
    input: Option<Reader>,
    /// Shuffle data that it writes.
    spill: Option<Writer>,
    /// Files of shuffle data so far.
    spills: usize,
    /// Shuffle data that it reads back.
    reread: Option<Reader>,
    output: Option<Writer>,
}

impl Task {
    /// A task that has done nothing; one that reads a file if there is one.
    pub async fn start(
        host: Host,
        name: String,
        directories: (InodeId, InodeId),
        input: Option<Written>,
    ) -> Result<Self> {
        let input = match input {
            Some(file) => Some(Reader::open(&host.client, file.inode, file.size).await?),
            None => None,
        };
        Ok(Self { host, name, directories, input, spill: None, spills: 0, reread: None, output: None })
    }

    fn client(&self) -> &Client {
        &self.host.client
    }

    /// Carries out all steps in their order.
    pub async fn run(&mut self, steps: Vec<Step>) -> Result<()> {
        for step in steps {
            match step {
                (work, None) => self.carry_out(work).await?,
                (Work::Cycles(cycles), Some(work)) => {
                    let host = self.host.clone();
                    tokio::join!(host.compute(cycles), self.carry_out(work)).1?;
                }
                (work, Some(beside)) => bail!(Internal, "{work:?} has {beside:?} beside it"),
            }
        }
        Ok(())
    }

    /// Carries out one work.
    pub async fn carry_out(&mut self, work: Work) -> Result<()> {
        match work {
            Work::Cycles(cycles) => {
                self.host.compute(cycles).await;
                Ok(())
            }
            Work::ReadInput(bytes) => match &mut self.input {
                Some(input) => input.read(bytes).await,
                None => bail!(Internal, "{} has no input", self.name),
            },
            Work::Spill(bytes) => self.spill(bytes).await,
            Work::ReadSpill(bytes) => self.read_spill(bytes).await,
            Work::Output(bytes) => {
                if self.output.is_none() {
                    self.output = Some(Writer::create(self.client(), self.directories.1, &self.name).await?);
                }
                self.output.as_mut().expect("it was made").append(bytes).await
            }
        }
    }

    async fn spill(&mut self, bytes: f64) -> Result<()> {
        if self.spill.is_none() {
            let name = format!("{}.{}", self.name, self.spills);
            self.spills += 1;
            self.spill = Some(Writer::create(self.client(), self.directories.0, &name).await?);
        }
        self.spill.as_mut().expect("it was made").append(bytes).await
    }

    /// What was written is closed first: from then on it is read.
    async fn read_spill(&mut self, bytes: f64) -> Result<()> {
        if let Some(written) = self.close_spill().await? {
            self.end_rereading().await;
            self.reread = Some(Reader::open(self.client(), written.inode, written.size).await?);
        }
        match &mut self.reread {
            Some(reread) => reread.read(bytes).await,
            None => bail!(Internal, "{} has written nothing that it could read back", self.name),
        }
    }

    async fn end_rereading(&mut self) {
        if let Some(reread) = self.reread.take() {
            reread.close().await;
        }
    }

    /// Its shuffle data, whole and for others to read; none: it has written none.
    pub async fn close_spill(&mut self) -> Result<Option<Written>> {
        match self.spill.take() {
            Some(spill) => {
                let inode = spill.inode;
                Ok(Some(Written { inode, size: spill.close_pushed().await? }))
            }
            None => Ok(None),
        }
    }

    /// Closes everything; its output is safe then.
    pub async fn end(mut self) -> Result<()> {
        self.end_rereading().await;
        if let Some(input) = self.input.take() {
            input.close().await;
        }
        match self.output.take() {
            Some(output) => output.close_synced().await.map(drop),
            None => Ok(()),
        }
    }
}
