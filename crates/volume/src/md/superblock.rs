//! The superblock of a member of an md array, metadata 1.2.
//!
//! It begins 4 KiB after the member's first byte. Numbers are little-endian, and lengths are in sectors of 512
//! bytes.
//!
//! | byte | length | what |
//! |---|---|---|
//! | 0 | 4 | magic `a92b4efc` |
//! | 4 | 4 | major version: 1 |
//! | 8 | 4 | features; with an unknown one the superblock must be refused |
//! | 16 | 16 | the UUID of the array |
//! | 32 | 32 | its name |
//! | 64 | 8 | time of creation: seconds in the lower 40 bits |
//! | 72, 76 | 4, 4 | level; layout |
//! | 80, 88, 92 | 8, 4, 4 | sectors used of each member; sectors of a chunk; number of members |
//! | 128, 136, 144 | 8, 8, 8 | first sector of the data; sectors of the data; sector of this superblock |
//! | 160, 168 | 4, 16 | the number of this device; its UUID |
//! | 192, 200, 208 | 8, 8, 8 | time of the last update; number of updates; sector up to which the members are in sync |
//! | 216, 220 | 4, 4 | checksum; number of roles that follow |
//! | 256 | 2 each | the role of each device by its number |

use super::uuid::Uuid;
use crate::refusal::SuperblockError;
use crate::stripe::{Chunk, MAX_MEMBERS};

/// The superblock of a member of a RAID-0 array.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Superblock {
    /// The UUID of the array.
    pub set_uuid: Uuid,
    /// The UUID of this member.
    pub device_uuid: Uuid,
    /// The member, counted from 0.
    pub role: u16,
    /// The number of members.
    pub members: u16,
    /// The chunk of the array.
    pub chunk: Chunk,
    /// Offset of the data, in bytes.
    pub data_offset: u64,
    /// Length of the data, in bytes; a remainder of less than a chunk at the end stays unused.
    pub data_size: u64,
    /// Time of creation, in seconds since 1970.
    pub created: u64,
}

const MAGIC: u32 = 0xa92b_4efc;
const SECTOR: u64 = 512;
/// The sector of a member at which the superblock begins.
const SUPER_OFFSET: u64 = 8;
/// `MD_FEATURE_RAID0_LAYOUT`: the layout field is valid.
const FEATURE_RAID0_LAYOUT: u32 = 4096;
/// Value of the layout field, which exists since Linux 5.4. For members of different sizes, 1 is the layout of
/// kernels before Linux 3.14, and 2 that of later kernels. Members of one size are laid out in the same way by
/// all kernels, but without a value the kernel may refuse to assemble the array.
const LAYOUT: u32 = 2;
/// Offset of the table of roles, in bytes.
const ROLES: usize = 256;
/// Number of roles that are written: at least one for each possible member.
const EMITTED_ROLES: u32 = 128;
/// Smallest value of a role that means that the device is no member: a spare, a failed device, a journal.
const FIRST_NO_ROLE: u16 = 0xfffd;
const SPARE: u16 = 0xffff;

impl Superblock {
    /// Offset of a superblock on a member, in bytes.
    pub const OFFSET: u64 = SUPER_OFFSET * SECTOR;
    /// Length of a superblock, in bytes.
    pub const LEN: usize = 4096;

    /// Creates the superblock of a new member of an array.
    pub const fn new(
        set_uuid: Uuid,
        device_uuid: Uuid,
        [role, members]: [u16; 2],
        chunk: Chunk,
        [data_offset, data_size]: [u64; 2],
        created: u64,
    ) -> Self {
        Self { set_uuid, device_uuid, role, members, chunk, data_offset, data_size, created }
    }

    /// Returns whether `bytes` begin with the magic number of an md superblock of any kind.
    pub fn is_there(bytes: &[u8]) -> bool {
        le32(bytes, 0) == MAGIC
    }

