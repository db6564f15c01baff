//! Makes the disk that the writers need.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::block::Block;
use crate::layout::Layout;

/// Fills an empty file of `len` bytes.
///
/// # Errors
/// When it cannot be written, or the size is too small for any layout.
pub(crate) fn make(file: &File, len: u64) -> io::Result<()> {
    file.set_len(len)?;
    let layout = Layout::of(file)?;
    for number in (0..layout.blocks()).filter(|number| !layout.is_hole(*number)) {
        file.write_all_at(&Block::first(layout, number).0, Layout::offset(number))?;
    }
    Ok(())
}
