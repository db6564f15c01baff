//! Advises settings of LIO, the Linux kernel's target, as commands of `targetcli`.

use std::fmt::Write;

/// A portal group of a target, for the commands that change its settings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PortalGroup {
    target: String,
    tag: u16,
}

/// Maximum number of commands in flight that LIO allows an initiator.
pub const MAX_WINDOW: u64 = 512;
/// Maximum burst length that a key can express (RFC 7143 §13.13, §13.14).
pub const MAX_BURST: u64 = 0x00ff_ffff;

impl PortalGroup {
    /// Creates the portal group with this tag. If the target has not reported a tag, it is the first group.
    #[must_use]
    pub fn new(target: impl Into<String>, tag: Option<u16>) -> Self {
        Self { target: target.into(), tag: tag.unwrap_or(1) }
    }

    /// Returns the command that sets login keys (RFC 7143 §13).
    #[must_use]
    pub fn set_keys(&self, keys: &[(&str, String)]) -> String {
        let mut command = self.command("parameter");
        for (name, value) in keys {
            // Writing to a string cannot fail.
            let _ = write!(command, " {name}={value}");
        }
        command
    }

    /// Returns the command that sets how many commands an initiator may have in flight, up to the maximum of
    /// LIO.
    #[must_use]
    pub fn set_window(&self, commands: u64) -> String {
        let commands = commands.clamp(1, MAX_WINDOW);
        format!("{} default_cmdsn_depth={commands}", self.command("attribute"))
    }

    fn command(&self, group: &str) -> String {
        format!("targetcli /iscsi/{}/tpg{} set {group}", self.target, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_target_group_and_value() {
        let group = PortalGroup::new("iqn.2026-01.org.example:disk", Some(2));
        assert_eq!(
            group.set_keys(&[("InitialR2T", "No".to_owned()), ("MaxBurstLength", "7".to_owned())]),
            "targetcli /iscsi/iqn.2026-01.org.example:disk/tpg2 set parameter InitialR2T=No \
             MaxBurstLength=7"
        );
        let first = PortalGroup::new("iqn.x", None);
        assert_eq!(
            first.set_window(9999),
            "targetcli /iscsi/iqn.x/tpg1 set attribute default_cmdsn_depth=512"
        );
    }
}
