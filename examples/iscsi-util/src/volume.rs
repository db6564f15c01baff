//! Describes several units as one device, and reads and writes the superblocks of Linux md.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use iscsi_examples_common::help::heading;
use iscsi_examples_common::program::ProgramError;
use iscsi_examples_common::volume as file;
use iscsi_initiator::device::Device as _;
use iscsi_initiator::{Disk, Options, Url, UrlError};
use iscsi_tuner::Size;
use iscsi_volume::{Chunk, Description, Stripe, Units, Volume as Device};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::connector::{self, Connector};
use crate::error::Error;
use crate::output::eprint_lines;
use crate::report::Report;
use crate::table::Table;

/// Time limit of the logouts if no data can be lost.
const LOGOUT: Duration = Duration::from_secs(3);

/// The options of `volume`.
#[derive(Clone, Debug, Args)]
pub struct Volume {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do with a volume.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Describe units as one device with the layout of RAID-0, in their order
    ///
    /// The description goes to a file, or to standard output. Other programs take it as volume:FILE.
    Create(Create),
    /// Describe units that are an array of mdadm (level 0, metadata 1.2)
    ///
    /// The order is that of their roles in the array.
    Import(Import),
    /// Show what a file describes, and what is found of it
    Show(Described),
    /// Check that the units are those that a file describes
    ///
    /// In that order, as large as they were, and with their superblocks. Nothing is written.
    Check(Described),
}

/// The options of `volume create`.
#[derive(Clone, Debug, Args)]
pub struct Create {
    /// 2 to 64 units in their order: iscsi://HOST/TARGET/LUN.
    ///
    /// A password in a URL is not kept.
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Consecutive bytes on one unit.
    ///
    /// A power of two from 64K to 4M.
    #[arg(long, value_name = "SIZE", default_value = "512K", help_heading = heading::VOLUME)]
    pub chunk: Size,
    /// Write superblocks of Linux md to the units.
    ///
    /// `mdadm --assemble` makes the same device of them. Needs --yes. Without the option nothing is written to the
    /// units, and the data begin at their first byte.
    #[arg(long, value_name = "VERSION", help_heading = heading::VOLUME)]
    pub metadata: Option<Metadata>,
    /// Agree that superblocks overwrite data of the units.
    ///
    /// Without it nothing is done.
    #[arg(long, help_heading = heading::CONFIRMATION)]
    pub yes: bool,
    /// Write the description to a new file [default: standard output].
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    pub output: Option<PathBuf>,
}

/// The metadata that Linux md would read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Metadata {
    /// Version 1.2: 4 KiB from the first byte of each unit.
    #[value(name = "1.2")]
    OneTwo,
}

/// The options of `volume import`.
#[derive(Clone, Debug, Args)]
pub struct Import {
    /// All units of the array, in any order: iscsi://HOST/TARGET/LUN.
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Write the description to a new file [default: standard output].
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    pub output: Option<PathBuf>,
}

/// The options of `volume show` and `volume check`.
#[derive(Clone, Debug, Args)]
pub struct Described {
    /// File that describes the volume.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

impl Volume {
    /// Runs the command.
    ///
    /// # Errors
    /// If units cannot be opened, form no volume, or differ from the description.
    pub async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        match &self.command {
            Command::Create(create) => create.run(connector).await,
            Command::Import(import) => import.run(connector).await,
            Command::Show(described) => described.show(connector).await,
            Command::Check(described) => described.check(connector).await,
        }
    }
}

impl Create {
    async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let chunk = Chunk::new(self.chunk.0)?;
        let urls = parse_urls(&self.urls)?;
        if self.metadata.is_some() && !self.yes {
            return Err(ProgramError::usage(
                "--metadata writes a superblock over bytes 4096 to 8191 of each unit, and what is on the units reads \
                 in another order; add --yes if that is meant",
            ).into());
        }
        with_units(connector, urls, async |units| {
            let description = match self.metadata {
                Some(Metadata::OneTwo) => units.describe_new_array(chunk)?,
                None => units.describe(chunk)?,
            };
            if self.metadata.is_none() {
                warn_of(&connector.unless(units.with_superblock()).await??);
            }
            let output = self.output.as_deref();
            output.map_or(Ok(()), |path| write_new(path, &description))?;
            let written = connector.stop.hurry(write_superblocks(&units, &description)).await;
            let written = written.unwrap_or(Err(Error::Abandoned("superblocks")));
            if written.is_err() {
                // The file is removed, because the volume that it describes may not exist.
                output.map(std::fs::remove_file);
            }
            written?;
            Ok(described(&description, output))
        })
        .await
    }
}

impl Import {
    async fn run(&self, connector: &Connector) -> Result<Report, Error> {
        let urls = parse_urls(&self.urls)?;
        with_units(connector, urls, async |units| {
            let description = connector.unless(units.import()).await??;
            let output = self.output.as_deref();
            output.map_or(Ok(()), |path| write_new(path, &description))?;
            Ok(described(&description, output))
        })
        .await
    }
}

