//! Serves metrics of a running program over HTTP, for Prometheus and for the controllers of Kubernetes.

pub mod page;
mod server;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::exit_status::{self, USAGE};
use crate::help::heading;
pub use page::{MetricFamily, MetricType, Page};
pub use server::{Collect, MetricsServer};

/// Where the program serves its metrics.
#[derive(Clone, Debug, Default, Args)]
pub struct MetricsArgs {
    /// Serve metrics at HOST:PORT, or https://HOST:PORT.
    ///
    /// The page is `/metrics`, for Prometheus and others. Anybody who reaches the address can read it, so choose one of a private network. With
    /// `https://` and without --metrics-cert the program makes a certificate that no authority has signed.
    #[arg(long, value_name = "ADDRESS", help_heading = heading::OUTPUT)]
    pub metrics: Option<MetricsAddress>,
    /// Certificate for https:// (PEM).
    ///
    /// Followed by those of intermediate authorities. When the file changes, the next client gets the new one.
    #[arg(long, value_name = "FILE", requires_all = ["metrics", "metrics_key"], help_heading = heading::OUTPUT)]
    pub metrics_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["metrics", "metrics_cert"], help_heading = heading::OUTPUT)]
    pub metrics_key: Option<PathBuf>,
}

/// An address to serve metrics at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MetricsAddress {
    /// Host name or address of this host, and port.
    place: String,
    is_encrypted: bool,
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (is_encrypted, place) = match text.split_once("://") {
            Some(("https", place)) => (true, place),
            Some(("http", place)) => (false, place),
            Some(_) => return Err(FORM.to_owned()),
            None => (false, text),
        };
        let place = place.strip_suffix("/metrics").unwrap_or(place);
        let is_place = place.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
        });
        is_place
            .then(|| Self { place: place.to_owned(), is_encrypted })
            .ok_or_else(|| FORM.to_owned())
    }
}

const FORM: &str = "write HOST:PORT, as 127.0.0.1:9464, or https://HOST:PORT";

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http{}://{}", if self.is_encrypted { "s" } else { "" }, self.place)
    }
}

/// The metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("metrics at {address}: {cause}{}", advice(.cause))]
pub struct MetricsError {
    /// The address.
    pub address: MetricsAddress,
    /// The reason.
    pub cause: io::Error,
}

impl MetricsError {
    /// Returns the exit status for the error.
    #[must_use]
    pub fn status(&self) -> u8 {
        let is_usage = [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported];
        if is_usage.contains(&self.cause.kind()) {
            USAGE
        } else {
            exit_status::of_system(&self.cause)
        }
    }
}

fn advice(cause: &io::Error) -> &'static str {
    const ADVICE: [(io::ErrorKind, &str); 4] = [
        (io::ErrorKind::AddrInUse, "; choose another port"),
        (io::ErrorKind::AddrNotAvailable, "; choose an address of this host"),
        (io::ErrorKind::PermissionDenied, "; choose a port from 1024 on"),
        (io::ErrorKind::InvalidInput, "; check --metrics-cert and --metrics-key"),
    ];
    ADVICE.iter().find(|(kind, _)| *kind == cause.kind()).map_or("", |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_http() {
        for (text, expected) in [
            ("127.0.0.1:9464", "http://127.0.0.1:9464"),
            ("[::1]:80", "http://[::1]:80"),
            ("http://localhost:0", "http://localhost:0"),
            ("https://0.0.0.0:8443/metrics", "https://0.0.0.0:8443"),
        ] {
            assert_eq!(text.parse::<MetricsAddress>().unwrap().to_string(), expected);
        }
        for wrong in
            ["", "9464", ":9464", "host", "host:x", "host:65536", "ftp://host:1", "http://a/b:1"]
        {
            assert!(wrong.parse::<MetricsAddress>().is_err(), "{wrong}");
        }
    }
}
