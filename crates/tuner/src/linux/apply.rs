//! Applies a plan to a socket, and reads back what the kernel granted.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use socket2::SockRef;

use crate::granted::{Granted, Refusal};
use crate::plan::{Buffer, Plan};
use crate::size::Size;
use iscsi_rate::Rate;

use super::limits::name_of;
use super::sys;

impl Plan {
    /// Sets the options that should be set before the connection is made: the receive buffer (it determines
    /// the window scale), the longest segment, and the congestion control.
    ///
    /// Options that the kernel refuses are not changed, and are returned.
    #[must_use]
    pub fn prepare(&self, socket: &impl AsFd) -> Vec<Refusal> {
        let fd = socket.as_fd();
        let mut refused = Vec::new();
        if let Err(reason) = set_receive_buffer(fd, self.receive_buffer.value) {
            refused.push(Refusal { option: "receive buffer", reason });
        }
        refused.extend(self.choose_congestion_control(fd));
        if let Some(bytes) = self.segment.value
            && let Err(error) = SockRef::from(&fd).set_tcp_mss(bytes)
        {
            refused.push(Refusal { option: "TCP_MAXSEG", reason: error_text(error) });
        }
        refused
    }

    /// Sets the send buffer, `TCP_NODELAY`, `TCP_NOTSENT_LOWAT` and the congestion control of a connected
    /// socket, and reads back what the kernel granted.
    ///
    /// Options that the kernel refuses are not changed, and are reported. Applying the same plan again changes
    /// nothing.
    #[must_use]
    pub fn apply(&self, socket: &impl AsFd) -> Granted {
        let fd = socket.as_fd();
        let socket = SockRef::from(&fd);
        let mut refused: Vec<_> = self.choose_congestion_control(fd).into_iter().collect();
        let mut note = |option, result: Result<(), String>| {
            refused.extend(result.err().map(|reason| Refusal { option, reason }));
        };
        note("send buffer", set_send_buffer(fd, self.send_buffer.value));
        note("TCP_NODELAY", socket.set_tcp_nodelay(self.no_delay.value).map_err(error_text));
        if let Some(bytes) = self.not_sent_low_water.value {
            note("TCP_NOTSENT_LOWAT", socket.set_tcp_notsent_lowat(bytes).map_err(error_text));
        }
        Granted { refused, ..Granted::read(&fd) }
    }

    fn choose_congestion_control(&self, fd: BorrowedFd<'_>) -> Option<Refusal> {
        let name = self.congestion_control.value.as_ref()?;
        let result = SockRef::from(&fd).set_tcp_congestion(name.as_bytes());
        let reason = format!("{name}: {}", result.err()?);
        Some(Refusal { option: "congestion control", reason })
    }
}

impl Granted {
    /// Reads the current settings of a socket.
    #[must_use]
    pub fn read(socket: &impl AsFd) -> Self {
        let socket = SockRef::from(socket);
        Self {
            send_buffer: socket.send_buffer_size().ok().map(|bytes| bytes as u64),
            receive_buffer: socket.recv_buffer_size().ok().map(|bytes| bytes as u64),
            no_delay: socket.tcp_nodelay().ok(),
            // An unset option reads as 0 or as the maximum, depending on the kernel.
            not_sent_low_water: socket
                .tcp_notsent_lowat()
                .ok()
                .filter(|bytes| (1..u32::MAX).contains(bytes)),
            congestion_control: name_of(socket.tcp_congestion()).ok(),
            refused: Vec::new(),
        }
    }
}

/// Writes slices to a socket, in order. Informs the kernel that more data follows immediately, so that it
/// holds back a last segment that is not full (`MSG_MORE`).
///
/// # Errors
/// The errors of `send(2)`; [`io::ErrorKind::WouldBlock`] when a non-blocking socket takes nothing.
pub fn send_with_more_to_come(socket: &impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    SockRef::from(socket).send_vectored_with_flags(slices, libc::MSG_MORE)
}

/// Limits the rate at which a socket sends: the kernel spreads its segments over time (`SO_MAX_PACING_RATE`).
/// `None` removes the limit. So does a rate above 34 Gbit/s, which does not fit in the kernel's 32 bits.
///
/// # Errors
/// The errors of `setsockopt(2)`.
pub fn limit_pacing(socket: &impl AsFd, rate: Option<Rate>) -> io::Result<()> {
    let bytes = rate.and_then(|rate| u32::try_from(rate.bytes_in(Duration::from_secs(1))).ok());
    sys::set_max_pacing_rate(socket.as_fd(), bytes.unwrap_or(u32::MAX))
}

/// Makes a socket readable only when `bytes` have arrived, or the end of the stream (`SO_RCVLOWAT`); the
/// default is 1. The kernel limits the value to half of the largest size of the receive buffer. Bytes count
/// from the next unread byte; if enough are there already, the socket is readable immediately (Linux 4.18 and
/// newer).
///
/// # Errors
/// The errors of `setsockopt(2)`.
pub fn set_receive_low_water(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    sys::set_receive_low_water(socket.as_fd(), i32::try_from(bytes).unwrap_or(i32::MAX))
}

fn set_send_buffer(fd: BorrowedFd<'_>, buffer: Buffer) -> Result<(), String> {
    let socket = SockRef::from(&fd);
    match buffer {
        Buffer::Autotuned => return Ok(()),
        Buffer::Set(bytes) => socket.set_send_buffer_size(clamped(bytes)).map_err(error_text)?,
        Buffer::Forced(bytes) => sys::force_send_buffer(fd, as_int(bytes)).map_err(error_text)?,
    }
    is_enough(buffer, socket.send_buffer_size())
}

