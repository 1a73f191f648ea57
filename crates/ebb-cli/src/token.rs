//! A token, with which a host joins a cluster: one line of text.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ebb_identity::CertifiedKey;
use ebb_types::{Result, bail, err};
use ebb_wire::frame::crc32c;
use ebb_wire::{Message, pb};

/// Begins every token; the digit is the version of what follows.
const PREFIX: &str = "ebb1.";
/// Longest token that is read.
const LEN_MAX: usize = 16 << 10;

/// What a token says.
#[derive(Debug)]
pub struct Token {
    /// Masters of the cluster.
    pub masters: Vec<String>,
    /// What its connections carry, as in the cluster's settings.
    pub wire: String,
    /// What the host may be.
    pub roles: Vec<String>,
    /// Certifies the joiner, once.
    pub key: CertifiedKey,
}

impl Token {
    /// The line. Whoever reads it can join in the host's place.
    #[must_use]
    pub fn encode(&self) -> String {
        let message = pb::JoinToken {
            masters: self.masters.clone(),
            wire: self.wire.clone(),
            roles: self.roles.clone(),
            certified_key: self.key.to_pem().to_owned(),
        };
        let mut bytes = message.encode_to_vec();
        bytes.extend(crc32c(&bytes).to_le_bytes());
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Reads a line.
    ///
    /// # Errors
    /// `Invalid` for what is no token, or not a whole one.
    pub fn decode(line: &str) -> Result<Self> {
        let line = line.trim();
        let Some(text) = line.strip_prefix(PREFIX).filter(|_| line.len() <= LEN_MAX) else {
            bail!(Invalid, "this is no token: it begins with {PREFIX:?}, and is what `ebb node token` printed");
        };
        let damaged = || err!(Invalid, "the token was changed or cut off on its way: copy the whole line");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| damaged())?;
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        if crc32c(body).to_le_bytes() != *sum {
            return Err(damaged());
        }
        let pb::JoinToken { masters, wire, roles, certified_key } =
            pb::JoinToken::decode(body).map_err(|_| damaged())?;
        Ok(Self { masters, wire, roles, key: CertifiedKey::from_pem(&certified_key)? })
    }
}

#[cfg(test)]
mod tests {
    use ebb_fuzz::target::nothing;
    use ebb_fuzz::{Cap, Shape, Target, run};
    use ebb_rpc::testing::authority;
    use ebb_runtime::Runtime;
    use ebb_types::{ErrorKind, Role};

    use super::*;

    fn token() -> Token {
        let subject =
            ebb_identity::Subject { cluster: authority().cluster(), role: Role::Joiner, host: None, user: None };
        let lifetime = std::time::Duration::from_secs(3600);
        let key = authority().issue(&subject, Runtime::real().wall(), lifetime).unwrap();
        Token { masters: vec!["m:7000".into()], wire: "encrypted".into(), roles: vec!["block".into()], key }
    }

    #[test]
    fn a_token_reads_as_it_was_written_and_no_other_text_does() {
        let token = token();
        let line = token.encode();
        let read = Token::decode(&format!("  {line}\n")).unwrap();
        assert_eq!((&read.masters, &read.wire, &read.roles), (&token.masters, &token.wire, &token.roles));
        assert_eq!(read.key.serial(), token.key.serial());
        let mut swapped = line.clone().into_bytes();
        swapped.swap(100, 101);
        for wrong in ["", "ebb1.", "secret", &line[..line.len() - 1], &line[1..], &String::from_utf8(swapped).unwrap()]
        {
            assert_eq!(Token::decode(wrong).unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
        }
    }

    #[test]
    fn any_line_is_read_or_refused() {
        run::hold(&Target {
            name: "ebb/token",
            source: "--token",
            cap: Cap { base: 64 << 10, times: 64 },
            shape: Shape::Text,
            cases: 3_000,
            decode: |bytes| Token::decode(&String::from_utf8_lossy(bytes)).is_ok(),
            samples: || vec![token().encode().into_bytes()],
            repair: nothing,
        });
    }
}
