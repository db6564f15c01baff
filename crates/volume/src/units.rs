//! Opens the units of a volume, and checks them against its description.

use iscsi_initiator::{Disk, Error as IscsiError, Initiator, Url};

use crate::description::{Description, MemberDescription};
use crate::error::Error;
use crate::join::join_all;
use crate::md::{Md, Superblock, SuperblockError, Uuid};
use crate::member::Member;
use crate::stripe::{Chunk, Stripe};
use crate::volume::Volume;

/// The open units of a volume, each with a name.
#[derive(Clone, Debug)]
pub struct Units(Vec<Unit>);

/// An open unit, with its URL.
#[derive(Clone, Debug)]
struct Unit {
    url: Url,
    /// The URL without passwords.
    address: String,
    name: String,
    disk: Disk,
}

impl Units {
    /// Opens units concurrently. Each element of `urls` is a URL, and the same URL as text without passwords.
    /// Nothing is written.
    ///
    /// # Errors
    /// [`Error::MemberCount`]; [`Error::Unit`] or [`Error::Nameless`] of the first unit that cannot be opened
    /// or has no name.
    pub async fn open(urls: Vec<(Url, String)>, initiator: &Initiator) -> Result<Self, Error> {
        // Refuses a wrong number of units before any of them is opened. With room for a chunk on each member, no
        // other error of the layout is possible.
        Stripe::new(Chunk::default(), urls.len(), Chunk::MAX)?;
        let disks = urls.iter().map(|(url, _)| Box::pin(initiator.disk(url)));
        let disks = join_all(disks.collect()).await;
        let mut units: Vec<Unit> = Vec::new();
        for (number, ((url, address), disk)) in urls.into_iter().zip(disks).enumerate() {
            let member = || format!("member {number} ({address})");
            let disk =
                disk.map_err(|cause| Error::Unit { member: member(), cause: cause.into() })?;
            let name = unit_name(&disk).ok_or_else(|| Error::Nameless { member: member() })?;
            units.push(Unit { url, address, name, disk });
        }
        Ok(Self(units))
    }

    /// Checks that no two members are the same unit.
    ///
    /// # Errors
    /// [`Error::SameUnit`].
    fn check_distinct(&self) -> Result<(), Error> {
        for (other, unit) in self.0.iter().enumerate() {
            if let Some(one) = self.0.iter().take(other).position(|one| one.name == unit.name) {
                return Err(Error::SameUnit { one, other, name: unit.name.clone() });
            }
        }
        Ok(())
    }

    /// Describes the units as a volume without metadata, with the members in the order of the units.
    ///
    /// # Errors
    /// [`Error::SameUnit`], or as [`Volume::new`].
    pub fn describe(&self, chunk: Chunk) -> Result<Description, Error> {
        self.check_distinct()?;
        let description = self.described(chunk, None);
        self.clone().into_volume(&description)?;
        Ok(description)
    }

    /// Describes the units as a new array of Linux md, with a new UUID. Nothing is written.
    ///
    /// # Errors
    /// [`Error::SameUnit`], [`Error::Unequal`], [`Error::Entropy`], or as [`Volume::with_data`].
    pub fn describe_new_array(&self, chunk: Chunk) -> Result<Description, Error> {
        self.check_distinct()?;
        let data_offset = Md::new_data_offset(chunk);
        let room = |unit: &Unit| {
            let room = unit.disk.capacity().saturating_sub(data_offset);
            room / chunk.bytes() * chunk.bytes()
        };
        let data_size = self.equal(room)?;
        let md = Md { set_uuid: Uuid::random().map_err(Error::Entropy)?, data_offset, data_size };
        let description = self.described(chunk, Some(md));
        self.clone().into_volume(&description)?;
        Ok(description)
    }

    /// Describes the array of Linux md whose superblocks are on the units, with the members in the order of
    /// their roles.
    ///
    /// # Errors
    /// [`Error::SameUnit`], [`Error::Superblock`], [`Error::Unequal`], or as [`Volume::with_data`].
    pub async fn import(mut self) -> Result<Description, Error> {
        self.check_distinct()?;
        let mut found = self.superblocks().await?;
        let mut units: Vec<_> = self.0.into_iter().zip(&found).collect();
        units.sort_by_key(|(_, superblock)| superblock.role);
        self = Self(units.into_iter().map(|(unit, _)| unit).collect());
        found.sort_by_key(|superblock| superblock.role);
        let first = found.first().copied().ok_or(Error::MemberCount(0))?;
        let chunk = first.chunk;
        let mut rooms = found.iter().map(|superblock| whole_chunks(superblock, chunk));
        let data_size = self.equal(|_| rooms.next().unwrap_or_default())?;
        let md = Md { set_uuid: first.set_uuid, data_offset: first.data_offset, data_size };
        let description = self.described(chunk, Some(md));
        self.compare(&description, md, &found)?;
        self.into_volume(&description)?;
        Ok(description)
    }

