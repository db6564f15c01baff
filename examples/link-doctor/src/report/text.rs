//! Renders the report as readable text.

use std::fmt;
use std::time::Duration;

use iscsi_tuner::{Limits, Rtt, SegmentLimit, TcpInfo};

use super::{Report, waits};
use crate::ceiling::{Ceiling, Limit, shown};
use crate::facts::LinkFacts;
use crate::progress::shown as rate_shown;
use crate::read_test::ReadTest;
use crate::table::{Line, Table};
use crate::verdict::millis;
use crate::writes::Writes;
use iscsi_tuner::Size;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        section(f, "Who", &self.who_lines())?;
        section(f, "Agreed at login (RFC 7143 §13)", &self.agreed.lines())?;
        section(f, "The link", &self.link_lines())?;
        section(f, "This host", &host_lines(&self.facts.limits))?;
        writeln!(f, "The plan\n{}\n", trimmed(&self.facts.plan))?;
        writeln!(f, "Granted by the kernel\n{}\n", trimmed(&self.facts.granted))?;
        self.write_read_test(f)?;
        write_writes(f, &self.writes)?;
        self.write_summary(f)
    }
}

fn section(f: &mut fmt::Formatter<'_>, title: &str, lines: &[Line]) -> fmt::Result {
    writeln!(f, "{title}\n{}", Table(lines))
}

/// Returns a table of the tuner as text, without spaces at the ends of its lines.
fn trimmed(table: &impl fmt::Display) -> String {
    let table = table.to_string();
    table.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

impl Report {
    fn who_lines(&self) -> Vec<Line> {
        let alias = self.who.alias.as_ref().map(|alias| format!("alias {alias}"));
        let from = self.who.redirected_from.as_ref();
        let redirected = from.map(|from| format!("the login was redirected from {from}"));
        let unit = match (&self.unit, self.is_unit_named) {
            (Some(unit), _) => unit.describe(),
            (None, true) => "not usable".to_owned(),
            (None, false) => "none named".to_owned(),
        };
        vec![
            Line::new("target", self.who.target.as_str(), alias.unwrap_or_default()),
            Line::new("portal", self.who.portal.as_str(), redirected.unwrap_or_default()),
            Line::new("unit", unit, ""),
            Line::new("initiator", self.who.initiator.as_str(), ""),
        ]
    }

    fn link_lines(&self) -> Vec<Line> {
        let mut lines = vec![
            rtt_line("round trip by TCP", self.tcp, "from kernel to kernel"),
            rtt_line("round trip by ping", self.ping(), &self.note_on_ping()),
        ];
        lines.extend(path_lines(&self.facts));
        lines.push(self.path.line(&self.who.portal));
        lines.extend(self.facts.remarks());
        lines
    }

    /// Returns a note that explains the difference between the round trips of pings and of TCP.
    fn note_on_ping(&self) -> String {
        const NOTABLE: Duration = Duration::from_millis(2);
        let (Some(ping), Some(tcp)) = (self.ping(), self.tcp) else { return String::new() };
        let more = ping.min.saturating_sub(tcp.min);
        if more < NOTABLE.max(tcp.min / 4) {
            return "NOP-Out up to its answer".to_owned();
        }
        format!("{} more than TCP: the target's software, or a proxy on the way", millis(more))
    }

    fn write_read_test(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.read {
            Some(test) => {
                section(f, "Read test", &self.read_lines(test))?;
                section(f, "What the session waited for", &waits(test))
            }
            None => {
                let why = match (&self.end, self.is_unit_named) {
                    (Some(error), _) => error.to_string(),
                    (None, true) => "there was no time for it".to_owned(),
                    (None, false) => {
                        "the URL names no unit; add its number to have it read".to_owned()
                    }
                };
                writeln!(f, "Read test\n  none: {why}\n")
            }
        }
    }

    fn read_lines(&self, test: &ReadTest) -> Vec<Line> {
        let workload = test.workload;
        let goodput = rate_shown(test.goodput());
        let amount = format!("{} in {:.1} s", Size(test.bytes), test.time.as_secs_f64());
        let under_way = format!("{} x {}", workload.depth, Size(workload.io_size as u64));
        let ping = test.loaded().map_or_else(unknown, millis);
        let mut lines = vec![
            Line::new("arrived", goodput, amount),
            Line::new("in flight", under_way, "concurrent reads"),
            Line::new("ping meanwhile", ping, "the median; its answer waits behind data"),
        ];
        let tcp = self.facts.info.smoothed_rtt;
        lines.extend(
            tcp.map(|rtt| Line::new("TCP meanwhile", millis(rtt), "the smoothed round trip")),
        );
        let window = self.facts.receive_window().map(|bytes| Size(bytes).to_string());
        lines.extend(window.map(|window| Line::new("own window", window, "what this end takes")));
        if let Some((slowest, fastest)) = test.samples.iter().min().zip(test.samples.iter().max()) {
            let range = format!(
                "slowest second {}, fastest {}",
                rate_shown(*slowest),
                rate_shown(*fastest)
            );
            lines.push(Line::new("evenness", "", range));
        }
        lines
    }

    fn write_summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "In short")?;
        if let Some(limit) = self.path.limit() {
            writeln!(f, "  {}", limit.finding(&self.who.portal))?;
            writeln!(f, "    {}", SegmentLimit::REMEDY)?;
            writeln!(f, "    until then {}", limit.meanwhile())?;
        }
        if let Some((verdict, remedy)) = self.verdict() {
            write_verdict(f, "reads were held back by", &verdict, remedy.as_deref())?;
        }
        if let Some(lowest) = self.writes.lowest() {
            let verdict = summary_of(lowest);
            write_verdict(f, "writes would be held back by", &verdict, lowest.remedy.as_deref())?;
        }
        if let Some(end) = &self.end {
            writeln!(f, "  not complete: {end}")?;
        }
        Ok(())
    }
}

