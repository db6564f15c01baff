//! Checks the data on source and destination before anything is written.

use std::borrow::Cow;
use std::path::Path;

use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::device::DeviceResult;

use super::resumption;
use crate::args::{Args, SourceFormat};
use crate::content::{Container, Remedy, Sample, container, gpt_block_size, has_mbr, held};
use crate::end::End;
use crate::ends::Ends;
use crate::error::Error;
use crate::error::refusal::Refusal;
use crate::side::Side;

/// Bytes of a stream that are read before the copy, and waited for: they include the signatures of a tar
/// archive and of a GPT with blocks of 512 bytes.
const START: usize = 1024;
/// Path of the socket in the advice to serve an image by QEMU.
const SOCKET: &str = "/tmp/disk.sock";

/// Findings about source and destination.
#[derive(Clone, Debug, Default)]
pub(super) struct Inspection {
    /// Warnings: the copy is probably not what the user intended.
    pub(super) notes: Vec<String>,
    /// Description of the data on the destination that will be overwritten.
    pub(super) held: Option<String>,
}

/// Checks the data on source and destination concurrently. Call it before a checkpoint or digests are created:
/// after that, the data on the destination would count as written by this copy.
///
/// # Errors
/// [`Error::Refused`]; the error of a stream that cannot be read.
pub(super) async fn inspect(args: &Args, ends: &Ends) -> Result<Inspection, Error> {
    // The destination is not checked if an earlier run has written to it. Without `--if-blank` it is not
    // checked for a copy of ranges either, which is meant for a destination that has data.
    let is_continued = resumption::is_continued(&args.resumption)
        || args.delta.digests.as_deref().is_some_and(Path::exists);
    let is_wanted = !is_continued && (args.guard.if_blank || args.delta.ranges.is_none());
    let (source, destination, registered) = tokio::join!(
        sample_source(&ends.source),
        async { if is_wanted { sample_destination(ends).await } else { Ok(None) } },
        async {
            if args.guard.exclusive { Vec::new() } else { registered(&ends.destination).await }
        },
    );
    let mut inspection = Inspection { notes: registered, held: None };
    inspection.take_source(args, ends, &source?)?;
    match destination {
        Ok(Some(sample)) => inspection.take_destination(args, ends, &sample)?,
        Ok(None) if is_wanted && args.guard.if_blank => {
            return Err(ProgramError::usage(
                "it is not known whether a stream is blank; leave --if-blank out, or write to a file or a unit",
            ).into());
        }
        Err(cause) if args.guard.if_blank => {
            return Err(ends.destination.failed(Side::Destination, cause));
        }
        // An unreadable destination is no error: the copy itself need not read it.
        Ok(None) | Err(_) => {}
    }
    Ok(inspection)
}

/// Reads the first bytes of a source, and of a file also the last ones. Unreadable bytes are no error here: the
/// copy reports them if it has to read them.
async fn sample_source(source: &End) -> Result<Sample, Error> {
    if let Some(device) = source.glance() {
        return Ok(Sample::read_ends(&*device, source.is_regular_file()).await);
    }
    let start = source.to_source().peek(START).await;
    Ok(Sample::of_start(start.map_err(|cause| source.failed(Side::Source, cause))?))
}

/// Reads the places of the destination that may have signatures, from the first byte that will be written.
/// Returns `None` for a stream.
async fn sample_destination(ends: &Ends) -> DeviceResult<Option<Sample>> {
    let Some(device) = ends.destination.glance() else { return Ok(None) };
    // A copy into the middle of a disk does not change the data around it, so only the written range is
    // checked. A copy to the beginning replaces everything, whatever its length.
    let length = ends.to_source().length().filter(|_| ends.place() > 0);
    let len = length.unwrap_or(u64::MAX);
    Sample::read(device, ends.place(), len).await.map(Some)
}

/// Returns warnings about other hosts that are registered with units of the destination, and so may write to
/// them.
async fn registered(destination: &End) -> Vec<String> {
    let mut notes = Vec::new();
    for unit in destination.units() {
        if let Some(others) = unit.registered_by_others().await {
            notes.push(format!(
                "destination {}: another host is registered with it, by the key {others}; it may be in use there; --exclusive \
                 refuses that",
                unit.name()
            ));
        }
    }
    notes
}

