//! Wraps system calls that no safe crate wraps.

#![expect(unsafe_code, reason = "each block is one system call with its own buffer")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_char, c_int, c_void, socklen_t};

/// `ethtool` queries that return a single number (linux/ethtool.h).
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum EthtoolQuestion {
    /// ETHTOOL_GTSO: TCP segmentation offload.
    TcpSegmentation = 0x1e,
    /// ETHTOOL_GGSO: generic segmentation offload.
    GenericSegmentation = 0x23,
    /// ETHTOOL_GGRO: generic receive offload.
    GenericReceive = 0x2b,
}

/// Fills the buffer with the structure `tcp_info`, and returns the number of bytes that the kernel filled.
pub(super) fn tcp_info(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = socklen_t::try_from(buffer.len()).unwrap_or(socklen_t::MAX);
    // SAFETY: the kernel writes at most `len` bytes, which is no more than `buffer` has, and any
    // bytes are valid in it.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            buffer.as_mut_ptr().cast::<c_void>(),
            &raw mut len,
        )
    };
    checked(result).map(|()| (len as usize).min(buffer.len()))
}

/// Sets `SO_SNDBUFFORCE`: the send buffer, beyond `wmem_max`; needs CAP_NET_ADMIN.
pub(super) fn force_send_buffer(socket: BorrowedFd<'_>, bytes: c_int) -> io::Result<()> {
    set_socket_option(socket, libc::SO_SNDBUFFORCE, bytes)
}

/// Sets `SO_RCVBUFFORCE`: the receive buffer, beyond `rmem_max`; needs CAP_NET_ADMIN.
pub(super) fn force_receive_buffer(socket: BorrowedFd<'_>, bytes: c_int) -> io::Result<()> {
    set_socket_option(socket, libc::SO_RCVBUFFORCE, bytes)
}

/// Sets `SO_MAX_PACING_RATE`: the largest rate of sending, bytes per second; [`u32::MAX`] means no limit.
pub(super) fn set_max_pacing_rate(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_socket_option(socket, libc::SO_MAX_PACING_RATE, bytes.cast_signed())
}

/// Sets `SO_RCVLOWAT`: the number of bytes that make a socket readable.
pub(super) fn set_receive_low_water(socket: BorrowedFd<'_>, bytes: c_int) -> io::Result<()> {
    set_socket_option(socket, libc::SO_RCVLOWAT, bytes)
}

fn set_socket_option(socket: BorrowedFd<'_>, option: c_int, value: c_int) -> io::Result<()> {
    let len = socklen_t::try_from(size_of::<c_int>()).unwrap_or_default();
    // SAFETY: the kernel reads one `c_int` from `value`, which lives until the call returns.
    checked(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast::<c_void>(),
            len,
        )
    })
}

/// Sends an `ethtool` query to a network interface, and returns the number.
pub(super) fn ethtool(
    socket: BorrowedFd<'_>,
    interface: &str,
    question: EthtoolQuestion,
) -> io::Result<u32> {
    /// `struct ethtool_value`.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }

    let mut value = Value { command: question as u32, data: 0 };
    let mut name: [c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    // The last byte must stay 0, because it ends the name.
    if interface.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    let data = (&raw mut value).cast::<c_char>();
    let mut request =
        libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: data } };
    // SAFETY: `request` is a valid `ifreq` whose data pointer leads to `value`; both live until the
    // call returns, and the kernel writes one `u32` behind the command.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) })?;
    Ok(value.data)
}

fn checked(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
