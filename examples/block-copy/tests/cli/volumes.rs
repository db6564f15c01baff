//! Tests of volumes: several units as source or destination of a copy.

use std::fs;
use std::process::Output;
use std::time::Duration;

use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::Unit;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

use crate::support::{
    Folder, Rig, TARGET, block_copy, fails, object, pattern, succeeds, unique_serial,
};

const CHUNK: usize = 64 << 10;
const LEN: usize = 8 << 20;

/// Starts two units with different identities.
async fn rigs() -> [Rig; 2] {
    [unit(1, Duration::ZERO).await, unit(2, Duration::ZERO).await]
}

/// Starts a unit with the identity `number`, whose responses are delayed.
async fn unit(number: u64, delay: Duration) -> Rig {
    let disk = RamDisk::new(512, LEN as u64 / 512);
    let mut config = TargetConfig::new(TARGET, disk.clone());
    let named = |unit: &mut Unit| {
        (unit.serial, unit.naa) = (unique_serial(), 0x3000_0000_0000_0000 + number);
    };
    config.units.values_mut().for_each(named);
    let target = Target::new(config);
    let server = Server::start_at(("127.0.0.1", 0), target, delay).await.unwrap();
    Rig { server, disk }
}

fn description(rigs: &[Rig; 2], chunk: usize) -> String {
    let member = |(number, rig): (usize, &Rig)| {
        let (url, number) = (rig.url(), number + 1);
        format!(
            "[[member]]\nurl = {url:?}\nname = \"naa.300000000000000{number}\"\ncapacity = {LEN}\n"
        )
    };
    let members: String = rigs.iter().enumerate().map(member).collect();
    format!("version = 1\nchunk = {chunk}\n{members}")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_striped(rigs: &[Rig; 2], bytes: &[u8]) {
    for (number, chunk) in bytes.chunks(CHUNK).enumerate() {
        let place = (number / 2 * CHUNK) as u64;
        assert!(rigs[number % 2].disk.holds(place, chunk), "chunk {number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_goes_to_both_units_and_back() {
    let (rigs, folder) = (rigs().await, Folder::new());
    let image = pattern(2 * LEN);
    let source = folder.file("image", &image);
    let volume =
        format!("volume:{}", folder.file("volume.toml", description(&rigs, CHUNK).as_bytes()));
    let output = block_copy(&[&source, &volume, "--verify", "--json", "-v"]);
    succeeds(&output);
    assert_striped(&rigs, &image);
    let report = object(&output);
    assert_eq!((&report["bytes"], &report["verified"]), (&(2 * LEN).into(), &true.into()));
    let end = &report["plan"]["destination"];
    assert_eq!(
        (&end["kind"], &end["chunk_bytes"], &end["capacity_bytes"]),
        (&"volume".into(), &CHUNK.into(), &(2 * LEN).into())
    );
    for (number, rig) in rigs.iter().enumerate() {
        let member = &end["members"][number];
        assert_eq!(member["name"], rig.url());
        assert!(member["tuning"].is_object() && member["negotiated"].is_object(), "{member}");
    }
    let told = stderr(&output);
    for member in ["member 0 (naa.3000000000000001)", "member 1 (naa.3000000000000002)"] {
        assert!(told.contains(&format!("destination, {member}: ")), "{told}");
    }
    let back = folder.path("back");
    succeeds(&block_copy(&[&volume, &back, "--progress", "none"]));
    assert!(fs::read(&back).unwrap() == image);
    rigs.iter().for_each(Rig::assert_clean);
}

/// If one unit of a volume loses writes before a flush, they are sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_of_one_unit_is_made_good() {
    let (rigs, folder) = (rigs().await, Folder::new());
    rigs[1].disk.set_cache(Cache::Volatile);
    rigs[1].server.with(|target| {
        target.config_mut().faults.push(Fault::flush_error(.., true).times(1));
    });
    let image = pattern(2 * LEN);
    let source = folder.file("image", &image);
    let volume =
        format!("volume:{}", folder.file("volume.toml", description(&rigs, CHUNK).as_bytes()));
    let output = block_copy(&[&source, &volume, "--json"]);
    succeeds(&output);
    assert!(stderr(&output).contains("written again"), "{}", stderr(&output));
    assert_striped(&rigs, &image);
    assert_eq!(rigs[1].disk.unflushed_blocks(), 0);
}

/// Unreadable blocks of one unit are skipped. The blocks beside them on the other unit are copied.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_block_of_one_unit_is_left_out_alone() {
    let (rigs, folder) = (rigs().await, Folder::new());
    let image = pattern(2 * LEN);
    for (number, chunk) in image.chunks(CHUNK).enumerate() {
        rigs[number % 2].disk.write((number / 2 * CHUNK) as u64, chunk);
    }
    rigs[1].server.with(|target| target.config_mut().faults.push(Fault::medium_error(3..4)));
    let volume =
        format!("volume:{}", folder.file("volume.toml", description(&rigs, CHUNK).as_bytes()));
    let back = folder.path("back");
    let output = block_copy(&[&volume, &back, "--on-read-error", "skip"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let mut expected = image;
    expected[CHUNK + 3 * 512..CHUNK + 4 * 512].fill(0);
    assert!(fs::read(&back).unwrap() == expected);
    let output = block_copy(&[&volume, &back, "--progress", "none"]);
    fails(&output, 69, &["source: member 1 (naa.3000000000000002): "]);
}

/// A checkpoint is valid only for the same units in the same order, with the same chunk size.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_knows_its_volume_again() {
    let (rigs, folder) = (rigs().await, Folder::new());
    let image = pattern(2 * LEN);
    let (source, map) = (folder.file("image", &image), folder.path("map"));
    let file = folder.file("volume.toml", description(&rigs, CHUNK).as_bytes());
    let volume = format!("volume:{file}");
    let copy = [source.as_str(), &volume, "--checkpoint", &map, "--progress", "none"];
    succeeds(&block_copy(&copy));
    let again = [&copy[..], &["--resume", "--json"]].concat();
    let before = rigs[0].written() + rigs[1].written();
    let output = block_copy(&again);
    succeeds(&output);
    assert_eq!(rigs[0].written() + rigs[1].written(), before, "all of it was there");
    fs::write(&file, description(&rigs, CHUNK * 2)).unwrap();
    fails(&block_copy(&again[..again.len() - 1]), 2, &["checkpoint"]);
    let mut rigs = rigs;
    rigs.swap(0, 1);
    let swapped = description(&rigs, CHUNK).replace("0001\"", "000x\"").replace("0002\"", "0001\"");
    fs::write(&file, swapped.replace("000x\"", "0002\"")).unwrap();
    fails(&block_copy(&again[..again.len() - 1]), 2, &["checkpoint"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_end_of_a_copy_is_refused() {
    let (rigs, folder) = (rigs().await, Folder::new());
    let file = folder.file("volume.toml", description(&rigs, CHUNK).as_bytes());
    let (volume, url) = (format!("volume:{file}"), rigs[1].url());
    let same = "source and destination are the same unit";
    fails(&block_copy(&[&url, &volume, "--progress", "none"]), 2, &[same]);
    fails(&block_copy(&[&volume, &url, "--progress", "none"]), 2, &[same]);
    let image = folder.file("image", &[1; 512]);
    let missing = format!("volume:{}", folder.path("missing"));
    fails(&block_copy(&[&image, &missing]), 1, &["destination: volume ", "check the path"]);
    fails(&block_copy(&[&missing, &image]), 1, &["source: volume ", "check the path"]);
    let checkpoint = [image.as_str(), &volume, "--checkpoint", &file, "--resume"];
    fails(&block_copy(&checkpoint), 2, &["a file of its own"]);
    rigs[1].disk.set_read_only(true);
    fails(
        &block_copy(&[&image, &volume, "--progress", "none"]),
        69,
        &["destination ", "refuses writes"],
    );
    rigs[1].disk.set_read_only(false);
    rigs[1].server.with(|target| {
        target.config_mut().units.values_mut().for_each(|unit| unit.naa += 1);
    });
    let said = "member 1 (naa.3000000000000002) is the unit naa.3000000000000003 there";
    fails(&block_copy(&[&image, &volume]), 2, &["destination: volume ", said]);
    assert_eq!(rigs[0].written() + rigs[1].written(), 0);
}
