//! Moves bytes between initiator and targets, and advances the targets' clocks.

use bytes::Bytes;
use iscsi_testkit::target::Target;
use tokio::time::Instant;

use crate::busy;
use crate::clock;
use crate::pending::Pending;
use crate::settings::Class;
use crate::wire::Wire;
use crate::world::World;

impl World {
    /// Moves everything that is due, and returns the time of the next step.
    pub(crate) fn turn(&mut self) -> Option<Instant> {
        let now = clock::now();
        self.arrive_at_targets(now);
        for (number, target) in self.targets.iter_mut().enumerate() {
            if !self.silences.contains_key(&number) {
                target.advance(now.into_std());
            }
        }
        if self.lun.was_exchanged() && self.targets.iter().any(Target::withholds_attention) {
            self.lun.withheld(self.oracle.now());
        }
        self.report_cache_losses();
        self.losing.clear();
        self.losses.managed(self.targets.iter().map(Target::functions_carried_out).sum());
        self.arrive_at_initiator(now);
        if self.losses.is_any_false(now) {
            self.accuse("a flush tells of lost writes, but nothing has happened".to_owned());
        }
        let is_over = |wire: &Wire| wire.is_closed && wire.is_over(clock::now());
        self.wires.retain(|_, wire| !is_over(wire));
        self.observe_orphans();
        let arrivals = self.wires.values().flat_map(|wire| {
            let target = &self.targets[self.portals[wire.portal].target];
            let deadline = target.deadline(wire.connection).map(Instant::from_std);
            let ends = [&wire.to_target, &wire.to_initiator];
            let arrivals = ends.map(|way| way.next_arrival().or_else(|| way.end_arrives()));
            arrivals.into_iter().flatten().chain(deadline).chain(wire.unread.next())
        });
        let executions = self.targets.iter().filter_map(Target::next_execution);
        let executions = executions.map(Instant::from_std);
        let suspected = self.losses.next();
        let silences = self.silences.values().map(|silence| silence.until());
        arrivals.chain(executions).chain(suspected).chain(silences).filter(|next| *next > now).min()
    }

    /// Delivers arrived data to the targets' hosts, and from there to the targets that read.
    fn arrive_at_targets(&mut self, now: Instant) {
        let watches = self.watches_unread();
        let mut wrong = None;
        for (number, wire) in &mut self.wires {
            while let Some(mut bytes) = wire.to_target.receive(now) {
                if let Some(tunnel) = &mut wire.tunnel {
                    self.trace.record("encrypted to target", &[*number, bytes.len() as u64]);
                    bytes = tunnel.decrypt(&bytes).unwrap_or_else(|error| {
                        wrong.get_or_insert(error);
                        Bytes::new()
                    });
                }
                self.trace.arrived("to target", *number, &bytes);
                if wire.is_closed || wire.is_reset {
                    self.counts.fault(Class::Late);
                }
                wire.unread.push(bytes, watches);
                if let Some(writer) = wire.writer.take() {
                    writer.wake();
                }
            }
        }
        if let Some(error) = wrong {
            self.accuse(format!("a tunnel cannot decrypt what the initiator has sent: {error}"));
        }
        self.silences.retain(|_, silence| !silence.is_over(now));
        for number in self.wires.keys().copied().collect::<Vec<_>>() {
            self.read(number, now);
        }
    }

    /// Lets a target read the unread data of a connection, unless the target is busy.
    fn read(&mut self, number: u64, now: Instant) {
        let Some(wire) = self.wires.get_mut(&number) else { return };
        let which = self.portals[wire.portal].target;
        let unit = self.units.of_target(which);
        self.may_write_back(unit);
        let Some(wire) = self.wires.get_mut(&number) else { return };
        let target = &mut self.targets[which];
        while !self.silences.contains_key(&which)
            && !wire.unread.is_silent(now)
            && let Some(bytes) = wire.unread.pop()
        {
            let before = Pending::of(target);
            let store = self.slow_store.map(|store| (store, busy::flushes(target)));
            let unflushed = self.units.disk(unit).unflushed_blocks();
            target.receive(wire.connection, &bytes);
            let after = Pending::of(target);
            for (class, made) in before.made(after) {
                self.counts.faults(class, made);
                if matches!(class, Class::Hole | Class::Slow | Class::Zombie) {
                    self.losses.kept_back();
                }
            }
            if after.flushes < before.flushes {
                self.losses.reason();
            }
            if after.losing < before.losing {
                self.losing.insert(wire.process);
            }
            if let Some((store, flushes)) = store
                && busy::flushes(target) > flushes
            {
                let lasts = store.lasts(unflushed);
                wire.unread.wait_for(lasts, store.ping);
                self.counts.fault(Class::SlowStore);
                self.trace.record("a flush is slow", &[number, lasts.as_secs()]);
            }
        }
        if wire.unread.is_ping_overdue(now) {
            self.trace.record("the target's ping has no answer", &[number]);
            self.losses.reason();
            target.drop_connection(wire.connection);
            wire.unread.heal();
        }
        if wire.is_over(now) {
            target.disconnected(wire.connection);
        } else if !wire.unread.is_empty() && self.silences.contains_key(&which) {
            self.counts.fault(Class::BusyTarget);
        }
    }

    fn arrive_at_initiator(&mut self, now: Instant) {
        let mut wrong = None;
        for (number, wire) in &mut self.wires {
            let target = &mut self.targets[self.portals[wire.portal].target];
            let before = Pending::of(target);
            let is_silent = self.silences.contains_key(&self.portals[wire.portal].target)
                || wire.unread.is_silent(now);
            let mut next = || (!is_silent).then(|| target.transmit(wire.connection));
            while let Some(bytes) = next().filter(|bytes| !bytes.is_empty()) {
                match &mut wire.tunnel {
                    None => wire.to_initiator.send(bytes, &self.shape, &mut self.chance),
                    Some(tunnel) => {
                        self.trace.arrived("encrypts for initiator", *number, &bytes);
                        if let Err(error) = tunnel.encrypt(&bytes) {
                            wrong.get_or_insert(error);
                        }
                    }
                }
            }
            for (class, made) in before.made(Pending::of(target)) {
                self.counts.faults(class, made);
                self.losses.kept_back();
            }
            let is_closed = target.is_closed(wire.connection);
            if let Some(tunnel) = &mut wire.tunnel {
                if is_closed {
                    tunnel.close();
                }
                while let Some(bytes) = tunnel.poll_transmit(&mut self.chance) {
                    wire.to_initiator.send(bytes, &self.shape, &mut self.chance);
                }
            }
            if is_closed {
                wire.to_initiator.end();
            }
            if wire.is_closed || wire.is_reset {
                wire.to_initiator.drop_all();
                continue;
            }
            while let Some(bytes) = wire.to_initiator.receive(now) {
                if wire.tunnel.is_some() {
                    self.trace.record("encrypted to initiator", &[*number, bytes.len() as u64]);
                } else {
                    self.trace.arrived("to initiator", *number, &bytes);
                }
                wire.inbox.extend_from_slice(&bytes);
                wire.has_answered |= wire.tunnel.as_ref().is_none_or(|tunnel| tunnel.has_answered);
            }
            wire.is_at_end |= wire.to_initiator.is_over(now);
            if wire.is_readable()
                && let Some(reader) = wire.reader.take()
            {
                reader.wake();
            }
        }
        if let Some(error) = wrong {
            self.accuse(format!("a tunnel cannot encrypt what the target sends: {error}"));
        }
    }
}
