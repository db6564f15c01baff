//! Regular files and block devices.

mod block_device;
pub(crate) mod holders;
mod holes;
mod inode;
pub(crate) mod options;

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_block_device::{
    ContentName, Device, DeviceFuture, DeviceLimits, DeviceName, DeviceResult, Extent,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rustix::io::Errno;

use crate::joined::blocking;
use holes::{blocks, punch, synced_extents, write_zeros, zero_around_blocks};
use inode::{made, place};
use options::FileOptions;

/// Preferred length of a request, bytes: passing a request to another thread costs more than a short read.
const PREFERRED: usize = 1 << 20;
/// Bytes in flight that keep a disk busy, even if some requests are slow. More in flight would only take more
/// memory and delay the first write.
const QUEUE: usize = 4 << 20;

/// Returns how many requests of `io_size` bytes keep a file of this host busy.
pub(crate) fn local_depth(io_size: usize) -> usize {
    QUEUE.div_ceil(io_size.max(1))
}

/// Resolution of modification times in file systems.
const TICK: Duration = Duration::from_millis(20);
/// Resolution of modification times in file systems that store whole seconds (ext3, FAT).
const COARSE_TICK: Duration = Duration::from_secs(2);

/// A regular file or a block device, as a [`Device`]: several threads access any range. It reports holes
/// (`SEEK_HOLE`) and frees zeroed space (`FALLOC_FL_PUNCH_HOLE`), as far as the file system supports that.
/// After a write error that may belong to an earlier write (no space, a quota, the length of a file, the
/// medium), every flush fails.
///
/// Clones are the same file. Requests run on tokio's blocking threads.
#[derive(Clone, Debug)]
pub struct FileDevice {
    file: Arc<File>,
    capacity: u64,
    is_block_device: bool,
    is_read_only: bool,
    sticky: Arc<StickyError>,
}

/// The first error of a write that may belong to an earlier write. Every later flush reports it.
///
/// The system reports a failed write-back once. NFS may report it at the next write instead of at the flush,
/// so a successful flush after such an error does not show that the data is durable.
#[derive(Debug, Default)]
struct StickyError {
    /// Number of the error; 0 for none.
    error: AtomicI32,
    /// Each write holds this lock, shared, until it has stored its error. `check` takes it exclusively, and
    /// so waits for the writes in flight.
    writing: RwLock<()>,
}

impl StickyError {
    /// Writes, and stores the error if it may belong to an earlier write.
    fn write(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _writing = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        let result = write();
        if let Some(code) = result.as_ref().err().and_then(io::Error::raw_os_error)
            && let Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO =
                Errno::from_raw_os_error(code)
        {
            self.error.store(code, Ordering::Relaxed);
        }
        result
    }

    /// Returns the stored error, after it has waited for writes in flight.
    fn check(&self) -> io::Result<()> {
        drop(self.writing.write().unwrap_or_else(PoisonError::into_inner));
        match self.error.load(Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl FileDevice {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// The errors of the system; [`InvalidInput`](ErrorKind::InvalidInput) for anything but a regular file or
    /// a block device, which only a [stream](crate::Source::stream) can read.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_file(File::open(path)?)
    }

    /// Opens a file for writing and reading. A missing file is created, and its name is made durable; an
    /// existing one is not changed. A file in use is refused: see [`FileOptions`] for other choices.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), and of [`FileOptions::open`].
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let options = FileOptions::new().with_read(true).with_create(true);
        Self::from_file(options.open(path)?.0)
    }

    /// Creates a device from an open file. It can be read and written only as it was opened: a file that is
    /// not open for writing is read-only. A file that is not open for reading still reports its holes. The
    /// caller makes sure that a block device is not in use; [`FileOptions`] checks that.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn from_file(mut file: File) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let why = "neither a regular file nor a block device";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        // The metadata of a block device has no length: seek to the end.
        let capacity = file.seek(SeekFrom::End(0))?;
        let is_block_device = kind.is_block_device();
        let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
        let is_read_only = flags & OFlag::O_ACCMODE == OFlag::O_RDONLY;
        let (file, sticky) = (Arc::new(file), Arc::default());
        Ok(Self { file, capacity, is_block_device, is_read_only, sticky })
    }

    /// Returns the system's metadata of the file.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Returns whether the file is a block device, whose capacity does not change.
    pub const fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Sets the length of a regular file. Bytes beyond it are lost; new bytes are a hole.
    ///
    /// # Errors
    /// The errors of the system.
    pub async fn set_len(&mut self, len: u64) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        blocking(move || file.set_len(len)).await?;
        self.capacity = len;
        Ok(())
    }

    /// Makes a regular file at least `len` bytes long; bytes beyond that stay.
    pub(crate) async fn lengthen(&self, len: u64) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        blocking(move || if file.metadata()?.len() < len { file.set_len(len) } else { Ok(()) })
            .await
    }

    /// Returns the same file without a capacity, so that writes beyond its end make it longer.
    pub(crate) const fn growing(mut self) -> Self {
        self.capacity = u64::MAX;
        self
    }
}