    /// Checks that the units are those of a description, in the order of its members and with its
    /// superblocks.
    ///
    /// # Errors
    /// The first difference between a unit and its description.
    pub async fn check(&self, description: &Description) -> Result<(), Error> {
        if self.0.len() != description.members.len() {
            return Err(Error::MemberCount(self.0.len()));
        }
        for (number, (unit, described)) in self.0.iter().zip(&description.members).enumerate() {
            let member = || description.label(number);
            let found = unit.name.clone();
            if found != described.name {
                let mut others = description.members.iter();
                return Err(match others.position(|other| other.name == found) {
                    Some(other) => Error::WrongOrder { member: member(), found, other },
                    None => {
                        let expected = described.name.clone();
                        Error::OtherUnit { member: member(), found, expected }
                    }
                });
            }
            let (found, expected) = (unit.disk.capacity(), described.capacity);
            if found != expected {
                return Err(Error::Resized { member: member(), found, expected });
            }
        }
        match description.md {
            Some(md) => self.compare(description, md, &self.superblocks().await?),
            None => Ok(()),
        }
    }

    /// Writes the superblock of each member of a described array, and flushes it. Earlier data in that place
    /// are lost. Does nothing if the description has no metadata. `created` is the present time, in seconds since
    /// 1970.
    ///
    /// # Errors
    /// [`Error::Entropy`], before anything is written. [`Error::Unit`]: some superblocks may be written and others
    /// not.
    pub async fn write_superblocks(
        &self,
        description: &Description,
        created: u64,
    ) -> Result<(), Error> {
        let Some(md) = description.md else { return Ok(()) };
        let members = u16::try_from(self.0.len()).unwrap_or(u16::MAX);
        let data = [md.data_offset, md.data_size];
        let mut writes = Vec::new();
        for (role, unit) in (0..members).zip(&self.0) {
            let device_uuid = Uuid::random().map_err(Error::Entropy)?;
            let (set_uuid, chunk) = (md.set_uuid, description.chunk);
            let superblock =
                Superblock::new(set_uuid, device_uuid, [role, members], chunk, data, created);
            writes.push(Box::pin(async move {
                let bytes = superblock.emit().to_vec();
                unit.disk.write_at(Superblock::OFFSET, bytes::Bytes::from(bytes)).await?;
                unit.disk.flush().await
            }));
        }
        for (number, result) in join_all(writes).await.into_iter().enumerate() {
            let failed = |cause: IscsiError| Error::Unit {
                member: description.label(number),
                cause: cause.into(),
            };
            result.map_err(failed)?;
        }
        Ok(())
    }

    /// Returns the indexes of the units that have an md superblock, of any kind, in the place where
    /// [`write_superblocks`](Self::write_superblocks) would write one.
    ///
    /// # Errors
    /// [`Error::Unit`].
    pub async fn with_superblock(&self) -> Result<Vec<usize>, Error> {
        let found = self.read_superblocks().await?;
        let found = found.iter().enumerate().filter(|(_, bytes)| Superblock::is_there(bytes));
        Ok(found.map(|(number, _)| number).collect())
    }

    /// Returns the volume of the units.
    ///
    /// # Errors
    /// As [`Volume::with_data`].
    pub fn into_volume(self, description: &Description) -> Result<Volume<Disk>, Error> {
        let units = self.0.into_iter().enumerate();
        let members = units.map(|(number, unit)| Member::new(description.label(number), unit.disk));
        let members = members.collect();
        match description.md {
            Some(md) => Volume::with_data(description.chunk, md.data(), members),
            None => Volume::new(description.chunk, members),
        }
    }

    /// Returns the disks, in their order.
    pub fn disks(&self) -> impl Iterator<Item = &Disk> {
        self.0.iter().map(|unit| &unit.disk)
    }

    /// Logs out of the sessions of all units, concurrently.
    ///
    /// # Errors
    /// The error of the first logout that failed; see [`Disk::logout`].
    pub async fn logout(&self) -> Result<(), IscsiError> {
        let ends = self.0.iter().map(|unit| Box::pin(unit.disk.logout()));
        join_all(ends.collect()).await.into_iter().collect()
    }

