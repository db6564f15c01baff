//! Reads a password from a file.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use iscsi_initiator::Secret;

/// Maximum number of bytes of a password.
const MAX_LEN: usize = 4096;
/// Maximum number of bytes of the line of a password, with its line ending.
const MAX_LINE: usize = MAX_LEN + b"\r\n".len();

/// Returns the password, and whether other users than the owner of the file may read the file.
///
/// The password is the first line of the file. It may consist of any bytes. It ends before a line feed, or
/// before a carriage return and a line feed. The lines below it are not read. The file may be a pipe.
///
/// # Errors
/// If the file cannot be read, is a directory, or contains no password.
pub(crate) fn read(path: &Path) -> io::Result<(Secret, bool)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        let why = "it is a directory; name a file whose first line is the password";
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    let bytes = first_line(file)?;
    if bytes.is_empty() || bytes.len() > MAX_LEN {
        let why = "it holds no password, which is its first line, of 1 to 4096 bytes";
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    let is_open = metadata.is_file() && metadata.permissions().mode() & 0o077 != 0;
    Ok((bytes.into(), is_open))
}

/// Returns the first line, without its line ending. If the line is too long, returns more bytes than a password
/// may have.
fn first_line(mut from: impl Read) -> io::Result<Vec<u8>> {
    // The capacity is fixed, because a buffer that grows would leave copies of a part of the password in
    // memory. Reads byte by byte, because a pipe may stay open after the line, and a longer read would wait.
    let mut line = Vec::with_capacity(MAX_LINE);
    while line.len() < MAX_LINE && from.by_ref().take(1).read_to_end(&mut line)? > 0 {
        if line.pop_if(|last| *last == b'\n').is_some() {
            line.pop_if(|last| *last == b'\r');
            break;
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(content: &[u8]) -> Vec<u8> {
        first_line(content).unwrap()
    }

    #[test]
    fn the_first_line_is_the_password_whatever_its_bytes() {
        for (content, password) in [
            (&b"secret"[..], &b"secret"[..]),
            (b"secret\n", b"secret"),
            (b"secret\r\n", b"secret"),
            (b"secret\nmore\n", b"secret"),
            (b" a b \n", b" a b "),
            (b"\xff\xfe\x00\x01\n", b"\xff\xfe\x00\x01"),
            (b"a\rb\r\r\n", b"a\rb\r"),
            (b"", b""),
            (b"\n", b""),
        ] {
            assert_eq!(line(content), password, "{content:?}");
        }
    }

    /// From a device without an end, no more bytes are read than a password may have.
    #[test]
    fn no_more_is_read_than_a_password_has() {
        assert_eq!(first_line(io::repeat(b'x')).unwrap().len(), MAX_LINE);
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("holds no password"), "{error}");
    }

    #[test]
    fn a_directory_is_no_password_file() {
        let error = read(Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("it is a directory"), "{error}");
        assert_eq!(read(Path::new("/nowhere/file")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
