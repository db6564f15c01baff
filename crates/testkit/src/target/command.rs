//! SCSI commands: their order, start, data and status (RFC 7143 §4.2.2.1, §11.3).

use std::time::Duration;

use bytes::Bytes;

use super::connection::{Delayed, Outgoing};
use super::node::{CommandRecord, Target};
use super::read::ReadTransfer;
use super::session::LateWork;
use super::task::{Delays, Outcome, Task};
use super::write::WriteTransfer;
use crate::config::Presence;
use crate::conn_id::ConnId;
use crate::convert::clamp32;
use crate::opcode::Opcode;
use crate::pdu::Pdu;
use crate::scsi::{self, Sense, Sink, Source, Work, operation};

impl Target {
    /// Processes a request that has a `CmdSN`. An immediate request is delivered now, any other request
    /// after all earlier `CmdSN`s were delivered. A request outside the window is dropped.
    pub(super) fn arrive(&mut self, id: ConnId, pdu: Pdu) {
        if pdu.immediate() {
            return self.deliver(id, &pdu);
        }
        let Some(session) = self.session_of(id) else { return };
        if !session.in_window(pdu.cmd_sn()) {
            return;
        }
        session.keep(id, pdu);
        self.deliver_in_order(id);
    }

    /// Delivers the requests whose turn has come. Also called after a gap was filled.
    pub(super) fn deliver_in_order(&mut self, id: ConnId) {
        while let Some(early) = self.session_of(id).and_then(|session| session.next_in_order()) {
            self.deliver(early.connection, &early.pdu);
            for data in &early.data {
                self.data_out(early.connection, data);
            }
        }
    }

    fn deliver(&mut self, id: ConnId, pdu: &Pdu) {
        match pdu.opcode() {
            Some(Opcode::ScsiCommand) => self.scsi_command(id, pdu),
            Some(Opcode::TaskManagementRequest) => self.task_management(id, pdu),
            Some(Opcode::TextRequest) => self.text_request(id, pdu),
            Some(Opcode::LogoutRequest) => self.logout(id, pdu),
            Some(Opcode::NopOut) => self.nop_out(id, pdu),
            _ => {}
        }
    }

    fn scsi_command(&mut self, id: ConnId, pdu: &Pdu) {
        self.record.commands.push(CommandRecord {
            connection: id,
            lun: pdu.lun(),
            itt: pdu.itt(),
            cmd_sn: pdu.cmd_sn(),
            cdb: pdu.cdb(),
            edtl: pdu.edtl(),
        });
        let mut task = Task::new(id, pdu);
        let begun = self.begin(&mut task);
        if self.connections[id.0].is_closed() {
            return;
        }
        match begun {
            Ok(Work::Send(source)) if pdu.reads() => self.start_read(task, source),
            Ok(Work::Take(sink, length)) if pdu.writes() => {
                self.start_write(task, pdu, sink, length)
            }
            Ok(Work::Done) => self.start_nothing(task, pdu, Outcome::GOOD),
            Ok(Work::Send(source)) => {
                let length = source.length();
                self.start_nothing(Task { length, ..task }, pdu, Outcome::GOOD);
            }
            Ok(Work::Take(_, length)) => {
                self.start_nothing(Task { length, ..task }, pdu, Outcome::GOOD);
            }
            Err(outcome) => self.start_nothing(task, pdu, outcome),
        }
        self.count_for_ping(id);
    }

    fn begin(&mut self, task: &mut Task) -> Result<Work, Outcome> {
        if let Some(outcome) = self.outcomes.pop_front() {
            return Err(outcome);
        }
        let (id, lun, cdb) = (task.connection, task.lun, task.cdb);
        let is_missing = self.config.presence == Presence::Missing;
        let number = self.config.lun_form.decode(lun).filter(|_| !is_missing);
        self.meet_attention(id, number, cdb[0]).map_err(Outcome::check)?;
        if self.config.presence == Presence::BecomingReady && !scsi::ignores_unit_attention(cdb[0])
        {
            return Err(Outcome::check(Sense::BECOMING_READY));
        }
        self.access().check(cdb).map_err(Outcome::check)?;
        self.meet_reservation(id, number, cdb)?;
        let inverted = self.meet_faults(task)?;
        if cdb[0] == operation::REPORT_LUNS {
            return Ok(scsi::report_luns(
                self.config.units.keys().copied().filter(|_| !is_missing),
                self.config.lun_form,
                cdb,
            ));
        }
        let unit = number.and_then(|number| self.config.units.get(&number));
        let port = self.config.port.as_ref();
        let work =
            unit.map_or_else(|| scsi::begin_absent(cdb), |unit| scsi::begin(unit, port, cdb));
        let work = work.map_err(Outcome::check)?;
        Ok(work.with_inverted(inverted))
    }

