//! Copies an image to a unit or to a file, and can be stopped: after Ctrl-C, or a kill, run it again to copy
//! the rest. To change the rate while it runs, type bytes per second and Enter; 0 lifts the limit.
//!
//! ```text
//! cargo run -p iscsi-copy --example managed -- disk.img iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 disk.map
//! ```
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

use std::error::Error;
use std::io::stdin;

use iscsi_copy::{Control, CopyError, CopyJob, Destination, Event, Events, FileDevice, Source};
use iscsi_initiator::{Initiator, Options};

const USAGE: &str =
    "usage: managed IMAGE FILE|iscsi://HOST/TARGET/LUN CHECKPOINT [BYTES_PER_SECOND]";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (image, to, map, rate) = match &arguments[..] {
        [image, to, map] => (image, to, map, "0"),
        [image, to, map, rate] => (image, to, map, &**rate),
        _ => return Err(USAGE.into()),
    };
    let source = Source::device(FileDevice::open(image)?);
    if !to.starts_with("iscsi://") {
        return copy(source, Destination::file(FileDevice::create(to)?), map, rate).await;
    }
    let disk = Initiator::with_default_name(Options::default())?.disk(to).await?;
    let copied = copy(source, Destination::device(disk.clone()), map, rate).await;
    disk.logout().await?;
    copied
}

async fn copy(from: Source, to: Destination, map: &str, rate: &str) -> Result<(), Box<dyn Error>> {
    let job = CopyJob::new(from, to).resume_from(map).await?;
    println!("{} bytes were copied before", job.resumed().bytes());
    let (control, events) = (job.control(), job.events());
    set_rate(&control, rate);
    let typed = control.clone();
    std::thread::spawn(move || {
        stdin().lines().map_while(Result::ok).for_each(|line| set_rate(&typed, &line));
    });
    tokio::spawn(async move {
        // Requests in flight complete and are flushed, and the checkpoint records them.
        if tokio::signal::ctrl_c().await.is_ok() {
            control.cancel();
        }
    });
    match tokio::join!(job.run(), show(events)).0 {
        Ok(copied) => println!("copied {} bytes, flushed", copied.progress.flushed),
        Err(failure) if matches!(failure.error, CopyError::Cancelled) => {
            println!("stopped after {} bytes; run it again for the rest", failure.progress.flushed);
        }
        Err(failure) => return Err(failure.into()),
    }
    Ok(())
}

/// Prints the events until the copy has ended.
async fn show(mut events: Events) {
    while let Some(event) = events.next().await {
        if let Event::Progress(now) = event {
            println!("{} of {} bytes", now.done, now.total.unwrap_or(0));
        } else if !matches!(event, Event::Flushed(_)) {
            println!("{event:?}");
        }
    }
}

/// Sets the rate limit to the number in `text`, bytes per second; 0 removes it.
fn set_rate(control: &Control, text: &str) {
    match text.trim().parse() {
        Ok(0) => control.set_rate(None),
        Ok(bytes_per_second) => control.set_rate(Some(bytes_per_second)),
        Err(_) => println!("{text:?} is not a number of bytes per second"),
    }
}
