//! Explains limits that the user has set, in the diagnosis: names the option that lifts each limit, and the
//! side that waited because of it.

use iscsi_initiator::shaping::RateLimit;
use iscsi_tuner::{Diagnosis, Limiter, Row};

use crate::side::Side;

/// The limits of a copy that the user has set.
#[derive(Debug)]
pub(crate) struct OwnLimits<'a> {
    /// The smallest ceil of the copy's class and of that class's ancestors.
    pub(crate) rate: Option<RateLimit>,
    /// The name of the copy's class, if the options name one.
    pub(crate) class: Option<&'a str>,
    /// `--queue-depth`, if it is less than the plan would choose.
    pub(crate) queue_depth: Option<usize>,
}

impl OwnLimits<'_> {
    /// Explains the findings. A finding about a limit of the user gets the option that lifts it. A side that
    /// waited for the other side gets the limit that held the other side back.
    pub(crate) fn explain(&self, diagnoses: &mut [(Side, Diagnosis)]) {
        for (_, diagnosis) in &mut *diagnoses {
            for finding in &mut diagnosis.findings {
                finding.remedy = self.remedy(finding.limiter).or_else(|| finding.remedy.take());
                // With few requests in flight, one side has nothing to do while all requests are at the other
                // side.
                if let Some(depth) = self.queue_depth.filter(|_| waits_for_work(finding.limiter)) {
                    finding.evidence =
                        format!("no request was here: --queue-depth allows {depth} at a time");
                    finding.remedy = self.remedy(Limiter::QueueDepth);
                }
            }
            diagnosis.remarks.extend(self.rate.map(remark));
        }
        let held: Vec<_> = diagnoses.iter().filter_map(|(side, it)| self.held(*side, it)).collect();
        for (side, diagnosis) in &mut *diagnoses {
            let Some((other, limiter, remedy)) = held.iter().find(|(held, ..)| held != side) else {
                continue;
            };
            for finding in diagnosis.findings.iter_mut().filter(|it| waits_for_work(it.limiter)) {
                finding.evidence =
                    format!("it waited for the {other}, which its {limiter} held back");
                finding.remedy.clone_from(remedy);
            }
        }
    }

    /// Returns the limit that has held the side back most of the time, if the user has set that limit.
    fn held(&self, side: Side, diagnosis: &Diagnosis) -> Option<(Side, Limiter, Option<String>)> {
        let foremost = diagnosis.foremost()?;
        self.remedy(foremost.limiter)?;
        Some((side, foremost.limiter, foremost.remedy.clone()))
    }

    fn remedy(&self, limiter: Limiter) -> Option<String> {
        match (limiter, self.class, self.queue_depth) {
            (Limiter::Class, Some(class), _) => {
                let class = class.escape_debug();
                Some(format!(
                    "raise the ceil of the class {class}, or what is above it (--rate-limit)"
                ))
            }
            (Limiter::Class, None, _) => Some(
                "raise --rate-limit, or send the order rate to the --control socket".to_owned(),
            ),
            (Limiter::QueueDepth, _, Some(depth)) => {
                Some(format!("raise --queue-depth above {depth}, or leave it out"))
            }
            _ => None,
        }
    }
}

/// Returns whether the side had nothing to do.
const fn waits_for_work(limiter: Limiter) -> bool {
    matches!(limiter, Limiter::Source | Limiter::Destination)
}

fn remark(rate: RateLimit) -> Row {
    let reason = "the most that the copy may read from a unit, and write to one".into();
    Row { name: "rate limit", value: rate.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use iscsi_initiator::Tuning;
    use iscsi_tuner::{Activity, Limits, Measurement, Observation, TcpInfo, plan};

    use super::*;

    fn diagnosis(count: impl FnOnce(&mut Activity)) -> Diagnosis {
        let (mut activity, info) = (Activity::default(), TcpInfo::default());
        count(&mut activity);
        let second = std::time::Duration::from_secs(1);
        let observation = Observation::new(second, 1 << 20, info, info, activity);
        let (measurement, limits) = (Measurement::default(), Limits::default());
        let plan = plan(&measurement, &limits, &Tuning::default());
        Diagnosis::new(&observation, &plan, &measurement, &limits, None)
    }

    fn explained(limits: &OwnLimits<'_>, held: impl FnOnce(&mut Activity)) -> [String; 2] {
        let source = (Side::Source, diagnosis(|it| it.source = 50));
        let mut both = [source, (Side::Destination, diagnosis(held))];
        limits.explain(&mut both);
        both.map(|(_, diagnosis)| diagnosis.to_string())
    }

    #[test]
    fn each_limit_is_told_with_its_option_at_both_ends() {
        let rate = "10mbit".parse().ok();
        let mut limits = OwnLimits { rate, class: None, queue_depth: None };
        let [source, destination] = explained(&limits, |it| it.class = 50);
        assert!(destination.contains("raise --rate-limit"), "{destination}");
        assert!(destination.contains("10 Mbit/s"), "{destination}");
        let waits =
            "it waited for the destination, which its rate limit held back; raise --rate-limit";
        assert!(source.contains(waits), "{source}");
        limits.class = Some("backup");
        let [source, destination] = explained(&limits, |it| it.class = 50);
        for said in [source, destination] {
            assert!(said.contains("raise the ceil of the class backup"), "{said}");
        }
        limits.queue_depth = Some(1);
        let [source, destination] = explained(&limits, |it| it.answers = 50);
        for said in [source, destination] {
            assert!(said.contains("raise --queue-depth above 1,"), "{said}");
        }
        // The only request in flight is at the source and at the destination in turn.
        let [source, destination] = explained(&limits, |it| it.source = 50);
        for said in [source, destination] {
            assert!(said.contains("allows 1 at a time"), "{said}");
            assert!(said.contains("raise --queue-depth above 1,"), "{said}");
        }
    }

    /// A limit that did not hold its side back does not explain why the other side waited.
    #[test]
    fn who_waits_for_something_else_is_not_told_of_limits() {
        let limits = OwnLimits { rate: None, class: None, queue_depth: None };
        for held in [|it: &mut Activity| it.target = 50, |it: &mut Activity| it.answers = 50] {
            let [source, _] = explained(&limits, held);
            assert!(source.contains("there was nothing to write"), "{source}");
        }
    }
}
