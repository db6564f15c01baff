//! The text file that lists the members and the layout of a volume.

use std::fmt::{self, Write as _};

use iscsi_initiator::Url;
use toml::{Table, Value};

use crate::error::Error;
use crate::md::Md;
use crate::stripe::Chunk;

/// The only version of the format.
const VERSION: u64 = 1;
/// The value of `metadata` for an md array.
const METADATA: &str = "1.2";
const KEYS: [&str; 7] =
    ["version", "chunk", "metadata", "set_uuid", "data_offset", "data_size", "member"];
const MEMBER_KEYS: [&str; 3] = ["url", "name", "capacity"];

/// The description of a volume, as a text file of TOML.
///
/// ```toml
/// version = 1
/// chunk = 524288              # bytes; a power of two, 65536 to 4194304
///
/// metadata = "1.2"            # only where the members have superblocks of Linux md
/// set_uuid = "6f0b1d0e:9c2f4a57:8d1e3b6a:52c4f790"
/// data_offset = 1048576       # of each member, bytes
/// data_size = 1072693248
///
/// [[member]]                  # in their order
/// url = "iscsi://192.0.2.1/iqn.2026-01.org.example:one/0"
/// name = "naa.60014055a1a6c0d7d4f4c0a9b6d3e2f1"
/// capacity = 1073741824
///
/// [[member]]
/// url = "iscsi://198.51.100.1/iqn.2026-01.org.example:two/0"
/// name = "naa.6001405e0f1d2c3b4a59687766554433"
/// capacity = 1073741824
/// ```
///
/// The `name` is the designator of the unit in VPD page 83, or `serial number ...` (VPD page 80) for a unit
/// without a designator. A URL may contain a password, which is used and never printed.
#[derive(Clone, Debug)]
pub struct Description {
    /// Chunk size: the number of consecutive bytes on one member.
    pub chunk: Chunk,
    /// The parameters of Linux md, if the members have superblocks. `None` if they have none: the data then
    /// begin at the first byte of each member.
    pub md: Option<Md>,
    /// The members, in their order.
    pub members: Vec<MemberDescription>,
}

/// The description of a member.
#[derive(Clone, Debug)]
pub struct MemberDescription {
    /// The URL of the unit.
    pub url: Url,
    /// The URL as text, without passwords.
    pub address: String,
    /// The name of the unit, as [`unit_name`](crate::unit_name) returns it.
    pub name: String,
    /// The capacity, in bytes.
    pub capacity: u64,
}

impl Description {
    /// Reads a description.
    ///
    /// # Errors
    /// [`Error::Description`] if the text is malformed, with a message that never contains a URL;
    /// [`Error::Chunk`], [`Error::MemberCount`], [`Error::SameUnit`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().and_then(|span| text.get(..span.start));
            let line = line.map_or(1, |before| before.matches('\n').count() + 1);
            wrong(format!("line {line} is no TOML: {}", error.message().replace('\n', ", ")))
        })?;
        let top = Part { table: &table, name: "" };
        let version = top.number("version")?;
        if version != VERSION {
            return Err(wrong(format!("version {version} is not known, only {VERSION}")));
        }
        top.check_keys(&KEYS)?;
        let chunk = Chunk::new(top.number("chunk")?)?;
        let description = Self { chunk, md: top.md()?, members: members(&table)? };
        description.check()?;
        Ok(description)
    }

    /// Checks everything that can be checked without access to the units.
    fn check(&self) -> Result<(), Error> {
        // Checks the number and the size of the members. The real sizes are compared when the units are opened.
        let least = self.members.iter().map(|member| member.capacity).min().unwrap_or_default();
        let room = self.md.map_or(least, |md| md.data_size);
        crate::stripe::Stripe::new(self.chunk, self.members.len(), room)?;
        for (other, member) in self.members.iter().enumerate() {
            let mut before = self.members.iter().take(other);
            if let Some(one) = before.position(|before| before.name == member.name) {
                return Err(Error::SameUnit { one, other, name: member.name.clone() });
            }
        }
        Ok(())
    }

    /// Returns the URLs of the members, so that passwords can be added.
    pub fn urls_mut(&mut self) -> impl Iterator<Item = &mut Url> {
        self.members.iter_mut().map(|member| &mut member.url)
    }

    /// Returns the text that names a member in errors.
    pub fn label(&self, number: usize) -> String {
        let name = self.members.get(number).map_or("none", |member| &member.name);
        format!("member {number} ({name})")
    }
}

