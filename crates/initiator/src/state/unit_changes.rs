//! What a unit tells of itself while a disk is open, for those who want to know.

use iscsi_pdu::scsi::AdditionalSense;
use tokio::sync::watch;

/// A change of the unit of a disk.
#[doc(alias("event", "UNIT ATTENTION"))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum UnitChange {
    /// The capacity has changed. The unit reports it (CAPACITY DATA HAS CHANGED), and each new
    /// session asks for it.
    #[doc(alias = "resize")]
    Capacity {
        /// Capacity before, as far as it was known, in bytes.
        before: u64,
        /// Capacity now, in bytes: [`Disk::capacity`](crate::Disk::capacity).
        now: u64,
    },
    /// INQUIRY DATA HAS CHANGED: the name, the version or other properties may be new. Before the
    /// next request, the disk checks that it is still the same unit.
    InquiryData,
    /// REPORTED LUNS DATA HAS CHANGED: the target has other units than before: see
    /// [`Session::report_luns`](crate::Session::report_luns).
    ReportedLuns,
    /// ASYMMETRIC ACCESS STATE CHANGED, or an implicit transition failed: other target ports serve
    /// the unit, or serve it better. The disk asks which ones, and uses them.
    #[doc(alias("ALUA", "failover"))]
    AccessStates,
}

/// Changes of the unit of a disk: a subscription from [`Disk::changes`](crate::Disk::changes).
///
/// Each subscription receives each change. Several changes of one kind between two calls are
/// received as one: for a change of capacity, from the first value to the last. So nothing
/// accumulates, however long no call is made.
#[derive(Debug)]
pub struct UnitChanges {
    news: watch::Receiver<News>,
    told: News,
}

/// What the unit has reported so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct News {
    /// Before the first change and after the last one, bytes.
    capacity: Option<(u64, u64)>,
    inquiry_data: u64,
    reported_luns: u64,
    access_states: u64,
}

/// Where the sessions of a disk leave what the unit tells.
#[derive(Debug)]
pub(crate) struct ChangeLog(watch::Sender<News>);

impl ChangeLog {
    /// The capacity is another one than was known.
    pub(crate) fn resized(&self, before: u64, now: u64) {
        self.0.send_modify(|news| {
            news.capacity = Some((news.capacity.map_or(before, |(first, _)| first), now));
        });
    }

    /// A unit attention has come.
    pub(crate) fn hear(&self, told: AdditionalSense) {
        self.0.send_if_modified(|news| {
            let count = match told {
                AdditionalSense::INQUIRY_DATA_HAS_CHANGED
                | AdditionalSense::DEVICE_IDENTIFIER_CHANGED => &mut news.inquiry_data,
                AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED => &mut news.reported_luns,
                AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED
                | AdditionalSense::IMPLICIT_TRANSITION_FAILED => &mut news.access_states,
                _ => return false,
            };
            *count += 1;
            true
        });
    }

    /// Subscribes to later changes.
    pub(crate) fn follow(&self) -> UnitChanges {
        let news = self.0.subscribe();
        let told = *news.borrow();
        UnitChanges { news, told }
    }
}

impl Default for ChangeLog {
    fn default() -> Self {
        Self(watch::Sender::new(News::default()))
    }
}

impl UnitChanges {
    /// Waits for the next change; `None` when all handles of the disk are dropped.
    ///
    /// A unit reports to each session at its next command (SAM-5 §5.14). So no change is seen while
    /// no command is sent, unless [`Options::with_poll`](crate::Options::with_poll) makes an idle disk ask.
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<UnitChange> {
        loop {
            let news = *self.news.borrow_and_update();
            if let Some(change) = self.told.take(&news) {
                return Some(change);
            }
            self.news.changed().await.ok()?;
        }
    }
}

impl News {
    /// Takes one change that was not received yet.
    fn take(&mut self, news: &Self) -> Option<UnitChange> {
        if let Some((first, now)) = news.capacity
            && self.capacity != news.capacity
        {
            let before = self.capacity.map_or(first, |(_, now)| now);
            self.capacity = news.capacity;
            if before != now {
                return Some(UnitChange::Capacity { before, now });
            }
        }
        let kinds = [
            (&mut self.inquiry_data, news.inquiry_data, UnitChange::InquiryData),
            (&mut self.reported_luns, news.reported_luns, UnitChange::ReportedLuns),
            (&mut self.access_states, news.access_states, UnitChange::AccessStates),
        ];
        for (told, count, change) in kinds {
            if *told != count {
                *told = count;
                return Some(change);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_kind_is_told_once_however_often_it_came() {
        let log = ChangeLog::default();
        log.hear(AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED);
        let mut changes = log.follow();
        log.hear(AdditionalSense::POWER_ON_OR_RESET);
        log.hear(AdditionalSense::INQUIRY_DATA_HAS_CHANGED);
        log.hear(AdditionalSense::DEVICE_IDENTIFIER_CHANGED);
        log.resized(10, 20);
        log.resized(20, 30);
        log.hear(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED);
        assert_eq!(changes.next().await, Some(UnitChange::Capacity { before: 10, now: 30 }));
        assert_eq!(changes.next().await, Some(UnitChange::InquiryData));
        assert_eq!(changes.next().await, Some(UnitChange::AccessStates));
        log.resized(30, 40);
        assert_eq!(changes.next().await, Some(UnitChange::Capacity { before: 30, now: 40 }));
        log.resized(40, 50);
        log.resized(50, 40);
        log.hear(AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED);
        assert_eq!(changes.next().await, Some(UnitChange::ReportedLuns), "it is as it was told");
        drop(log);
        assert_eq!(changes.next().await, None);
    }
}