    /// Applies the faults of a command's blocks to the command before it is executed. Returns the block that
    /// gets a wrong byte.
    fn meet_faults(&mut self, task: &mut Task) -> Result<Option<u64>, Outcome> {
        let met = self.command_faults(task.connection, task.lun, task.cdb, &[]);
        task.delays = Delays { answer: met.delay, execution: met.late };
        if met.breaks {
            self.close(task.connection);
        }
        met.failure.map_or(Ok(met.inverted), Err)
    }

    /// Starts a command that has no data or that fails. Its unsolicited data are received and discarded.
    fn start_nothing(&mut self, mut task: Task, pdu: &Pdu, outcome: Outcome) {
        task.outcome = outcome;
        let write = WriteTransfer::new(Sink::Discard, 0, pdu);
        if pdu.writes() && write.is_open() {
            task.write = Some(write);
            return self.admit(task);
        }
        let (id, itt) = (task.connection, task.itt);
        self.admit(task);
        self.respond(id, itt, 0);
    }

    fn start_read(&mut self, mut task: Task, source: Source) {
        task.length = source.length();
        if self.config.data_in.no_residual && matches!(source, Source::Bytes(_)) {
            task.length = task.edtl.into();
        }
        let is_of_blocks = matches!(source, Source::Disk { .. });
        let (id, itt) = (task.connection, task.itt);
        task.delays.execution =
            if is_of_blocks { self.next_execution_delay(task.simple) } else { Duration::ZERO };
        let is_late = !task.delays.execution.is_zero();
        self.admit(task);
        if is_late {
            return self.put_off(id, itt, LateWork::Read(source));
        }
        self.send_read(id, itt, source);
    }

    /// Queues the data that a command reads, and its status.
    pub(super) fn send_read(&mut self, id: ConnId, itt: u32, source: Source) {
        let Some(session) = self.session_of(id) else { return };
        let Some(task) = session.tasks.get(&itt) else { return };
        let residual = task.residual();
        let length = task.edtl.min(clamp32(source.length()));
        if length == 0 {
            return self.respond(id, itt, 0);
        }
        let Some(session) = self.session_of(id) else { return };
        let params = session.params.clone();
        let segment = self.connections[id.0].segment;
        let behavior = &self.config.data_in;
        let read = ReadTransfer::new(itt, (source, length), behavior, &params, segment, residual);
        let (count, separate) = (read.count(), read.has_separate_status());
        self.enqueue_or_hold(id, Outgoing::Read(read));
        if separate {
            self.respond(id, itt, count);
        }
    }

    fn start_write(&mut self, mut task: Task, pdu: &Pdu, sink: Sink, length: u64) {
        task.length = length;
        task.delays.execution += self.next_execution_delay(task.simple);
        let sink = if task.delays.execution.is_zero() { sink } else { sink.put_off() };
        let mut write = WriteTransfer::new(sink, task.edtl.min(clamp32(length)), pdu);
        if self.is_unexpected(task.connection, pdu) {
            write.failure = Some(Sense::UNEXPECTED_DATA);
        }
        task.write = Some(write);
        if self.miscounts(&task) {
            task.length = 0;
        }
        let (id, itt) = (task.connection, task.itt);
        self.admit(task);
        self.plan_write(id, itt);
    }

    /// Returns whether the unit reports the whole parameter list of an UNMAP as residual, although it has
    /// executed the UNMAP.
    fn miscounts(&self, task: &Task) -> bool {
        let unit =
            self.config.lun_form.decode(task.lun).and_then(|lun| self.config.units.get(&lun));
        task.cdb[0] == operation::UNMAP && unit.is_some_and(|unit| unit.behavior.unmap_residual)
    }

    /// Returns whether a command has data that the negotiated parameters forbid (RFC 7143 §13.10, §13.11).
    fn is_unexpected(&mut self, id: ConnId, pdu: &Pdu) -> bool {
        let Some(session) = self.session_of(id) else { return false };
        let params = &session.params;
        !pdu.data.is_empty() && !params.immediate_data || !pdu.is_final() && params.initial_r2t
    }

