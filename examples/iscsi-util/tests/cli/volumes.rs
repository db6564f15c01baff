//! Tests of volumes: their descriptions, the data that are written to the units, and the checks of the units.

use std::path::PathBuf;

use iscsi_testkit::scsi::Unit;

use crate::support::{BLOCK, MIB, Rig, iscsi_util, json_of, object, stderr, stdout, text_of};

/// Starts a unit with the identity `number`.
async fn unit(number: u64) -> Rig {
    Rig::start_with(BLOCK, 8 * MIB, |config| {
        let named = |unit: &mut Unit| {
            (unit.serial, unit.naa) = (format!("{number:04}"), 0x3000_0000_0000_0000 + number);
        };
        config.units.values_mut().for_each(named);
    })
    .await
}

/// Returns a path that no other test uses.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("iscsi-util-volume-{name}-{}", std::process::id()))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_created_is_shown_and_checked() {
    let (one, other) = (unit(1).await, unit(2).await);
    let text = text_of(&["volume", "create", &one.url(), &other.url(), "--chunk", "64K"]);
    assert!(text.starts_with("version = 1\nchunk = 65536\n\n[[member]]\n"), "{text}");
    let path = file("checked");
    std::fs::write(&path, &text).unwrap();
    let path = path.to_str().unwrap();
    let checked = json_of(&["volume", "check", path]);
    assert_eq!(
        (&checked["capacity_bytes"], &checked["metadata"]),
        (&(16 * MIB).into(), &().into())
    );
    assert_eq!(checked["members"][1]["name"], "naa.3000000000000002");
    let shown = text_of(&["volume", "show", path]);
    assert!(
        shown.contains("TESTKIT RAM disk") && shown.ends_with("all is as described\n"),
        "{shown}"
    );
    one.assert_logged_out();
    other.assert_logged_out();
    assert!(one.disk.holds(0, &vec![0; 8 << 20]), "nothing is written");

    other.disk.resize(4096);
    let output = iscsi_util(&["volume", "check", path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("has 2097152 bytes, and had 8388608"), "{}", stderr(&output));
    // The description is printed although a unit differs from it.
    let output = iscsi_util(&["volume", "show", path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("member 1  naa.3000000000000002"), "{}", stdout(&output));
    let output = iscsi_util(&["volume", "show", path, "--json"]);
    let object = object(&output);
    assert_eq!((&object["complete"], &object["kind"]), (&false.into(), &"caller".into()));
    std::fs::remove_file(path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_array_is_written_with_consent_only_and_imported_again() {
    let (one, other) = (unit(1).await, unit(2).await);
    let [one_url, other_url] = [one.url(), other.url()];
    let path = file("array");
    let output = path.to_str().unwrap();
    let create =
        ["volume", "create", &one_url, &other_url, "--metadata", "1.2", "--output", output];
    let refused = iscsi_util(&create);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("add --yes if that is meant"), "{}", stderr(&refused));
    assert!(!path.exists() && one.disk.mapped_blocks() == 0);
    let made = json_of(&[&create[..], &["--yes"]].concat());
    assert_eq!(made["metadata"]["data_offset_bytes"], MIB);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(made["description"], text);
    for rig in [&one, &other] {
        assert!(
            rig.disk.holds(4096, &[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]),
            "the magic, the version"
        );
        assert_eq!(rig.disk.mapped_blocks(), 8, "and nothing else");
    }
    // The description is not written over an existing file.
    let again = iscsi_util(&[&create[..], &["--yes"]].concat());
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("choose another path"), "{}", stderr(&again));
    assert!(text_of(&["volume", "check", output]).ends_with("over 2 units, all as described\n"));
    assert_eq!(text_of(&["volume", "import", &other_url, &one_url]), text);
    std::fs::remove_file(&path).unwrap();
    let plain = iscsi_util(&["volume", "create", &one_url, &other_url]);
    assert!(plain.status.success());
    assert!(stderr(&plain).contains("member 1 has an md superblock"), "{}", stderr(&plain));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_volume_is_refused() {
    let (one, other) = (unit(1).await, unit(1).await);
    let [one_url, other_url] = [one.url(), other.url()];
    let portal = one.at("/");
    for (arguments, status, said) in [
        (&["create", &one_url][..], 2, "2 to 64 members, not 1"),
        (&["create", &one_url, &other_url], 2, "are the same unit, naa.3000000000000001"),
        (
            &["create", &one_url, &other_url, "--chunk", "100K"],
            2,
            "a chunk of 102400 bytes is none",
        ),
        (&["create", &one_url, &portal], 2, "names no"),
        (&["import", &one_url, &other_url], 2, "are the same unit"),
        (&["check", "/nowhere"], 1, "check the path"),
        (&["show", "/dev/null"], 2, "version is missing"),
    ] {
        let output = iscsi_util(&[&["volume"], arguments].concat());
        let complaint = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {complaint}");
        assert!(complaint.contains(said), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
    let third = unit(3).await;
    let output = iscsi_util(&["volume", "import", &one_url, &third.url()]);
    assert!(
        stderr(&output).contains("there is no md superblock of version 1.2"),
        "{}",
        stderr(&output)
    );
    // The password of a URL is neither printed nor written to the description.
    let with_password = one_url.replace("iscsi://", "iscsi://user:secret-of-12-chars@");
    let output = iscsi_util(&["volume", "create", &with_password, &third.url()]);
    let said = stdout(&output) + &stderr(&output);
    assert!(!said.contains("secret"), "{said}");
}
