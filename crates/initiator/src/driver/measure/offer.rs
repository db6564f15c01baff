//! Translates between the keys of a login and the plain numbers of the tuner.

use iscsi_session::{Negotiated, Offer};
use iscsi_tuner::{Limits, Measurement, TransferOffer, TransferTerms, Tuning, plan};

/// Returns the keys to propose: the plan's, except those that the user has set.
pub(crate) fn planned_offer(wished: &Offer, tuning: &Tuning) -> Offer {
    let plan = plan(&Measurement::default(), &Limits::default(), tuning);
    merged(wished, &plan.offer.value)
}

fn merged(wished: &Offer, planned: &TransferOffer) -> Offer {
    let r2t = choose(wished, Offer::initial_r2t, planned.initial_request);
    let first_burst = choose(wished, Offer::first_burst_length, planned.first_burst);
    let burst = choose(wished, Offer::max_burst_length, planned.burst);
    let r2ts = choose(wished, Offer::max_outstanding_r2t, planned.bursts_at_once);
    wished
        .with_initial_r2t(r2t)
        .with_first_burst_length(first_burst)
        .with_max_burst_length(burst)
        .with_max_outstanding_r2t(r2ts)
}

/// Returns the user's value of a key, or the planned value if the user has left the default.
fn choose<T: PartialEq>(wished: &Offer, key: fn(&Offer) -> T, planned: T) -> T {
    let wish = key(wished);
    if wish == key(&Offer::default()) { planned } else { wish }
}

/// Returns the negotiated values as plain numbers (RFC 7143 §13.10, §13.11, §13.13, §13.14, §13.17).
pub(super) fn terms(negotiated: &Negotiated) -> TransferTerms {
    let first_burst = negotiated.first_burst_length;
    let unsolicited = match (negotiated.initial_r2t, negotiated.immediate_data) {
        (false, _) => first_burst,
        (true, true) => first_burst.min(negotiated.target_max_recv_data_segment_length),
        (true, false) => 0,
    };
    TransferTerms::new(
        unsolicited.into(),
        negotiated.max_burst_length.into(),
        negotiated.max_outstanding_r2t.into(),
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_proposes_what_the_user_does_not() {
        let wished = Offer::default().with_max_outstanding_r2t(3);
        let limits = Limits::default();
        let mut planned = plan(&Measurement::default(), &limits, &Tuning::default()).offer.value;
        (planned.initial_request, planned.first_burst) = (true, 8192);
        (planned.burst, planned.bursts_at_once) = (16_384, 7);
        let offer = merged(&wished, &planned);
        assert_eq!((offer.initial_r2t(), offer.max_outstanding_r2t()), (true, 3));
        assert_eq!((offer.first_burst_length(), offer.max_burst_length()), (8192, 16_384));
    }

    #[test]
    fn terms_are_what_a_write_may_send_unasked() {
        let mut negotiated = Negotiated::default();
        negotiated.first_burst_length = 65_536;
        negotiated.target_max_recv_data_segment_length = 8192;
        let unsolicited = |initial_r2t, immediate_data| {
            let mut negotiated = negotiated.clone();
            (negotiated.initial_r2t, negotiated.immediate_data) = (initial_r2t, immediate_data);
            terms(&negotiated).unsolicited
        };
        assert_eq!(unsolicited(false, true), 65_536);
        assert_eq!(unsolicited(false, false), 65_536);
        assert_eq!(unsolicited(true, true), 8192);
        assert_eq!(unsolicited(true, false), 0);
    }
}