    /// Reads a superblock.
    ///
    /// # Errors
    /// [`SuperblockError`] for everything but a complete superblock of a RAID-0 array that a volume can read
    /// correctly.
    pub fn parse(bytes: &[u8]) -> Result<Self, SuperblockError> {
        if bytes.len() < Self::LEN || !Self::is_there(bytes) {
            return Err(SuperblockError::Missing);
        }
        let roles = le32(bytes, 220);
        check(
            "a count of roles of",
            roles.into(),
            ROLES as u64 + 2 * u64::from(roles) <= Self::LEN as u64,
        )?;
        let (found, expected) = (le32(bytes, 216), checksum(bytes, roles));
        if found != expected {
            return Err(SuperblockError::Checksum { found, expected });
        }
        check("the major version", le32(bytes, 4).into(), le32(bytes, 4) == 1)?;
        let features = le32(bytes, 8);
        let unknown = features & !FEATURE_RAID0_LAYOUT;
        check("the feature bits", unknown.into(), unknown == 0)?;
        check("the level", le32(bytes, 72).into(), le32(bytes, 72) == 0)?;
        check("the layout", le32(bytes, 76).into(), le32(bytes, 76) <= LAYOUT)?;
        let place = le64(bytes, 144);
        check("its place at sector", place, place == SUPER_OFFSET)?;
        let chunk = u64::from(le32(bytes, 88)) * SECTOR;
        let chunk = Chunk::new(chunk)
            .map_err(|_| SuperblockError::Unsupported { what: "a chunk of", found: chunk })?;
        let members = le32(bytes, 92);
        let count = u16::try_from(members).unwrap_or(u16::MAX);
        check("a count of members of", members.into(), (2..=MAX_MEMBERS).contains(&count.into()))?;
        let number = le32(bytes, 160);
        let role = if number < roles { le16(bytes, ROLES + 2 * number as usize) } else { SPARE };
        check("the role", role.into(), role < FIRST_NO_ROLE && role < count)?;
        let data_offset = bytes_of(le64(bytes, 128), "data from sector")?;
        // Otherwise a write to the data would overwrite the superblock.
        let is_behind = data_offset >= Self::OFFSET + Self::LEN as u64;
        check("data from sector", data_offset / SECTOR, is_behind)?;
        Ok(Self {
            set_uuid: Uuid(array(bytes, 16)),
            device_uuid: Uuid(array(bytes, 168)),
            role,
            members: count,
            chunk,
            data_offset,
            data_size: bytes_of(le64(bytes, 136), "a data size in sectors of")?,
            created: le64(bytes, 64) & ((1 << 40) - 1),
        })
    }

    /// Returns the bytes of the superblock, as mdadm would write them.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let Self { role, members, chunk, data_offset, data_size, created, .. } = *self;
        let mut put = |at: usize, field: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + field.len()) {
                place.copy_from_slice(field);
            }
        };
        put(0, &MAGIC.to_le_bytes());
        put(4, &1u32.to_le_bytes());
        put(8, &FEATURE_RAID0_LAYOUT.to_le_bytes());
        put(16, &self.set_uuid.0);
        put(64, &created.to_le_bytes());
        put(76, &LAYOUT.to_le_bytes());
        put(88, &(u32::try_from(chunk.bytes() / SECTOR).unwrap_or_default()).to_le_bytes());
        put(92, &u32::from(members).to_le_bytes());
        put(128, &(data_offset / SECTOR).to_le_bytes());
        put(136, &(data_size / SECTOR).to_le_bytes());
        put(144, &SUPER_OFFSET.to_le_bytes());
        put(160, &u32::from(role).to_le_bytes());
        put(168, &self.device_uuid.0);
        put(192, &created.to_le_bytes());
        // Sector up to which the members are in sync: all of them, because RAID-0 has no redundancy to
        // synchronize.
        put(208, &u64::MAX.to_le_bytes());
        put(220, &EMITTED_ROLES.to_le_bytes());
        for number in 0..EMITTED_ROLES {
            let number = u16::try_from(number).unwrap_or(SPARE);
            let role = if number < members { number } else { SPARE };
            put(ROLES + 2 * usize::from(number), &role.to_le_bytes());
        }
        let sum = checksum(&bytes, EMITTED_ROLES).to_le_bytes();
        if let Some(place) = bytes.get_mut(216..220) {
            place.copy_from_slice(&sum);
        }
        bytes
    }
}

