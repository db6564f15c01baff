//! Decodes the data of options.

use bytes::{Buf, Bytes};

use crate::text;

/// The data of NBD_OPT_INFO and NBD_OPT_GO.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct InfoRequest {
    pub(crate) export: String,
    /// The requested information types, known or not.
    pub(crate) types: Vec<u16>,
}

impl InfoRequest {
    /// Decodes the data; `None` if it is malformed.
    pub(crate) fn decode(mut data: Bytes) -> Option<Self> {
        let export = take_string(&mut data)?;
        let count = data.try_get_u16().ok()?;
        let types = (0..count).map(|_| data.try_get_u16().ok()).collect::<Option<_>>()?;
        data.is_empty().then_some(Self { export, types })
    }
}

/// The data of NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ContextRequest {
    pub(crate) export: String,
    pub(crate) queries: Vec<String>,
}

impl ContextRequest {
    /// Decodes the data; `None` if it is malformed.
    pub(crate) fn decode(mut data: Bytes) -> Option<Self> {
        let export = take_string(&mut data)?;
        let count = data.try_get_u32().ok()?;
        let mut queries = Vec::new();
        for _ in 0..count {
            queries.push(take_string(&mut data)?);
        }
        data.is_empty().then_some(Self { export, queries })
    }

    /// Returns whether a query selects this context.
    pub(crate) fn selects(&self, context: &str) -> bool {
        self.queries.iter().any(|query| query == context)
    }

    /// Returns whether to list this context: a query names it or its namespace, or there is no query.
    pub(crate) fn lists(&self, context: &str) -> bool {
        let is_namespace = |query: &String| query.ends_with(':') && context.starts_with(&**query);
        self.queries.is_empty() || self.selects(context) || self.queries.iter().any(is_namespace)
    }
}

/// Takes a string that follows its length.
fn take_string(data: &mut Bytes) -> Option<String> {
    let len = usize::try_from(data.try_get_u32().ok()?).ok()?;
    if len > data.len() {
        return None;
    }
    text::string(&data.split_to(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(queries: &[&str]) -> ContextRequest {
        let queries = queries.iter().map(|query| (*query).to_owned()).collect();
        ContextRequest { export: String::new(), queries }
    }

    #[test]
    fn a_namespace_lists_and_does_not_select() {
        let wildcard = contexts(&["base:"]);
        assert!(wildcard.lists("base:allocation") && !wildcard.selects("base:allocation"));
        assert!(!wildcard.lists("qemu:dirty-bitmap:a"));
        assert!(contexts(&[]).lists("base:allocation"));
        assert!(!contexts(&[]).selects("base:allocation"));
        assert!(!contexts(&["qemu:"]).lists("base:allocation"));
    }

    #[test]
    fn info_requests_end_where_their_counts_say() {
        let decode = |data: &'static [u8]| InfoRequest::decode(Bytes::from_static(data));
        let good = decode(b"\0\0\0\x01a\0\x02\0\x03\0\x01");
        assert_eq!(good, Some(InfoRequest { export: "a".to_owned(), types: vec![3, 1] }));
        for bad in [
            &b""[..],
            b"\0\0\0\x02a",
            b"\0\0\0\x01a",
            b"\0\0\0\x01a\0\x01",
            b"\0\0\0\x01a\0\0x",
            b"\xff\xff\xff\xffa\0\0",
            b"\0\0\0\x01\0\0\0",
        ] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn context_requests_end_where_their_counts_say() {
        let decode = |data: &'static [u8]| ContextRequest::decode(Bytes::from_static(data));
        let good = decode(b"\0\0\0\0\0\0\0\x01\0\0\0\x05base:");
        assert_eq!(good, Some(contexts(&["base:"])));
        for bad in [
            &b"\0\0\0\0"[..],
            b"\0\0\0\0\0\0\0\x01",
            b"\0\0\0\0\0\0\0\x01\0\0\0\x05base",
            b"\0\0\0\0\xff\xff\xff\xff\0\0\0\x05base:",
            b"\0\0\0\0\0\0\0\0x",
        ] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
