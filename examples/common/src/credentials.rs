//! Reads the passwords of units, from files and from the environment.
//!
//! A password must go to one host only: a host that receives the password of another host can use it there. So
//! a password from the environment, or from a file for both source and destination, is refused if the two are
//! at different hosts.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use clap::Args;
use iscsi_initiator::{Secret, Url};
use thiserror::Error as ThisError;
use tokio::task::spawn_blocking;

use crate::exit_status::{self, USAGE};
use crate::failure::file_advice;
use crate::help::heading;
use crate::output::eprint_lines;
use crate::password_file;

/// The files of the passwords of a unit.
#[derive(Clone, Debug, Default, Args)]
pub struct PasswordFiles {
    /// Read the CHAP password from the first line of FILE.
    ///
    /// It is for each unit whose URL has no password. Neither a list of processes nor the environment shows it.
    #[arg(long, value_name = "FILE", global = true, help_heading = heading::CREDENTIALS)]
    pub password_file: Option<PathBuf>,
    /// Read the target's password (mutual CHAP) from FILE.
    ///
    /// The target must prove that it knows the password, which is the first line of FILE. It is for each unit whose URL
    /// has no such password.
    #[arg(long, value_name = "FILE", global = true, help_heading = heading::CREDENTIALS)]
    pub target_password_file: Option<PathBuf>,
}

/// Environment variables from which libiscsi's programs read credentials. Child processes do not inherit them.
pub const VARIABLES: [&str; 4] = [
    "LIBISCSI_CHAP_USERNAME",
    "LIBISCSI_CHAP_PASSWORD",
    "LIBISCSI_CHAP_TARGET_USERNAME",
    "LIBISCSI_CHAP_TARGET_PASSWORD",
];

/// The side that authenticates itself with a password.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Prover {
    /// The initiator.
    Initiator,
    /// The target (mutual CHAP).
    Target,
}

/// Reasons why a password cannot be used. Each is a mistake in the command line.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A password is given, but no URL names a user.
    #[error(
        "{0} needs a user to whom the password belongs; name one as in iscsi://USER@HOST/..., or in \
         LIBISCSI_CHAP_USERNAME"
    )]
    NoUser(&'static str),
    /// A password is given, but each unit has one already.
    #[error(
        "{0}: each unit has its password already, from its URL or a file of its own; leave one of the two out"
    )]
    HasPassword(&'static str),
    /// A password is given, but nothing that the program opens is an iSCSI unit.
    #[error("{0} is for a unit that is reached by iSCSI, and there is none; leave it out")]
    NoUnit(&'static str),
    /// One password would be used with two hosts.
    #[error(
        "{from} would give one password to two hosts, {one} and {other}, and each could pass itself off as this host at \
         the other; give each end its own by {}", own_options(*.prover)
    )]
    TwoHosts {
        /// Option or environment variable of the password.
        from: &'static str,
        /// The side that proves its identity with the password.
        prover: Prover,
        /// A host of the source.
        one: String,
        /// A host of the destination.
        other: String,
    },
    /// The password file cannot be read, or has no password.
    #[error("password file {}: {cause}{}", path.display(), file_advice(cause.kind()))]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        cause: std::io::Error,
    },
}

const fn own_options(prover: Prover) -> &'static str {
    match prover {
        Prover::Initiator => "--source-password-file and --destination-password-file",
        Prover::Target => "--source-target-password-file and --destination-target-password-file",
    }
}

impl CredentialsError {
    /// Returns the exit status for the error.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::NoUser(_) | Self::HasPassword(_) | Self::NoUnit(_) | Self::TwoHosts { .. } => {
                USAGE
            }
            Self::Unreadable { cause, .. } => exit_status::of_system(cause),
        }
    }
}

impl PasswordFiles {
    /// Adds the passwords to each URL that names a user and has no password, and to URLs whose user is in the
    /// environment. Prints a warning on standard error if other users may read a password file.
    ///
    /// # Errors
    /// If no URL needs a password, or a file contains none.
    pub async fn apply(&self, mut urls: Vec<&mut Url>) -> Result<(), CredentialsError> {
        for (option, prover, path) in [
            ("--password-file", Prover::Initiator, &self.password_file),
            ("--target-password-file", Prover::Target, &self.target_password_file),
        ] {
            give(option, prover, path.as_deref(), &mut urls).await?;
        }
        Ok(())
    }
}

