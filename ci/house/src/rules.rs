//! Which crates each crate may use, and the layers of the initiator.

/// Each library with the libraries that its sources may use.
pub(crate) const CRATES: &[(&str, &[&str])] = &[
    ("crates/block-device", &[]),
    ("crates/pdu", &[]),
    // `session` uses only one trait of `block-device`, for a pool of buffers. With a trait of its own, each
    // read of a device would need a second pool around the first one, and a second dynamic call for its buffer.
    ("crates/session", &["crates/block-device", "crates/pdu"]),
    ("crates/rate", &[]),
    ("crates/tuner", &["crates/rate"]),
    ("crates/shaper", &["crates/rate"]),
    ("crates/multipath", &["crates/pdu", "crates/session", "crates/rate", "crates/tuner"]),
    (
        "crates/initiator",
        &[
            "crates/block-device",
            "crates/pdu",
            "crates/session",
            "crates/tuner",
            "crates/shaper",
            "crates/multipath",
        ],
    ),
    // Above the initiator, so that no library below it has a dependency on cryptography.
    ("crates/tls", &["crates/initiator"]),
    // Copies work on any device, so that they can be used without iSCSI.
    ("crates/copy", &["crates/block-device", "crates/nbd"]),
    // The initiator is used only with the feature `iscsi`.
    ("crates/volume", &["crates/block-device", "crates/initiator"]),
    ("crates/testkit", &[]),
    ("crates/nbd", &[]),
];

/// The crate whose files are in layers.
pub(crate) const LAYERED: &str = "crates/initiator";

/// The layers from top to bottom: a name, and the files and folders (with a slash at the end) of each layer.
/// The longest entry that matches a file decides. A layer may use itself and the layers below it.
pub(crate) const LAYERS: &[(&str, &[&str])] = &[
    ("crate root", &["lib.rs"]),
    ("handles", &["handles.rs", "handles/", "blocking.rs", "blocking/"]),
    ("multipath", &["multipath.rs", "multipath/"]),
    ("unit", &["unit.rs", "unit/"]),
    ("session handle", &["session.rs", "session/"]),
    ("driver", &["driver.rs", "driver/"]),
    ("state", &["events.rs", "events/", "state.rs", "state/"]),
    (
        "foundation",
        &[
            "boxed.rs",
            "class_waits.rs",
            "completion.rs",
            "error.rs",
            "error/",
            "name.rs",
            "options.rs",
            "options/",
            "published.rs",
            "runtime.rs",
            "scheduler.rs",
            "shaper.rs",
            "traffic_class.rs",
            "transport.rs",
            "transport/",
            "url.rs",
            "url/",
        ],
    ),
];

/// Returns the library that the first segment of a path names.
pub(crate) fn library(name: &str) -> Option<&'static str> {
    let short = name.strip_prefix("iscsi_")?.replace('_', "-");
    CRATES.iter().map(|(folder, _)| *folder).find(|folder| folder.ends_with(&format!("/{short}")))
}

/// Returns the libraries that the sources in `folder` may use; `None` for a program, which may use all.
pub(crate) fn may_use(folder: &str) -> Option<&'static [&'static str]> {
    CRATES.iter().find(|(of, _)| *of == folder).map(|(_, below)| *below)
}

/// Returns the layer of a file, counted from the top.
pub(crate) fn layer(layers: &[(&str, &[&str])], file: &str) -> Option<usize> {
    let fits = |entry: &str| file == entry || entry.ends_with('/') && file.starts_with(entry);
    layers
        .iter()
        .enumerate()
        .flat_map(|(at, (_, entries))| entries.iter().map(move |entry| (at, *entry)))
        .filter(|(_, entry)| fits(entry))
        .max_by_key(|(_, entry)| entry.len())
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_entry_decides_the_layer() {
        let layers: &[(&str, &[&str])] =
            &[("handles", &["disk/"]), ("multipath", &["multipath/", "disk/report.rs"])];
        assert_eq!(layer(layers, "disk/open.rs"), Some(0));
        assert_eq!(layer(layers, "disk/report.rs"), Some(1));
        assert_eq!(layer(layers, "url.rs"), None);
    }

    #[test]
    fn a_file_that_nobody_has_placed_is_in_no_layer() {
        assert!(layer(LAYERS, "url.rs").is_some());
        assert_eq!(layer(LAYERS, "new.rs"), None);
    }

    #[test]
    fn the_test_target_keeps_a_codec_of_its_own() {
        assert_eq!(may_use("crates/testkit"), Some([].as_slice()));
    }

    #[test]
    fn a_crate_is_known_by_its_name_in_paths() {
        assert_eq!(library("iscsi_pdu"), Some("crates/pdu"));
        assert_eq!(library("iscsi_block_device"), Some("crates/block-device"));
        assert_eq!(library("bytes"), None);
    }
}
