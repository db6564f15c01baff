//! Reviews the paths of a disk: how much data they have moved, and how many sessions the tuner wants.

use std::collections::BTreeSet;

use iscsi_multipath::topology::Count;
use iscsi_multipath::{PathId, ReviewPace};
use iscsi_tuner::{SessionsReading, Step};
use tokio::time::Instant;

use crate::driver::measure::reading::Reading;
use crate::driver::measure::tuner;
use crate::multipath::paths::Paths;
use crate::multipath::paths::path::Path;
use crate::multipath::supervisor::shared_link::SharedLink;
use crate::multipath::supervisor::{Supervisor, count};
use crate::options::sessions::Sessions;

impl Supervisor {
    /// Reads the counters of the sessions, sets the credit of each path, and shares measured losses. Returns
    /// whether the tuner wants another number of sessions.
    pub(super) async fn review(&mut self, paths: &Paths) -> Count {
        let progress = paths.progress();
        let review = &mut self.review;
        review.moves = progress.moved != review.moved;
        if !review.moves {
            if review.pace.rested(paths.serve_waiting()) {
                paths.leave_unattended();
            }
            return Count::Stay;
        }
        let now = Instant::now();
        let time = now - review.reviewed;
        let moved = progress.moved - review.moved;
        let is_rare = tuner::is_little(moved, time) && are_short(paths);
        review.pace.moved(is_rare && count(&paths.open()) == 1);
        if is_rare && time < review.pace.rare_interval() {
            return Count::Stay;
        }
        // A very short interval would make the rates meaningless.
        let time = time.max(ReviewPace::INTERVAL);
        (review.moved, review.reviewed) = (progress.moved, now);
        let (mut readings, mut queues) = (Vec::new(), 0);
        let open = paths.in_use();
        let portals = count_portals(&open);
        self.review.traffic.keep(|id| open.iter().any(|(there, _)| *there == id));
        for (id, path) in open {
            paths.set_room(id, self.room(&path));
            if let Ok(reading) = path.unit.session().reading().await {
                let (cid, info) = (reading.cid(), reading.tcp_info());
                queues += usize::from(self.review.traffic.count(id, cid, info, time));
                readings.push(reading);
            }
        }
        self.review.traffic.fade();
        Self::spread_word(paths, &readings);
        let Sessions::Auto { .. } = self.review.sessions else { return Count::Stay };
        // While many sessions are being opened, measurements mean nothing, so the review is skipped. A few
        // late sessions delay no decision.
        let are_opening = 4 * self.topology.opening() > count(&paths.open());
        if are_opening || self.topology.reconnecting() > 0 || readings.is_empty() {
            return Count::Stay;
        }
        let shared_link = SharedLink::of(&readings);
        let mut reading = SessionsReading::default();
        reading.time = self.review.begun.elapsed();
        reading.bytes = progress.moved;
        reading.sessions = u32::try_from(readings.len()).unwrap_or(u32::MAX);
        // One session at each portal stays: it is needed when the link of another portal fails. Just after such a
        // failure the measurements make it look like a surplus.
        let planned = shared_link.planned(readings.first(), &self.opener.node.options().tuning);
        reading.planned = planned.max(portals);
        reading.is_busy = progress.is_busy;
        reading.has_queue = 2 * queues >= readings.len();
        reading.loss = self.review.traffic.loss();
        reading.round_trip = shared_link.round_trip;
        match self.review.count.observe(&reading) {
            // More sessions do not make the target's medium faster.
            Step::Add(_) if paths.limit_of_slow_target().is_some() => Count::Stay,
            Step::Stay => Count::Stay,
            Step::Add(more) => Count::More(more),
            Step::Remove(fewer) => Count::Fewer(fewer),
        }
    }

    /// Shares the losses that one session has measured with all sessions. Each session alone would take
    /// longer to distinguish random losses from a queue that overflows.
    fn spread_word(paths: &Paths, readings: &[Reading]) {
        let acts = |reading: &Reading| reading.plan().congestion_control.value.is_some();
        let loss = readings
            .iter()
            .filter(|reading| acts(reading))
            .filter_map(|reading| reading.measurement().loss);
        let loss = loss.fold(0.0, f64::max);
        if loss <= 0.0 {
            return;
        }
        for (_, path) in paths.open() {
            let session = path.unit.session();
            if session.of_plan(|plan| plan.congestion_control.value.is_none()).unwrap_or_default() {
                session.on_link_loss(loss);
            }
        }
    }
}

/// Returns the number of portals that the paths lead to.
fn count_portals(paths: &[(PathId, Path)]) -> u32 {
    let portals: BTreeSet<_> = paths.iter().map(|(_, path)| path.portal).collect();
    u32::try_from(portals.len()).unwrap_or(u32::MAX)
}

/// Returns whether all paths are local, so that round trips are negligible.
fn are_short(paths: &Paths) -> bool {
    let is_short = |path: &Path| path.unit.session().of_plan(|plan| plan.link.is_local());
    paths.open().iter().all(|(_, path)| is_short(path) == Some(true))
}
