//! Decodes the response to SendTargets: the targets and their addresses (RFC 7143 §4.3, Appendix C).

use std::collections::HashMap;
use std::net::IpAddr;

use iscsi_pdu::keys::{Key, TextError, decode_pairs};
use iscsi_pdu::{IscsiName, TargetAddress};

/// A target as the response to SendTargets reports it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DiscoveredTarget {
    /// The target's node name.
    pub name: IscsiName,
    /// Addresses of the target, in the order of the response. An empty list means the portal that sent the
    /// response.
    pub addresses: Vec<TargetAddress>,
}

/// Decodes the whole response to SendTargets, all its PDUs joined; an empty response is an empty list.
///
/// A record begins with TargetName and has any number of TargetAddress keys (RFC 7143 Appendix C). Records of
/// the same name become one, under its first spelling. Errors in one record must not hide the others, so
/// these are skipped: names and addresses that cannot be understood or are not UTF-8, unspecified addresses
/// (`0.0.0.0`, `[::]`), and foreign keys. The response may be of any length.
///
/// # Errors
///
/// The text is no list of `key=value` pairs (RFC 7143 §6.1).
///
/// # Examples
///
/// ```
/// let answer = b"TargetName=iqn.2026-01.org.example:a\0TargetAddress=192.0.2.1:3260,1\0";
/// let targets = iscsi_session::decode_send_targets(answer)?;
/// assert_eq!(targets[0].name.as_str(), "iqn.2026-01.org.example:a");
/// assert_eq!(targets[0].addresses[0].portal_group_tag, Some(1));
/// # Ok::<(), iscsi_pdu::keys::TextError>(())
/// ```
pub fn decode_send_targets(text: &[u8]) -> Result<Vec<DiscoveredTarget>, TextError> {
    let mut list = List::default();
    // Decode pair by pair: the length limit of a negotiation's text does not apply to a list.
    for pair in text.split_inclusive(|&byte| byte == 0) {
        match decode_pairs(pair) {
            Ok(pairs) => pairs.into_iter().for_each(|(name, value)| list.take(name, value)),
            Err(TextError::NotUtf8 | TextError::KeyName(_)) if pair.contains(&b'=') => {
                list.skip(pair);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(list.targets)
}

/// The records that were decoded so far.
#[derive(Default)]
struct List {
    targets: Vec<DiscoveredTarget>,
    /// Index in `targets` of each name.
    positions: HashMap<IscsiName, usize>,
    /// Index of the record to which the next addresses belong.
    current: Option<usize>,
}

impl List {
    fn take(&mut self, key: &str, value: &str) {
        match Key::from_name(key) {
            Some(Key::TargetName) => self.begin(value),
            Some(Key::TargetAddress) => self.add(value),
            _ => tracing::debug!(key, "a foreign key in an answer to SendTargets is skipped"),
        }
    }

    /// Skips a malformed pair. If it is a TargetName, the addresses after it belong to no known target.
    fn skip(&mut self, pair: &[u8]) {
        tracing::debug!(pair = %pair.escape_ascii(), "a pair in an answer to SendTargets is skipped");
        if pair.starts_with(b"TargetName=") {
            self.current = None;
        }
    }

    fn begin(&mut self, name: &str) {
        let Ok(name) = IscsiName::parse(name) else {
            tracing::debug!(name, "a target without a legal name is skipped");
            self.current = None;
            return;
        };
        let next = self.targets.len();
        let position = *self.positions.entry(name.clone()).or_insert(next);
        if position == next {
            self.targets.push(DiscoveredTarget { name, addresses: Vec::new() });
        }
        self.current = Some(position);
    }

    fn add(&mut self, address: &str) {
        let current = self.current.and_then(|position| self.targets.get_mut(position));
        let Some(target) = current else {
            tracing::debug!(address, "an address that belongs to no target is skipped");
            return;
        };
        match TargetAddress::parse(address) {
            Ok(parsed) if is_unspecified(&parsed) => {
                tracing::debug!(address, "an unspecified address is skipped");
            }
            Ok(parsed) => target.addresses.push(parsed),
            Err(error) => tracing::debug!(address, %error, "an address is skipped"),
        }
    }
}

fn is_unspecified(address: &TargetAddress) -> bool {
    address.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str) -> Vec<(String, Vec<String>)> {
        let targets = decode_send_targets(text.as_bytes()).unwrap().into_iter();
        let hosts = |t: &DiscoveredTarget| {
            t.addresses.iter().map(|a| format!("{}|{}", a.host, a.port)).collect()
        };
        targets.map(|target| (target.name.as_str().to_owned(), hosts(&target))).collect()
    }

    /// DSC-02: a record begins at each TargetName; a record without an address means the portal that sent the
    /// response.
    #[test]
    fn dsc_02_records() {
        let text = "TargetName=iqn.2026-01.org.example:a\0TargetAddress=10.0.0.1:3260,1\0\
                    TargetAddress=[2001:db8::1]:3261,2\0TargetName=iqn.2026-01.org.example:b\0";
        let expected = [
            ("iqn.2026-01.org.example:a", vec!["10.0.0.1|3260", "2001:db8::1|3261"]),
            ("iqn.2026-01.org.example:b", vec![]),
        ];
        let expected = expected
            .map(|(name, hosts)| (name.to_owned(), hosts.into_iter().map(str::to_owned).collect()));
        assert_eq!(decode(text), expected);
    }

    /// DSC-03: a list may be far longer than the text of a negotiation.
    #[test]
    fn dsc_03_ten_thousand_targets() {
        let text: String = (0..10_000)
            .map(|n| format!("TargetName=iqn.2026-01.org.example:{n}\0TargetAddress=10.0.0.1,1\0"))
            .collect();
        let targets = decode(&text);
        assert_eq!(targets.len(), 10_000);
        assert_eq!(targets[9_999].0, "iqn.2026-01.org.example:9999");
        assert!(targets.iter().all(|(_, hosts)| hosts == &["10.0.0.1|3260"]));
    }

    /// DSC-05: one bad address does not affect the others. QRK-37: an unspecified address means the portal
    /// that sent the response.
    #[test]
    fn dsc_05_bad_addresses_are_skipped() {
        let text = "TargetName=iqn.2026-01.org.example:a\0TargetAddress=0.0.0.0:3260,1\0\
                    TargetAddress=[::]:3260,1\0TargetAddress=[fe80::1:3260\0TargetAddress=\0\
                    TargetAddress=10.0.0.1:99999,1\0TargetAddress=san.example.org:3260,-1\0";
        assert_eq!(decode(text)[0].1, ["san.example.org|3260"]);
    }

    /// DSC-06: foreign keys have no effect; an address before any name, or after an invalid name, belongs to no
    /// target.
    #[test]
    fn dsc_06_foreign_keys_are_skipped() {
        let text = "TargetAddress=10.0.0.9\0MaxBurstLength=1\0\
                    TargetName=iqn.2026-01.org.example:a\0TargetAlias=disk\0X-org.example=1\0\
                    TargetAddress=10.0.0.1\0TargetName=nonsense\0TargetAddress=10.0.0.8\0";
        let targets = decode(text);
        assert_eq!(targets.len(), 1);
        assert_eq!(targets[0].1, ["10.0.0.1|3260"]);
    }

    /// TXT-27: a name that is not UTF-8 does not hide other targets, and the addresses after it belong to no
    /// target. A foreign key with an illegal name does not hide other targets either.
    #[test]
    fn txt_27_what_is_no_text_hides_no_target() {
        let text = b"TargetName=iqn.2026-01.org.example:a\0TargetAddress=10.0.0.1,1\0\
            TargetAddress=\xe4\0x-vendor=1\0TargetAddress=10.0.0.2,1\0\
            TargetName=iqn.2026-01.org.example:\xe4\0TargetAddress=10.0.0.3,1\0\
            TargetName=iqn.2026-01.org.example:b\0TargetAddress=10.0.0.4,1\0\
            TargetName=iqn.2026-01.org.example:\xe4\0";
        let expected = [("a", vec!["10.0.0.1", "10.0.0.2"]), ("b", vec!["10.0.0.4"])];
        let targets = decode_send_targets(text).unwrap();
        let found = targets.iter().map(|target| {
            let hosts = target.addresses.iter().map(|address| address.host.as_str()).collect();
            (target.name.as_str().trim_start_matches("iqn.2026-01.org.example:"), hosts)
        });
        assert_eq!(found.collect::<Vec<(_, Vec<_>)>>(), expected);
    }

    /// NAM-02: names that differ only in case are the same name; the first spelling is used to log in.
    #[test]
    fn nam_02_records_of_one_name_in_two_spellings_become_one() {
        let text = "TargetName=iqn.2026-01.org.example:Disk\0TargetAddress=10.0.0.1\0\
                    TargetName=iqn.2026-01.org.example:disk\0TargetAddress=10.0.0.2\0";
        let targets = decode(text);
        let addresses = vec!["10.0.0.1|3260".to_owned(), "10.0.0.2|3260".to_owned()];
        assert_eq!(targets, [("iqn.2026-01.org.example:Disk".to_owned(), addresses)]);
    }

    #[test]
    fn records_of_one_name_become_one() {
        let text = "TargetName=iqn.2026-01.org.example:a\0TargetAddress=10.0.0.1\0\
                    TargetName=iqn.2026-01.org.example:b\0\
                    TargetName=iqn.2026-01.org.example:a\0TargetAddress=10.0.0.2\0";
        let targets = decode(text);
        assert_eq!(targets.len(), 2);
        assert_eq!(targets[0].1, ["10.0.0.1|3260", "10.0.0.2|3260"]);
    }

    /// DSC-07 and TXT-27: an empty response is an empty list, and bytes that are not text are an error.
    #[test]
    fn dsc_07_empty_answer_and_txt_27_garbage() {
        assert_eq!(decode(""), []);
        assert!(decode_send_targets(b"no pair\0").is_err());
        assert!(decode_send_targets(b"no \xff pair\0").is_err());
        assert!(decode_send_targets(b"TargetName=iqn.2026-01.org.example:a\0no pair").is_err());
    }

    /// TXT-27, TXT-28: too many or too few NULs, and an alias that is not UTF-8, do not hide a target.
    #[test]
    fn txt_27_harmless_faults_of_the_text() {
        let text =
            b"\0TargetName=iqn.2026-01.org.example:a\0\0TargetAlias=\xe4\0TargetAddress=10.0.0.1";
        let targets = decode_send_targets(text).unwrap();
        assert_eq!(targets[0].addresses[0].host, "10.0.0.1");
    }
}
