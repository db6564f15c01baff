//! What callers await is compiled in the crate that it is of: their futures hold a box, and not what happens in it.

use std::mem::size_of_val;

use iscsi_initiator::scsi::{Cdb, Lun};
use iscsi_initiator::{Options, Url};

use crate::support::{Rig, initiator, soon};

/// More than a URL and a box, and less than what a login or a question keeps while it lasts, bytes.
const THIN: usize = 1024;

#[tokio::test]
async fn futures_that_are_awaited_now_and_then_are_thin() {
    let rig = Rig::start(512, 4096, |_| {}).await;
    let initiator = initiator(Options::default());
    let url = Url::parse(&rig.unit_url(0, "")).unwrap();
    let session = soon(initiator.connect(&url)).await.unwrap();
    let unit = session.logical_unit(Lun::ZERO);
    let disk = soon(session.disk()).await.unwrap();
    let sizes = [
        ("connect", size_of_val(&initiator.connect(&url))),
        ("disk", size_of_val(&initiator.disk(&url))),
        ("discover", size_of_val(&initiator.discover(&url))),
        ("a session's disk", size_of_val(&session.disk())),
        ("units", size_of_val(&session.report_luns())),
        ("execute", size_of_val(&unit.execute(unit.command(Cdb::test_unit_ready())))),
        ("inquiry", size_of_val(&unit.inquiry())),
        ("profile", size_of_val(&unit.profile())),
        ("a unit's flush", size_of_val(&unit.flush())),
        ("port groups", size_of_val(&unit.target_port_groups())),
        ("keys", size_of_val(&unit.registered_keys())),
        ("flush", size_of_val(&disk.flush())),
        ("confirm", size_of_val(&disk.confirm_unit())),
        ("extents", size_of_val(&disk.extents(0, 1))),
        ("discard", size_of_val(&disk.discard(0, 1))),
        ("zeros", size_of_val(&disk.write_zeroes(0, 1))),
        ("allocated zeros", size_of_val(&disk.write_allocated_zeroes(0, 1))),
        ("logout", size_of_val(&disk.logout())),
    ];
    println!("{sizes:?}");
    for (name, size) in sizes {
        assert!(size <= THIN, "{name}: {size} bytes");
    }
}
