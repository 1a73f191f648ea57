//! Proof of the cluster secret: a keyed hash over all that both sides sent.
//!
//! Each side hashes both nonces, so an old exchange proves nothing; its own side, so a proof cannot be sent back to its
//! author; and cluster, hosts and roles, so no process between the two can change them. HMAC (RFC 2104) with SHA-256;
//! fields carry their length, so no two transcripts hash the same bytes.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::identity::Secret;

/// Bytes of a nonce.
pub(crate) const NONCE_LEN: usize = 32;

/// The side that proves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The messages of both sides before the proofs.
#[derive(Clone, Debug)]
pub(crate) struct Transcript<'a> {
    pub protocol: u32,
    pub cluster: u64,
    pub client_host: &'a str,
    pub client_role: &'a str,
    pub client_nonce: &'a [u8],
    pub server_host: &'a str,
    pub server_role: &'a str,
    pub server_nonce: &'a [u8],
}

impl Transcript<'_> {
    /// The proof that `side` sends.
    pub fn prove(&self, secret: &Secret, side: Side) -> Vec<u8> {
        self.keyed(secret, side).finalize().into_bytes().to_vec()
    }

    /// Whether `proof` is the one that `side` must send; takes as long for any wrong proof.
    pub fn holds(&self, secret: &Secret, side: Side, proof: &[u8]) -> bool {
        self.keyed(secret, side).verify_slice(proof).is_ok()
    }

    fn keyed(&self, secret: &Secret, side: Side) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("HMAC takes a key of any length");
        let label: &[u8] = match side {
            Side::Client => b"ebb hello client",
            Side::Server => b"ebb hello server",
        };
        let protocol = self.protocol.to_le_bytes();
        let cluster = self.cluster.to_le_bytes();
        let fields: [&[u8]; 9] = [
            label,
            &protocol,
            &cluster,
            self.client_host.as_bytes(),
            self.client_role.as_bytes(),
            self.client_nonce,
            self.server_host.as_bytes(),
            self.server_role.as_bytes(),
            self.server_nonce,
        ];
        for field in fields {
            mac.update(&(field.len() as u64).to_le_bytes());
            mac.update(field);
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript() -> Transcript<'static> {
        Transcript {
            protocol: 1,
            cluster: 7,
            client_host: "h1",
            client_role: "mount",
            client_nonce: &[1; NONCE_LEN],
            server_host: "h2",
            server_role: "block",
            server_nonce: &[2; NONCE_LEN],
        }
    }

    #[test]
    fn a_proof_holds_for_its_side_secret_and_transcript_only() {
        let secret = Secret::new([9; 32]);
        let proof = transcript().prove(&secret, Side::Client);
        assert!(transcript().holds(&secret, Side::Client, &proof));
        assert!(!transcript().holds(&secret, Side::Server, &proof), "a proof cannot be reflected");
        assert!(!transcript().holds(&Secret::new([8; 32]), Side::Client, &proof));
        assert!(!transcript().holds(&secret, Side::Client, &proof[..31]));
        assert!(!transcript().holds(&secret, Side::Client, &[]));
        // The same letters, cut differently between two fields.
        let moved = Transcript { client_host: "h1m", client_role: "ount", ..transcript() };
        assert!(!moved.holds(&secret, Side::Client, &proof));
        for other in [
            Transcript { cluster: 8, ..transcript() },
            Transcript { client_host: "h3", ..transcript() },
            Transcript { server_host: "h3", ..transcript() },
            Transcript { server_nonce: &[3; NONCE_LEN], ..transcript() },
            Transcript { client_nonce: &[3; NONCE_LEN], ..transcript() },
        ] {
            assert!(!other.holds(&secret, Side::Client, &proof), "{other:?}");
        }
    }
}