fn set_receive_buffer(fd: BorrowedFd<'_>, buffer: Buffer) -> Result<(), String> {
    let socket = SockRef::from(&fd);
    match buffer {
        Buffer::Autotuned => return Ok(()),
        Buffer::Set(bytes) => socket.set_recv_buffer_size(clamped(bytes)).map_err(error_text)?,
        Buffer::Forced(bytes) => {
            sys::force_receive_buffer(fd, as_int(bytes)).map_err(error_text)?
        }
    }
    is_enough(buffer, socket.recv_buffer_size())
}

/// Checks the granted size. The kernel silently grants less than requested, and reports twice the granted
/// size.
fn is_enough(wanted: Buffer, granted: io::Result<usize>) -> Result<(), String> {
    let (Some(wanted), Ok(granted)) = (wanted.bytes(), granted) else { return Ok(()) };
    let granted = granted as u64 / 2;
    if granted >= wanted {
        return Ok(());
    }
    Err(format!("{} of data granted, not {}", Size(granted), Size(wanted)))
}

/// Limits the size so that the kernel can double it in an `int`.
fn as_int(bytes: u64) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX).min(i32::MAX / 2)
}

fn clamped(bytes: u64) -> usize {
    usize::try_from(as_int(bytes)).unwrap_or_default()
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of an error")]
fn error_text(error: io::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::{Limits, Measurement, Tuning, plan};

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn planned(tuning: &Tuning) -> Plan {
        plan(&Measurement::default(), &Limits::read(), tuning)
    }

    #[test]
    fn what_is_granted_is_read_back_doubled() {
        let (near, _far) = connection();
        let tuning =
            Tuning { send_buffer: Some(65_536), no_delay: Some(false), ..Tuning::default() };
        let granted = planned(&tuning).apply(&near);
        assert_eq!(granted.send_buffer, Some(131_072));
        assert_eq!(granted.no_delay, Some(false));
        assert_eq!(granted.refused, []);
    }

    #[test]
    fn a_wish_beyond_the_cap_is_told() {
        let (near, _far) = connection();
        let tuning = Tuning { send_buffer: Some(1 << 30), ..Tuning::default() };
        let granted = planned(&tuning).apply(&near);
        assert_eq!(granted.refused.len(), 1, "{granted:?}");
        assert!(granted.refused[0].reason.contains("not 1 GiB"), "{granted}");
    }

    #[test]
    fn without_a_plan_for_it_nothing_is_set() {
        let (near, _far) = connection();
        let before = Granted::read(&near);
        let tuning = Tuning { policy: crate::Policy::Off, ..Tuning::default() };
        let after = planned(&tuning).apply(&near);
        assert_eq!(after, Granted { no_delay: Some(true), ..before });
    }

    #[test]
    fn the_receive_buffer_is_set_before_the_connection() {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let tuning = Tuning { receive_buffer: Some(100_000), ..Tuning::default() };
        assert_eq!(planned(&tuning).prepare(&socket), []);
        assert_eq!(Granted::read(&socket).receive_buffer, Some(200_000));
    }

    /// The peer receives the limit as well, so that its segments are not longer either.
    #[test]
    fn the_longest_segment_holds_in_both_directions() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let limit = crate::SegmentLimit::new(1200, 1500, None);
        let measurement = Measurement { segment_limit: Some(limit), ..Measurement::default() };
        let plan = plan(&measurement, &Limits::read(), &Tuning::default());
        assert_eq!(plan.prepare(&socket), []);
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        let (far, _) = listener.accept().unwrap();
        for mss in [crate::TcpInfo::read(&socket), crate::TcpInfo::read(&far)] {
            let mss = mss.unwrap().send_mss.unwrap();
            assert!((1180..=1200).contains(&mss), "{mss}");
        }
    }

    #[test]
    fn a_congestion_control_that_is_not_there_leaves_the_old_one() {
        let (near, _far) = connection();
        let before = Granted::read(&near).congestion_control;
        // `Limits::default` has no list of available congestion controls, so the plan has the unknown name, and
        // the kernel refuses it.
        let tuning = Tuning { congestion_control: Some("no-such".to_owned()), ..Tuning::default() };
        let plan = plan(&Measurement::default(), &Limits::default(), &tuning);
        let granted = plan.apply(&near);
        assert_eq!(granted.congestion_control, before);
        assert_eq!(granted.refused[0].option, "congestion control");
    }

    #[test]
    fn pacing_is_limited_and_the_limit_lifted() {
        let (near, _far) = connection();
        let paced = |rate: Option<Rate>| {
            limit_pacing(&near, rate).unwrap();
            crate::TcpInfo::read(&near).unwrap().max_pacing_rate
        };
        let rate = |text: &str| Some(text.parse().unwrap());
        assert_eq!(crate::TcpInfo::read(&near).unwrap().max_pacing_rate, None);
        for limit in ["1kbit", "8mbit", "34gbit"] {
            assert_eq!(paced(rate(limit)), rate(limit));
        }
        assert_eq!(paced(None), None);
        assert_eq!(paced(rate("1mbit")), rate("1mbit"));
        assert_eq!(paced(rate("40gbit")), None, "beyond what it takes");
    }

    #[test]
    fn a_plan_may_be_set_again() {
        let (near, _far) = connection();
        let plan = planned(&Tuning { send_buffer: Some(65_536), ..Tuning::default() });
        assert_eq!(plan.apply(&near), plan.apply(&near));
    }
}
