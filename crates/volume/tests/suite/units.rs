//! Tests of a volume over units of test targets, each with its own connection.

use bytes::Bytes;
use iscsi_initiator::{Disk, Error as IscsiError, Initiator, Options, Url};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::Unit;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use iscsi_volume::device::{Device as _, Extent, ExtentState};
use iscsi_volume::md::Superblock;
use iscsi_volume::{Chunk, Description, Error, Units, Volume};

const CHUNK: usize = 64 << 10;
const BLOCKS: u64 = 8 << 10;
const LEN: usize = BLOCKS as usize * 512;

fn chunk() -> Chunk {
    Chunk::new(CHUNK as u64).unwrap()
}

fn initiator() -> Initiator {
    let options = Options::default().with_use_environment(false);
    Initiator::with_options("iqn.2026-01.org.example:host", options).unwrap()
}

/// A target with one unit. The names of the target and the unit contain the number of the node.
struct Node {
    server: Server,
    disk: RamDisk,
    url: String,
}

/// Fails if the target's checker has found a violation: the target itself tolerates many of them.
impl Drop for Node {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

impl Node {
    async fn new(number: u64) -> Self {
        Self::with(number, RamDisk::new(512, BLOCKS), |_| {}).await
    }

    async fn with(number: u64, disk: RamDisk, change: impl FnOnce(&mut Unit)) -> Self {
        let name = format!("iqn.2026-01.org.example:disk-{number}");
        let mut config = TargetConfig::new(&name, disk.clone());
        let mut unit = Unit::new(disk.clone())
            .with_identity(format!("{number:04}"), 0x3000_0000_0000_0000 + number);
        change(&mut unit);
        config.units.insert(0, unit);
        let server = Server::start(Target::new(config)).await.unwrap();
        let url = format!("iscsi://{}/{name}/0", server.address());
        Self { server, disk, url }
    }

    /// Asserts that the initiator violated no rule of the standard.
    fn check(&self) {
        let violations = self.server.with(|target| target.violations().to_vec());
        assert!(violations.is_empty(), "{violations:?}");
    }
}

async fn two() -> [Node; 2] {
    [Node::new(1).await, Node::new(2).await]
}

async fn units(nodes: &[Node]) -> Result<Units, Error> {
    let urls = nodes.iter().map(|node| (Url::parse(&node.url).unwrap(), node.url.clone()));
    Units::open(urls.collect(), &initiator()).await
}

async fn volume(nodes: &[Node]) -> Volume<Disk> {
    let description = units(nodes).await.unwrap().describe(chunk()).unwrap();
    description.open(&initiator()).await.unwrap()
}

async fn refused(description: &Description) -> Error {
    description.open(&initiator()).await.unwrap_err()
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 251 * 31 + at + seed) as u8).collect()
}

#[tokio::test]
async fn bytes_lie_on_the_units_where_raid_0_says() {
    let nodes = [Node::new(1).await, Node::new(2).await, Node::new(3).await];
    let volume = volume(&nodes).await;
    assert_eq!(volume.capacity(), 3 * LEN as u64);
    let data = pattern(CHUNK * 7 + 1000, 1);
    let pages: Vec<_> = data.chunks(4096).map(Bytes::copy_from_slice).collect();
    let at = CHUNK - 700;
    volume.write_at(at as u64, pages).await.unwrap();
    volume.flush().await.unwrap();
    let mut whole = vec![0; CHUNK * 12];
    whole[at..at + data.len()].copy_from_slice(&data);
    for (number, bytes) in whole.chunks(CHUNK).enumerate() {
        let place = (number / 3 * CHUNK) as u64;
        assert!(nodes[number % 3].disk.holds(place, bytes), "chunk {number}");
    }
    assert_eq!(volume.read_at(0, whole.len()).await.unwrap(), whole);
    for (offset, len) in [(1, 5), (CHUNK - 1, 2), (at + 3, CHUNK * 5 + 1)] {
        assert_eq!(volume.read_at(offset as u64, len).await.unwrap(), whole[offset..offset + len]);
    }
    volume.confirm().await.unwrap();
    nodes.iter().for_each(Node::check);
}

