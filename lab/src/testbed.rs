//! Makes the second host, the links to it and the target on it, by `lab/link` and `lab/lio`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::error::Error;
use crate::process::tool;
use crate::result::{Carried, LinkConditions};

/// Address of the second host.
pub const FAR: &str = "10.99.0.2";
/// Network device of this host at the link, as made by `lab/link`.
const NEAR_DEVICE: &str = "near0";
/// Network namespace of the second host.
pub const FAR_NAMESPACE: &str = "far";
/// Name of the target.
pub const TARGET: &str = "iqn.2026-01.org.example:lio";

/// Name of the initiator, for targets with an access list.
pub const INITIATOR: &str = "iqn.2026-01.org.example:lab";

/// Returns the second host's address on a link. The first link is 0.
pub fn address(link: u8) -> String {
    format!("10.99.{link}.2")
}

/// The links and a target, while they exist.
#[derive(Debug)]
pub struct Testbed {
    scripts: PathBuf,
    /// Number of links.
    links: u8,
    target: Standing,
    is_wedged: bool,
}

/// State of the target in the kernel.
#[derive(Debug, PartialEq)]
enum Standing {
    Nothing,
    /// Making or removing the target has begun and not completed: parts of the target may exist.
    Parts,
    /// The target exists as these words describe it.
    Whole(Vec<String>),
}

/// Returns the URL of a unit.
pub fn url(lun: u16) -> String {
    format!("iscsi://{FAR}/{TARGET}/{lun}")
}

/// Returns the portal, for programs that take it separately.
pub fn portal() -> String {
    format!("{FAR}:3260")
}

/// Returns a link as words for `lab/link`.
pub fn link_words(link: &LinkConditions) -> Vec<String> {
    let mut words = vec![format!("rtt={}", link.rtt_ms), format!("loss={}", link.loss_percent)];
    words.extend(link.rate_mbit_per_s.map(|mbit| format!("rate={:.0}kbit", mbit * 1e3)));
    words
}

impl Testbed {
    /// Makes the second host and the link.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn up(scripts: &Path, link: &[String]) -> Result<Self, Error> {
        let mut testbed =
            Self { scripts: scripts.into(), links: 0, target: Standing::Nothing, is_wedged: false };
        testbed.add_links(1, link).await?;
        Ok(testbed)
    }

    /// Makes further links between the hosts until there are `count`.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn add_links(&mut self, count: u8, words: &[String]) -> Result<(), Error> {
        while self.links < count {
            self.script("link", "up", &of_link(self.links, words)).await?;
            self.links += 1;
        }
        Ok(())
    }

    /// Changes the conditions of all links. TCP metrics that were cached for the old conditions are dropped.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn set_link(&self, words: &[String]) -> Result<(), Error> {
        for link in 0..self.links {
            self.script("link", "set", &of_link(link, words)).await?;
        }
        Ok(())
    }

    /// Cuts a link, as if its cable was pulled, until [`mend`](Self::mend).
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn cut(&self, link: u8) -> Result<(), Error> {
        self.script("link", "cut", &of_link(link, &[])).await
    }

    /// Restores a link that may have been cut.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn mend(&self, link: u8) -> Result<(), Error> {
        self.script("link", "mend", &of_link(link, &[])).await
    }

    /// Holds back every packet on the first link, in both directions, until [`release`](Self::release).
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn hold(&self) -> Result<(), Error> {
        self.script("link", "hold", &[]).await
    }

    /// Releases the packets that were held back, and lets all later packets through.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn release(&self) -> Result<(), Error> {
        self.script("link", "release", &[]).await
    }

    /// Makes the target that the words describe, and removes any other target before. A target that was made
    /// from the same words stays as it is.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn set_target(&mut self, words: &[String]) -> Result<(), Error> {
        if matches!(&self.target, Standing::Whole(made) if made == words) {
            return Ok(());
        }
        self.drop_target().await?;
        let mut all = vec![
            format!("target={TARGET}"),
            format!("namespace={FAR_NAMESPACE}"),
            format!("portal={}", portal()),
        ];
        all.extend_from_slice(words);
        self.target = Standing::Parts;
        self.script("lio", "up", &all).await?;
        self.target = Standing::Whole(words.to_vec());
        Ok(())
    }

    /// Changes the target by an action of `lab/lio` while initiators are logged in. The target then does not
    /// match the words it was made from, so the next [`set_target`](Self::set_target) makes it again.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn change_target(&mut self, action: &str, words: &[String]) -> Result<(), Error> {
        self.target = Standing::Parts;
        let target = format!("target={TARGET}");
        let words: Vec<_> = std::iter::once(target).chain(words.iter().cloned()).collect();
        self.script("lio", action, &words).await
    }

    /// Removes the target, complete or in parts, with all its sessions.
    ///
    /// # Errors
    /// [`Error::Tool`] with the reason.
    pub async fn drop_target(&mut self) -> Result<(), Error> {
        if self.target == Standing::Nothing {
            return Ok(());
        }
        self.target = Standing::Parts;
        let down = self.script("lio", "down", &[format!("target={TARGET}")]).await;
        self.is_wedged = down.is_err();
        down?;
        self.target = Standing::Nothing;
        Ok(())
    }

    /// Returns whether the last attempt to remove the target failed. Some kernels wait forever for a command of
    /// a lost session.
    pub fn is_wedged(&self) -> bool {
        self.is_wedged
    }

    /// Removes the target and the links. The links are removed even if the target is not.
    ///
    /// # Errors
    /// [`Error::Tool`] with the first reason.
    pub async fn down(mut self) -> Result<(), Error> {
        let target = self.drop_target().await;
        let link = self.script("link", "down", &[]).await;
        target.and(link)
    }

    async fn script(&self, name: &str, action: &str, words: &[String]) -> Result<(), Error> {
        let mut command = Command::new("bash");
        command.arg(self.scripts.join(name)).arg(action).args(words);
        tool(&mut command).await.map(drop)
    }
}

