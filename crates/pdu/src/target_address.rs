//! TargetAddress: the network address of a target (RFC 7143 §13.8).

use std::fmt;
use std::net::Ipv6Addr;

use thiserror::Error;

use crate::keys::printable;

/// The TCP port of iSCSI (RFC 7143 §4.1).
pub const DEFAULT_PORT: u16 = 3260;

/// The address of a target: `host[:port][,portal-group-tag]`. The host is a DNS name, an IPv4 address or an
/// IPv6 address. The text has an IPv6 address in brackets; this type has it without brackets.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TargetAddress {
    /// A DNS name or an IP address, without brackets; an IPv6 zone such as `%eth0` may follow.
    /// [`TargetAddress::parse`] stores a name in lower case and an IPv6 address in its canonical form (RFC
    /// 5952), so that one host has one spelling.
    pub host: String,
    /// The TCP port; 3260 by default.
    pub port: u16,
    /// The portal group tag, which is present in SendTargets records and not in redirections. A tag that is
    /// not a 16-bit number, as some targets send it, counts as absent.
    pub portal_group_tag: Option<u16>,
}

/// The error for a text that is not a TargetAddress.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{text:?} is no address of the form host[:port][,tag]: {reason}")]
pub struct TargetAddressError {
    text: String,
    reason: &'static str,
}

impl TargetAddress {
    /// Reads an address.
    ///
    /// # Errors
    /// When the host is empty, has a comma, a bracket or control characters, a bracket has no counterpart, or the port is not a
    /// number from 1 to 65535.
    pub fn parse(text: &str) -> Result<Self, TargetAddressError> {
        let error = |reason| TargetAddressError { text: text.to_owned(), reason };
        let (address, tag) = match text.rsplit_once(',') {
            Some((address, tag)) => (address, tag.parse().ok()),
            None => (text, None),
        };
        let (host, port) = split_port(address).map_err(error)?;
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/') {
            return Err(error("there is no host"));
        }
        if host.contains([',', '[', ']']) {
            return Err(error("the host has a comma or a bracket"));
        }
        if printable(host) != host {
            return Err(error("the host has control characters"));
        }
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port != 0),
            None => Some(DEFAULT_PORT),
        };
        let port = port.ok_or_else(|| error("the port is no number from 1 to 65535"))?;
        Ok(Self { host: canonical(host), port, portal_group_tag: tag })
    }
}

/// Returns a host in its canonical spelling, so that hosts can be compared. The case of a zone is kept,
/// because a zone is the name of an interface.
fn canonical(host: &str) -> String {
    let (address, zone) = host.split_at(host.find('%').unwrap_or(host.len()));
    match address.parse::<Ipv6Addr>() {
        Ok(address) => format!("{address}{zone}"),
        Err(_) => host.to_ascii_lowercase(),
    }
}

/// Splits an address into host and port; an IPv6 address without brackets has no port.
fn split_port(address: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = address.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("a bracket is not closed")?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err("something other than a port follows the bracket"),
        };
    }
    match address.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Ok((address, None)),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((address, None)),
    }
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)?;
        } else {
            write!(f, "{}:{}", self.host, self.port)?;
        }
        self.portal_group_tag.map_or(Ok(()), |tag| write!(f, ",{tag}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str, port: u16, portal_group_tag: Option<u16>) -> TargetAddress {
        TargetAddress { host: host.to_owned(), port, portal_group_tag }
    }

    #[test]
    fn key_09_forms_of_address() {
        for (text, expected) in [
            ("10.0.0.1", address("10.0.0.1", 3260, None)),
            ("10.0.0.1:860", address("10.0.0.1", 860, None)),
            ("10.0.0.1:3260,1", address("10.0.0.1", 3260, Some(1))),
            ("10.0.0.1,-1", address("10.0.0.1", 3260, None)),
            ("disk.example.org,0", address("disk.example.org", 3260, Some(0))),
            ("[2001:db8::1]:3261,7", address("2001:db8::1", 3261, Some(7))),
            ("[fe80::1%eth0]", address("fe80::1%eth0", 3260, None)),
            ("2001:db8::1", address("2001:db8::1", 3260, None)),
        ] {
            assert_eq!(TargetAddress::parse(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            ",1",
            "a,b,1",
            "[a,b]:1",
            "a[::1]",
            "[a[b]:1",
            ":3260",
            "[::1",
            "[::1]x",
            "h:0",
            "h:65536",
            "h:",
            "a b",
            "a\u{1b}[31m",
            "a\u{202e}",
        ] {
            let error = TargetAddress::parse(text).unwrap_err().to_string();
            assert!(!error.contains(char::is_control), "{error:?}");
        }
    }

    /// Two spellings of the same host give the same address.
    #[test]
    fn a_host_is_kept_in_one_spelling() {
        for (text, host) in [
            ("[FD00:0::5]", "fd00::5"),
            ("[fd00:0:0:0:0:0:0:5]:3260", "fd00::5"),
            ("FD00:0::5", "fd00::5"),
            ("[FE80:0::1%Eth0]", "fe80::1%Eth0"),
            ("[::FFFF:a00:1]", "::ffff:10.0.0.1"),
            ("Disk.Example.ORG", "disk.example.org"),
            // A text that is not an IPv6 address is stored like a DNS name; the resolver then refuses it.
            ("[FD00::5::]", "fd00::5::"),
        ] {
            assert_eq!(TargetAddress::parse(text), Ok(address(host, 3260, None)), "{text}");
        }
    }

    #[test]
    fn display_reads_back() {
        for text in ["10.0.0.1:860", "[::1]:3260,1", "a.example:3260"] {
            assert_eq!(TargetAddress::parse(text).unwrap().to_string(), text);
        }
    }
}