#[tokio::test]
async fn holes_zeros_and_what_is_given_back_are_those_of_the_units() {
    let nodes = two().await;
    let volume = volume(&nodes).await;
    assert!(volume.limits().has_fast_zeroes);
    assert_eq!(volume.limits().discard_granularity, Some(512));
    volume.write_at(0, vec![Bytes::from(vec![7; CHUNK * 8])]).await.unwrap();
    volume.discard(CHUNK as u64, CHUNK as u64 * 2).await.unwrap();
    volume.write_zeroes(CHUNK as u64 * 5 + 512, CHUNK as u64).await.unwrap();
    let first = volume.first_extent(512, volume.capacity() - 512).await.unwrap().unwrap();
    assert_eq!(first, Extent::new(512, CHUNK as u64 - 512, ExtentState::Data));
    // Each unit reports one run per response, so a result may end before its range does. The loop queries the rest.
    let (mut at, mut extents) = (0, Vec::<Extent>::new());
    while at < volume.capacity() {
        for extent in volume.extents(at, volume.capacity() - at).await.unwrap() {
            at = extent.end();
            match extents.last_mut() {
                Some(last) if last.state == extent.state => last.len += extent.len,
                _ => extents.push(extent),
            }
        }
    }
    let found: Vec<_> =
        extents.iter().map(|extent| (extent.offset as usize, extent.state)).collect();
    let (data, hole) = (ExtentState::Data, ExtentState::Deallocated);
    assert_eq!(
        found,
        [
            (0, data),
            (CHUNK, hole),
            (CHUNK * 3, data),
            (CHUNK * 5 + 512, hole),
            (CHUNK * 6 + 512, data),
            (CHUNK * 8, hole)
        ]
    );
    assert_eq!(extents.last().unwrap().end(), volume.capacity());
    nodes.iter().for_each(Node::check);
}

#[tokio::test]
async fn a_member_whose_connection_is_lost_is_reopened_and_nothing_is_missing() {
    let nodes = two().await;
    let volume = volume(&nodes).await;
    let fault = Fault::drop_connection(100..200).times(1);
    nodes[1].server.with(|target| target.config_mut().faults.push(fault));
    let data = pattern(CHUNK * 10, 3);
    volume.write_at(0, vec![data.clone().into()]).await.unwrap();
    volume.flush().await.unwrap();
    assert_eq!(volume.read_at(0, data.len()).await.unwrap(), data);
    assert!(nodes[1].server.with(|target| target.accepted()) > 1, "it was opened anew");
    for (number, bytes) in data.chunks(CHUNK).enumerate() {
        assert!(nodes[number % 2].disk.holds((number / 2 * CHUNK) as u64, bytes));
    }
}

#[tokio::test]
async fn a_member_that_fails_is_named_and_its_own_words_are_there() {
    let nodes = two().await;
    let volume = volume(&nodes).await;
    nodes[1].server.with(|target| target.config_mut().faults.push(Fault::medium_error(0..8)));
    let error = volume.read_at(0, CHUNK * 4).await.unwrap_err();
    let inner = error.source_as::<IscsiError>().unwrap();
    let sense = inner.sense().unwrap();
    assert_eq!(sense.key, iscsi_initiator::scsi::SenseKey::MediumError);
    assert_eq!(inner.fault(), iscsi_initiator::Fault::Target);
    assert!(error.to_string().starts_with("member 1 (naa.3000000000000002): "), "{error}");
    // Chunks on the other member can still be read.
    volume.read_at(0, CHUNK).await.unwrap();
}

#[tokio::test]
async fn a_loss_of_power_of_one_member_is_told_by_the_next_flush_of_each_handle() {
    let nodes = two().await;
    nodes[1].disk.set_cache(Cache::Volatile);
    let one = volume(&nodes).await;
    let other = one.clone();
    assert!(one.limits().has_volatile_cache);
    one.write_at(0, vec![Bytes::from(vec![7; CHUNK * 2])]).await.unwrap();
    nodes[1].disk.lose_power();
    let before = one.attentions();
    for handle in [&one, &other] {
        let error = handle.flush().await.unwrap_err();
        let inner = error.source_as::<IscsiError>().unwrap();
        assert_eq!(inner.kind(), iscsi_initiator::ErrorKind::UnflushedWritesLost, "{inner}");
        assert!(error.to_string().starts_with("member 1 "), "{error}");
        handle.flush().await.unwrap();
    }
    assert!(one.attentions() > before);
}