    fn admit(&mut self, task: Task) {
        let id = task.connection;
        if let Some(session) = self.session_of(id) {
            session.tasks.insert(task.itt, task);
        }
    }

    /// Processes a Data-Out of a task, or of a command that waits for its turn. Ignores the PDU if neither
    /// exists any more.
    pub(super) fn data_out(&mut self, id: ConnId, pdu: &Pdu) {
        let Some(session) = self.session_of(id) else { return };
        if let Some(early) = session.early_by_tag(pdu.itt()) {
            early.data.push(pdu.clone());
            return;
        }
        let Some(task) = session.tasks.get_mut(&pdu.itt()) else { return };
        if task.connection != id {
            return self.reject(id, pdu, 0x04);
        }
        let Some(write) = task.write.as_mut() else { return };
        let open = write.is_open();
        if write.take(pdu).is_none() {
            return self.reject(id, pdu, 0x09);
        }
        if open {
            self.plan_write(id, pdu.itt());
        } else {
            self.go_on_writing(id, pdu.itt());
        }
    }

    /// Requests the remaining data once the unsolicited data have arrived.
    fn plan_write(&mut self, id: ConnId, itt: u32) {
        let behavior = self.config.r2t.clone();
        let Some(session) = self.session_of(id) else { return };
        let params = session.params.clone();
        let Some(write) = session.tasks.get_mut(&itt).and_then(|task| task.write.as_mut()) else {
            return;
        };
        if !write.is_open() {
            write.plan(&behavior, &params);
            self.go_on_writing(id, itt);
        }
    }

    fn go_on_writing(&mut self, id: ConnId, itt: u32) {
        self.release_writes(id);
        self.ask(id, itt);
        let Some(session) = self.session_of(id) else { return };
        let Some(task) = session.tasks.get_mut(&itt) else { return };
        let Some(write) = task.write.take_if(|write| write.is_complete()) else { return };
        let (lun, cdb, good) = (task.lun, task.cdb, task.outcome == Outcome::GOOD);
        let (r2ts, parameters) = (write.r2t_count(), write.sink.parameters());
        let met = match write.failure {
            Some(sense) => Err(Outcome::check(sense)),
            None if good => self.meet_faults_of_list(id, itt, parameters),
            None => return self.end_write(id, itt, Ok(()), r2ts),
        };
        if self.connections[id.0].is_closed() {
            return;
        }
        let task = self.session_of(id).and_then(|session| session.tasks.get(&itt));
        if met.is_ok() && task.is_some_and(|task| !task.delays.execution.is_zero()) {
            return self.put_off(id, itt, LateWork::Write(write));
        }
        let finished = met.and_then(|()| self.finish(id, itt, lun, cdb, parameters));
        self.end_write(id, itt, finished, r2ts);
    }

    /// Applies the faults of an UNMAP's blocks once its parameter list has arrived, because the list has the
    /// blocks. For all other commands the CDB has the blocks, and the faults were applied and counted at the
    /// start.
    fn meet_faults_of_list(
        &mut self,
        id: ConnId,
        itt: u32,
        parameters: &[u8],
    ) -> Result<(), Outcome> {
        let task = self.session_of(id).and_then(|session| session.tasks.get(&itt));
        let unmap = task.filter(|task| task.cdb[0] == operation::UNMAP);
        let Some((lun, cdb)) = unmap.map(|task| (task.lun, task.cdb)) else { return Ok(()) };
        let met = self.command_faults(id, lun, cdb, parameters);
        if let Some(task) = self.session_of(id).and_then(|it| it.tasks.get_mut(&itt)) {
            task.delays.answer = met.delay;
            task.delays.execution += met.late;
        }
        if met.breaks {
            self.close(id);
        }
        met.failure.map_or(Ok(()), Err)
    }

