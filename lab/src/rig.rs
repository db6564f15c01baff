//! The second host, the link to it and the target on it, as `lab/link` and `lab/lio` make them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::error::Error;
use crate::process::tool;
use crate::result::Link;

/// The second host's address.
pub const FAR: &str = "10.99.0.2";
/// The second host's network namespace.
pub const FAR_NAMESPACE: &str = "far";
/// The target's name.
pub const TARGET: &str = "iqn.2026-01.org.example:lio";

/// A link and a target, while they are up.
#[derive(Debug)]
pub struct Rig {
    scripts: PathBuf,
    /// The words that made the target; `None` while there is none.
    target: Option<Vec<String>>,
}

/// The URL of a unit.
pub fn url(lun: u16) -> String {
    format!("iscsi://{FAR}/{TARGET}/{lun}")
}

/// The portal, for programs that want it apart.
pub fn portal() -> String {
    format!("{FAR}:3260")
}

/// A link as words for `lab/link`.
pub fn link_words(link: &Link) -> Vec<String> {
    let mut words = vec![format!("rtt={}", link.rtt_ms), format!("loss={}", link.loss_percent)];
    words.extend(link.rate_mbit_per_s.map(|mbit| format!("rate={:.0}kbit", mbit * 1e3)));
    words
}

impl Rig {
    /// Makes the second host and the link.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn up(scripts: &Path, link: &[String]) -> Result<Self, Error> {
        let rig = Self { scripts: scripts.into(), target: None };
        rig.script("link", "up", link).await?;
        Ok(rig)
    }

    /// Changes what the link is like; nothing that was learnt of the one before stays.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn set_link(&self, words: &[String]) -> Result<(), Error> {
        self.script("link", "set", words).await
    }

    /// Makes the target that the words describe, in place of another if there is one. One that is
    /// there already stays as it is.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn set_target(&mut self, words: &[String]) -> Result<(), Error> {
        if self.target.as_deref() == Some(words) {
            return Ok(());
        }
        self.drop_target().await?;
        let mut all = vec![
            format!("target={TARGET}"),
            format!("namespace={FAR_NAMESPACE}"),
            format!("portal={}", portal()),
        ];
        all.extend_from_slice(words);
        // What is half made must be removed as well.
        self.target = Some(words.to_vec());
        self.script("lio", "up", &all).await
    }

    /// Removes the target, with all its sessions.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn drop_target(&mut self) -> Result<(), Error> {
        if self.target.take().is_none() {
            return Ok(());
        }
        self.script("lio", "down", &[format!("target={TARGET}")]).await
    }

    /// Removes all of it.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn down(mut self) -> Result<(), Error> {
        self.drop_target().await?;
        self.script("link", "down", &[]).await
    }

    async fn script(&self, name: &str, action: &str, words: &[String]) -> Result<(), Error> {
        let mut command = Command::new("bash");
        command.arg(self.scripts.join(name)).arg(action).args(words);
        tool(&mut command).await.map(drop)
    }
}

/// A command that runs on the second host.
pub fn far(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", FAR_NAMESPACE]).arg(program);
    command
}

/// The portal group's folder in the kernel's configuration.
pub fn group() -> PathBuf {
    Path::new("/sys/kernel/config/target/iscsi").join(TARGET).join("tpgt_1")
}

/// How much a unit was written and read so far, MiB, in whole.
pub fn traffic(lun: u16) -> Option<(u64, u64)> {
    let counters = group().join(format!("lun/lun_{lun}/statistics/scsi_tgt_port"));
    let count = |name: &str| {
        std::fs::read_to_string(counters.join(name)).ok().and_then(|text| text.trim().parse().ok())
    };
    Some((count("write_mbytes")?, count("read_mbytes")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_words_that_the_script_takes() {
        let mut link = Link { rtt_ms: 0.3, rate_mbit_per_s: Some(100.0), loss_percent: 0.01 };
        assert_eq!(link_words(&link), ["rtt=0.3", "loss=0.01", "rate=100000kbit"]);
        link.rate_mbit_per_s = None;
        assert_eq!(link_words(&link), ["rtt=0.3", "loss=0.01"]);
    }
}