impl Inspection {
    /// Logs the warnings.
    pub(super) fn log_warnings(&self) {
        for note in &self.notes {
            tracing::warn!("{note}");
        }
    }

    fn take_source(&mut self, args: &Args, ends: &Ends, sample: &Sample) -> Result<(), Error> {
        let source = &ends.source;
        if is_empty(source, sample) {
            return Err(Refusal::Empty(source.name()).into());
        }
        if let Some(found) = container(sample).filter(|_| args.guard.format == SourceFormat::Auto) {
            let (name, what) = (source.name(), found.name);
            if source.is_regular_file() || source.is_stream() {
                let remedy = remedy(found, source);
                return Err(Refusal::Contained { name, what, remedy }.into());
            }
            // A unit or a block device may hold an image of another disk on purpose, so this is only a warning.
            // With --format raw there is none.
            self.notes.push(format!(
                "source {name}: it is {what}, and is copied as it is: its bytes are not those of the disk in it"
            ));
        }
        if args.content.offset.0 == 0 && ends.place() == 0 {
            self.notes.extend(other_blocks(source, sample, &ends.destination));
        }
        Ok(())
    }

    fn take_destination(&mut self, args: &Args, ends: &Ends, sample: &Sample) -> Result<(), Error> {
        self.held = held(sample);
        let name = ends.destination.name();
        if args.guard.if_blank {
            let unknown = || {
                let at = sample.first_nonzero()?;
                Some(format!("unknown data, byte {} is not zero", ends.place().saturating_add(at)))
            };
            let held = self.held.as_ref().map(|held| format!("it holds {held}"));
            if let Some(held) = held.or_else(unknown) {
                return Err(Refusal::NotBlank { name, held }.into());
            }
        }
        if let Some(held) = &self.held {
            self.notes.push(format!("destination {name}: it holds {held}, which is overwritten"));
        }
        Ok(())
    }
}

fn is_empty(source: &End, sample: &Sample) -> bool {
    source.glance().map_or_else(|| sample.is_empty(), |device| device.capacity() == 0)
}

/// Returns a warning if the logical blocks of a partition table and of the destination differ in length: the
/// block numbers of the table would then be wrong.
fn other_blocks(source: &End, sample: &Sample, destination: &End) -> Option<String> {
    let there = destination.block_size()?;
    let here =
        gpt_block_size(sample).or_else(|| source.block_size().filter(|_| has_mbr(sample)))?;
    (here != there).then(|| {
        format!(
            "source {}: its partition table counts in blocks of {here} bytes, and the destination has blocks of {there}: no \
             system will find the partitions there; choose a destination with blocks of {here} bytes",
            source.name()
        )
    })
}

/// Returns the advice for a source in another format: how to get the bytes of the disk.
fn remedy(found: Container, source: &End) -> String {
    let (name, is_stream) = (source.name(), source.is_stream());
    let file = if is_stream { "FILE".into() } else { quoted(&name) };
    let remedy = match found.remedy {
        Remedy::Serve(format) => format!(
            "serve it with: qemu-nbd --read-only --fork --shared=8 --format={format} --socket={SOCKET} {file}; and copy \
             from nbd+unix:///?socket={SOCKET}"
        ),
        Remedy::Unpack(command) if is_stream => {
            return format!("unpack it on the way: ... | {command} | block-copy - DESTINATION");
        }
        Remedy::Unpack(command) => {
            return format!("unpack it on the way: {command} {file} | block-copy - DESTINATION");
        }
        Remedy::Extract(command) => {
            format!("unpack it first: {command} {file}; and copy the image of the disk")
        }
    };
    if is_stream { format!("write it to a file, and {remedy}") } else { remedy }
}

/// Quotes a path for a shell. A path that begins with `-` is changed so that it is not taken for an option.
fn quoted(path: &str) -> String {
    let path = if path.starts_with('-') { format!("./{path}") } else { path.to_owned() };
    shlex::try_quote(&path).map_or_else(|_| "FILE".to_owned(), Cow::into_owned)
}
