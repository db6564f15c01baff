//! Recognises formats whose bytes are not the bytes of a disk: images of other programs, compression, archives.

use super::sample::Place::{self, End, Start};
use super::sample::Sample;

/// A format whose bytes are not those of a disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Container {
    /// Name of the format, such as "a qcow2 image".
    pub(crate) name: &'static str,
    pub(crate) remedy: Remedy,
}

/// The way to get the bytes of the disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Remedy {
    /// `qemu-nbd` with this format name serves the bytes of the disk.
    Serve(&'static str),
    /// This command writes the bytes of the disk to its standard output. The file is its last argument.
    Unpack(&'static str),
    /// This command extracts files. The user must choose one of them to copy.
    Extract(&'static str),
}

use Remedy::{Extract, Serve, Unpack};

/// For each format: the name, the place of the signature and the offset from that place, the signature, the
/// remedy.
const CONTAINERS: [(&str, Place, usize, &[u8], Remedy); 32] = [
    ("a qcow image", Start(0), 0, b"QFI\xfb\0\0\0\x01", Serve("qcow")),
    ("a qcow2 image", Start(0), 0, b"QFI\xfb", Serve("qcow2")),
    ("a QED image", Start(0), 0, b"QED\0", Serve("qed")),
    ("a VMDK image", Start(0), 0, b"KDMV", Serve("vmdk")),
    ("a VMDK image", Start(0), 0, b"COWD", Serve("vmdk")),
    ("a VMDK image", Start(0), 0, b"# Disk DescriptorFile", Serve("vmdk")),
    ("a VMDK image", Start(0), 0, b"\xbe\xba\xfe\xca\0\0\0\0", Serve("vmdk")),
    ("a VHDX image", Start(0), 0, b"vhdxfile", Serve("vhdx")),
    ("a VDI image", Start(0), 64, b"\x7f\x10\xda\xbe", Serve("vdi")),
    ("a VHD image", Start(0), 0, b"conectix", Serve("vpc")),
    // A fixed-size VHD has its signature after the disk data. In older files the footer is a byte shorter.
    ("a VHD image", End(512), 0, b"conectix", Serve("vpc")),
    ("a VHD image", End(511), 0, b"conectix", Serve("vpc")),
    ("an image of Parallels", Start(0), 0, b"WithoutFreeSpace", Serve("parallels")),
    ("an image of Parallels", Start(0), 0, b"WithouFreSpacExt", Serve("parallels")),
    ("a DMG image", End(512), 0, b"koly\0\0\0\x04", Serve("dmg")),
    ("a sparse image of Android", Start(0), 0, b"\x3a\xff\x26\xed", Extract("simg2img")),
    ("an EWF image", Start(0), 0, b"EVF\x09\x0d\x0a\xff\0", Extract("ewfexport")),
    ("compressed by gzip", Start(0), 0, b"\x1f\x8b\x08", Unpack("gzip -dc")),
    ("compressed by xz", Start(0), 0, b"\xfd7zXZ\0", Unpack("xz -dc")),
    ("compressed by zstd", Start(0), 0, b"\x28\xb5\x2f\xfd", Unpack("zstd -dc")),
    // pzstd writes a skippable frame before the data.
    ("compressed by zstd", Start(0), 0, b"\x50\x2a\x4d\x18", Unpack("zstd -dc")),
    ("compressed by bzip2", Start(0), 4, b"1AY&SY", Unpack("bzip2 -dc")),
    ("compressed by lz4", Start(0), 0, b"\x04\x22\x4d\x18", Unpack("lz4 -dc")),
    ("compressed by lzip", Start(0), 0, b"LZIP\x01", Unpack("lzip -dc")),
    ("compressed by lzop", Start(0), 0, b"\x89LZO\0\r\n\x1a\n", Unpack("lzop -dc")),
    ("compressed by lzma", Start(0), 0, b"\x5d\0\0\x80\0\xff\xff\xff", Unpack("xz -dc")),
    ("compressed by compress", Start(0), 0, b"\x1f\x9d\x90", Unpack("gzip -dc")),
    ("a tar archive", Start(0), 257, b"ustar", Extract("tar -xf")),
    ("a zip archive", Start(0), 0, b"PK\x03\x04", Extract("unzip")),
    ("a 7z archive", Start(0), 0, b"7z\xbc\xaf\x27\x1c", Extract("7z x")),
    ("a RAR archive", Start(0), 0, b"Rar!\x1a\x07", Extract("unrar x")),
    ("a WIM archive", Start(0), 0, b"MSWIM\0\0\0", Extract("wimextract")),
];

/// Returns the container format of a medium, if it has one.
pub(crate) fn container(sample: &Sample) -> Option<Container> {
    let is_there = |(_, place, within, mark, _): &&(&str, Place, usize, &[u8], Remedy)| {
        sample.at(*place, *within, mark.len()) == Some(mark)
    };
    CONTAINERS.iter().find(is_there).map(|(name, .., remedy)| Container { name, remedy: *remedy })
}

impl Container {
    /// Returns the name of the format as a noun phrase, for "there is ...".
    pub(crate) fn thing(self) -> String {
        if self.name.starts_with("compressed") {
            return format!("a file {}", self.name);
        }
        self.name.to_owned()
    }
}