/// A table of the file, with the name that errors use for it.
struct Part<'a> {
    table: &'a Table,
    name: &'a str,
}

impl Part<'_> {
    fn check_keys(&self, known: &[&str]) -> Result<(), Error> {
        match self.table.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(wrong(format!(
                "{}there is no key {key:?}, only {}",
                self.name,
                known.join(", ")
            ))),
            None => Ok(()),
        }
    }

    fn number(&self, key: &str) -> Result<u64, Error> {
        let number = self.table.get(key).and_then(Value::as_integer);
        let number = number.and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| {
            wrong(format!("{}{key} is missing, or is no number of bytes", self.name))
        })
    }

    fn text(&self, key: &str) -> Result<&str, Error> {
        let text = self.table.get(key).and_then(Value::as_str);
        let text = text.filter(|text| !text.is_empty());
        text.ok_or_else(|| wrong(format!("{}{key} is missing, or is no text in quotes", self.name)))
    }

    fn md(&self) -> Result<Option<Md>, Error> {
        if !self.table.contains_key("metadata") {
            let fields = ["set_uuid", "data_offset", "data_size"];
            return match fields.iter().find(|key| self.table.contains_key(**key)) {
                Some(key) => Err(wrong(format!("{key} is there without metadata = {METADATA:?}"))),
                None => Ok(None),
            };
        }
        if self.text("metadata")? != METADATA {
            return Err(wrong(format!("the only metadata there is is {METADATA:?}")));
        }
        let set_uuid = self.text("set_uuid")?.parse();
        let set_uuid = set_uuid.map_err(|why| wrong(format!("set_uuid: {why}")))?;
        let (data_offset, data_size) = (self.number("data_offset")?, self.number("data_size")?);
        Ok(Some(Md { set_uuid, data_offset, data_size }))
    }
}

fn members(table: &Table) -> Result<Vec<MemberDescription>, Error> {
    const EXPECTED: &str = "each member is a table [[member]]";
    let members = match table.get("member") {
        Some(members) => members.as_array().ok_or_else(|| wrong(EXPECTED.to_owned()))?,
        None => return Err(Error::MemberCount(0)),
    };
    let read = |(number, member): (usize, &Value)| {
        let name = format!("of member {number}, ");
        let table = member.as_table().ok_or_else(|| wrong(EXPECTED.to_owned()))?;
        let part = Part { table, name: &name };
        part.check_keys(&MEMBER_KEYS)?;
        let text = part.text("url")?;
        let url = Url::parse(text).map_err(|error| {
            let advice = error.advice().map_or_else(String::new, |advice| format!("; {advice}"));
            wrong(format!("{name}the URL: {error}{advice}"))
        })?;
        if url.target.is_none() || url.lun.is_none() {
            return Err(wrong(format!(
                "{name}the URL names no unit; write iscsi://host/target/lun"
            )));
        }
        let address = Url::without_passwords(text);
        let (name, capacity) = (part.text("name")?.to_owned(), part.number("capacity")?);
        Ok(MemberDescription { url, address, name, capacity })
    };
    members.iter().enumerate().map(read).collect()
}

fn wrong(what: String) -> Error {
    Error::Description(what)
}

impl fmt::Display for Description {
    /// Writes the file, without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version = {VERSION}\nchunk = {}", self.chunk.bytes())?;
        if let Some(Md { set_uuid, data_offset, data_size }) = self.md {
            writeln!(f, "\nmetadata = {METADATA:?}\nset_uuid = \"{set_uuid}\"")?;
            writeln!(f, "data_offset = {data_offset}\ndata_size = {data_size}")?;
        }
        for MemberDescription { address, name, capacity, .. } in &self.members {
            let (address, name) = (Quoted(address), Quoted(name));
            writeln!(f, "\n[[member]]\nurl = {address}\nname = {name}\ncapacity = {capacity}")?;
        }
        Ok(())
    }
}

