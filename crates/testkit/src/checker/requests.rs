//! Rules of task management, text, logout and pings (RFC 7143 §11.5, §11.10, §11.14, §11.18).

use super::connection::{TextWatch, Watch};
use super::session::SessionWatch;
use super::tags::ABORT_TASK;
use super::violation::{Breaches, demand};
use crate::conn_id::ConnId;
use crate::pdu::{NO_TAG, Pdu};

const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;
const TASK_REASSIGN: u8 = 8;

impl SessionWatch {
    pub(super) fn management(
        &mut self,
        id: ConnId,
        watch: &mut Watch,
        breaches: &mut Breaches,
        pdu: &Pdu,
    ) {
        let function = pdu.function();
        let whole = matches!(function, TARGET_WARM_RESET | TARGET_COLD_RESET);
        demand(breaches, !whole || pdu.lun() == 0, "TMF-01", || format!("LUN is set: {pdu:?}"));
        let named = matches!(function, ABORT_TASK | TASK_REASSIGN);
        let tag = pdu.referenced_tag();
        demand(breaches, named != (tag == NO_TAG), "TMF-02", || format!("referenced tag: {pdu:?}"));
        if function == ABORT_TASK {
            self.abort(id, watch, breaches, pdu);
            self.tags.abort(tag);
        } else {
            let zero = pdu.ref_cmd_sn() == 0;
            demand(breaches, zero, "TMF-03", || format!("RefCmdSN is set: {pdu:?}"));
        }
        let data_sn = function == TASK_REASSIGN || pdu.exp_data_sn() == 0;
        demand(breaches, data_sn, "ERR-02", || format!("ExpDataSN is set: {pdu:?}"));
    }

    fn abort(&self, id: ConnId, watch: &mut Watch, breaches: &mut Breaches, pdu: &Pdu) {
        for burst in watch.bursts.iter_mut().filter(|burst| burst.itt == pdu.referenced_tag()) {
            burst.abandoned = true;
        }
        let Some(task) = self.tags.get(pdu.referenced_tag()) else { return };
        demand(breaches, task.connection == id, "TMF-04", || {
            format!("the task is on connection {}: {pdu:?}", task.connection.0)
        });
        demand(breaches, task.lun == pdu.lun(), "TMF-01", || {
            format!("the task has LUN {:#x}: {pdu:?}", task.lun)
        });
        let expected = if task.immediate { pdu.cmd_sn() } else { task.cmd_sn };
        demand(breaches, pdu.ref_cmd_sn() == expected, "TMF-03", || {
            format!("RefCmdSN should be {expected}: {pdu:?}")
        });
    }

    pub(super) fn text(&self, watch: &mut Watch, breaches: &mut Breaches, pdu: &Pdu) {
        demand(breaches, !(pdu.is_final() && pdu.continues()), "TXT-09", || {
            format!("F and C together: {pdu:?}")
        });
        let known = watch.text.take();
        match known.filter(|text| text.goes_on(pdu)) {
            Some(text) => {
                demand(breaches, !text.awaiting, "TXT-20", || {
                    format!("before the answer: {pdu:?}")
                });
                demand(breaches, text.immediate == pdu.immediate(), "TXT-21", || {
                    format!("I changed: {pdu:?}")
                });
                let copied = pdu.ttt() == text.ttt && pdu.lun() == text.lun;
                demand(breaches, copied, "TXT-22", || format!("TTT or LUN not copied: {pdu:?}"));
            }
            None => {
                demand(breaches, known.is_none(), "TXT-20", || format!("a second text: {pdu:?}"));
                demand(breaches, pdu.ttt() == NO_TAG, "TXT-22", || format!("TTT is set: {pdu:?}"));
            }
        }
        watch.text = Some(TextWatch {
            itt: pdu.itt(),
            immediate: pdu.immediate(),
            awaiting: true,
            ttt: NO_TAG,
            lun: 0,
        });
    }

    pub(super) fn logout(
        &mut self,
        id: ConnId,
        watch: &mut Watch,
        breaches: &mut Breaches,
        pdu: &Pdu,
    ) {
        let (reason, cid) = (pdu.function(), pdu.cid());
        demand(breaches, reason <= 2, "LGO-02", || format!("reason {reason}: {pdu:?}"));
        demand(breaches, reason != 0 || cid == 0, "LGO-02", || format!("CID is set: {pdu:?}"));
        demand(breaches, !self.discovery || reason == 0, "LGO-09", || format!("{pdu:?}"));
        let own = reason != 1 || cid == watch.cid || self.joined;
        demand(breaches, own, "LGO-02", || format!("not the CID of the connection: {pdu:?}"));
        if reason == 0 {
            self.closing = Some((id, pdu.cmd_sn()));
        }
        if reason == 1 {
            self.asks_to_close(pdu.itt(), cid);
        }
        watch.logged_out |= reason == 1 && cid == watch.cid;
    }

    pub(super) fn nop_out(&self, watch: &mut Watch, breaches: &mut Breaches, pdu: &Pdu) {
        let (itt, ttt, lun) = (pdu.itt(), pdu.ttt(), pdu.lun());
        if itt != NO_TAG {
            demand(breaches, ttt == NO_TAG, "NOP-03", || format!("a ping with TTT: {pdu:?}"));
            return demand(breaches, lun == 0, "NOP-03", || format!("a ping with LUN: {pdu:?}"));
        }
        let bare = pdu.immediate() && pdu.data.is_empty();
        demand(breaches, bare, "NOP-01", || format!("I is not set, or there are data: {pdu:?}"));
        if ttt == NO_TAG {
            return;
        }
        let known = watch.pings.iter().position(|ping| *ping == (ttt, lun));
        match known {
            Some(at) => drop(watch.pings.remove(at)),
            None => breaches.push(("NOP-01", format!("answers no ping: {pdu:?}"))),
        }
    }
}
