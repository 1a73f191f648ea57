//! The identity of a process towards its peers.

use std::fmt;

use ebb_types::{ClusterId, HostName, Result, bail};

/// The cluster secret: 32 bytes that every trusted process holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Wraps the bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self> {
        let text = text.trim();
        let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
        match digits {
            Some(digits) if digits.len() == 64 => {
                let mut bytes = [0; 32];
                for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
                    *byte = pair[0] << 4 | pair[1];
                }
                Ok(Self(bytes))
            }
            _ => bail!(Invalid, "a cluster secret is 64 hexadecimal digits, this has {} characters", text.len()),
        }
    }

    /// 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The identity that a process declares in the handshake.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// Proved, never sent.
    pub secret: Secret,
    /// Its declared host.
    pub host: HostName,
    /// "master", "block", "worker", "mount", "cli".
    pub role: String,
}

/// The other side, as the handshake describes it.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// Its declared host.
    pub host: HostName,
    /// Its role.
    pub role: String,
    /// Its address, for messages to people.
    pub address: String,
}
