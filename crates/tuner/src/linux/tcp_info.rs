//! Reads `TCP_INFO` of a socket.

use std::io;
use std::os::fd::AsFd;

use super::sys;
use crate::link::tcp_info::TcpInfo;

/// A buffer of this length holds the structure of any kernel, bytes.
const MAX_LEN: usize = 512;

impl TcpInfo {
    /// Reads `TCP_INFO` of a socket from the kernel.
    ///
    /// # Errors
    /// The error of `getsockopt`: the socket is not a TCP socket, or the kernel does not know the option.
    pub fn read(socket: &impl AsFd) -> io::Result<Self> {
        let mut bytes = [0; MAX_LEN];
        let len = sys::tcp_info(socket.as_fd(), &mut bytes)?;
        Ok(Self::parse(bytes.get(..len).unwrap_or_default()))
    }
}
