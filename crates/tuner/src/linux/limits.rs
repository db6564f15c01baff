//! Queries the kernel for the limits of sockets on this host.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use socket2::{Domain, SockRef, Socket, Type};

use super::sys;
use crate::limits::{Autotuning, Limits};

/// The largest buffer size that a socket option can report, bytes of data.
const MAX: usize = i32::MAX as usize / 2;

impl Limits {
    /// Queries the kernel. For `wmem_max` and `rmem_max`, the size that a socket is granted takes precedence
    /// over `/proc`, because a container may hide `/proc`, and a privilege may lift its limits.
    ///
    /// ```
    /// let limits = iscsi_tuner::Limits::read();
    /// println!("{limits:?}");
    /// ```
    #[must_use]
    pub fn read() -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/{name}")).ok();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok();
        Self::from_sources(read, socket.as_ref())
    }

    /// Returns the limits from `read`, which returns the text of a file below `/proc/sys/net`, and from the
    /// socket.
    fn from_sources(read: impl Fn(&str) -> Option<String>, socket: Option<&Socket>) -> Self {
        let words = |name: &str| -> Vec<String> {
            read(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
        };
        let number = |name: &str| words(name).first()?.parse().ok();
        let congestion_control = socket.and_then(congestion_control);
        let may_choose = |name: &String| {
            socket.is_some_and(|socket| socket.set_tcp_congestion(name.as_bytes()).is_ok())
        };
        let available = words("ipv4/tcp_available_congestion_control");
        Self {
            wmem_max: socket.and_then(granted_send_buffer).or_else(|| number("core/wmem_max")),
            rmem_max: socket.and_then(granted_receive_buffer).or_else(|| number("core/rmem_max")),
            tcp_wmem: Autotuning::parse(&words("ipv4/tcp_wmem")),
            tcp_rmem: Autotuning::parse(&words("ipv4/tcp_rmem")),
            may_force: socket.is_some_and(may_force),
            allowed_congestion_controls: available
                .iter()
                .filter(|n| may_choose(n))
                .cloned()
                .collect(),
            available_congestion_controls: available,
            congestion_control,
        }
    }
}

/// Returns the kernel's limit of send buffers: the kernel grants an excessive request up to the limit, and
/// reports twice the limit.
fn granted_send_buffer(socket: &Socket) -> Option<u64> {
    socket.set_send_buffer_size(MAX).ok()?;
    Some(socket.send_buffer_size().ok()? as u64 / 2)
}

fn granted_receive_buffer(socket: &Socket) -> Option<u64> {
    socket.set_recv_buffer_size(MAX).ok()?;
    Some(socket.recv_buffer_size().ok()? as u64 / 2)
}

fn may_force(socket: &Socket) -> bool {
    const ANY: i32 = 65_536;
    sys::force_send_buffer(socket.as_fd(), ANY).is_ok()
        && sys::force_receive_buffer(socket.as_fd(), ANY).is_ok()
}

fn congestion_control(socket: &Socket) -> Option<String> {
    name_of(SockRef::from(socket).tcp_congestion()).ok()
}

/// Returns the name of a congestion control, which the kernel pads with zeros.
pub(super) fn name_of(bytes: io::Result<Vec<u8>>) -> io::Result<String> {
    let bytes = bytes?;
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proc(name: &str) -> Option<String> {
        let text = match name {
            "core/wmem_max" | "core/rmem_max" => "212992\n",
            "ipv4/tcp_wmem" => "4096\t16384\t4194304\n",
            "ipv4/tcp_rmem" => "4096\t131072\t6291456\n",
            "ipv4/tcp_available_congestion_control" => "reno cubic no-such-thing\n",
            _ => return None,
        };
        Some(text.to_owned())
    }

    #[test]
    fn files_are_read_as_the_kernel_writes_them() {
        let limits = Limits::from_sources(proc, None);
        assert_eq!((limits.wmem_max, limits.rmem_max), (Some(212_992), Some(212_992)));
        let wmem = Autotuning { min: 4096, default: 16_384, max: 4_194_304 };
        assert_eq!(limits.tcp_wmem, Some(wmem));
        assert_eq!(limits.tcp_rmem.map(|range| range.max), Some(6_291_456));
        assert_eq!(limits.available_congestion_controls.len(), 3);
        assert!(limits.allowed_congestion_controls.is_empty() && !limits.may_force);
    }

    #[test]
    fn what_cannot_be_read_is_not_known() {
        assert_eq!(Limits::from_sources(|_| None, None), Limits::default());
        for nonsense in ["", "many", "1 2", "1 2 3 4", "-1 0 1", "1 2 x"] {
            let limits = Limits::from_sources(|_| Some(nonsense.to_owned()), None);
            assert_eq!((limits.tcp_wmem, limits.tcp_rmem), (None, None), "{nonsense:?}");
        }
    }

    #[test]
    fn a_socket_knows_its_limits_where_files_cannot_be_read() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let hidden = Limits::from_sources(|_| None, Some(&socket));
        let told = fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap();
        assert_eq!(hidden.wmem_max, Some(told.trim().parse().unwrap()));
        assert!(hidden.congestion_control.is_some_and(|name| !name.is_empty()));
    }

    #[test]
    fn only_a_congestion_control_that_a_socket_takes_is_allowed() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let allowed = Limits::from_sources(proc, Some(&socket)).allowed_congestion_controls;
        assert!(allowed.contains(&"reno".to_owned()) && !allowed.contains(&"no-such-thing".into()));
    }
}
