//! Tests that futures that callers await contain a box, not the states of the code in it. Therefore that code
//! is compiled once, in the crate, and not again in each crate of a caller.

use std::mem::size_of_val;

use iscsi_initiator::scsi::{Cdb, Lun};
use iscsi_initiator::{Options, Url};

use crate::support::{Rig, initiator, soon};

#[tokio::test]
async fn futures_that_callers_await_hold_little_but_a_box() {
    let rig = Rig::start(512, 4096, |_| {}).await;
    let initiator = initiator(Options::default());
    let url = Url::parse(&rig.unit_url(0, "")).unwrap();
    let session = soon(initiator.connect(&url)).await.unwrap();
    let unit = session.logical_unit(Lun::ZERO);
    let disk = soon(session.disk_without_reconnect()).await.unwrap();
    // Grouped by what they contain beside the box: nothing, a few words, a command, a URL or a result.
    let nothing = [
        ("Disk::confirm_unit", size_of_val(&disk.confirm_unit())),
        ("Disk::flush", size_of_val(&disk.flush())),
        ("Disk::logout", size_of_val(&disk.logout())),
        ("LogicalUnit::flush", size_of_val(&unit.flush())),
    ];
    let words = [
        ("Disk::discard", size_of_val(&disk.discard(0, 1))),
        ("Disk::extents", size_of_val(&disk.extents(0, 1))),
        ("Disk::write_allocated_zeroes", size_of_val(&disk.write_allocated_zeroes(0, 1))),
        ("Disk::write_zeroes", size_of_val(&disk.write_zeroes(0, 1))),
        ("LogicalUnit::execute", size_of_val(&unit.execute(unit.command(Cdb::test_unit_ready())))),
        ("LogicalUnit::profile", size_of_val(&unit.profile())),
        ("LogicalUnit::target_port_groups", size_of_val(&unit.target_port_groups())),
    ];
    let commands = [
        ("LogicalUnit::inquiry", size_of_val(&unit.inquiry())),
        ("LogicalUnit::registered_keys", size_of_val(&unit.registered_keys())),
    ];
    let urls_and_answers = [
        ("Initiator::connect", size_of_val(&initiator.connect(&url))),
        ("Initiator::discover", size_of_val(&initiator.discover(&url))),
        ("Initiator::disk", size_of_val(&initiator.disk(&url))),
        ("Session::disk", size_of_val(&session.disk_without_reconnect())),
        ("Session::report_luns", size_of_val(&session.report_luns())),
    ];
    let groups: [(usize, &[(&str, usize)]); 4] =
        [(64, &nothing), (256, &words), (512, &commands), (1024, &urls_and_answers)];
    for (limit, futures) in groups {
        for (name, size) in futures {
            assert!(*size <= limit, "{name}: {size} bytes, of at most {limit}");
        }
    }
}