    fn described(&self, chunk: Chunk, md: Option<Md>) -> Description {
        let members = self.0.iter().map(|unit| MemberDescription {
            url: unit.url.clone(),
            address: unit.address.clone(),
            name: unit.name.clone(),
            capacity: unit.disk.capacity(),
        });
        Description { chunk, md, members: members.collect() }
    }

    /// Returns the value of `room` if it is the same for all units.
    fn equal(&self, mut room: impl FnMut(&Unit) -> u64) -> Result<u64, Error> {
        let mut all = None;
        for (number, unit) in self.0.iter().enumerate() {
            let found = room(unit);
            let expected = *all.get_or_insert(found);
            if found != expected {
                let member = format!("member {number} ({})", unit.name);
                return Err(Error::Unequal { member, found, expected });
            }
        }
        all.ok_or(Error::MemberCount(0))
    }

    async fn read_superblocks(&self) -> Result<Vec<bytes::Bytes>, Error> {
        let reads = self
            .0
            .iter()
            .map(|unit| Box::pin(unit.disk.read_at(Superblock::OFFSET, Superblock::LEN)));
        let reads = join_all(reads.collect()).await;
        let named = reads.into_iter().zip(&self.0).enumerate().map(|(number, (read, unit))| {
            let member = || format!("member {number} ({})", unit.name);
            read.map_err(|cause| Error::Unit { member: member(), cause: cause.into() })
        });
        named.collect()
    }

    async fn superblocks(&self) -> Result<Vec<Superblock>, Error> {
        let read = self.read_superblocks().await?;
        let parsed = read.iter().zip(&self.0).enumerate().map(|(number, (bytes, unit))| {
            let member = || format!("member {number} ({})", unit.name);
            Superblock::parse(bytes).map_err(|cause| Error::Superblock { member: member(), cause })
        });
        parsed.collect()
    }

    /// Checks that `found` has the superblock of each member, in the order of the members: with the UUID, the
    /// layout and the number of members of the description, and with the member's position as its role.
    fn compare(
        &self,
        description: &Description,
        md: Md,
        found: &[Superblock],
    ) -> Result<(), Error> {
        let chunk = description.chunk;
        for (number, superblock) in found.iter().enumerate() {
            let fields: [(&'static str, String, String); 6] = [
                ("the set UUID", superblock.set_uuid.to_string(), md.set_uuid.to_string()),
                ("the role", superblock.role.to_string(), number.to_string()),
                ("a count of members of", superblock.members.to_string(), found.len().to_string()),
                ("a chunk of", superblock.chunk.bytes().to_string(), chunk.bytes().to_string()),
                ("data from byte", superblock.data_offset.to_string(), md.data_offset.to_string()),
                (
                    "a data size in bytes of",
                    whole_chunks(superblock, chunk).to_string(),
                    md.data_size.to_string(),
                ),
            ];
            if let Some((what, found, expected)) =
                fields.into_iter().find(|(_, one, other)| one != other)
            {
                let cause = SuperblockError::Mismatch { what, found, expected };
                return Err(Error::Superblock { member: description.label(number), cause });
            }
        }
        Ok(())
    }
}

impl Description {
    /// Opens all members concurrently, and checks that they are the described units, with their superblocks if
    /// the description has metadata. Nothing is written.
    ///
    /// # Errors
    /// [`Error`] names the member that is not as described.
    pub async fn open(&self, initiator: &Initiator) -> Result<Volume<Disk>, Error> {
        let addresses = self.members.iter();
        let addresses = addresses.map(|member| (member.url.clone(), member.address.clone()));
        let units = Units::open(addresses.collect(), initiator).await?;
        units.check(self).await?;
        units.into_volume(self)
    }
}

/// Returns the number of bytes of a member's data that lie in whole chunks.
const fn whole_chunks(superblock: &Superblock, chunk: Chunk) -> u64 {
    superblock.data_size / chunk.bytes() * chunk.bytes()
}

/// Returns the name by which this project identifies a unit: its designator (VPD page 83), or else its serial
/// number (VPD page 80); `None` for a unit that has neither.
pub fn unit_name(disk: &Disk) -> Option<String> {
    let profile = disk.profile();
    match (&profile.designator, &profile.serial_number) {
        (Some(designator), _) => Some(designator.to_string()),
        (None, Some(serial)) => Some(format!("serial number {serial}")),
        (None, None) => None,
    }
}
