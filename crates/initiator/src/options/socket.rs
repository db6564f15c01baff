//! Socket options: signs of life, and the interface a connection leaves by.

use std::time::Duration;

use crate::options::setters::setters;

/// Socket options: keepalive by the kernel, in addition to the pings of iSCSI, and the network
/// interfaces to use.
///
/// The defaults are libiscsi's. Its `LIBISCSI_TCP_SYNCNT` has no counterpart:
/// [`Options::connect_timeout`](crate::Options::connect_timeout) limits how long it may take to
/// connect.
#[doc(alias = "keepalive")]
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SocketOptions {
    /// Idle time after which the kernel sends the first keepalive probe, 1 to 32,767 seconds
    /// (`TCP_KEEPIDLE`).
    pub keepalive_idle: Duration,
    /// Time between two keepalive probes, 1 to 32,767 seconds (`TCP_KEEPINTVL`).
    pub keepalive_interval: Duration,
    /// Number of unanswered probes after which the connection counts as lost, 1 to 127
    /// (`TCP_KEEPCNT`).
    pub keepalive_count: u32,
    /// Time that sent data may remain unacknowledged before the connection counts as lost
    /// (`TCP_USER_TIMEOUT`); `None` leaves it to the kernel.
    #[doc(alias = "timeout")]
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
    setters! {
        with_keepalive_idle(keepalive_idle: Duration),
        with_keepalive_interval(keepalive_interval: Duration),
        with_keepalive_count(keepalive_count: u32),
        with_user_timeout(user_timeout: Option<Duration>),
        with_interfaces(interfaces: Vec<String>),
    }

    /// Applies libiscsi's environment variables: `LIBISCSI_TCP_KEEPIDLE` and
    /// `LIBISCSI_TCP_KEEPINTVL` (seconds), `LIBISCSI_TCP_KEEPCNT`, `LIBISCSI_TCP_USER_TIMEOUT`
    /// (milliseconds) and `LIBISCSI_BIND_INTERFACES` (names separated by commas). A value that is
    /// not a number counts as not set.
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
