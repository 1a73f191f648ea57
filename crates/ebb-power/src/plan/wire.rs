//! The byte form of a plan: the same in messages and in the power manager's file. `docs/power/plan-format.md` specifies
//! it.
//!
//! Little-endian. The decoder trusts no input: every length is bounded before memory is allocated for it, and the
//! decoded plan is checked.

use std::collections::BTreeMap;

use ebb_types::{DatasetId, NodeId, PlanVersion, Result, bail, err};

use super::{Duty, EXAMPLE_MAX, NODES_MAX, NodePlan, OutOfReach, PowerPlan, WHY_MAX};
use crate::policy::PolicyKind;

/// First bytes of every plan.
const MAGIC: &[u8; 4] = b"EBPP";
/// The format that is written.
const FORMAT: u8 = 2;
/// The previous format, without the data out of reach. It is still read, because plans outlive a program in the
/// master's log.
const FORMAT_BEFORE: u8 = 1;
/// Bytes of a node: id, duty, start, active, ready, wake, suspend.
const NODE_BYTES: usize = 8 + 1 + 8 + 8 + 8 + 4 + 4;

const OFF: u8 = 0;
const ON: u8 = 1;
const BLINK: u8 = 2;

impl PowerPlan {
    /// The plan as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.why.len() + self.nodes.len() * NODE_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[FORMAT, self.policy.number()]);
        let head = [self.version.raw(), self.start_ms, self.interval_ms, self.guard_ms, self.budget_mw];
        head.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        put_text(&mut out, &self.why);
        put_count(&mut out, self.stalled.len());
        self.stalled.iter().for_each(|dataset| out.extend_from_slice(&dataset.raw().to_le_bytes()));
        out.extend_from_slice(&self.out_of_reach.metablocks.to_le_bytes());
        put_text(&mut out, &self.out_of_reach.example);
        put_count(&mut out, self.nodes.len());
        self.nodes.iter().for_each(|(id, node)| put_node(&mut out, *id, node));
        out
    }

    /// Decodes a plan. `Protocol`, with the reason, for bytes that are no plan.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Input(bytes);
        if input.take_bytes(MAGIC.len())? != MAGIC {
            bail!(Protocol, "these bytes are no power plan");
        }
        let format = input.byte()?;
        if !(FORMAT_BEFORE..=FORMAT).contains(&format) {
            bail!(Protocol, "a power plan of format {format}; this program reads formats {FORMAT_BEFORE} and {FORMAT}");
        }
        let number = input.byte()?;
        let policy = PolicyKind::from_number(number)
            .ok_or_else(|| err!(Protocol, "a power plan of policy {number}, which this program does not know"))?;
        let version = PlanVersion::new(input.number()?);
        let (start_ms, interval_ms) = (input.number()?, input.number()?);
        let (guard_ms, budget_mw) = (input.number()?, input.number()?);
        let why = input.text(WHY_MAX)?;
        let stalled = input.count(NODES_MAX, 8, "datasets")?;
        let stalled = (0..stalled).map(|_| Ok(DatasetId::new(input.number()?))).collect::<Result<_>>()?;
        let out_of_reach = match format {
            FORMAT_BEFORE => OutOfReach::default(),
            _ => OutOfReach { metablocks: input.number()?, example: input.text(EXAMPLE_MAX)? },
        };
        let nodes = input.nodes()?;
        if !input.0.is_empty() {
            bail!(Protocol, "{} bytes after the end of a power plan", input.0.len());
        }
        let plan =
            Self { version, policy, start_ms, interval_ms, guard_ms, budget_mw, nodes, stalled, out_of_reach, why };
        plan.check().map_err(|error| err!(Protocol, "a power plan that cannot be: {error}"))?;
        Ok(plan)
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("a plan that was checked has bounded lists");
    out.extend_from_slice(&count.to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn put_node(out: &mut Vec<u8>, id: NodeId, node: &NodePlan) {
    let (tag, start_ms, active_ms) = match node.duty {
        Duty::Off => (OFF, 0, 0),
        Duty::On => (ON, 0, 0),
        Duty::Blink { start_ms, active_ms } => (BLINK, start_ms, active_ms),
    };
    out.extend_from_slice(&id.raw().to_le_bytes());
    out.push(tag);
    [start_ms, active_ms, node.ready_ms].iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
    [node.wake_ms, node.suspend_ms].iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take_bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        if self.0.len() < count {
            bail!(Protocol, "a power plan that ends {} bytes too early", count - self.0.len());
        }
        let (head, tail) = self.0.split_at(count);
        self.0 = tail;
        Ok(head)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take_bytes(1)?[0])
    }

    fn number(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take_bytes(8)?.try_into().expect("eight bytes were taken")))
    }

    fn short(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take_bytes(4)?.try_into().expect("four bytes were taken")))
    }

    /// Reads the count of a list with entries of `each` bytes. It must not exceed `most`, nor the bytes that are there.
    fn count(&mut self, most: usize, each: usize, kind: &str) -> Result<usize> {
        let count = self.short()? as usize;
        if count > most || count * each > self.0.len() {
            bail!(Protocol, "a power plan with {count} {kind} in {} bytes; at most {most}", self.0.len());
        }
        Ok(count)
    }

    fn text(&mut self, most: usize) -> Result<String> {
        let len = self.count(most, 1, "bytes of text")?;
        let text = self.take_bytes(len)?.to_vec();
        String::from_utf8(text).map_err(|_| err!(Protocol, "a power plan with a text that is not UTF-8"))
    }

    fn nodes(&mut self) -> Result<BTreeMap<NodeId, NodePlan>> {
        let count = self.count(NODES_MAX, NODE_BYTES, "nodes")?;
        let mut nodes = BTreeMap::new();
        for _ in 0..count {
            let id = NodeId::new(self.number()?);
            if nodes.last_key_value().is_some_and(|(last, _)| *last >= id) {
                bail!(Protocol, "a power plan that names {id} out of order");
            }
            nodes.insert(id, self.node(id)?);
        }
        Ok(nodes)
    }

    fn node(&mut self, id: NodeId) -> Result<NodePlan> {
        let tag = self.byte()?;
        let (start_ms, active_ms) = (self.number()?, self.number()?);
        let duty = match (tag, start_ms, active_ms) {
            (OFF, 0, 0) => Duty::Off,
            (ON, 0, 0) => Duty::On,
            (BLINK, ..) => Duty::Blink { start_ms, active_ms },
            _ => bail!(Protocol, "a power plan with duty {tag} of {start_ms} and {active_ms} ms for {id}"),
        };
        Ok(NodePlan { duty, ready_ms: self.number()?, wake_ms: self.short()?, suspend_ms: self.short()? })
    }
}
