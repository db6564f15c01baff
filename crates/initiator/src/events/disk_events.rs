//! Publishes the events of a disk to subscriptions.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};

use iscsi_pdu::scsi::AdditionalSense;

use crate::events::disk_event::DiskEvent;
use crate::events::publisher::{Publisher, Subscription};

/// Events of a disk: a subscription from [`Disk::events`](crate::Disk::events).
///
/// Each subscription receives each event. If the unit reports the same kind of change several times between
/// two calls of `next`, the reports are received as one event. For the capacity, that event has the first and
/// the last value. Up to 64 events wait for a slow receiver; after that the oldest ones are dropped, and
/// [`DiskEvent::Missed`] counts them.
#[derive(Debug)]
pub struct DiskEvents {
    events: Subscription<DiskEvent>,
    /// Number of dropped events that [`DiskEvent::Missed`] has already reported.
    missed: u64,
}

/// Log to which the parts of a disk publish its events.
#[derive(Debug, Default)]
pub(crate) struct EventLog(Publisher<DiskEvent>);

impl DiskEvents {
    /// Waits for the next event; `None` when the disk has been logged out, or all its handles are dropped.
    ///
    /// A unit reports its changes to each session at the next command (SAM-5 §5.14). So no change is received
    /// while no command is sent, unless [`Options::with_poll`](crate::Options::with_poll) makes an idle disk
    /// poll the unit. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<DiskEvent> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<DiskEvent>> {
        // The missed events are older than all events that wait, so they are reported first.
        let missed = self.events.missed();
        if missed > self.missed {
            let count = missed - std::mem::replace(&mut self.missed, missed);
            return Poll::Ready(Some(DiskEvent::Missed { count }));
        }
        self.events.poll_next(context)
    }
}

impl EventLog {
    /// Subscribes to later events.
    pub(crate) fn subscribe(&self) -> DiskEvents {
        DiskEvents { events: self.0.subscribe(), missed: 0 }
    }

    pub(crate) fn publish(&self, event: &DiskEvent) {
        self.0.publish(event);
    }

    /// Ends the subscriptions: no more events will be published.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    /// Publishes a change of the capacity.
    pub(crate) fn resized(&self, before: u64, now: u64) {
        self.0.publish_merged(&DiskEvent::CapacityChanged { before, now }, merge_capacity);
    }

    /// Publishes the event of a unit attention.
    pub(crate) fn on_unit_attention(&self, code: AdditionalSense) {
        let event = match code {
            AdditionalSense::INQUIRY_DATA_HAS_CHANGED
            | AdditionalSense::DEVICE_IDENTIFIER_CHANGED => DiskEvent::InquiryDataChanged,
            AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED => DiskEvent::ReportedLunsChanged,
            AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED
            | AdditionalSense::IMPLICIT_TRANSITION_FAILED => DiskEvent::AccessStatesChanged,
            // The event for this change is published after the unit has reported its new capacity.
            AdditionalSense::CAPACITY_DATA_HAS_CHANGED => return,
            code if code.is_reset() => DiskEvent::Reset { code },
            code => DiskEvent::UnitAttention { code },
        };
        self.0.publish_merged(&event, |waiting, event| waiting.iter().any(|it| repeats(event, it)));
    }
}

/// Returns whether an event of the unit repeats an event that waits. Repetitions occur because the unit
/// reports the same change to each session.
fn repeats(event: &DiskEvent, waiting: &DiskEvent) -> bool {
    use DiskEvent::{
        AccessStatesChanged, InquiryDataChanged, ReportedLunsChanged, Reset, UnitAttention,
    };
    match (event, waiting) {
        (InquiryDataChanged, InquiryDataChanged)
        | (ReportedLunsChanged, ReportedLunsChanged)
        | (AccessStatesChanged, AccessStatesChanged) => true,
        (Reset { code }, Reset { code: other })
        | (UnitAttention { code }, UnitAttention { code: other }) => code == other,
        _ => false,
    }
}

fn merge_capacity(waiting: &mut VecDeque<DiskEvent>, event: &DiskEvent) -> bool {
    let DiskEvent::CapacityChanged { now: latest, .. } = event else { return false };
    let at = waiting.iter().position(|it| matches!(it, DiskEvent::CapacityChanged { .. }));
    let Some(at) = at else { return false };
    if let Some(DiskEvent::CapacityChanged { before, now }) = waiting.get_mut(at) {
        *now = *latest;
        if before == now {
            waiting.remove(at);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(events: &mut DiskEvents) -> String {
        events.next().await.map_or_else(String::new, |event| format!("{event:?}"))
    }

    #[tokio::test]
    async fn changes_of_one_kind_that_wait_are_received_as_one() {
        let log = EventLog::default();
        log.on_unit_attention(AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED);
        let mut events = log.subscribe();
        log.resized(10, 20);
        log.on_unit_attention(AdditionalSense::CAPACITY_DATA_HAS_CHANGED);
        log.on_unit_attention(AdditionalSense::INQUIRY_DATA_HAS_CHANGED);
        log.on_unit_attention(AdditionalSense::DEVICE_IDENTIFIER_CHANGED);
        log.resized(20, 30);
        for _ in 0..100 {
            log.on_unit_attention(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED);
            log.on_unit_attention(AdditionalSense::POWER_ON_OR_RESET);
            log.on_unit_attention(AdditionalSense::MODE_PARAMETERS_CHANGED);
        }
        assert_eq!(text(&mut events).await, "CapacityChanged { before: 10, now: 30 }");
        assert_eq!(text(&mut events).await, "InquiryDataChanged");
        assert_eq!(text(&mut events).await, "AccessStatesChanged");
        let code = AdditionalSense::POWER_ON_OR_RESET;
        assert_eq!(text(&mut events).await, format!("Reset {{ code: {code:?} }}"));
        let code = AdditionalSense::MODE_PARAMETERS_CHANGED;
        assert_eq!(text(&mut events).await, format!("UnitAttention {{ code: {code:?} }}"));
        log.resized(30, 40);
        assert_eq!(text(&mut events).await, "CapacityChanged { before: 30, now: 40 }");
        log.resized(40, 50);
        log.resized(50, 40);
        log.on_unit_attention(AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED);
        assert_eq!(text(&mut events).await, "ReportedLunsChanged", "the capacity is as it was");
        drop(log);
        assert!(events.next().await.is_none());
    }

    #[tokio::test]
    async fn a_slow_subscriber_learns_first_how_many_events_it_has_missed() {
        let log = EventLog::default();
        let mut events = log.subscribe();
        (0..70).for_each(|_| log.publish(&DiskEvent::WritesLost));
        assert_eq!(text(&mut events).await, "Missed { count: 6 }");
        for sent in 0..64 {
            assert_eq!(text(&mut events).await, "WritesLost");
            if sent == 0 {
                log.publish(&DiskEvent::NoTsih);
            }
        }
        assert_eq!(text(&mut events).await, "NoTsih");
        (0..66).for_each(|_| log.publish(&DiskEvent::WritesLost));
        assert_eq!(text(&mut events).await, "Missed { count: 2 }");
        assert_eq!(text(&mut events).await, "WritesLost");
    }
}