    /// Executes a command whose data, or whose parameter list, have arrived. A unit that was replaced
    /// meanwhile still executes its commands.
    fn finish(
        &mut self,
        id: ConnId,
        itt: u32,
        lun: u64,
        cdb: [u8; 16],
        parameters: &[u8],
    ) -> Result<(), Outcome> {
        let task = self.session_of(id).and_then(|it| it.tasks.get_mut(&itt));
        let reached = task.and_then(|task| task.unit.take());
        let number = self.config.lun_form.decode(lun);
        match cdb[0] {
            operation::PERSISTENT_RESERVE_OUT => {
                return self.change_reservation(id, number, cdb, parameters);
            }
            operation::MAINTENANCE_OUT => return self.set_port_groups(id, parameters),
            _ => {}
        }
        let unit = || number.and_then(|number| self.config.units.get(&number));
        let unit = reached.as_deref().or_else(unit);
        unit.map_or(Ok(()), |unit| scsi::finish(unit, cdb, parameters)).map_err(Outcome::check)
    }

    pub(super) fn end_write(
        &mut self,
        id: ConnId,
        itt: u32,
        finished: Result<(), Outcome>,
        r2ts: u32,
    ) {
        if let (Err(outcome), Some(session)) = (finished, self.session_of(id))
            && let Some(task) = session.tasks.get_mut(&itt)
        {
            task.outcome = outcome;
        }
        self.respond(id, itt, r2ts);
    }

    /// Sends the R2Ts of waiting writes, newest write first, once `gather_tasks` of them wait.
    fn release_writes(&mut self, id: ConnId) {
        let gather = self.config.r2t.gather_tasks;
        let Some(session) = self.session_of(id) else { return };
        let waiting: Vec<_> = session.tasks.values_mut().filter(|task| waits(task)).collect();
        if waiting.len() < gather {
            return;
        }
        let mut released = Vec::new();
        for task in waiting {
            if let Some(write) = task.write.as_mut() {
                write.released = true;
                released.push((task.connection, task.itt));
            }
        }
        for (connection, itt) in released.into_iter().rev() {
            self.ask(connection, itt);
        }
    }

    /// Sends R2Ts for a task, up to the number that may be outstanding.
    fn ask(&mut self, id: ConnId, itt: u32) {
        while let Some(r2t) = self.next_r2t(id, itt) {
            self.enqueue(id, Outgoing::Pdu(r2t));
        }
    }

    fn next_r2t(&mut self, id: ConnId, itt: u32) -> Option<Pdu> {
        let session = self.session_of(id)?;
        let mut task = session.tasks.remove(&itt)?;
        let asked = task.write.as_mut().and_then(|write| write.ask(|| session.take_ttt()));
        let lun = task.lun;
        session.tasks.insert(itt, task);
        let (number, ask) = asked?;
        let mut r2t = Pdu::new(Opcode::R2t);
        r2t.set(8, &lun.to_be_bytes());
        for (at, value) in
            [(16, itt), (20, ask.ttt), (36, number), (40, ask.offset), (44, ask.length)]
        {
            r2t.set_u32(at, value);
        }
        Some(r2t)
    }

    /// Queues the SCSI response of a task. `numbered` is its `ExpDataSN` (RFC 7143 §11.4).
    pub(super) fn respond(&mut self, id: ConnId, itt: u32, numbered: u32) {
        let zero = self.config.data_in.zero_exp_data_sn;
        let Some(session) = self.session_of(id) else { return };
        let Some(task) = session.tasks.get(&itt) else { return };
        let mut pdu = Pdu::new(Opcode::ScsiResponse);
        let (flag, residual) = task.residual();
        pdu.header[1] |= flag;
        pdu.set(3, &[task.outcome.status]);
        pdu.set_u32(16, itt);
        pdu.set_u32(36, if zero { 0 } else { numbered });
        pdu.set_u32(44, residual);
        if let Some(sense) = task.outcome.sense {
            pdu.data = Bytes::from(sense.segment());
        }
        self.enqueue_or_hold(id, Outgoing::Pdu(pdu));
    }

    fn enqueue_or_hold(&mut self, id: ConnId, outgoing: Outgoing) {
        let itt = outgoing.itt();
        let task = self.session_of(id).and_then(|session| session.tasks.get(&itt));
        let delay = task.map_or(Duration::ZERO, |task| task.delays.answer);
        if self.kept_back.holding {
            self.kept_back.held.push((id, outgoing));
        } else if delay.is_zero() {
            self.enqueue(id, outgoing);
        } else {
            self.kept_back.delayed.push(Delayed::new(id, outgoing, delay));
        }
    }
}

fn waits(task: &Task) -> bool {
    task.write.as_ref().is_some_and(|write| write.is_waiting() && !write.released)
}
