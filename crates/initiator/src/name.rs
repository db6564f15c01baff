//! Builds the default name of an initiator.

use std::fs;

use iscsi_pdu::{IscsiName, NameError};

/// Naming authority of default names: `example.org` is reserved for such uses (RFC 2606).
const AUTHORITY: &str = "iqn.2026-01.org.example.iscsi-initiator";

/// Maximum length of the host part. The whole name stays far below 223 bytes (RFC 7143 §4.2.7.1).
const MAX_HOST_LEN: usize = 63;

/// Returns a name for this host: the same in every call, and different from the names of other hosts. The
/// name is `iqn.2026-01.org.example.iscsi-initiator:HOST-DIGEST`, with the host name and eight digits: a
/// digest of the host name and `/etc/machine-id`.
///
/// The name is logged at `info`. If the target has an access list, choose a name for the initiator
/// instead.
///
/// # Errors
/// None in practice, because the name is always valid.
#[doc(alias = "IQN")]
pub fn default_name() -> Result<IscsiName, NameError> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let name = name_of(&read("/proc/sys/kernel/hostname"), &read("/etc/machine-id"));
    tracing::info!(%name, "using the default initiator name");
    IscsiName::parse(&name)
}

fn name_of(host: &str, machine: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let host: String = host.trim().chars().map(legal).take(MAX_HOST_LEN).collect();
    let host = if host.is_empty() { "host" } else { &host };
    let digest = fnv1a(format!("{host} {}", machine.trim()).as_bytes());
    format!("{AUTHORITY}:{}-{digest:08x}", host.to_ascii_lowercase())
}

/// Returns the FNV-1a digest: short, stable, and too short to reveal the machine's identity.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stable_and_tell_hosts_apart() {
        let name = name_of("Node_7.lab\n", "0123\n");
        assert_eq!(name, name_of("Node_7.lab", "0123"));
        assert!(name.starts_with("iqn.2026-01.org.example.iscsi-initiator:node-7-lab-"));
        assert_ne!(name, name_of("Node_7.lab", "0124"));
    }

    #[test]
    fn every_host_gives_a_valid_name() {
        for host in ["", "ä ö", "UPPER", &"x".repeat(300)] {
            assert!(IscsiName::parse(&name_of(host, "")).is_ok(), "{host}");
        }
    }

    #[test]
    fn the_digest_is_fnv_1a() {
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"a"), 0xe40c_292c);
    }
}
