//! Checks whether an export can replace the one that was opened.

use iscsi_nbd::{Export, MAX_PAYLOAD, TransmissionFlags};

/// Features that requests rely on if the server has offered them.
const RELIED_ON: [(TransmissionFlags, &str); 4] = [
    (TransmissionFlags::FLUSH, "it takes no flushes any more"),
    (TransmissionFlags::TRIM, "it takes no discards any more"),
    (TransmissionFlags::WRITE_ZEROES, "it makes no zeros any more"),
    (TransmissionFlags::MULTI_CONN, "it does not take several connections any more"),
];

/// Returns why an export cannot replace the one that was opened; `None` if it can. NBD has no unique name of
/// an export, so that only its size and the reported properties are compared.
pub(super) fn difference(was: &Export, is: &Export) -> Option<String> {
    if is.size != was.size {
        return Some(format!("it has {} bytes, and had {}", is.size, was.size));
    }
    if is.name != was.name {
        return Some(format!("the server calls it {:?}, and called it {:?}", is.name, was.name));
    }
    if is.description != was.description {
        let [is, was] = [is, was].map(|export| export.description.as_deref().unwrap_or_default());
        return Some(format!("the server describes it as {is:?}, and described it as {was:?}"));
    }
    let has = |export: &Export, flag| export.flags.contains(flag);
    if has(is, TransmissionFlags::READ_ONLY) && !has(was, TransmissionFlags::READ_ONLY) {
        return Some("it is read-only now".to_owned());
    }
    let (blocks, earlier) = (is.block_sizes, was.block_sizes);
    if !earlier.minimum.max(1).is_multiple_of(blocks.minimum.max(1)) {
        return Some(format!(
            "its blocks have {} bytes, and had {}",
            blocks.minimum, earlier.minimum
        ));
    }
    if blocks.maximum.min(MAX_PAYLOAD) < earlier.maximum.min(MAX_PAYLOAD) {
        return Some(format!("it takes no more than {} bytes in one request now", blocks.maximum));
    }
    let missing = RELIED_ON.iter().find(|(flag, _)| has(was, *flag) && !has(is, *flag));
    missing.map(|(_, what)| (*what).to_owned())
}

#[cfg(test)]
mod tests {
    use iscsi_nbd::BlockSizes;

    use super::*;

    fn export() -> Export {
        Export {
            name: "disk".to_owned(),
            description: Some("of a machine".to_owned()),
            size: 1 << 20,
            flags: TransmissionFlags::FLUSH | TransmissionFlags::MULTI_CONN,
            block_sizes: BlockSizes { minimum: 512, ..BlockSizes::default() },
            ..Export::default()
        }
    }

    #[test]
    fn what_a_copy_relies_on_has_to_be_as_it_was() {
        let sizes = export().block_sizes;
        for (other, word) in [
            (Export { size: 1 << 21, ..export() }, "2097152 bytes, and had 1048576"),
            (Export { name: "disc".to_owned(), ..export() }, "\"disc\""),
            (Export { description: None, ..export() }, "described it as"),
            (
                Export { flags: export().flags | TransmissionFlags::READ_ONLY, ..export() },
                "read-only",
            ),
            (Export { block_sizes: BlockSizes { minimum: 4096, ..sizes }, ..export() }, "blocks"),
            (
                Export { block_sizes: BlockSizes { maximum: 4096, ..sizes }, ..export() },
                "4096 bytes in one request",
            ),
            (Export { flags: TransmissionFlags::FLUSH, ..export() }, "several connections"),
            (Export { flags: TransmissionFlags::MULTI_CONN, ..export() }, "flushes"),
        ] {
            let said = difference(&export(), &other).unwrap();
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn what_offers_more_can_take_its_place() {
        assert_eq!(difference(&export(), &export()), None);
        let better = Export {
            flags: export().flags | TransmissionFlags::FAST_ZERO | TransmissionFlags::TRIM,
            block_sizes: BlockSizes { minimum: 1, preferred: 4096, maximum: u32::MAX },
            contexts: vec!["base:allocation".to_owned()],
            ..export()
        };
        assert_eq!(difference(&export(), &better), None);
        let read_only = Export { flags: TransmissionFlags::READ_ONLY, ..Export::default() };
        assert_eq!(difference(&read_only, &Export::default()), None);
    }
}
