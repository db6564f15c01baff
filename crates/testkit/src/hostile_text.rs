//! Texts with control characters that a terminal would execute, in each place where a target may send a text.
//!
//! A program prints texts that a target sends, and a target may send anything: an escape sequence that clears the
//! screen, a line feed and a forged line of output, a mark that reverses the text after it. [`configs`] makes
//! targets that send such texts, and [`obeyed`] finds those that a program has printed unchanged.
//!
//! ```
//! use iscsi_testkit::config::TargetConfig;
//! use iscsi_testkit::disk::RamDisk;
//! use iscsi_testkit::hostile_text::{TEXT, configs, obeyed};
//!
//! let config = TargetConfig::new("iqn.2026-01.org.example:disk", RamDisk::new(512, 8));
//! for (place, config) in configs(&config) {
//!     // Serve a target of this configuration here, and run the program under test against it.
//!     # let _ = (place, config);
//! }
//! assert_eq!(obeyed("alias a\\u{1b}[2J\n".as_bytes()), None);
//! assert!(obeyed(format!("alias {TEXT}\n").as_bytes()).is_some());
//! ```

use bytes::Bytes;

use crate::config::{Portal, Redirect, Stage, TargetConfig};
use crate::fault::{Effect, Fault, Trigger};
use crate::opcode::Opcode;

/// The start of a forged line. No program prints this text by itself.
const FORGED: &str = "FORGED";

/// A text with an escape sequence, the end of a line and the start of a forged one, other control characters
/// of both sets (C0 and C1), and marks that reverse or end a line.
pub const TEXT: &str = "a\u{1b}[2J\r\nFORGED\u{7}\u{8}\u{7f}\u{9b}31m\u{202e}\u{2028}b";

/// Keys for which the target sends [`TEXT`] as the value: an initiator does not understand this value, and may
/// print it.
const ANSWERED: [&str; 16] = [
    "HeaderDigest",
    "DataDigest",
    "MaxConnections",
    "InitialR2T",
    "ImmediateData",
    "MaxRecvDataSegmentLength",
    "MaxBurstLength",
    "FirstBurstLength",
    "DefaultTime2Wait",
    "DefaultTime2Retain",
    "MaxOutstandingR2T",
    "DataPDUInOrder",
    "DataSequenceInOrder",
    "ErrorRecoveryLevel",
    "AuthMethod",
    "TargetPortalGroupTag",
];

/// Returns a configuration for each place where a target may send a text, with [`TEXT`] in that place, and the
/// name of the place.
#[must_use]
pub fn configs(config: &TargetConfig) -> Vec<(String, TargetConfig)> {
    let mut configs = Vec::new();
    let mut add = |place: &str, change: &dyn Fn(&mut TargetConfig)| {
        let mut config = config.clone();
        change(&mut config);
        configs.push((place.to_owned(), config));
    };
    for key in ANSWERED {
        add(key, &|config| {
            config.keys.answer(key, TEXT.into());
        });
    }
    add("TargetAlias", &|config| config.alias = Some(TEXT.to_owned()));
    add("an unknown key", &|config| {
        config.keys.originate(Stage::Operational, "X-org.example.mood", TEXT);
    });
    add("the name of a key", &|config| {
        config.keys.originate(Stage::Operational, &format!("X-{TEXT}"), "1");
    });
    for address in [TEXT.to_owned(), format!("{TEXT}.example:3260"), format!("127.0.0.1:{TEXT}")] {
        add("TargetAddress of a redirection", &|config| {
            let (permanent, after_authentication) = (false, false);
            let address = address.clone();
            config.login.redirect = Some(Redirect { address, permanent, after_authentication });
        });
    }
    add("SendTargets", &|config| {
        let name = config.names[0].clone();
        let addresses = vec![TEXT.to_owned(), format!("{TEXT},1"), format!("127.0.0.1:1,{TEXT}")];
        let other = Portal { name: format!("iqn.2026-01.{TEXT}"), addresses: addresses.clone() };
        config.discovery.targets = vec![Portal { name, addresses }, other];
        config.discovery.foreign = vec![("TargetAlias".to_owned(), TEXT.to_owned())];
    });
    for opcode in [Opcode::LoginResponse, Opcode::TextResponse] {
        let mut bytes = b"TargetAlias=\x9b31m\x1b[2J\nFORGED\0\x1b]0;\x07=\xff\0".to_vec();
        bytes.extend(TEXT.bytes());
        add("bytes that are no text", &|config| {
            let effect = Effect::SetData(Bytes::copy_from_slice(&bytes));
            let trigger = Trigger::Sending(Some(opcode), 0);
            config.faults.push(Fault { connection: None, trigger, effect, times: None });
        });
    }
    add("INQUIRY and its pages", &|config| {
        for unit in config.units.values_mut() {
            unit.vendor = TEXT.to_owned();
            // PRODUCT IDENTIFICATION has 16 bytes, so it gets the part of `TEXT` that starts with the line
            // feed and the forged line.
            unit.product = TEXT[6..].to_owned();
            unit.serial = TEXT.to_owned();
            unit.behavior.designators = Some(designators());
        }
    });
    configs
}

/// Returns designators of VPD page 83h that are texts: T10 vendor ID and vendor specific in ASCII, and a SCSI
/// name string in UTF-8 (SPC-4 §7.8.6).
fn designators() -> Vec<u8> {
    let mut all = Vec::new();
    for (code_set, kind) in [(2, 1), (2, 0), (3, 8)] {
        let mut text = TEXT.as_bytes().to_vec();
        // A SCSI name string is padded to a multiple of four bytes.
        text.resize(text.len().next_multiple_of(4), 0);
        all.extend([code_set, kind, 0, u8::try_from(text.len()).unwrap_or(u8::MAX)]);
        all.extend(text);
    }
    all
}

/// Returns the first line of a program's output that is forged, or that has a character that a terminal would
/// execute; `None` if there is no such line. The line feeds that end lines are allowed. For output that is not
/// UTF-8, returns a remark.
#[must_use]
pub fn obeyed(output: &[u8]) -> Option<String> {
    let Ok(text) = std::str::from_utf8(output) else {
        return Some("bytes that are no text".into());
    };
    let is_obeyed = |c: char| {
        c != '\n'
            && (c.is_control()
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
    };
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with(FORGED) || line.contains(is_obeyed))?;
    Some(line.escape_debug().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RamDisk;

    #[test]
    fn each_place_is_another_target() {
        let config = TargetConfig::new("iqn.2026-01.org.example:disk", RamDisk::new(512, 8));
        let configs = configs(&config);
        assert!(configs.len() > 20);
        for (place, hostile) in &configs {
            assert_ne!(format!("{hostile:?}"), format!("{config:?}"), "{place}");
        }
    }

    #[test]
    fn what_a_terminal_obeys_is_found() {
        for obeyed_text in
            ["\u{1b}[0m", "a\rb", "a\tb", "\u{7f}", "\u{9b}", "\u{202e}", "x\nFORGED"]
        {
            assert!(obeyed(obeyed_text.as_bytes()).is_some(), "{obeyed_text:?}");
        }
        assert!(obeyed(b"\x9b31m").is_some());
        for shown in ["", "a\nb\n", "\\u{1b}[2J FORGED", "\u{78c1}\u{76d8} d\u{ef}sk"] {
            assert_eq!(obeyed(shown.as_bytes()), None, "{shown:?}");
        }
    }
}