/// A string that is displayed in quotes, as TOML requires.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for char in self.0.chars() {
            match char {
                '"' | '\\' => write!(f, "\\{char}")?,
                _ if char.is_control() => write!(f, "\\u{:04x}", u32::from(char))?,
                _ => f.write_char(char)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::md::Uuid;

    const URL: &str = "iscsi://user:hunter2@host/iqn.2026-01.org.example:disk/0";

    fn two(top: &str, [one, other]: [&str; 2]) -> String {
        let member = |name: &str| format!("[[member]]\nurl = {URL:?}\n{name}\n");
        format!("{top}\n{}{}", member(one), member(other))
    }

    const TOP: &str = "version = 1\nchunk = 65536";
    const MEMBERS: [&str; 2] =
        ["name = 'one'\ncapacity = 1048576", "name = 'two'\ncapacity = 2097152"];

    #[test]
    fn what_is_written_is_read_but_for_passwords() {
        let mut description = Description::parse(&two(TOP, MEMBERS)).unwrap();
        assert!(description.md.is_none());
        description.md =
            Some(Md { set_uuid: Uuid([7; 16]), data_offset: 1 << 20, data_size: 1 << 30 });
        description.members[1].name = "t10.a \"quoted\" \\ one\u{7f}".to_owned();
        let text = description.to_string();
        assert!(text.contains("iscsi://user@host/") && !text.contains("hunter2"), "{text}");
        assert!(!format!("{description:?}").contains("hunter2"));
        let again = Description::parse(&text).unwrap();
        assert_eq!((again.to_string(), again.md), (text, description.md));
        assert_eq!(again.members[1].name, description.members[1].name);
        assert_eq!(again.label(0), "member 0 (one)");
    }

    #[test]
    fn what_is_no_description_is_refused_in_a_sentence() {
        let [one, other] = MEMBERS;
        let md = "metadata = '1.2'\nset_uuid = '00112233445566778899aabbccddeeff'\ndata_offset = 1048576";
        for (top, members, said) in [
            ("", MEMBERS, "version is missing"),
            ("version = 2", MEMBERS, "version 2 is not known"),
            ("version = 1", MEMBERS, "chunk is missing"),
            ("version = 1\nchunk = '64K'", MEMBERS, "chunk is missing, or is no number"),
            ("version = 1\nchunk = -1", MEMBERS, "chunk is missing, or is no number"),
            ("version = 1\nchunk = 65537", MEMBERS, "a chunk of 65537 bytes is none"),
            ("version = 1\nchunk = 65536\nstripe = 1", MEMBERS, "there is no key \"stripe\""),
            ("version = 1\nchunk =", MEMBERS, "line 2 is no TOML"),
            (&format!("{TOP}\nmetadata = '0.90'"), MEMBERS, "the only metadata there is"),
            (&format!("{TOP}\ndata_offset = 1"), MEMBERS, "data_offset is there without metadata"),
            (&format!("{TOP}\n{md}"), MEMBERS, "data_size is missing"),
            (&format!("{TOP}\n{md}\ndata_size = 65535"), MEMBERS, "does not hold a chunk"),
            (
                &format!("{TOP}\n{md}\ndata_size = 65536").replace("00112233", "0"),
                MEMBERS,
                "32 hexadecimal",
            ),
            (TOP, [one, one], "members 0 and 1 are the same unit, one"),
            (TOP, ["name = ''\ncapacity = 1", other], "of member 0, name is missing"),
            (TOP, [one, "name = 'two'"], "of member 1, capacity is missing"),
            (TOP, [one, "name = 'two'\ncapacity = 1"], "does not hold a chunk"),
            (
                TOP,
                [one, "name = 'two'\ncapacity = 1048576\nlun = 1"],
                "of member 1, there is no key \"lun\"",
            ),
        ] {
            let error = Description::parse(&two(top, members)).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains('\n'), "{said}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let alone =
            two(TOP, MEMBERS).split("[[member]]").take(2).collect::<Vec<_>>().join("[[member]]");
        assert!(matches!(Description::parse(&alone), Err(Error::MemberCount(1))));
        assert!(matches!(Description::parse(TOP), Err(Error::MemberCount(0))));
        let error = Description::parse(&format!("{TOP}\nmember = 1")).unwrap_err().to_string();
        assert!(error.contains("[[member]]"), "{error}");
        for url in [
            "nbd://host/x",
            "iscsi://user:hunter2@host",
            "iscsi://user:hunter2@host/iqn.2026-01.org.example:disk",
        ] {
            let text = two(TOP, MEMBERS).replacen(URL, url, 1);
            let error = Description::parse(&text).unwrap_err().to_string();
            assert!(error.contains("of member 0, the URL"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