fn write_verdict(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    verdict: &str,
    remedy: Option<&str>,
) -> fmt::Result {
    writeln!(f, "  {what} {verdict}")?;
    remedy.map_or(Ok(()), |remedy| writeln!(f, "    {remedy}"))
}

fn summary_of(ceiling: &Ceiling) -> String {
    let Ceiling { limit, rate, because, .. } = ceiling;
    let name = if *limit == Limit::Link { "link itself" } else { limit.name() };
    format!("the {name}: {}, {because}", shown(*rate))
}

fn write_writes(f: &mut fmt::Formatter<'_>, writes: &Writes) -> fmt::Result {
    let trips = match writes.round_trips {
        1 => "one round trip".to_owned(),
        trips => format!("{trips} round trips"),
    };
    let mut lines = vec![
        Line::new(
            "one write",
            Size(writes.io_size).to_string(),
            format!("takes {trips}, {}", millis(writes.time())),
        ),
        Line::new("one at a time", shown(writes.one_at_a_time), "for programs that wait for each"),
    ];
    lines.extend(writes.ceilings.iter().map(|ceiling| {
        Line::new(ceiling.limit.name(), shown(ceiling.rate), ceiling.because.as_str())
    }));
    section(f, "Writes (none was made): what each limit allows", &lines)
}

fn rtt_line(name: &str, rtt: Option<Rtt>, note: &str) -> Line {
    let Some(rtt) = rtt else { return Line::new(name, unknown(), note) };
    let judgement = match rtt.samples {
        ..Rtt::SAMPLES_TO_JUDGE => "too few samples to say how stable",
        _ if rtt.is_variable() => "variable",
        _ => "stable",
    };
    let (mean, deviation) = (millis(rtt.smoothed), millis(rtt.deviation));
    let note = format!("mean {mean}, deviation {deviation}: {judgement}; {note}");
    Line::new(name, millis(rtt.min), note)
}

