//! Checks by pointer ranges that write data is sent from the caller's pages, and that read data is stored in
//! the caller's buffer.

use std::io::IoSlice;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use iscsi_pdu::Cid;
use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_session::{Command, Payload, ReadAhead};

use crate::pair::{BLOCK, Pair, config, pattern, target_config};

const PAGE: usize = 4096;

fn pages(count: usize) -> Vec<Bytes> {
    (0..count).map(|page| Bytes::from(pattern(PAGE, page as u64))).collect()
}

fn ranges(pages: &[Bytes]) -> Vec<Range<*const u8>> {
    pages.iter().map(|page| page.as_ptr_range()).collect()
}

/// Takes one batch of slices like a driver. Returns its length, and how many of its bytes are in the pages.
fn take_batch(pair: &mut Pair, pages: &[Range<*const u8>]) -> Option<(usize, usize)> {
    let link = pair.link(0);
    let mut transmit = pair.session.poll_transmit(Cid(0), pair.now)?;
    let mut slices = [IoSlice::new(&[]); 1024];
    let count = transmit.chunks_vectored(&mut slices);
    let lies_in_page = |slice: &&IoSlice<'_>| {
        let range = slice.as_ptr_range();
        pages.iter().any(|page| page.start <= range.start && range.end <= page.end)
    };
    let slices = &slices[..count];
    let in_pages = slices.iter().filter(lies_in_page).map(|slice| slice.len()).sum();
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
    transmit.advance(bytes.len());
    pair.target.receive(link, &bytes);
    Some((bytes.len(), in_pages))
}

/// Every byte of the payload is sent from the caller's memory, and one system call can send a large part of it.
#[test]
fn written_pages_are_never_copied() {
    let mut pair = Pair::logged_in(config(), target_config(8192));
    let pages = pages(512);
    let ranges = ranges(&pages);
    let total = pages.len() * PAGE;
    let blocks = u16::try_from(total / BLOCK).unwrap();
    let command =
        Command::new(Lun::ZERO, Cdb::write_10(0, blocks)).with_write(Payload::from_pages(pages));
    let itt = pair.submit(command);
    let mut from_pages = 0;
    let mut batches = Vec::new();
    while !pair.completed.contains_key(&itt) {
        while let Some((len, in_pages)) = take_batch(&mut pair, &ranges) {
            from_pages += in_pages;
            batches.push(len);
        }
        pair.drive_receive();
    }
    assert_eq!(from_pages, total, "each byte left once, from its page");
    let largest = batches.iter().max().unwrap();
    assert!(*largest >= 512 * 1024, "one system call carries at most {largest} bytes");
    pair.assert_no_violations();
}

/// The rest of a Data-In is read directly into the caller's buffer, which is returned without a copy.
#[test]
fn read_data_lands_in_the_callers_buffer() {
    let mut pair = Pair::logged_in(config(), target_config(8192));
    let len = 256 * 1024;
    let buffer = BytesMut::zeroed(len);
    let at = buffer.as_ptr_range();
    let command = Command::new(Lun::ZERO, Cdb::read_10(0, (len / BLOCK) as u16)).with_read(buffer);
    let itt = pair.submit(command);
    let link = pair.link(0);
    let bytes = pair.session.poll_transmit(Cid(0), pair.now).unwrap().copy_to_bytes(48);
    pair.target.receive(link, &bytes);
    let mut direct = 0;
    let mut stream = BytesMut::from(&pair.target.transmit(link)[..]);
    // The header arrives first, as if the target had sent it in a separate segment.
    let mut piece = stream.split_to(48);
    while piece.has_remaining() {
        let mut filled = 0;
        for slice in &mut pair.session.receive_slices(Cid(0)) {
            let take = slice.len().min(piece.len());
            slice[..take].copy_from_slice(&piece.split_to(take));
            let inside = at.start <= slice.as_ptr() && slice.as_ptr() < at.end;
            direct += if inside { take } else { 0 };
            filled += take;
        }
        pair.session.handle_received(Cid(0), filled, pair.now);
        piece.unsplit(stream.split());
        piece.unsplit(BytesMut::from(&pair.target.transmit(link)[..]));
    }
    pair.drive();
    let done = pair.completed.remove(&itt).unwrap().unwrap();
    assert_eq!(done.data.as_ptr(), at.start);
    assert_eq!(done.data, pair.target.disk(0).unwrap().read(0, len));
    assert_eq!(direct, len, "nothing had to be read ahead");
}

/// A connection reads ahead into lent memory and returns that memory, so that an idle connection holds none.
#[test]
fn a_connection_reads_ahead_into_what_is_lent_to_it() {
    let mut pair = Pair::logged_in(config(), target_config(8192));
    let leading = Cid(0);
    assert!(pair.session.reclaim_read_ahead(leading).is_none(), "the pair has taken it back");
    let place = |session: &mut iscsi_session::Session| {
        let [_, ahead] = session.receive_slices(leading);
        assert_eq!(ahead.len(), ReadAhead::LEN);
        ahead.as_ptr_range()
    };
    let own = place(&mut pair.session);
    let memory = pair.session.reclaim_read_ahead(leading).unwrap();
    assert!(pair.session.reclaim_read_ahead(leading).is_none());
    pair.session.lend_read_ahead(leading, memory);
    assert_eq!(place(&mut pair.session), own);
    assert!(pair.session.reclaim_read_ahead(Cid(9)).is_none(), "there is no such connection");
}