#[tokio::test]
async fn writes_that_are_dropped_come_before_later_ones() {
    let nodes = two().await;
    let volume = volume(&nodes).await;
    for round in 0..20 {
        let old = Bytes::from(vec![1; CHUNK * 4]);
        tokio::select! {
            biased;
            _ = volume.write_at(0, vec![old]) => {}
            () = async { for _ in 0..round { tokio::task::yield_now().await } } => {}
        }
        let new = Bytes::from(vec![round + 2; CHUNK * 4]);
        volume.write_at(0, vec![new.clone()]).await.unwrap();
        assert_eq!(volume.read_at(0, CHUNK * 4).await.unwrap(), new, "round {round}");
    }
    nodes.iter().for_each(Node::check);
}

#[tokio::test]
async fn a_description_opens_what_it_describes_and_nothing_else() {
    let nodes = two().await;
    let description = units(&nodes).await.unwrap().describe(chunk()).unwrap();
    let description = Description::parse(&description.to_string()).unwrap();
    let volume = description.open(&initiator()).await.unwrap();
    assert_eq!(&**volume.members()[0].name(), "member 0 (naa.3000000000000001)");

    let mut wrong = description.clone();
    wrong.members.swap(0, 1);
    let (one, other) = (wrong.members[0].url.clone(), wrong.members[1].url.clone());
    wrong.members[0].url = other;
    wrong.members[1].url = one;
    let error = refused(&wrong).await;
    assert!(matches!(error, Error::WrongOrder { other: 1, .. }), "{error}");
    assert!(error.to_string().contains("naa.3000000000000001, the unit of member 1"), "{error}");

    let third = Node::new(3).await;
    let mut other = description.clone();
    other.members[1].url = Url::parse(&third.url).unwrap();
    let error = refused(&other).await;
    assert!(matches!(error, Error::OtherUnit { .. }), "{error}");

    let mut resized = description.clone();
    resized.members[1].capacity -= 512;
    let error = refused(&resized).await;
    assert!(matches!(error, Error::Resized { .. }), "{error}");

    let mut missing = description.clone();
    missing.members[1].url = Url::parse(&nodes[1].url.replace("/0", "/7")).unwrap();
    let error = refused(&missing).await;
    assert!(matches!(error, Error::Unit { .. }), "{error}");
    assert!(error.to_string().starts_with("member 1 ("), "{error}");

    let found = units(&nodes).await.unwrap();
    let mut three = description;
    three.members.push(three.members[0].clone());
    let error = found.check(&three).await.unwrap_err();
    assert!(matches!(error, Error::MemberCount(2)), "{error}");
    drop(volume);
    found.logout().await.unwrap();
}

#[tokio::test]
async fn the_same_unit_behind_two_targets_is_no_volume() {
    let one = Node::new(1).await;
    let again = Node::with(2, one.disk.clone(), |unit| {
        unit.serial = "0001".to_owned();
        unit.naa = 0x3000_0000_0000_0001;
    });
    let nodes = [one, again.await];
    let units = units(&nodes).await.unwrap();
    for error in [units.describe(chunk()), units.describe_new_array(chunk()), units.import().await]
    {
        let error = error.unwrap_err();
        assert!(matches!(error, Error::SameUnit { one: 0, other: 1, .. }), "{error}");
    }
}

#[tokio::test]
async fn a_unit_without_a_name_is_no_member_and_a_serial_number_is_one() {
    let by_serial = |unit: &mut Unit| unit.behavior.refused_pages = vec![0x83];
    let disk = || RamDisk::new(512, BLOCKS);
    let nodes = [Node::new(1).await, Node::with(2, disk(), by_serial).await];
    let description = units(&nodes).await.unwrap().describe(chunk()).unwrap();
    assert_eq!(description.members[1].name, "serial number 0002");
    description.open(&initiator()).await.unwrap();
    let nameless = |unit: &mut Unit| unit.behavior.refused_pages = vec![0x80, 0x83];
    let nodes = [Node::new(1).await, Node::with(2, disk(), nameless).await];
    let error = units(&nodes).await.unwrap_err();
    assert!(matches!(error, Error::Nameless { .. }), "{error}");
}

