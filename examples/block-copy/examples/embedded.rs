//! Makes a whole copy without any setup: starts a test target in this process, makes a disk image, copies it to the
//! target's unit with progress and verification, copies it back, and compares the two images.
//!
//! ```text
//! cargo run --release -p block-copy --example embedded [-- --size 256M --delay-ms 0 --progress auto]
//! ```

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use block_copy::args::VerifyMode;
use block_copy::log::{self, Usually};
use block_copy::progress::{ProgressMode, eprint_lines};
use block_copy::{Args, Stop, run};
use clap::Parser;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use iscsi_tuner::Size;

const TARGET: &str = "iqn.2026-01.org.example:embedded";
const BLOCK: u32 = 512;

/// Copy a random image to an embedded target, and back.
#[derive(Debug, Parser)]
struct Options {
    /// Size of the image, rounded up to whole blocks.
    #[arg(long, default_value = "256M")]
    size: Size,
    /// Delay of everything that the target sends, in milliseconds, as of a long link.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// How to show progress.
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let log = log::start(Usually::Warnings, eprint_lines);
    let folder = Folder::new()?;
    let image = folder.0.join("image");
    let copy = folder.0.join("copy");
    let length = make_image(&image, options.size.0)?;
    eprintln!("made a random image of {} in {}", Size(length), folder.0.display());

    let disk = RamDisk::new(BLOCK, length / u64::from(BLOCK));
    let mut config = TargetConfig::new(TARGET, disk);
    // Runs at the same time must have different units.
    let serial = format!("embedded {}", std::process::id());
    config.units.values_mut().for_each(|unit| unit.serial.clone_from(&serial));
    let target = Target::new(config);
    let delay = Duration::from_millis(options.delay_ms);
    let server = Server::start_at(("127.0.0.1", 0), target, delay).await?;
    let url = format!("iscsi://{}/{TARGET}/0", server.address());

    let mut there = Args::new(&image, &url);
    (there.content.verify, there.output.progress) = (VerifyMode::Read, options.progress);
    let mut back = Args::new(&url, &copy);
    (back.content.verify, back.output.progress) = (VerifyMode::Read, options.progress);
    for args in [there, back] {
        eprintln!();
        let report = run(&args, &Stop::never()).await?;
        let told = if log::has_warnings() { report.without_notes() } else { report };
        eprint_lines(&format!("{told}\n"));
    }
    server.stop().await;
    log.flush();

    if fs::read(&image)? != fs::read(&copy)? {
        return Err("the image that came back differs from the one that was made".into());
    }
    eprintln!("\nthe image came back equal");
    Ok(())
}

/// A folder that is removed with all its files when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let name = format!("block-copy-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} is left behind: {error}", self.0.display());
        }
    }
}

/// Fills a file with whole blocks of pseudo-random bytes, and returns its length.
fn make_image(path: &Path, size: u64) -> io::Result<u64> {
    let length = size.max(1).next_multiple_of(BLOCK.into());
    let mut file = io::BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut noise = u64::from(now.subsec_nanos()) << 1 | 1;
    for _ in 0..length / 8 {
        noise = xorshift(noise);
        file.write_all(&noise.to_le_bytes())?;
    }
    file.flush()?;
    Ok(length)
}

/// Returns the next pseudo-random word (Xorshift64): as fast as memory, and random enough to find a block in
/// the wrong place.
const fn xorshift(mut word: u64) -> u64 {
    word ^= word << 13;
    word ^= word >> 7;
    word ^ word << 17
}
