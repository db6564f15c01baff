//! Recognises arguments that look like a URL, a URL of another program, or a location on another host.
//!
//! The rule is that of rsync and scp: a colon before the first slash.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::refusal::Refusal;
use crate::side::Side;

/// Returns the reason why an argument is not accepted as the name of a file. The name of a source that exists
/// is accepted.
pub(super) fn refusal(argument: &OsStr, side: Side) -> Option<Refusal> {
    let first = argument.as_bytes().split(|byte| *byte == b'/').next()?;
    let at = first.iter().position(|byte| *byte == b':')?;
    if side == Side::Source && Path::new(argument).exists() {
        return None;
    }
    let word = String::from_utf8_lossy(first.get(..at)?).escape_debug().to_string();
    let text = argument.to_str().unwrap_or_default();
    let rest = text.split_once(':').map_or("", |(_, rest)| rest);
    // The rest of an iSCSI URL is not repeated, since it may hold a password.
    let instead = match word.to_ascii_lowercase().as_str() {
        "iscsi" => Some("iscsi://HOST:PORT/TARGET/LUN".to_owned()),
        "iscsis" => Some("iscsis://HOST:PORT/TARGET/LUN".to_owned()),
        word if ["iqn.", "eui.", "naa."].iter().any(|kind| word.starts_with(kind)) => {
            Some("iscsi://HOST:PORT/TARGET/LUN".to_owned())
        }
        "nbds" => Some("nbds://HOST:PORT/EXPORT".to_owned()),
        "nbd" => Some(nbd(rest).unwrap_or_else(|| {
            "nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH".to_owned()
        })),
        "volume" => Some("volume:FILE".to_owned()),
        "file" => Some("the path alone".to_owned()),
        _ => None,
    };
    Some(Refusal::LikeUrl { side, word, instead })
}

/// Returns the URI for an address in QEMU's notation, `nbd:HOST:PORT:exportname=NAME` or
/// `nbd:unix:PATH:exportname=NAME`.
fn nbd(rest: &str) -> Option<String> {
    let (place, export) = rest.split_once(":exportname=").unwrap_or((rest, ""));
    let export = escaped(export);
    if let Some(path) = place.strip_prefix("unix:") {
        return (!path.is_empty())
            .then(|| format!("nbd+unix:///{export}?socket={}", escaped(path)));
    }
    let (host, port) = place.rsplit_once(':')?;
    let is_host =
        |character: char| character.is_ascii_alphanumeric() || "-.:[]".contains(character);
    let is_plain = !host.is_empty() && host.chars().all(is_host);
    let port: u16 = port.parse().ok().filter(|_| is_plain)?;
    Some(format!("nbd://{host}:{port}/{export}"))
}

/// Escapes a name as a part of a URI (RFC 3986 §2.1).
fn escaped(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let escape = |byte: u8| match byte {
        plain if is_plain(plain) => char::from(plain).to_string(),
        other => format!("%{other:02X}"),
    };
    name.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_text(text: &str) -> Option<String> {
        refusal(OsStr::new(text), Side::Destination).map(|refusal| refusal.to_string())
    }

    #[test]
    fn what_is_written_like_a_url_is_told_how_to_be_written() {
        for (text, instead) in [
            ("iscsi:foo", "iscsi://HOST:PORT/TARGET/LUN"),
            ("iscsi:/host/target/0", "iscsi://HOST:PORT/TARGET/LUN"),
            ("iscsis:foo", "iscsis://HOST:PORT/TARGET/LUN"),
            ("iqn.2026-01.org.example:disk", "iscsi://HOST:PORT/TARGET/LUN"),
            ("nbd:127.0.0.1:3410:exportname=x", "write nbd://127.0.0.1:3410/x;"),
            ("nbd:[::1]:10809", "write nbd://[::1]:10809/;"),
            (
                "nbd:unix:/run/a b.sock:exportname=c d",
                "write nbd+unix:///c%20d?socket=/run/a%20b.sock;",
            ),
            ("nbd:somewhere", "write nbd://HOST:PORT/EXPORT or"),
            ("nbd:user@host:1", "write nbd://HOST:PORT/EXPORT or"),
            ("Volume:disk.toml", "write volume:FILE;"),
            ("file:/srv/disk", "write the path alone;"),
        ] {
            let told = refusal_text(text).unwrap();
            assert!(told.contains(instead) && told.contains("./"), "{text}: {told}");
        }
        for text in ["rbd:pool/image", "server:/srv/disk", "[::1]:3260", ":x", "json:{}", "a:b"] {
            let told = refusal_text(text).unwrap();
            assert!(told.contains("is no path; a file of that name"), "{text}: {told}");
        }
        assert!(!refusal_text("iscsi:me%hunter@host").unwrap().contains("hunter"));
    }

    #[test]
    fn paths_are_paths() {
        for text in ["disk", "./iscsi:foo", "/iscsi:foo", "folder/a:b", "../a:b"] {
            assert_eq!(refusal_text(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_there_can_be_read() {
        let here = std::env::current_dir().unwrap().join("Cargo.toml");
        assert_eq!(refusal(here.as_os_str(), Side::Source), None);
        assert!(refusal(OsStr::new("no:such"), Side::Source).is_some());
    }
}