#[tokio::test]
async fn the_smallest_unit_counts_without_metadata_and_is_refused_with_them() {
    let nodes = [Node::new(1).await, Node::with(2, RamDisk::new(512, BLOCKS + 4096), |_| {}).await];
    let units = units(&nodes).await.unwrap();
    let description = units.describe(chunk()).unwrap();
    let volume = description.open(&initiator()).await.unwrap();
    assert_eq!(volume.capacity(), 2 * LEN as u64);
    let error = units.describe_new_array(chunk()).unwrap_err();
    assert!(matches!(error, Error::Unequal { .. }), "{error}");
    // A remainder of less than a chunk does not count as a different size.
    let nodes = [Node::new(1).await, Node::with(2, RamDisk::new(512, BLOCKS + 127), |_| {}).await];
    let units = self::units(&nodes).await.unwrap();
    units.describe_new_array(chunk()).unwrap();
}

#[tokio::test]
async fn an_array_is_made_opened_and_imported_in_the_order_of_its_roles() {
    let [one, two] = two().await;
    let nodes = [one, two];
    let units = units(&nodes).await.unwrap();
    assert!(units.with_superblock().await.unwrap().is_empty());
    let description = units.describe_new_array(chunk()).unwrap();
    let error = refused(&description).await;
    assert!(matches!(error, Error::Superblock { .. }), "{error}");
    units.write_superblocks(&description, 1_700_000_000).await.unwrap();
    assert_eq!(units.with_superblock().await.unwrap(), [0, 1]);
    let volume = description.open(&initiator()).await.unwrap();
    let md = description.md.unwrap();
    assert_eq!((md.data_offset, md.data_size), (1 << 20, LEN as u64 - (1 << 20)));
    assert_eq!(volume.capacity(), 2 * md.data_size);
    let data = pattern(CHUNK * 3, 5);
    volume.write_at(0, vec![data.clone().into()]).await.unwrap();
    assert!(nodes[0].disk.holds(1 << 20, &data[..CHUNK]));
    assert!(nodes[1].disk.holds(1 << 20, &data[CHUNK..CHUNK * 2]));
    assert!(nodes[0].disk.holds((1 << 20) + CHUNK as u64, &data[CHUNK * 2..]));

    let [one, two] = nodes;
    let nodes = [two, one];
    let imported = self::units(&nodes).await.unwrap().import().await.unwrap();
    assert_eq!(imported.to_string(), description.to_string());
}

/// A superblock with another array UUID, role, number of members, chunk, data offset or data size is refused. The
/// test changes one of these fields at a time.
#[tokio::test]
async fn members_of_other_arrays_are_refused() {
    let nodes = two().await;
    let found = units(&nodes).await.unwrap();
    let description = found.describe_new_array(chunk()).unwrap();
    found.write_superblocks(&description, 1).await.unwrap();
    let bytes = nodes[1].disk.read(Superblock::OFFSET, Superblock::LEN);
    let good = Superblock::parse(&bytes).unwrap();
    let mut others = [good; 6];
    others[0].set_uuid.0[3] ^= 1;
    others[1].role = 0;
    others[2].members = 3;
    others[3].chunk = Chunk::default();
    others[4].data_offset += 512;
    others[5].data_size -= 512;
    for other in others {
        nodes[1].disk.write(Superblock::OFFSET, &other.emit());
        let error = refused(&description).await;
        assert!(matches!(error, Error::Superblock { .. }), "{error}");
        assert!(error.to_string().starts_with("member 1 (naa."), "{error}");
        let error = units(&nodes).await.unwrap().import().await.unwrap_err();
        let is_refused = matches!(error, Error::Superblock { .. } | Error::Unequal { .. });
        assert!(is_refused, "{error}");
    }
    nodes[1].disk.write(Superblock::OFFSET, &good.emit());
    description.open(&initiator()).await.unwrap();
    // The data would extend beyond the end of the unit.
    let mut long = good;
    long.data_size += CHUNK as u64;
    let mut first =
        Superblock::parse(&nodes[0].disk.read(Superblock::OFFSET, Superblock::LEN)).unwrap();
    first.data_size = long.data_size;
    nodes[0].disk.write(Superblock::OFFSET, &first.emit());
    nodes[1].disk.write(Superblock::OFFSET, &long.emit());
    let error = units(&nodes).await.unwrap().import().await.unwrap_err();
    assert!(matches!(error, Error::TooSmall { .. }), "{error}");
}
