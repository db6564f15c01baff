//! Socket options: signs of life, and the interface a connection leaves by.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_tuner::Plan;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};

/// The interface for the next connection: each takes the one after the last.
static NEXT_INTERFACE: AtomicUsize = AtomicUsize::new(0);

/// How the kernel keeps a connection, beside what iSCSI does by itself.
///
/// The defaults are libiscsi's. Its `LIBISCSI_TCP_SYNCNT` has no counterpart:
/// [`Options::connect_timeout`](crate::Options::connect_timeout) limits how long a connection may
/// take.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SocketOptions {
    /// Silence after which the kernel asks whether the other end is still there; at least a second
    /// (`TCP_KEEPIDLE`).
    pub keepalive_idle: Duration,
    /// Time between two such questions; at least a second (`TCP_KEEPINTVL`).
    pub keepalive_interval: Duration,
    /// Questions without an answer after which the connection counts as lost, 1 to 127
    /// (`TCP_KEEPCNT`).
    pub keepalive_count: u32,
    /// How long sent data may stay without an acknowledgement before the connection counts as lost
    /// (`TCP_USER_TIMEOUT`); `None` leaves it to the kernel.
    pub user_timeout: Option<Duration>,
    /// Network interfaces to connect through, in turn; any if empty (`SO_BINDTODEVICE`).
    pub interfaces: Vec<String>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            keepalive_idle: Duration::from_secs(30),
            keepalive_interval: Duration::from_secs(30),
            keepalive_count: 3,
            user_timeout: None,
            interfaces: Vec::new(),
        }
    }
}

impl SocketOptions {
    /// Takes over libiscsi's variables: `LIBISCSI_TCP_KEEPIDLE` and `LIBISCSI_TCP_KEEPINTVL`
    /// (seconds), `LIBISCSI_TCP_KEEPCNT`, `LIBISCSI_TCP_USER_TIMEOUT` (milliseconds) and
    /// `LIBISCSI_BIND_INTERFACES` (names between commas). What is not a number counts as not set.
    #[must_use]
    pub fn with_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| variable(name).and_then(|value| value.trim().parse::<u32>().ok());
        let seconds = |name: &str| number(name).map(|count| Duration::from_secs(count.into()));
        if let Some(idle) = seconds("LIBISCSI_TCP_KEEPIDLE") {
            self.keepalive_idle = idle;
        }
        if let Some(interval) = seconds("LIBISCSI_TCP_KEEPINTVL") {
            self.keepalive_interval = interval;
        }
        if let Some(count) = number("LIBISCSI_TCP_KEEPCNT") {
            self.keepalive_count = count;
        }
        if let Some(limit) = number("LIBISCSI_TCP_USER_TIMEOUT").filter(|limit| *limit > 0) {
            self.user_timeout = Some(Duration::from_millis(limit.into()));
        }
        if let Some(names) = variable("LIBISCSI_BIND_INTERFACES") {
            let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
            self.interfaces = names.map(str::to_owned).collect();
        }
        self
    }

    /// Opens a connection to an address, under these options and what of the plan counts only
    /// before the connection is made.
    pub(crate) async fn connect(&self, address: SocketAddr, plan: &Plan) -> io::Result<TcpStream> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        self.bind(&socket)?;
        for refusal in plan.prepare(&socket) {
            tracing::warn!(option = refusal.option, reason = %refusal.reason, "not granted");
        }
        let stream = socket.connect(address).await?;
        self.keep_alive(&stream)?;
        Ok(stream)
    }

    fn bind(&self, socket: &TcpSocket) -> io::Result<()> {
        if self.interfaces.is_empty() {
            return Ok(());
        }
        let turn = NEXT_INTERFACE.fetch_add(1, Ordering::Relaxed) % self.interfaces.len();
        let name = self.interfaces.get(turn).map(String::as_bytes);
        SockRef::from(socket).bind_device(name)
    }

    /// A peer that vanished must be noticed.
    fn keep_alive(&self, stream: &TcpStream) -> io::Result<()> {
        let second = Duration::from_secs(1);
        let keepalive = TcpKeepalive::new()
            .with_time(self.keepalive_idle.max(second))
            .with_interval(self.keepalive_interval.max(second))
            .with_retries(self.keepalive_count.clamp(1, 127));
        let socket = SockRef::from(stream);
        socket.set_tcp_keepalive(&keepalive)?;
        match self.user_timeout {
            Some(limit) => socket.set_tcp_user_timeout(Some(limit)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        iscsi_tuner::plan(&Default::default(), &Default::default(), &Default::default())
    }

    fn from(variables: &[(&str, &str)]) -> SocketOptions {
        SocketOptions::default().with_environment(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn libiscsi_variables_are_taken_over() {
        let options = from(&[
            ("LIBISCSI_TCP_KEEPIDLE", "5"),
            ("LIBISCSI_TCP_KEEPINTVL", "6"),
            ("LIBISCSI_TCP_KEEPCNT", "7"),
            ("LIBISCSI_TCP_USER_TIMEOUT", "1500"),
            ("LIBISCSI_BIND_INTERFACES", "eth0, eth1,"),
        ]);
        let expected = SocketOptions {
            keepalive_idle: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(6),
            keepalive_count: 7,
            user_timeout: Some(Duration::from_millis(1500)),
            interfaces: vec!["eth0".to_owned(), "eth1".to_owned()],
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn what_is_no_number_counts_as_not_set() {
        let options =
            from(&[("LIBISCSI_TCP_KEEPIDLE", "soon"), ("LIBISCSI_TCP_USER_TIMEOUT", "0")]);
        assert_eq!(options, SocketOptions::default());
    }

    #[tokio::test]
    async fn the_kernel_is_told() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = SocketOptions {
            keepalive_count: 9,
            user_timeout: Some(Duration::from_millis(2500)),
            ..SocketOptions::default()
        };
        let stream = options.connect(listener.local_addr().unwrap(), &plan()).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 9);
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_millis(2500)));
    }

    #[tokio::test]
    async fn an_interface_that_is_not_there_is_an_error() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = SocketOptions {
            interfaces: vec!["no-such-if0".to_owned()],
            ..SocketOptions::default()
        };
        assert!(options.connect(listener.local_addr().unwrap(), &plan()).await.is_err());
    }
}
