//! `ebb yarn`: a Hadoop cluster's scheduler hears of the power plan.

mod foretold;
mod leaving;
mod resource_manager;
mod share;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use ebb_cli::signals::Signals;
use ebb_cli::units::Span;
use ebb_cli::{Context, admin};
use ebb_client::Client;
use ebb_power_drivers::Url;
use ebb_runtime::Runtime;
use ebb_types::{HostName, Result};
use serde_json::json;

use foretold::Foretold;
use leaving::Leaving;
use resource_manager::{ResourceManager, YarnNode};
use share::{Bounds, Share};

/// How often plans are looked at, and YARN's nodes asked for.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub enum YarnCommand {
    /// Keep YARN's nodes to the power plan: a node that goes off for long offers no room from shortly before it goes until it
    /// serves again. Where the supply is known ahead, so are absences that have no plan yet.
    ///
    /// Blinks that are shorter than --absent need nothing: containers are frozen and go on. The command runs until it is ended, and
    /// gives all nodes their room back then.
    Follow(FollowArgs),
}

#[derive(Debug, Args)]
pub struct FollowArgs {
    /// Address of the resource manager, such as http://rm:8088.
    #[arg(long, value_name = "URL")]
    rm: Url,
    /// User that changes the nodes' resources: an administrator of YARN.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Absences up to this length need nothing. Shorter than yarn.nm.liveness-monitor.expiry-interval-ms and
    /// mapreduce.task.timeout.
    #[arg(long, default_value = "300s", value_name = "TIME")]
    absent: Span,
    /// A node offers no room from so long before it goes. Give it as long as most tasks take.
    #[arg(long, default_value = "60s", value_name = "TIME")]
    lead: Span,
    /// Shell command that is run when a node begins to offer no room, with its host in EBB_HOST and the seconds until it goes
    /// in EBB_LEFT_SECONDS. For programs that have data to move first: Spark's executors do at a SIGPWR.
    #[arg(long, value_name = "COMMAND")]
    leaving: Option<String>,
}

/// Carries a command out.
pub async fn run(context: &Context, command: YarnCommand) -> Result<()> {
    let YarnCommand::Follow(args) = command;
    let mut signals = Signals::listen()?;
    let client = admin::operator(&context.cluster()?).await?;
    let follower = Follower {
        context,
        manager: ResourceManager::new(&args.rm, args.user.as_deref()),
        bounds: Bounds { absent: args.absent.0, lead: args.lead.0 },
        shares: BTreeMap::new(),
        foretold: Foretold::default(),
        leaving: Leaving::new(args.leaving),
        complaint: None,
    };
    let done = follower.follow(&client, &mut signals).await;
    done.and(client.disconnect().await)
}

/// What was told to YARN last.
struct Follower<'a> {
    context: &'a Context,
    manager: ResourceManager,
    bounds: Bounds,
    shares: BTreeMap<String, Share>,
    foretold: Foretold,
    leaving: Leaving,
    /// The last complaint, which is not repeated.
    complaint: Option<String>,
}

impl Follower<'_> {
    async fn follow(mut self, client: &Client, signals: &mut Signals) -> Result<()> {
        // A wrong address is told at once.
        self.manager.nodes().await?;
        let runtime = Runtime::real();
        loop {
            self.adjust_rooms(client).await;
            tokio::select! {
                biased;
                _ = signals.next() => break,
                () = runtime.sleep(LOOK) => {}
            }
        }
        let nodes = self.manager.nodes().await?;
        for node in nodes.iter().filter(|node| self.shares.get(&node.id) == Some(&Share::Nothing)) {
            self.manager.set_room(node, Share::Whole, Duration::ZERO).await?;
        }
        Ok(())
    }

    async fn adjust_rooms(&mut self, client: &Client) {
        for wrong in self.leaving.take_ended() {
            self.context.output.warn(&wrong);
        }
        let nodes = match self.manager.nodes().await {
            Ok(nodes) => nodes,
            Err(error) => return self.complain(&error.to_string()),
        };
        self.foretold.refresh(self.context).await;
        for node in &nodes {
            let before = self.shares.get(&node.id).copied();
            let turn = client.turn_of(&HostName::new(node.host.clone()));
            let expected = self.foretold.of(&node.host, Instant::now());
            let decided = share::choose_share(turn, expected, before, &self.bounds);
            if before.unwrap_or(Share::Whole) == decided.share {
                self.shares.entry(node.id.clone()).or_insert(decided.share);
                continue;
            }
            match self.manager.set_room(node, decided.share, decided.left).await {
                Ok(()) => {
                    self.shares.insert(node.id.clone(), decided.share);
                    self.tell(node, &decided);
                    // One that is gone already has nothing that could hear of it.
                    if decided.share == Share::Nothing
                        && !decided.left.is_zero()
                        && let Err(error) = self.leaving.start_command(&node.host, decided.left)
                    {
                        self.complain(&error.to_string());
                    }
                }
                // A node that has just woken may not answer yet: it is tried again.
                Err(error) => self.complain(&format!("{}: {error}", node.host)),
            }
        }
    }

    fn tell(&self, node: &YarnNode, decided: &share::Decided) {
        let room = if decided.share == Share::Whole { "all of its room" } else { "no room" };
        let reason = decided.reason.to_string();
        self.context.output.answer(
            &format!("{} offers {room}: {reason}", node.host),
            &json!({ "host": node.host, "offers": decided.share == Share::Whole, "why": reason }),
        );
    }

    fn complain(&mut self, what: &str) {
        if self.complaint.as_deref() != Some(what) {
            self.context.output.warn(what);
            self.complaint = Some(what.to_owned());
        }
    }
}
