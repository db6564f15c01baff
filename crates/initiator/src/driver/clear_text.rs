//! Warns of connections over the Internet that are not encrypted.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use crate::driver::referral::Scope;

/// Whether an initiator has warned already: it warns once.
#[derive(Debug, Default)]
pub(crate) struct ClearText(AtomicBool);

impl ClearText {
    /// Warns if this is the first public address that is reached in clear text.
    pub(super) fn warn_once(&self, address: SocketAddr) {
        if self.is_first_public(address.ip()) {
            warn!(
                "{address} is reached in clear text: everyone on the way can read and change the data; use TLS (iscsis://), \
                 IPsec or a VPN"
            );
        }
    }

    fn is_first_public(&self, address: IpAddr) -> bool {
        is_public(address) && !self.0.swap(true, Ordering::Relaxed)
    }
}

/// Returns whether an address is reached over the Internet. Those of this host or link, of private networks (RFC 1918, RFC 4193), of
/// carriers (RFC 6598) and for documentation are not.
fn is_public(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_private = match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            let is_of_carrier = first == 100 && (64..128).contains(&second);
            address.is_private() || address.is_documentation() || is_of_carrier
        }
        IpAddr::V6(address) => {
            address.is_unique_local() || address.segments().starts_with(&[0x2001, 0xdb8])
        }
    };
    Scope::of(address) == Scope::Global && !is_private
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_public_address_is_warned_of() {
        let clear = ClearText::default();
        let first = ["10.0.0.1", "203.0.113.5", "8.8.8.8", "8.8.8.8", "1.1.1.1"]
            .map(|address| clear.is_first_public(address.parse().unwrap()));
        assert_eq!(first, [false, false, true, false, false]);
    }

    #[test]
    fn addresses_of_private_networks_are_not_public() {
        for address in [
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "169.254.1.1",
            "fe80::1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "fd00::1",
            "192.0.2.1",
            "2001:db8::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "8.8.8.8",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "2001:4860::8888",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
