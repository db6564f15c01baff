//! Collects the facts about the link: the report of the kernel, the plan of the tuner, the granted settings.

use iscsi_initiator::Reading;
use iscsi_tuner::{
    Autotuning, Buffer, Diagnosis, Granted, Interface, Limits, Measurement, Observation, Plan,
    TcpInfo,
};

use crate::table::Line;
use iscsi_tuner::Size;

/// A reading of the session, split into its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkFacts {
    /// The kernel's report of the connection.
    pub info: TcpInfo,
    /// The cipher of TLS; `None` in clear text.
    pub encryption: Option<String>,
    /// The measurements so far.
    pub measurement: Measurement,
    /// The limits of this host.
    pub limits: Limits,
    /// The plan of the tuner.
    pub plan: Plan,
    /// The settings that the kernel granted.
    pub granted: Granted,
    /// The network interface that the connection uses.
    pub interface: Option<Interface>,
}

impl LinkFacts {
    /// Returns the maximum number of data bytes in the send buffer, and the reason for it.
    #[must_use]
    pub fn send_buffer(&self) -> (u64, String) {
        let granted = self.granted.send_buffer;
        match (self.plan.send_buffer.value, granted) {
            (Buffer::Set(_) | Buffer::Forced(_), Some(granted)) => {
                let bytes = granted / Autotuning::BYTES_PER_BYTE;
                (bytes, format!("{} of data, as granted", Size(bytes)))
            }
            (Buffer::Set(bytes) | Buffer::Forced(bytes), None) => {
                (bytes, format!("{} of data, as set", Size(bytes)))
            }
            (Buffer::Autotuned, _) => {
                let bytes = self.limits.tcp_wmem.unwrap_or(Autotuning::STOCK_SEND).reach();
                (bytes, format!("the kernel tunes it up to {} of data", Size(bytes)))
            }
        }
    }

    /// Returns the largest receive window that this host offers, in bytes. The kernel reports it, or else it is
    /// calculated from the receive buffer.
    #[must_use]
    pub fn receive_window(&self) -> Option<u64> {
        if let Some(window) = self.info.receive_window {
            return Some(window.into());
        }
        match self.plan.receive_buffer.value {
            Buffer::Autotuned => self.limits.tcp_rmem.map(Autotuning::reach),
            Buffer::Set(_) | Buffer::Forced(_) => {
                self.granted.receive_buffer.map(|bytes| bytes / Autotuning::BYTES_PER_BYTE)
            }
        }
    }

    /// Returns remarks on the path: the MTU, the interface and its offloads, and the encryption.
    #[must_use]
    pub fn remarks(&self) -> Vec<Line> {
        let nothing = Observation::default();
        let interface = self.interface.as_ref();
        let diagnosis =
            Diagnosis::new(&nothing, &self.plan, &self.measurement, &self.limits, interface);
        let own = interface.map(|interface| {
            let mtu = interface.mtu.map_or_else(|| "unknown".to_owned(), |mtu| mtu.to_string());
            Line::new("interface", interface.name.as_str(), format!("MTU {mtu}"))
        });
        let encryption = self.encryption.as_deref().map(|cipher| {
            let price = "in this process; one more round trip a connection, 22 bytes each 16 KiB";
            Line::new("encryption", cipher, price)
        });
        let remarks = diagnosis.remarks.into_iter();
        own.into_iter()
            .chain(encryption)
            .chain(remarks.map(|row| Line::new(row.name, row.value, row.reason)))
            .collect()
    }
}

impl From<&Reading> for LinkFacts {
    fn from(reading: &Reading) -> Self {
        Self {
            info: *reading.tcp_info(),
            encryption: reading.encryption().map(str::to_owned),
            measurement: *reading.measurement(),
            limits: reading.limits().clone(),
            plan: reading.plan().clone(),
            granted: reading.granted().clone(),
            interface: reading.interface().cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use iscsi_tuner::{Tuning, plan};

    use super::*;

    #[test]
    fn the_cipher_is_a_remark() {
        let (measurement, limits) = (Measurement::default(), Limits::default());
        let facts = |encryption: Option<&str>| LinkFacts {
            info: TcpInfo::default(),
            encryption: encryption.map(str::to_owned),
            plan: plan(&measurement, &limits, &Tuning::default()),
            measurement,
            limits: limits.clone(),
            granted: Granted::default(),
            interface: None,
        };
        let has_row = |facts: LinkFacts| {
            facts.remarks().iter().any(|line| line.name == "encryption" && line.value == "CIPHER")
        };
        assert!(has_row(facts(Some("CIPHER"))) && !has_row(facts(None)));
    }
}
