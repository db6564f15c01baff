//! The file in which a controller finds the result of a program, such as `/dev/termination-log` of a container.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::Path;

use serde_json::{Map, Value};

/// Maximum length of the file in bytes: Kubernetes reads no more.
const MAX_LEN: usize = 4096;
/// Text at the end of a sentence that was cut.
const CUT: &str = "...";

/// An open file for the result.
#[derive(Debug)]
pub struct TerminationLog(File);

impl TerminationLog {
    /// Opens the file, or creates it. Its content stays as it is until [`write`](Self::write). So that nothing is lost if another
    /// file was named by mistake, it must be a regular file that is empty or holds the result of an earlier run.
    ///
    /// # Errors
    /// If the file cannot be written, or is another one.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Ok(there) = fs::metadata(path) {
            let invalid = |reason| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            if !there.is_file() {
                return invalid("it is no regular file; name another one");
            }
            if there.len() > MAX_LEN as u64 || !is_earlier_result(&fs::read(path)?) {
                return invalid(
                    "it holds something else than an earlier result; name another file",
                );
            }
        }
        File::options().write(true).create(true).truncate(false).open(path).map(Self)
    }

    /// Replaces the content by the result: the exit status, and the members of `result` that are numbers, texts, truth values or
    /// null. If that is too long, its `error` is cut.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(mut self, status: u8, result: &Value) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.rewind()?;
        self.0.write_all(text(status, result).as_bytes())
    }
}

/// Returns whether a file has nothing, or a result that [`TerminationLog::write`] has written.
fn is_earlier_result(content: &[u8]) -> bool {
    let result = serde_json::from_slice::<Map<String, Value>>(content);
    content.is_empty() || result.is_ok_and(|result| result.contains_key("status"))
}

fn text(status: u8, result: &Value) -> String {
    let mut short = Map::new();
    short.insert("status".to_owned(), status.into());
    let members = result.as_object().into_iter().flatten();
    let plain = members.filter(|(_, value)| !value.is_object() && !value.is_array());
    short.extend(plain.map(|(name, value)| (name.clone(), value.clone())));
    loop {
        let text = Value::Object(short.clone()).to_string();
        let Some(excess) = text.len().checked_sub(MAX_LEN).filter(|excess| *excess > 0) else {
            return text;
        };
        let Some(Value::String(error)) = short.get_mut("error") else { return text };
        // An escaped character of the sentence takes up to six bytes of the text, so this may have to be repeated.
        let rest = error.trim_end_matches(CUT);
        let fewer = excess.div_ceil(6).max(CUT.len() + 1);
        let len =
            (0..=rest.len().saturating_sub(fewer)).rev().find(|at| rest.is_char_boundary(*at));
        if rest.is_empty() {
            return text;
        }
        *error = format!("{}{CUT}", len.and_then(|len| rest.get(..len)).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_and_texts_are_kept_and_lists_are_not() {
        let result =
            json!({ "bytes": 5, "verified": true, "error": null, "plan": { "a": 1 }, "notes": [] });
        let expected = json!({ "status": 75, "bytes": 5, "verified": true, "error": null });
        assert_eq!(serde_json::from_str::<Value>(&text(75, &result)).unwrap(), expected);
    }

    #[test]
    fn a_long_sentence_is_cut_between_characters() {
        for sentence in
            ["x".repeat(5000), "\u{1f4be}".repeat(3000), "\u{1}\"".repeat(9000), "y".repeat(4090)]
        {
            let text = text(1, &json!({ "bytes": 5, "error": sentence }));
            assert!(text.len() <= MAX_LEN && text.len() > MAX_LEN - 16, "{}", text.len());
            let read: Value = serde_json::from_str(&text).unwrap();
            let error = read["error"].as_str().unwrap();
            assert!(sentence.starts_with(error.strip_suffix(CUT).unwrap()));
        }
        assert!(
            text(1, &json!({ "error": "\u{1}".repeat(5000), "kind": "target" })).len() <= MAX_LEN
        );
    }

    #[test]
    fn what_the_file_held_before_is_gone_afterwards() {
        let folder = std::env::temp_dir().join(format!("termination-log-{}", std::process::id()));
        let long = format!("{{\"status\":0,\"error\":\"{}\"}}", "x".repeat(MAX_LEN));
        for other in [&*long, "x", "{}", "{\"status\":0} x", "[\"status\"]"] {
            fs::write(&folder, other).unwrap();
            let error = TerminationLog::open(&folder).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{other}");
            assert_eq!(fs::read_to_string(&folder).unwrap(), other);
        }
        assert!(TerminationLog::open(Path::new("/dev/null")).is_err());
        fs::write(&folder, "").unwrap();
        TerminationLog::open(&folder)
            .unwrap()
            .write(75, &json!({ "error": "a long one" }))
            .unwrap();
        let log = TerminationLog::open(&folder).unwrap();
        log.write(0, &json!({})).unwrap();
        assert_eq!(fs::read_to_string(&folder).unwrap(), "{\"status\":0}");
        fs::remove_file(&folder).unwrap();
    }
}
