//! Tests of the wrong answers that end a session, sent once to a disk that reconnects lost sessions: the disk
//! survives all of them.

use crate::row::Row;
use crate::{close, control, digest, read, status, write};

pub(crate) fn rows() -> Vec<Row> {
    let stages = [
        read::rows(),
        write::rows(),
        status::rows(),
        control::rows(),
        close::rows(),
        digest::rows(),
    ];
    let lost = stages.concat().into_iter().filter(Row::loses_a_session);
    lost.map(Row::on_a_disk).collect()
}