/// Reads the password from the first line of a file, and adds it to each URL that needs one. Does nothing
/// without a path.
///
/// # Errors
/// If no URL needs the password, or the file contains none.
pub async fn give(
    option: &'static str,
    prover: Prover,
    path: Option<&Path>,
    urls: &mut [&mut Url],
) -> Result<(), CredentialsError> {
    let Some(path) = path else { return Ok(()) };
    if urls.is_empty() {
        return Err(CredentialsError::NoUnit(option));
    }
    if !urls.iter().any(|url| has_user(url)) {
        return Err(CredentialsError::NoUser(option));
    }
    let mut urls: Vec<_> = urls.iter_mut().filter(|url| wants(prover, url)).collect();
    if urls.is_empty() {
        return Err(CredentialsError::HasPassword(option));
    }
    let secret = read(path).await?;
    urls.iter_mut().for_each(|url| *place(prover, url) = Some(secret.clone()));
    Ok(())
}

/// Checks that one password does not go to hosts of both source and destination, unless the hosts of one side
/// include those of the other side. The password comes from the file of `option`, or else from the environment.
/// Units that already have a password do not count.
///
/// # Errors
/// [`CredentialsError::TwoHosts`].
pub fn check_hosts(
    option: Option<&'static str>,
    prover: Prover,
    source: &[&mut Url],
    destination: &[&mut Url],
) -> Result<(), CredentialsError> {
    let variable = match prover {
        Prover::Initiator => "LIBISCSI_CHAP_PASSWORD",
        Prover::Target => "LIBISCSI_CHAP_TARGET_PASSWORD",
    };
    let Some(from) = option.or_else(|| is_set(variable).then_some(variable)) else { return Ok(()) };
    let hosts = |urls: &[&mut Url]| {
        let urls = urls.iter().filter(|url| wants(prover, url));
        let portals = urls.flat_map(|url| std::iter::once(&url.portal).chain(&url.portals));
        portals.map(|portal| portal.host.clone()).collect::<BTreeSet<_>>()
    };
    let (source, destination) = (hosts(source), hosts(destination));
    if source.is_subset(&destination) || destination.is_subset(&source) {
        return Ok(());
    }
    let first_of = |one: &BTreeSet<String>, other| one.difference(other).next().cloned();
    match (first_of(&source, &destination), first_of(&destination, &source)) {
        (Some(one), Some(other)) => Err(CredentialsError::TwoHosts { from, prover, one, other }),
        _ => Ok(()),
    }
}

fn has_user(url: &Url) -> bool {
    url.user.is_some() || is_set("LIBISCSI_CHAP_USERNAME")
}

fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty())
}

fn wants(prover: Prover, url: &Url) -> bool {
    let password = match prover {
        Prover::Initiator => &url.password,
        Prover::Target => &url.target_password,
    };
    password.is_none() && has_user(url)
}

const fn place(prover: Prover, url: &mut Url) -> &mut Option<Secret> {
    match prover {
        Prover::Initiator => &mut url.password,
        Prover::Target => &mut url.target_password,
    }
}

async fn read(path: &Path) -> Result<Secret, CredentialsError> {
    let owned = path.to_owned();
    let read = spawn_blocking(move || password_file::read(&owned)).await;
    let read = read.map_err(std::io::Error::from).flatten();
    let (secret, is_open) =
        read.map_err(|cause| CredentialsError::Unreadable { path: path.into(), cause })?;
    if is_open {
        let path = path.display();
        eprint_lines(&format!(
            "warning: password file {path}: others may read it; chmod 600 {path}\n"
        ));
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, destination: &str) -> Result<(), CredentialsError> {
        let parse = |hosts: &str| {
            let hosts = hosts.split_whitespace();
            hosts.map(|url| Url::parse(&format!("iscsi://{url}")).unwrap()).collect::<Vec<_>>()
        };
        let (mut source, mut destination) = (parse(source), parse(destination));
        let source: Vec<_> = source.iter_mut().collect();
        let destination: Vec<_> = destination.iter_mut().collect();
        check_hosts(Some("--password-file"), Prover::Initiator, &source, &destination)
    }

    #[test]
    fn one_password_goes_to_one_host() {
        for (source, destination, is_fine) in [
            ("me@a", "me@a", true),
            ("me@a", "me@A:3261", true),
            ("me@[::1]", "me@[0::1]", true),
            ("me@a?portal=b", "me@b", true),
            ("me@a me@b", "me@b me@a", true),
            ("me@a", "b", true),
            ("me@a", "", true),
            ("me@a", "me:own@b", true),
            ("me@a", "me@b", false),
            ("me@a", "you@b", false),
            ("me@a?portal=b", "me@b?portal=c", false),
            ("me@a me@b", "me@c", false),
        ] {
            assert_eq!(check(source, destination).is_ok(), is_fine, "{source} {destination}");
        }
        let said = check("me@a", "me@b").unwrap_err().to_string();
        for part in ["--password-file", "a and b", "--destination-password-file"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