fn check(what: &'static str, found: u64, holds: bool) -> Result<(), SuperblockError> {
    if holds { Ok(()) } else { Err(SuperblockError::Unsupported { what, found }) }
}

fn bytes_of(sectors: u64, what: &'static str) -> Result<u64, SuperblockError> {
    let bytes = sectors.checked_mul(SECTOR);
    bytes.ok_or(SuperblockError::Unsupported { what, found: sectors })
}

/// Returns the checksum of md: the sum of all 32-bit numbers up to the last role, without the checksum field.
/// The carry beyond 32 bits is added to the sum.
fn checksum(bytes: &[u8], roles: u32) -> u32 {
    let end = (ROLES + 2 * roles as usize).min(bytes.len());
    let mut sum = 0u64;
    for at in (0..end).step_by(4).filter(|at| *at != 216) {
        let word = if end - at < 4 { le16(bytes, at).into() } else { le32(bytes, at) };
        sum += u64::from(word);
    }
    let [low, high] = [sum & u64::from(u32::MAX), sum >> 32];
    u32::try_from((low + high) & u64::from(u32::MAX)).unwrap_or_default()
}

/// Returns `N` bytes of a superblock from `at` on; zeros if they exceed its end.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    found.copied().unwrap_or([0; N])
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn superblock() -> Superblock {
        let uuid = |byte| Uuid([byte; 16]);
        let (chunk, data) = (Chunk::default(), [1 << 20, 7 << 20]);
        Superblock::new(uuid(1), uuid(2), [1, 3], chunk, data, 1_700_000_000)
    }

    /// Returns a superblock with one field changed, and the matching checksum.
    fn with(at: usize, field: &[u8]) -> Vec<u8> {
        let mut bytes = superblock().emit().to_vec();
        bytes[at..at + field.len()].copy_from_slice(field);
        let sum = checksum(&bytes, le32(&bytes, 220).min(1920));
        bytes[216..220].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            uuids in any::<[[u8; 16]; 2]>(),
            members in 2u16..=64,
            role in any::<u16>(),
            power in 0u32..=6,
            sectors in any::<[u32; 2]>(),
            created in 0u64..1 << 40,
        ) {
            let chunk = Chunk::new(Chunk::MIN << power).unwrap();
            let data = sectors.map(|sectors| (u64::from(sectors) + 16) * SECTOR);
            let [set, device] = uuids.map(Uuid);
            let superblock = Superblock::new(set, device, [role % members, members], chunk, data, created);
            prop_assert_eq!(Superblock::parse(&superblock.emit()), Ok(superblock));
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..5000), has_magic: bool) {
            if let (true, Some(first)) = (has_magic, bytes.first_chunk_mut()) {
                *first = MAGIC.to_le_bytes();
            }
            prop_assert!(Superblock::parse(&bytes).is_err());
        }

        #[test]
        fn a_flipped_bit_is_found(at in 0usize..ROLES + 256, bit in 0u32..8) {
            let mut bytes = superblock().emit();
            bytes[at] ^= 1 << bit;
            prop_assert!(Superblock::parse(&bytes).is_err());
        }
    }

    #[test]
    fn what_a_volume_does_not_have_is_refused() {
        for (at, field, what) in [
            (4, 2u32, "the major version"),
            // Features: a bitmap, a reshape, bad blocks, a journal, clusters, and an unknown bit.
            (8, 1, "the feature bits"),
            (8, 4, "the feature bits"),
            (8, 8, "the feature bits"),
            (8, 512, "the feature bits"),
            (8, 256, "the feature bits"),
            (8, 1 << 31, "the feature bits"),
            (72, 1, "the level"),
            (72, 5, "the level"),
            (76, 3, "the layout"),
            (88, 3, "a chunk of"),
            (92, 1, "a count of members of"),
            (92, 65, "a count of members of"),
            (128, 15, "data from sector"),
            (144, 0, "its place at sector"),
            (160, 3, "the role"),
            (160, 500, "the role"),
            (220, 1921, "a count of roles of"),
        ] {
            let error = Superblock::parse(&with(at, &field.to_le_bytes())).unwrap_err();
            let is_that =
                matches!(error, SuperblockError::Unsupported { what: found, .. } if found == what);
            assert!(is_that, "{what}: {error}");
        }
        let failed = Superblock::parse(&with(ROLES + 2, &0xfffeu16.to_le_bytes())).unwrap_err();
        assert!(
            matches!(failed, SuperblockError::Unsupported { what: "the role", .. }),
            "{failed}"
        );
        assert_eq!(Superblock::parse(&[0; 4096]), Err(SuperblockError::Missing));
        let mut damaged = superblock().emit();
        damaged[100] = 1;
        let error = Superblock::parse(&damaged).unwrap_err();
        assert!(matches!(error, SuperblockError::Checksum { .. }), "{error}");
    }

    /// Superblock of the second of two members of 24 MiB, without the unused roles, as `mdadm --create --level 0
    /// --metadata 1.2 --chunk 64` of mdadm 4.2 wrote it on Linux 6.1.
    const OF_MDADM: &str = "\
        fc4e2ba901000000000000000000000084b313c3a0a9b8c03abed0c548ebd5b0\
        686f73743a676f6c64656e000000000000000000000000000000000000000000\
        a1eb036b00000000000000000100000000000000000000008000000002000000\
        0000000000000000000000000000000000000000000000000000000000000000\
        000800000000000000b800000000000008000000000000000000000000000000\
        010000000000000014aa8f197ca1b5a61d541b5e942bd7900000080008000000\
        a1eb036b000000000000000000000000ffffffffffffffff47f5380a80000000\
        0000000000000000000000000000000000000000000000000000000000000000\
        00000100";

    #[test]
    fn what_mdadm_has_made_is_read() {
        let hex = OF_MDADM.as_bytes().chunks(2);
        let digit = |digit: u8| u8::try_from(char::from(digit).to_digit(16).unwrap()).unwrap();
        let mut bytes: Vec<_> = hex.map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
        bytes.resize(ROLES + 256, 0xff);
        bytes.resize(Superblock::LEN, 0);
        let found = Superblock::parse(&bytes).unwrap();
        assert_eq!(found.set_uuid.to_string(), "84b313c3:a0a9b8c0:3abed0c5:48ebd5b0");
        assert_eq!(found.device_uuid.to_string(), "14aa8f19:7ca1b5a6:1d541b5e:942bd790");
        assert_eq!((found.role, found.members, found.chunk.bytes()), (1, 2, 64 << 10));
        assert_eq!((found.data_offset, found.data_size), (1 << 20, 23 << 20));
        // The emitted superblock may differ only in the features, the name, the layout, the room for bad
        // blocks, and the checksum.
        let emitted = found.emit();
        let differs = |at: &usize| bytes[*at] != emitted[*at];
        let fields = [8..12, 32..64, 76..80, 184..192, 216..220];
        let unexpected: Vec<_> = (0..Superblock::LEN)
            .filter(differs)
            .filter(|at| !fields.iter().any(|field| field.contains(at)))
            .collect();
        assert!(unexpected.is_empty(), "{unexpected:?}");
    }
}
