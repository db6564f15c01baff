//! Checks a scenario beyond its grammar.

use std::path::Path;

use super::{Direction, Links, Measure, Scenario, Stripe, Who};

impl Scenario {
    /// Checks the scenario. The error names the first inconsistency.
    pub(super) fn check(&self) -> Result<(), String> {
        let wanting = [
            (self.target.luns.is_empty(), "[target]: `luns` names no unit"),
            (self.links.is_empty(), "there is no [[link]]"),
            (
                self.is_empty(),
                "there is nothing to measure: no [[measure]], [[fault]], [[flows]], [[mirror]], [[failover]] or [[stripe]]",
            ),
        ];
        refuse(&wanting)?;
        for (index, links) in self.links.iter().enumerate() {
            links.check().map_err(|reason| format!("[[link]] number {}: {reason}", index + 1))?;
        }
        for (index, measure) in self.measures.iter().enumerate() {
            self.check_measure(measure).map_err(|reason| {
                format!("[[measure]] number {} ({}): {reason}", index + 1, measure.name())
            })?;
        }
        for (index, fault) in self.faults.iter().enumerate() {
            fault
                .check()
                .and_then(|()| self.check_store(fault.lun))
                .map_err(|reason| format!("[[fault]] number {}: {reason}", index + 1))?;
        }
        for (index, flows) in self.flows.iter().enumerate() {
            let checked = flows.check().and_then(|()| {
                let missing = (0..flows.flows.len() as u64)
                    .any(|lun| !self.target.luns.iter().any(|unit| u64::from(unit.number) == lun));
                refuse(&[(missing, "each flow has a unit of its own, from 0 on")])
            });
            checked.map_err(|reason| format!("[[flows]] number {}: {reason}", index + 1))?;
        }
        for (index, mirror) in self.mirrors.iter().enumerate() {
            mirror
                .check()
                .and_then(|()| self.check_store(mirror.lun))
                .map_err(|reason| format!("[[mirror]] number {}: {reason}", index + 1))?;
        }
        for (index, failover) in self.failovers.iter().enumerate() {
            failover
                .check()
                .and_then(|()| self.check_store(failover.lun))
                .map_err(|reason| format!("[[failover]] number {}: {reason}", index + 1))?;
        }
        for (index, stripe) in self.stripes.iter().enumerate() {
            stripe
                .check()
                .and_then(|()| self.check_members(stripe))
                .map_err(|reason| format!("[[stripe]] number {}: {reason}", index + 1))?;
        }
        let measured: Vec<_> = self.measures.iter().map(Measure::name).collect();
        for (index, goal) in self.goals.iter().enumerate() {
            goal.check(&measured)
                .map_err(|reason| format!("[[goal]] number {}: {reason}", index + 1))?;
        }
        Ok(())
    }

    /// Checks that a unit has a file, and that all units' files are in one folder: the lab reads the data of
    /// a unit from its file, and mounts one file system for all files.
    fn check_store(&self, lun: u16) -> Result<(), String> {
        let files = self.target.luns.iter().map(|unit| unit.file.as_deref());
        let mut folders: Vec<_> = files.map(|file| file.and_then(Path::parent)).collect();
        folders.dedup();
        refuse(&[
            (self.unit(lun).is_none(), "`lun`: there is no such unit"),
            (
                folders.len() > 1 || folders.contains(&None),
                "[target]: all units keep their bytes in files of one folder",
            ),
        ])
    }

    /// Checks that each link has a unit of its own, and that all these units have the stripe's size.
    fn check_members(&self, stripe: &Stripe) -> Result<(), String> {
        let fits = |lun| self.unit(lun).is_some_and(|unit| unit.size == stripe.bytes);
        let wrong = !(0..u16::from(stripe.most_links())).all(fits);
        refuse(&[(wrong, "each link wants a unit of `bytes`, from LUN 0 on")])
    }

    fn check_measure(&self, measure: &Measure) -> Result<(), String> {
        let unit = self.unit(measure.lun).ok_or_else(|| format!("no unit {}", measure.lun))?;
        let bytes = measure.bytes.unwrap_or(unit.size);
        if bytes > unit.size {
            return Err(format!("{bytes} do not fit unit {}", measure.lun));
        }
        if measure.direction == Direction::Read
            && copies_whole_unit(measure.who)
            && bytes != unit.size
        {
            return Err("a unit is read as a whole: `bytes` must be its size".to_owned());
        }
        if measure.is_thin() && unit.file.is_none() {
            return Err("`source = \"scattered\"`: the unit keeps its bytes in a file".to_owned());
        }
        if measure.is_thin() && bytes != unit.size {
            return Err("`source = \"scattered\"`: `bytes` must be the unit's size".to_owned());
        }
        measure.check()
    }
}

/// Returns the reason of the first condition that is true, as an error. `Ok` if all are false.
fn refuse(wrong: &[(bool, &str)]) -> Result<(), String> {
    wrong.iter().find(|(is, _)| *is).map_or(Ok(()), |(_, reason)| Err((*reason).to_owned()))
}

/// Returns whether a program can only read the whole unit.
fn copies_whole_unit(who: Who) -> bool {
    match who {
        Who::BlockCopy | Who::QemuImg => true,
        Who::Iperf3 | Who::Libiscsi | Who::OpenIscsi | Who::Program => false,
    }
}

impl Measure {
    fn check(&self) -> Result<(), String> {
        let is_program = self.who == Who::Program;
        let wrong = [
            (self.repeat == 0, "`repeat` must be at least 1"),
            (self.limit == Some(0), "`limit` must be at least 1"),
            (self.bytes.is_some_and(|bytes| bytes.0 == 0), "`bytes` must be at least 1"),
            (
                is_program == self.program.is_empty(),
                "`program` belongs to who = \"program\", and it to that",
            ),
            (is_program && self.label.is_none(), "who = \"program\" needs a `label`"),
            (self.seconds.is_some() && self.who != Who::Iperf3, "only iperf3 runs for `seconds`"),
            (self.seconds.is_some() && self.bytes.is_some(), "`bytes` or `seconds`, not both"),
            (self.vary.values().any(Vec::is_empty), "a list in `vary` is empty"),
        ];
        refuse(&wrong)
    }
}

impl Links {
    fn check(&self) -> Result<(), String> {
        let percent = 0.0..=100.0;
        if self.rtt_ms.is_empty() || !self.rtt_ms.iter().all(|rtt| rtt.is_finite() && *rtt >= 0.0) {
            return Err("`rtt_ms` wants one or more numbers, 0 or more".to_owned());
        }
        if !self.loss.iter().all(|loss| percent.contains(loss)) {
            return Err("`loss` wants numbers from 0 to 100".to_owned());
        }
        Ok(())
    }
}