impl Device for FileDevice {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn limits(&self) -> DeviceLimits {
        let mut limits = DeviceLimits::default();
        limits.preferred_transfer = PREFERRED;
        limits.has_fast_zeroes = true;
        limits.discard_granularity = Some(1);
        limits.has_volatile_cache = true;
        limits.is_read_only = self.is_read_only;
        limits
    }

    /// Returns the inode number of a regular file and its birth time, if the file system reports that; for a
    /// block device, the name of the disk.
    fn name(&self) -> DeviceResult<Option<DeviceName>> {
        let metadata = self.metadata()?;
        if self.is_block_device {
            let name = block_device::name(metadata.rdev());
            return Ok(Some(DeviceName::new(name, self.capacity)));
        }
        // The length is not part of the name, because it changes during a copy.
        let (place, made) = (place(&metadata), made(&metadata));
        Ok(Some(match made {
            Some(made) => DeviceName::new(format!("{place} {made}"), 0),
            None => DeviceName::new(place, 0).with_unique(false),
        }))
    }

    /// Returns the time of the last change of a regular file.
    fn content_name(&self) -> DeviceResult<Option<ContentName>> {
        if self.is_block_device {
            return Ok(None);
        }
        let metadata = self.metadata()?;
        let changed = format!("file changed {}.{:09}", metadata.mtime(), metadata.mtime_nsec());
        let tick = if metadata.mtime_nsec() == 0 { COARSE_TICK } else { TICK };
        // A modification time in the future counts as long ago: the clock of the file system may be ahead.
        let ago = metadata.modified()?.elapsed().unwrap_or(tick);
        Ok(Some(ContentName::new(changed, metadata.len(), tick.saturating_sub(ago))))
    }

    fn queue_depth(&self, io_size: usize) -> usize {
        local_depth(io_size)
    }

    fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        let file = Arc::clone(&self.file);
        on_thread(move || {
            file.read_exact_at(&mut buffer, offset)?;
            Ok(buffer)
        })
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        let (file, sticky) = (Arc::clone(&self.file), Arc::clone(&self.sticky));
        on_thread(move || {
            let mut at = offset;
            for page in pages {
                sticky.write(|| file.write_all_at(&page, at))?;
                at += page.len() as u64;
            }
            Ok(())
        })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        let (file, sticky) = (Arc::clone(&self.file), Arc::clone(&self.sticky));
        on_thread(move || file.sync_all().and_then(|()| sticky.check()))
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        let (file, is_block_device) = (Arc::clone(&self.file), self.is_block_device);
        on_thread(move || {
            let range = offset..offset.saturating_add(len);
            let punched = match punch(&file, &range) {
                Err(Errno::INVAL) if is_block_device => punch(&file, &blocks(&range)),
                punched => punched,
            };
            match punched {
                Err(Errno::OPNOTSUPP) => Ok(()),
                // The device's blocks are longer than `BLOCK`: nothing is freed.
                Err(Errno::INVAL) if is_block_device => Ok(()),
                result => Ok(result?),
            }
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> DeviceFuture<'_, ()> {
        let (file, sticky) = (Arc::clone(&self.file), Arc::clone(&self.sticky));
        let is_block_device = self.is_block_device;
        on_thread(move || {
            let range = offset..offset.saturating_add(len);
            sticky.write(|| match punch(&file, &range) {
                Err(Errno::OPNOTSUPP) => write_zeros(&file, range),
                Err(Errno::INVAL) if is_block_device => zero_around_blocks(&file, range),
                result => result.map_err(io::Error::from),
            })
        })
    }

    fn extents(&self, offset: u64, len: u64) -> DeviceFuture<'_, Vec<Extent>> {
        let file = Arc::clone(&self.file);
        let is_block_device = self.is_block_device;
        on_thread(move || {
            let range = offset..offset.saturating_add(len);
            // If the file became shorter, `SEEK_HOLE` would report everything beyond its new end as a hole.
            if !is_block_device && file.metadata()?.len() < range.end {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            // A block device has no holes, so it need not be synced before it is queried.
            let sync: fn(&File) -> _ = if is_block_device { |_| Ok(()) } else { File::sync_data };
            synced_extents(&file, range, sync)
        })
    }
}

/// Runs a request on a thread that may block.
fn on_thread<'a, T: Send + 'static>(
    request: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> DeviceFuture<'a, T> {
    Box::pin(async move { Ok(blocking(request).await?) })
}
