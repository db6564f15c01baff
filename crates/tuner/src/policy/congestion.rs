//! Chooses the congestion control.

use crate::limits::{BBR, Limits};
use crate::link::loss::MIN_LOSS_FOR_BBR;
use crate::link::model::LinkModel;
use crate::plan::Choice;
use crate::tuning::{Policy, Tuning};

pub(super) fn choose(link: &LinkModel, limits: &Limits, tuning: &Tuning) -> Choice<Option<String>> {
    if let Some(wish) = &tuning.congestion_control {
        return asked_for(wish, limits);
    }
    if tuning.policy == Policy::Auto && link.loss >= MIN_LOSS_FOR_BBR {
        return against_loss(link, limits);
    }
    Choice::new(None, "nothing speaks against it")
}

fn asked_for(wish: &str, limits: &Limits) -> Choice<Option<String>> {
    let has = |names: &[String]| names.iter().any(|name| name == wish);
    let available = &limits.available_congestion_controls;
    if has(&limits.allowed_congestion_controls) || available.is_empty() {
        return Choice::new(Some(wish.to_owned()), "as asked for");
    }
    let reason = if has(available) {
        format!(
            "{wish} is not permitted here: add it to net.ipv4.tcp_allowed_congestion_control, or run \
             with CAP_NET_ADMIN"
        )
    } else {
        format!(
            "this kernel has no {wish} (it has {}): modprobe tcp_{wish} may bring it",
            available.join(", ")
        )
    };
    Choice::new(None, reason)
}

fn against_loss(link: &LinkModel, limits: &Limits) -> Choice<Option<String>> {
    let percent = link.loss * 100.0;
    let has = |names: &[String]| names.iter().any(|name| name == BBR);
    if limits.congestion_control.as_deref() == Some(BBR) {
        return Choice::new(None, format!("it is bbr, right for {percent:.3} % of loss"));
    }
    if has(&limits.allowed_congestion_controls) {
        let reason = format!("{percent:.3} % of the segments are lost, not for want of room");
        return Choice::new(Some(BBR.to_owned()), reason);
    }
    let remedy = if has(&limits.available_congestion_controls) {
        "add bbr to net.ipv4.tcp_allowed_congestion_control"
    } else {
        "modprobe tcp_bbr may bring one that copes"
    };
    Choice::new(None, format!("{percent:.3} % of the segments are lost; {remedy}"))
}
