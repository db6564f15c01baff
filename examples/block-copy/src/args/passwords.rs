//! Options for the password files of source and destination.

use std::path::{Path, PathBuf};

use clap::Args;
use iscsi_examples_common::credentials::{CredentialsError, Prover, check_hosts, give};
use iscsi_examples_common::help::heading;

use crate::location::Location;

/// Where the passwords are: the first line of a file each, seen neither in a list of processes nor in the environment.
#[derive(Clone, Debug, Default, Args)]
pub struct PasswordArgs {
    /// CHAP password for each unit.
    ///
    /// The first line of FILE, for each unit whose URL has no password. It is refused if both ends would get it, and
    /// they are at different hosts. Neither a list of processes nor the environment shows it.
    #[arg(long, value_name = "FILE", help_heading = heading::CREDENTIALS)]
    pub password_file: Option<PathBuf>,
    /// CHAP password for the source.
    ///
    /// The first line of FILE.
    #[arg(long, value_name = "FILE", help_heading = heading::CREDENTIALS)]
    pub source_password_file: Option<PathBuf>,
    /// CHAP password for the destination.
    ///
    /// The first line of FILE.
    #[arg(long, value_name = "FILE", help_heading = heading::CREDENTIALS)]
    pub destination_password_file: Option<PathBuf>,
    /// Password of the target (mutual CHAP).
    ///
    /// The target must prove that it knows the password, which is the first line of FILE. It is for each unit whose URL
    /// has no such password, and is refused if both ends would get it, and they are at different hosts.
    #[arg(long, value_name = "FILE", help_heading = heading::CREDENTIALS)]
    pub target_password_file: Option<PathBuf>,
    /// Password of the source's target (mutual CHAP).
    ///
    /// The first line of FILE.
    #[arg(long, value_name = "FILE", help_heading = heading::CREDENTIALS)]
    pub source_target_password_file: Option<PathBuf>,
    /// Password of the destination's target.
    ///
    /// For mutual CHAP: the first line of FILE.
    #[arg(long, value_name = "FILE", help_heading = heading::CREDENTIALS)]
    pub destination_target_password_file: Option<PathBuf>,
}

/// An option, and the path that is its value.
type Named<'a> = (&'static str, Option<&'a Path>);

impl PasswordArgs {
    /// Returns the options and their files: first the three for the initiator's passwords, then the three for
    /// the targets' passwords. Of each three, the option for both source and destination is first.
    pub(crate) fn files(&self) -> [Named<'_>; 6] {
        [
            ("--password-file", self.password_file.as_deref()),
            ("--source-password-file", self.source_password_file.as_deref()),
            ("--destination-password-file", self.destination_password_file.as_deref()),
            ("--target-password-file", self.target_password_file.as_deref()),
            ("--source-target-password-file", self.source_target_password_file.as_deref()),
            (
                "--destination-target-password-file",
                self.destination_target_password_file.as_deref(),
            ),
        ]
    }

    /// Adds the passwords to the URLs of source and destination. For a verification without a copy there is no
    /// source.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub(crate) async fn apply(
        &self,
        source: Option<&mut Location>,
        destination: &mut Location,
    ) -> Result<(), CredentialsError> {
        let mut source = source.map(Location::urls_mut).unwrap_or_default();
        let mut destination = destination.urls_mut();
        let [own, own_source, own_destination, target, of_source, of_destination] = self.files();
        for (prover, both, one, other) in [
            (Prover::Initiator, own, own_source, own_destination),
            (Prover::Target, target, of_source, of_destination),
        ] {
            give(one.0, prover, one.1, &mut source).await?;
            give(other.0, prover, other.1, &mut destination).await?;
            let option = both.1.map(|_| both.0);
            check_hosts(option, prover, &source, &destination)?;
            let mut all: Vec<_> =
                source.iter_mut().chain(&mut destination).map(|url| &mut **url).collect();
            give(both.0, prover, both.1, &mut all).await?;
        }
        Ok(())
    }
}