fn path_lines(facts: &LinkFacts) -> Vec<Line> {
    let info = &facts.info;
    let bytes = |bytes: Option<u32>| bytes.map_or_else(unknown, |bytes| format!("{bytes} bytes"));
    let window = info.peer_window.map_or_else(unknown, |bytes| Size(bytes.into()).to_string());
    let rate = info.delivery_rate.map_or_else(unknown, |rate| rate.to_string());
    let is_small = info.delivery_rate_app_limited == Some(true);
    vec![
        Line::new("longest segment", bytes(info.send_mss), "payload of one packet"),
        Line::new("TCP options", options(facts), ""),
        Line::new("peer's window", window, "so far: it grows when data come"),
        loss_line(info, facts.measurement.loss),
        Line::new(
            "delivery rate",
            rate,
            if is_small {
                "there was too little to send: this says nothing of the link"
            } else {
                ""
            },
        ),
    ]
}

fn options(facts: &LinkFacts) -> String {
    let info = &facts.info;
    let all = [
        ("window scaling", info.window_scaling),
        ("timestamps", info.timestamps),
        ("SACK", info.selective_acknowledgement),
    ];
    let state = |state: Option<bool>| match state {
        Some(true) => "",
        Some(false) => "no ",
        None => "unknown ",
    };
    all.map(|(name, is_on)| format!("{}{name}", state(is_on))).join(", ")
}

/// Returns the line about the loss on the link. The loss may be less than the share of retransmitted segments,
/// because segments that a full queue has dropped do not count.
fn loss_line(info: &TcpInfo, loss: Option<f64>) -> Line {
    let again = info.segments_retransmitted.unwrap_or_default();
    let sent = info.data_segments_sent.unwrap_or_default();
    let counted = format!("this end sent {again} of its {sent} segments with data again");
    match loss {
        Some(loss) => Line::new(
            "loss",
            format!("{:.3} %", loss * 100.0),
            format!("of what this end sent, as far as no full queue explains it; {counted}"),
        ),
        None => Line::new("loss", "unknown", format!("{counted}: too few to tell")),
    }
}

fn host_lines(limits: &Limits) -> Vec<Line> {
    let size = |bytes: Option<u64>| bytes.map_or_else(unknown, |bytes| Size(bytes).to_string());
    let range = |range: Option<iscsi_tuner::Autotuning>| {
        range.map_or_else(unknown, |range| format!("up to {}", Size(range.max)))
    };
    let permission = if limits.may_force { "may be exceeded (CAP_NET_ADMIN)" } else { "" };
    vec![
        Line::new("net.core.wmem_max", size(limits.wmem_max), permission),
        Line::new("net.core.rmem_max", size(limits.rmem_max), permission),
        Line::new(
            "net.ipv4.tcp_wmem",
            range(limits.tcp_wmem),
            "tuned by the kernel, half of it data",
        ),
        Line::new(
            "net.ipv4.tcp_rmem",
            range(limits.tcp_rmem),
            "tuned by the kernel, half of it data",
        ),
        Line::new(
            "congestion control",
            limits.congestion_control.clone().unwrap_or_else(unknown),
            format!("may be {}", limits.allowed_congestion_controls.join(", ")),
        ),
    ]
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_a_queue_explains_is_told_beside_the_links() {
        let mut info = TcpInfo::default();
        (info.data_segments_sent, info.segments_retransmitted) = (Some(1931), Some(38));
        let counted = "this end sent 38 of its 1931 segments with data again";
        let told = |loss| Table(&[loss_line(&info, loss)]).to_string();
        assert_eq!(
            told(Some(0.0)).trim(),
            format!(
                "loss  0.000 %  of what this end sent, as far as no full queue explains it; {counted}"
            )
        );
        assert_eq!(told(None).trim(), format!("loss  unknown  {counted}: too few to tell"));
    }
}
