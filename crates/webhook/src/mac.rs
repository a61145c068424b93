//! Proof that a manifest is ours: a keyed hash over the manifest and the request that it came with.
//!
//! Finalizers, labels and hashes without a key can all be set by whoever creates the pod, so none of them
//! tells a manifest that this webhook wrote a moment ago from one that a user brings along. The proof is
//! bound to user, namespace and name and lasts five minutes, longer than any request: a manifest that was
//! copied from another pod, by somebody else, or yesterday is refused.

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt::Write;

/// Length of a key in bytes.
pub const KEY_BYTES: usize = 32;
/// Seconds for which a proof lasts: a request with all its webhooks ends long before, and clocks differ.
const LASTS_SECONDS: u64 = 300;

/// The key that all replicas share.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

/// What a manifest is bound to.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// Who creates the pod.
    pub user: &'a str,
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the pod; empty when it is to be generated.
    pub name: &'a str,
    /// Prefix of a generated name; empty when there is none.
    pub generate_name: &'a str,
    /// The manifest.
    pub manifest: &'a str,
}

/// New random bytes for a key; `None` when the system gives none.
#[must_use]
pub fn random_key() -> Option<Vec<u8>> {
    let mut bytes = vec![0; KEY_BYTES];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes)
}

impl Key {
    /// A key from the bytes that the Secret holds.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// The proof for a manifest that is written now (Unix seconds).
    #[must_use]
    pub fn seal(&self, binding: &Binding<'_>, now: u64) -> String {
        let tag = hmac::sign(&self.0, &message(binding, now));
        let mut sealed = format!("{now}.");
        for byte in tag.as_ref() {
            // Writing to a String cannot fail.
            let _written = write!(sealed, "{byte:02x}");
        }
        sealed
    }

    /// Whether a proof is one for this manifest and request, and not too old or from the future.
    #[must_use]
    pub fn verifies(&self, binding: &Binding<'_>, proof: &str, now: u64) -> bool {
        let Some((issued, tag)) = proof.split_once('.') else { return false };
        let (Ok(issued), Some(tag)) = (issued.parse::<u64>(), unhex(tag)) else { return false };
        issued.abs_diff(now) <= LASTS_SECONDS
            && hmac::verify(&self.0, &message(binding, issued), &tag).is_ok()
    }
}

/// Every part with its length in front, so that no two bindings have one message.
fn message(binding: &Binding<'_>, issued: u64) -> Vec<u8> {
    let issued = issued.to_string();
    let parts =
        [binding.user, binding.namespace, binding.name, binding.generate_name, &issued, binding.manifest];
    let mut message = Vec::with_capacity(binding.manifest.len() + 256);
    for part in parts {
        message.extend_from_slice(&(part.len() as u64).to_be_bytes());
        message.extend_from_slice(part.as_bytes());
    }
    message
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Binding, Key};

    const BINDING: Binding<'_> =
        Binding { user: "jane", namespace: "shop", name: "", generate_name: "web-", manifest: "{}" };

    #[track_caller]
    fn check(seen: &Binding<'_>, later: u64, want: bool) {
        let key = Key::new(&[7; 32]);
        let proof = key.seal(&BINDING, 1000);
        assert_eq!(key.verifies(seen, &proof, 1000 + later), want);
    }

    #[test]
    fn a_proof_holds_for_its_own_request() {
        check(&BINDING, 0, true);
        check(&BINDING, 300, true);
    }

    #[test]
    fn w29_a_proof_does_not_hold_for_another_manifest() {
        check(&Binding { manifest: "{ }", ..BINDING }, 0, false);
    }

    #[test]
    fn w29_a_proof_does_not_hold_for_another_user_namespace_or_name() {
        check(&Binding { user: "joe", ..BINDING }, 0, false);
        check(&Binding { namespace: "bank", ..BINDING }, 0, false);
        check(&Binding { name: "web-", generate_name: "", ..BINDING }, 0, false);
    }

    #[test]
    fn w29_a_proof_does_not_last() {
        check(&BINDING, 301, false);
    }

    #[test]
    fn w29_a_proof_of_another_key_or_of_no_shape_is_none() {
        let proof = Key::new(&[8; 32]).seal(&BINDING, 1000);
        let key = Key::new(&[7; 32]);
        for wrong in [proof.as_str(), "", "1000", "1000.", "1000.zz", "x.00", "1000.é", "1000.0"] {
            assert!(!key.verifies(&BINDING, wrong, 1000), "{wrong}");
        }
    }
}
