//! Lists the targets behind a portal, and their logical units.
//!
//! ```text
//! cargo run -p iscsi-initiator --example discover -- iscsi://10.0.0.5
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what the program is for")]

use std::process::ExitCode;

use iscsi_initiator::{Error, Initiator, Options, Url};

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
    let portal = std::env::args().nth(1).unwrap_or_else(|| "iscsi://127.0.0.1".to_owned());
    let initiator = Initiator::with_default_name(Options::default())?;
    for target in initiator.discover(&portal).await? {
        println!("{}", target.name);
        for address in &target.addresses {
            println!("  at {address}");
        }
        let mut url = Url::parse(&portal)?;
        url.target = Some(target.name);
        match initiator.connect(url).await {
            Ok(session) => list_units(&session).await?,
            Err(error) => println!("  {error}"),
        }
    }
    Ok(())
}

async fn list_units(session: &iscsi_initiator::Session) -> Result<(), Error> {
    for lun in session.report_luns().await? {
        match session.logical_unit(lun).disk_without_reconnect().await {
            Ok(disk) => {
                let profile = disk.profile();
                let (vendor, product) = (&profile.vendor, &profile.product);
                println!("  unit {lun}: {vendor} {product}, {} bytes", disk.capacity());
            }
            Err(error) => println!("  unit {lun}: {error}"),
        }
    }
    session.logout().await
}