impl Described {
    /// Returns a report with the description. If a unit differs from the description, the error of the report
    /// is the first difference.
    async fn show(&self, connector: &Connector) -> Result<Report, Error> {
        let mut description = file::load(&self.file).await?;
        connector.give_passwords(description.urls_mut().collect()).await?;
        let found = self.open(connector, &description).await;
        let (capacity, models) = match &found {
            Ok(volume) => {
                let models = volume.members().iter().map(|member| model(member.device()));
                (Some(volume.capacity()), models.collect())
            }
            Err(_) => (None, Vec::new()),
        };
        let mut table = Table::default();
        let bytes = |bytes: u64| format!("{} ({bytes} bytes)", Size(bytes));
        table.push(["capacity", &capacity.map_or_else(|| "not known".to_owned(), bytes)]);
        table.push(["chunk", &Size(description.chunk.bytes()).to_string()]);
        match description.md {
            Some(md) => {
                table.push(["metadata", &format!("1.2, set {}", md.set_uuid)]);
                table.push([
                    "data",
                    &format!("{} from byte {}", Size(md.data_size), md.data_offset),
                ]);
            }
            None => table.push(["metadata", "none"]),
        }
        for (number, member) in description.members.iter().enumerate() {
            let size = Size(member.capacity).to_string();
            let model = models.get(number).cloned().unwrap_or_default();
            table.push([&format!("member {number}"), &member.name, &size, &member.address, &model]);
        }
        let text = format!("{table}{}", if found.is_ok() { "all is as described\n" } else { "" });
        let mut members = to_json(&description);
        members["capacity_bytes"] = json!(capacity);
        Ok(Report::new(text, members).ending(found.err()))
    }

    async fn check(&self, connector: &Connector) -> Result<Report, Error> {
        let mut description = file::load(&self.file).await?;
        connector.give_passwords(description.urls_mut().collect()).await?;
        let volume = self.open(connector, &description).await?;
        let (path, count, bytes) =
            (self.file.display(), volume.members().len(), Size(volume.capacity()));
        let text = format!("{path}: {bytes} over {count} units, all as described\n");
        let mut members = to_json(&description);
        members["capacity_bytes"] = json!(volume.capacity());
        Ok(Report::new(text, members))
    }

    async fn open(
        &self,
        connector: &Connector,
        description: &Description,
    ) -> Result<Device<Disk>, Error> {
        let initiator = connector.initiator(Options::default())?;
        let opening = file::open(&self.file, description, &initiator);
        let volume = connector.unless(opening).await??;
        volume.members().iter().for_each(|member| connector.portals.of(member.device()));
        let logout = async {
            for member in volume.members() {
                drop(member.device().logout().await);
            }
        };
        // All requests were answered, so a failed logout does no harm.
        _ = connector.stop.hurry(timeout(LOGOUT, logout)).await;
        Ok(volume)
    }
}

/// Opens units, runs `work` with them, and logs out.
async fn with_units(
    connector: &Connector,
    mut urls: Vec<(Url, String)>,
    work: impl AsyncFnOnce(Units) -> Result<Report, Error>,
) -> Result<Report, Error> {
    connector.give_passwords(urls.iter_mut().map(|(url, _)| url).collect()).await?;
    let initiator = connector.initiator(Options::default())?;
    let units = connector.unless(Units::open(urls, &initiator)).await??;
    units.disks().for_each(|disk| connector.portals.of(disk));
    let result = work(units.clone()).await;
    drop(connector.stop.hurry(timeout(LOGOUT, units.logout())).await);
    result
}

async fn write_superblocks(units: &Units, description: &Description) -> Result<(), Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(units.write_superblocks(description, now.as_secs()).await?)
}

/// Warns of superblocks that stay on the units: a kernel that finds them would assemble another device.
fn warn_of(superblocks: &[usize]) {
    for number in superblocks {
        eprint_lines(&format!(
            "warning: member {number} has an md superblock, by which a kernel may assemble it; mdadm --zero-superblock \
             removes it, --metadata 1.2 replaces it\n"
        ));
    }
}

fn parse_urls(urls: &[String]) -> Result<Vec<(Url, String)>, Error> {
    // The number of units is checked before any target receives a request.
    Stripe::new(Chunk::default(), urls.len(), Chunk::MAX)?;
    let parse = |text: &String| {
        let url = connector::parse(text)?;
        if url.lun.is_none() {
            return Err(iscsi_initiator::Error::from(UrlError::NoUnit).into());
        }
        Ok((url, Url::without_passwords(text)))
    };
    urls.iter().map(parse).collect()
}

/// Writes a description to a new file. An existing file is an error.
fn write_new(path: &Path, description: &Description) -> Result<(), Error> {
    let written = OpenOptions::new().write(true).create_new(true).open(path);
    let written = written.and_then(|mut file| {
        file.write_all(description.to_string().as_bytes())?;
        file.sync_all()
    });
    written.map_err(|cause| Error::File { path: path.into(), cause })
}

/// Returns a report with the description, or with the path of the file that has it.
fn described(description: &Description, output: Option<&Path>) -> Report {
    let text = match output {
        Some(path) => format!("volume:{} is described\n", path.display()),
        None => description.to_string(),
    };
    let mut members = to_json(description);
    members["description"] = json!(description.to_string());
    members["output"] = json!(output.map(|path| path.display().to_string()));
    Report::new(text, members)
}

fn to_json(description: &Description) -> Value {
    let members = description.members.iter().map(
        |member| json!({ "url": member.address, "name": member.name, "capacity_bytes": member.capacity }),
    );
    json!({
        "chunk_bytes": description.chunk.bytes(),
        "metadata": description.md.map(|md| json!({
            "version": "1.2",
            "set_uuid": md.set_uuid.to_string(),
            "data_offset_bytes": md.data_offset,
            "data_size_bytes": md.data_size,
        })),
        "members": members.collect::<Vec<_>>(),
    })
}

fn model(disk: &Disk) -> String {
    let profile = disk.profile();
    format!("{} {}", profile.vendor, profile.product)
}
