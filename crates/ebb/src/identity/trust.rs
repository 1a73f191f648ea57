//! Tokens and revocations, which the master keeps.

use ebb_cli::output::Table;
use ebb_cli::{Context, admin};
use ebb_types::{Result, Role, WallTime, bail};
use ebb_wire::pb;
use serde_json::{Value, json};

use super::{RevokeArgs, date, hex, user};

/// `ebb identity revoke`.
pub async fn revoke(context: &Context, args: RevokeArgs) -> Result<()> {
    let revocation = pb::Revocation {
        role: args.role.map_or_else(String::new, |role| role.name().to_owned()),
        host: args.host.unwrap_or_default(),
        uid: args.user.as_deref().map(user).transpose()?.map(|user| user.uid),
        serial: args.serial.as_deref().map(serial).transpose()?.unwrap_or_default(),
        made_ns: 0,
    };
    let cluster = context.cluster()?;
    let call = pb::RevokeIdentities { revocation: Some(revocation.clone()) };
    admin::master(&cluster)?.call(&call, admin::ASK).await?;
    let sentence = format!("withdrawn: certificates of {}", described(&revocation));
    context.output.answer(&sentence, &revoked(&revocation));
    Ok(())
}

fn serial(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<u32> = text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16).unwrap_or(16)).collect();
    if digits.is_empty() || !digits.len().is_multiple_of(2) || digits.contains(&16) {
        bail!(Invalid, "--serial {text}: write pairs of hexadecimal digits, as `ebb identity show` prints them");
    }
    Ok(digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("two digits")).collect())
}

/// `ebb identity list --trust`.
pub async fn list(context: &Context) -> Result<()> {
    let trust = admin::master(&context.cluster()?)?.call(&pb::DescribeTrust {}, admin::ASK).await?;
    if context.output.json() {
        let tokens: Vec<Value> = trust.invitations.iter().map(token).collect();
        let revocations: Vec<Value> = trust.revocations.iter().map(revoked).collect();
        context.output.print_json(&json!({ "tokens": tokens, "revocations": revocations }));
        return Ok(());
    }
    let mut table = Table::new(&["WHAT", "OF", "UNTIL", "SERIAL"]);
    for invitation in &trust.invitations {
        let what = if invitation.used_for.is_empty() { "token" } else { "used token" };
        let host = if invitation.host.is_empty() { "any new host" } else { &invitation.host };
        let of = format!("{host} as {}", invitation.roles.join(", "));
        let until = date(WallTime(invitation.until_ns));
        table.row(vec![what.to_owned(), of, until, hex(&invitation.serial)]);
    }
    for revocation in &trust.revocations {
        let issued = format!("issued before {}", date(WallTime(revocation.made_ns)));
        table.row(vec!["revocation".to_owned(), described(revocation), issued, hex(&revocation.serial)]);
    }
    context.output.table(&table);
    Ok(())
}

fn token(invitation: &pb::Invitation) -> Value {
    json!({
        "serial": hex(&invitation.serial),
        "roles": invitation.roles,
        "host": Some(&invitation.host).filter(|host| !host.is_empty()),
        "until_ns": invitation.until_ns,
        "used": !invitation.used_for.is_empty(),
    })
}

fn revoked(revocation: &pb::Revocation) -> Value {
    let named = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    json!({
        "role": named(&revocation.role),
        "host": named(&revocation.host),
        "uid": revocation.uid,
        "serial": named(&hex(&revocation.serial)),
        "made_ns": Some(revocation.made_ns).filter(|made| *made != 0),
    })
}

fn described(revocation: &pb::Revocation) -> String {
    let role = revocation.role.parse::<Role>();
    let mut words = vec![role.map_or_else(|_| "any process".to_owned(), |role| format!("each {role}"))];
    if let Some(uid) = revocation.uid {
        words.push(format!("of user {uid}"));
    }
    if !revocation.host.is_empty() {
        words.push(format!("on {}", revocation.host));
    }
    if !revocation.serial.is_empty() {
        words.push(format!("with serial {}", hex(&revocation.serial)));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_read_as_they_are_printed() {
        assert_eq!(serial(&hex(&[0, 1, 0xab])).unwrap(), [0, 1, 0xab]);
        assert_eq!(serial("00:01:AB").unwrap(), [0, 1, 0xab]);
        for wrong in ["", "0", "0g", "0x01", "é1"] {
            assert!(serial(wrong).is_err(), "{wrong}");
        }
    }
}