/// Returns words for `lab/link` that apply to one of several links.
fn of_link(link: u8, words: &[String]) -> Vec<String> {
    let number = (link > 0).then(|| format!("link={link}"));
    number.into_iter().chain(words.iter().cloned()).collect()
}

/// Returns a command that runs on the second host.
pub fn far(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", FAR_NAMESPACE]).arg(program);
    command
}

/// Returns the portal group's folder in the kernel's configuration.
pub fn group() -> PathBuf {
    Path::new("/sys/kernel/config/target/iscsi").join(TARGET).join("tpgt_1")
}

/// Returns the bytes that have crossed the link so far; `None` if the system does not report them.
pub fn carried() -> Option<Carried> {
    let counters = Path::new("/sys/class/net").join(NEAR_DEVICE).join("statistics");
    let count = |name: &str| {
        std::fs::read_to_string(counters.join(name)).ok().and_then(|text| text.trim().parse().ok())
    };
    Some(Carried { sent: count("tx_bytes")?, received: count("rx_bytes")? })
}

/// Returns the MiB that were written to and read from a unit so far, rounded down.
pub fn traffic(lun: u16) -> Option<(u64, u64)> {
    let counters = group().join(format!("lun/lun_{lun}/statistics/scsi_tgt_port"));
    let count = |name: &str| {
        std::fs::read_to_string(counters.join(name)).ok().and_then(|text| text.trim().parse().ok())
    };
    Some((count("write_mbytes")?, count("read_mbytes")?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Scripts in place of `lab/link` and `lab/lio`. They log their words, and fail for words that a file names.
    struct Scripts(PathBuf);

    impl Scripts {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("lab-testbed-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            for script in ["lio", "link"] {
                let text = format!(
                    "cd {}; echo {script} $1 >>log; ! grep -qsx \"{script} $1\" fails",
                    folder.display()
                );
                fs::write(folder.join(script), text).unwrap();
            }
            Self(folder)
        }

        fn fail_at(&self, step: &str) {
            fs::write(self.0.join("fails"), step).unwrap();
        }

        /// Returns the lines that were logged since the last call.
        fn log(&self) -> Vec<String> {
            let text = fs::read_to_string(self.0.join("log")).unwrap_or_default();
            fs::write(self.0.join("log"), "").unwrap();
            text.lines().map(str::to_owned).collect()
        }
    }

    impl Drop for Scripts {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn a_target_that_stands_stays_and_another_replaces_it() {
        let scripts = Scripts::new("stays");
        let mut testbed = Testbed::up(&scripts.0, &[]).await.unwrap();
        testbed.set_target(&["depth=1".to_owned()]).await.unwrap();
        testbed.set_target(&["depth=1".to_owned()]).await.unwrap();
        assert_eq!(scripts.log(), ["link up", "lio up"]);
        testbed.set_target(&["depth=2".to_owned()]).await.unwrap();
        assert_eq!(scripts.log(), ["lio down", "lio up"]);
        testbed.down().await.unwrap();
        assert_eq!(scripts.log(), ["lio down", "link down"]);
    }

    #[tokio::test]
    async fn a_target_in_parts_is_removed_before_the_next_try() {
        let scripts = Scripts::new("parts");
        let mut testbed = Testbed::up(&scripts.0, &[]).await.unwrap();
        scripts.fail_at("lio up");
        testbed.set_target(&[]).await.unwrap_err();
        scripts.fail_at("lio down");
        testbed.set_target(&[]).await.unwrap_err();
        assert_eq!(scripts.log(), ["link up", "lio up", "lio down"]);
        assert!(testbed.is_wedged());
        scripts.fail_at("nothing");
        testbed.set_target(&[]).await.unwrap();
        assert!(!testbed.is_wedged());
        assert_eq!(scripts.log(), ["lio down", "lio up"]);
    }

    #[tokio::test]
    async fn a_target_that_was_changed_is_made_anew() {
        let scripts = Scripts::new("changed");
        let mut testbed = Testbed::up(&scripts.0, &[]).await.unwrap();
        testbed.set_target(&[]).await.unwrap();
        testbed.change_target("disable", &[]).await.unwrap();
        testbed.set_target(&[]).await.unwrap();
        assert_eq!(scripts.log(), ["link up", "lio up", "lio disable", "lio down", "lio up"]);
    }

    #[tokio::test]
    async fn the_link_goes_also_if_the_target_does_not() {
        let scripts = Scripts::new("down");
        let mut testbed = Testbed::up(&scripts.0, &[]).await.unwrap();
        testbed.set_target(&[]).await.unwrap();
        scripts.fail_at("lio down");
        let error = testbed.down().await.unwrap_err();
        assert!(error.to_string().contains("lio down"), "{error}");
        assert_eq!(scripts.log(), ["link up", "lio up", "lio down", "link down"]);
    }

    #[tokio::test]
    async fn each_link_is_made_once_and_all_are_changed() {
        let scripts = Scripts::new("links");
        let mut testbed = Testbed::up(&scripts.0, &[]).await.unwrap();
        testbed.add_links(2, &[]).await.unwrap();
        testbed.add_links(2, &[]).await.unwrap();
        testbed.set_link(&[]).await.unwrap();
        testbed.cut(1).await.unwrap();
        let done = ["link up", "link up", "link set", "link set", "link cut"];
        assert_eq!(scripts.log(), done);
        assert_eq!(of_link(0, &["rtt=1".to_owned()]), ["rtt=1"]);
        assert_eq!(of_link(1, &["rtt=1".to_owned()]), ["link=1", "rtt=1"]);
        assert_eq!(address(3), "10.99.3.2");
    }

    #[test]
    fn links_become_words_that_the_script_takes() {
        let mut link =
            LinkConditions { rtt_ms: 0.3, rate_mbit_per_s: Some(100.0), loss_percent: 0.01 };
        assert_eq!(link_words(&link), ["rtt=0.3", "loss=0.01", "rate=100000kbit"]);
        link.rate_mbit_per_s = None;
        assert_eq!(link_words(&link), ["rtt=0.3", "loss=0.01"]);
    }
}
