//! `ebb user`: names of users that count in the whole cluster.

use std::str::FromStr;

use clap::Subcommand;
use ebb_api::users::table::{self, UserRow};
use ebb_cli::output::Table;
use ebb_cli::{Context, admin};
use ebb_client::XattrMode;
use ebb_types::Result;
use serde_json::json;

/// The table is for names that the hosts do not know, or know by different numbers. Programs such as Hadoop call users by
/// names; a host's own user database goes first.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add a user.
    Add {
        /// Name and number.
        #[arg(value_name = "NAME=UID")]
        user: NewUser,
        /// Numbers of its groups, the first one first [default: the user's own number].
        #[arg(long, value_delimiter = ',', value_name = "GIDS")]
        groups: Vec<u32>,
        /// Replace the user's numbers if the name is there.
        #[arg(short, long)]
        force: bool,
    },
    /// Show all users of the table.
    List,
    /// Remove users. Their files stay as they are.
    Remove {
        /// Names.
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// A name and a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewUser {
    name: String,
    uid: u32,
}

impl FromStr for NewUser {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let parts = text.rsplit_once('=').ok_or_else(|| format!("{text:?} has no number: write it as NAME=UID"))?;
        let uid = parts.1.parse().ok().filter(|uid| *uid != u32::MAX);
        let uid = uid.ok_or_else(|| format!("{:?} is no number of a user", parts.1))?;
        Ok(Self { name: parts.0.to_owned(), uid })
    }
}

/// Carries a command out.
pub async fn run(context: &Context, command: UserCommand) -> Result<()> {
    let client = admin::operator(&context.cluster()?).await?;
    let done = change(context, &client, command).await;
    done.and(client.disconnect().await)
}

async fn change(context: &Context, client: &ebb_client::Client, command: UserCommand) -> Result<()> {
    let output = context.output;
    let answer = match command {
        UserCommand::Add { user: NewUser { name, uid }, groups, force } => {
            let row = UserRow {
                uid,
                gid: groups.first().copied().unwrap_or(uid),
                groups: groups.get(1..).unwrap_or_default().to_vec(),
            };
            table::add(client, &name, &row, if force { XattrMode::Any } else { XattrMode::Create }).await?;
            json!({ "added": name, "uid": row.uid, "gid": row.gid, "groups": row.groups })
        }
        UserCommand::List => {
            let rows = table::read(client).await?;
            if !output.json() {
                let mut table = Table::new(&["USER", "UID", "GID", "GROUPS"]);
                for (name, row) in rows {
                    let groups = row.groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
                    table.row(vec![name, row.uid.to_string(), row.gid.to_string(), groups]);
                }
                output.table(&table);
                return Ok(());
            }
            let row = |(name, row): (String, UserRow)| json!({ "name": name, "uid": row.uid, "gid": row.gid, "groups": row.groups });
            json!(rows.into_iter().map(row).collect::<Vec<_>>())
        }
        UserCommand::Remove { names } => {
            for name in &names {
                table::remove(client, name).await?;
            }
            json!({ "removed": names })
        }
    };
    if output.json() {
        output.print_json(&answer);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_name_and_a_number() {
        assert_eq!("alice=1000".parse(), Ok(NewUser { name: "alice".into(), uid: 1000 }));
        for text in ["alice", "alice=", "alice=x", "alice=-1", "alice=4294967295"] {
            assert!(text.parse::<NewUser>().is_err(), "{text}");
        }
    }
}
