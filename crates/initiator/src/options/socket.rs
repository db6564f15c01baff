//! Defines socket options: keepalive, time limits, and the network interface of a connection.

use std::time::Duration;

use crate::options::range::MAX_TIME;

/// Socket options: keepalive by the kernel, in addition to the pings of iSCSI, and the network
/// interfaces to use.
///
/// The default values are those of libiscsi. `LIBISCSI_TCP_SYNCNT` has no counterpart:
/// [`with_connect_timeout`](Self::with_connect_timeout) limits the time to connect.
#[doc(alias = "keepalive")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SocketOptions {
    pub(crate) connect_timeout: Duration,
    pub(crate) keepalive_idle: Duration,
    pub(crate) keepalive_interval: Duration,
    pub(crate) keepalive_count: u32,
    pub(crate) user_timeout: Option<Duration>,
    pub(crate) interfaces: Vec<String>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            keepalive_idle: Duration::from_secs(30),
            keepalive_interval: Duration::from_secs(30),
            keepalive_count: 3,
            user_timeout: None,
            interfaces: Vec::new(),
        }
    }
}

impl SocketOptions {
    /// Sets the time limit to open a TCP connection, over all addresses of the portal, up to 1 day, 10 s by
    /// default. The time limit of the login applies as well.
    #[doc(alias = "timeout")]
    #[must_use]
    pub const fn with_connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets the idle time after which the kernel sends the first keepalive probe, and the time between two
    /// probes, each 1 to 32,767 seconds (`TCP_KEEPIDLE`, `TCP_KEEPINTVL`), 30 s by default. `count` is the
    /// number of unanswered probes after which the connection counts as lost, 1 to 127 (`TCP_KEEPCNT`), 3 by
    /// default.
    #[must_use]
    pub const fn with_keepalive(mut self, idle: Duration, interval: Duration, count: u32) -> Self {
        self.keepalive_idle = idle;
        self.keepalive_interval = interval;
        self.keepalive_count = count;
        self
    }

    /// Sets the time that sent data may remain unacknowledged before the connection counts as lost
    /// (`TCP_USER_TIMEOUT`). `None`, the default, uses the limit of the kernel.
    #[doc(alias = "timeout")]
    #[must_use]
    pub const fn with_user_timeout(mut self, user_timeout: Option<Duration>) -> Self {
        self.user_timeout = user_timeout;
        self
    }

    /// Sets the network interfaces to connect through, in turn (`SO_BINDTODEVICE`). If the list is empty, as
    /// by default, any interface is used.
    #[must_use]
    pub fn with_interfaces(mut self, interfaces: Vec<String>) -> Self {
        self.interfaces = interfaces;
        self
    }

    /// Returns `connect_timeout` within its range.
    pub(crate) fn connect_limit(&self) -> Duration {
        self.connect_timeout.min(MAX_TIME)
    }

    /// Applies libiscsi's environment variables: `LIBISCSI_TCP_KEEPIDLE` and
    /// `LIBISCSI_TCP_KEEPINTVL` (seconds), `LIBISCSI_TCP_KEEPCNT`, `LIBISCSI_TCP_USER_TIMEOUT`
    /// (milliseconds) and `LIBISCSI_BIND_INTERFACES` (names separated by commas). A value that is
    /// not a number counts as not set.
    pub(crate) fn with_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ..SocketOptions::default()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn what_is_no_number_counts_as_not_set() {
        let options =
            from(&[("LIBISCSI_TCP_KEEPIDLE", "soon"), ("LIBISCSI_TCP_USER_TIMEOUT", "0")]);
        assert_eq!(options, SocketOptions::default());
    }
}
