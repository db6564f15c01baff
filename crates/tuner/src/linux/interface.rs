//! Queries the kernel for the network interfaces of this host.

use std::fs;
use std::net::IpAddr;
use std::os::fd::AsFd;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use socket2::{Domain, Socket, Type};

use super::sys::{EthtoolQuestion, ethtool};
use crate::interface::{Interface, Offload};

impl Interface {
    /// Returns the interface that has this address; `None` if there is no such interface.
    #[must_use]
    pub fn with_address(address: IpAddr) -> Option<Self> {
        let has_address = |found: &InterfaceAddress| ip_of(found) == Some(address);
        let found = getifaddrs().ok()?.find(has_address)?;
        Some(Self::named(found.interface_name))
    }

    fn named(name: String) -> Self {
        let mtu = fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok();
        Self {
            mtu: mtu.and_then(|text| text.trim().parse().ok()),
            offload: Offload::of(&name),
            name,
        }
    }
}

impl Offload {
    fn of(interface: &str) -> Self {
        let Ok(socket) = Socket::new(Domain::IPV4, Type::DGRAM, None) else {
            return Self::default();
        };
        let ask =
            |question| ethtool(socket.as_fd(), interface, question).ok().map(|answer| answer != 0);
        Self {
            tcp_segmentation: ask(EthtoolQuestion::TcpSegmentation),
            generic_segmentation: ask(EthtoolQuestion::GenericSegmentation),
            generic_receive: ask(EthtoolQuestion::GenericReceive),
        }
    }
}

fn ip_of(found: &InterfaceAddress) -> Option<IpAddr> {
    let address = found.address.as_ref()?;
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_by_its_address() {
        let loopback = Interface::with_address([127, 0, 0, 1].into()).unwrap();
        assert_eq!(loopback.name, "lo");
        assert!(loopback.mtu.is_some_and(|mtu| mtu >= 1500));
    }

    #[test]
    fn an_address_of_others_has_no_interface() {
        assert_eq!(Interface::with_address([203, 0, 113, 7].into()), None);
    }

    #[test]
    fn an_interface_that_is_not_there_tells_nothing() {
        for name in ["no-such-if0", "", "a name that is longer than any interface's"] {
            assert_eq!(Offload::of(name), Offload::default(), "{name:?}");
        }
    }
}
