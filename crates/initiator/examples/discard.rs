//! Deallocates a range of a thin disk, or fills the range with zeros. **It destroys the data in the
//! range.**
//!
//! ```text
//! cargo run -p iscsi-initiator --example discard -- \
//!     discard iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 1048576 2097152
//! ```
//! OFFSET and LENGTH are in bytes. `discard` (UNMAP) does not change blocks that are only partly in the
//! range. Deallocated blocks read as zeros if the disk reports so (LBPRZ); otherwise they may read as any bytes.
//! After `zero` (WRITE SAME), the whole range reads as zeros; a thin disk also deallocates the blocks, if it can.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what the program is for")]

use std::process::ExitCode;

use iscsi_initiator::{Error, Initiator};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((action, url, offset, length)) = parse(&arguments) else {
        eprintln!("usage: discard discard|zero iscsi://HOST/TARGET/LUN OFFSET LENGTH");
        return ExitCode::from(2);
    };
    match run(action, url, offset, length).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The change of the range.
#[derive(Clone, Copy)]
enum Action {
    Discard,
    Zero,
}

fn parse(arguments: &[String]) -> Option<(Action, &str, u64, u64)> {
    let [action, url, offset, length] = arguments else { return None };
    let action = match action.as_str() {
        "discard" => Action::Discard,
        "zero" => Action::Zero,
        _ => return None,
    };
    Some((action, url, offset.parse().ok()?, length.parse().ok()?))
}

async fn run(action: Action, url: &str, offset: u64, length: u64) -> Result<(), Error> {
    let initiator = Initiator::new("iqn.2026-01.org.example:discard")?;
    let disk = initiator.disk(url).await?;
    match disk.profile().provisioning {
        Some(page) => println!("provisioning: {:?}, {page:?}", page.provisioning_type),
        None => println!("the disk says nothing of provisioning"),
    }
    match action {
        Action::Discard => disk.discard(offset, length).await?,
        Action::Zero => disk.write_zeroes(offset, length).await?,
    }
    disk.flush().await?;
    disk.logout().await
}
