//! Sends a raw SCSI command (MODE SENSE (10) for all pages) and prints the response.
//!
//! ```text
//! cargo run -p iscsi-initiator --example raw_cdb -- iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what the program is for")]

use std::process::ExitCode;

use bytes::BytesMut;
use iscsi_initiator::scsi::{Cdb, Lun};
use iscsi_initiator::{Error, Initiator, Url};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Error> {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: raw_cdb iscsi://HOST/TARGET/LUN");
        return Ok(());
    };
    let url = Url::parse(&url)?;
    let lun = url.lun.unwrap_or(Lun::ZERO);
    let session = Initiator::new("iqn.2026-01.org.example:raw-cdb")?.connect(url).await?;

    let unit = session.logical_unit(lun);
    let cdb = Cdb::mode_sense_10(0x3f, 1024);
    let command = unit.command(cdb).with_read(BytesMut::zeroed(1024));
    match unit.execute(command).await {
        Ok(completion) => {
            println!("{} bytes: {:02x?}", completion.data.len(), &completion.data[..])
        }
        Err(error) if error.sense().is_some() => println!("the unit says: {error}"),
        Err(error) => return Err(error),
    }
    session.logout().await
}
