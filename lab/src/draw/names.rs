//! Names series and conditions. Names are short, but distinct.

use std::collections::{BTreeMap, BTreeSet};

use super::group::{ascending, group};
use super::text;
use crate::result::{Figure, LinkConditions};

/// A program and its parameters.
pub(super) type Key = (String, BTreeMap<String, String>);

/// Returns a name for each series: the program, and the parameters that differ between the series of the
/// program. If all series are of one program, the names have only the parameters.
pub(super) fn names(keys: &[Key]) -> Vec<String> {
    let alone = sole_program(keys).is_some();
    keys.iter().map(|key| name(key, &varying(keys, &key.0), alone)).collect()
}

/// Returns the program, if all of several series are of one program. Then the names of the series omit it.
pub(super) fn sole_program(keys: &[Key]) -> Option<&str> {
    let (first, others) = keys.split_first()?;
    let alone = !others.is_empty() && others.iter().all(|key| key.0 == first.0);
    alone.then_some(first.0.as_str())
}

/// Returns the conditions that all series of a program share. Programs with the same conditions are listed
/// together: `block-copy, iperf3: 64 MiB`.
pub(super) fn conditions(keys: &[Key], figures: &[&Figure]) -> String {
    let by_program = group(figures, |figure| figure.who.as_str());
    let told: Vec<_> =
        by_program.iter().map(|(who, figures)| (*who, constant(keys, who, figures))).collect();
    let told: Vec<_> = told.iter().collect();
    let lines = group(&told, |(_, words)| words).into_iter().map(|(words, programs)| {
        let programs: Vec<_> = programs.iter().map(|(who, _)| *who).collect();
        format!("{}: {words}", programs.join(", "))
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// Returns the direction and the rate of the link: `Writes over 100 Mbit/s`.
pub(super) fn flow(direction: &str, rate_mbit_per_s: Option<f64>) -> String {
    let what = match direction {
        "write" => "Writes",
        "read" => "Reads",
        other => other,
    };
    match rate_mbit_per_s {
        Some(rate) => format!("{what} over {}", speed(rate)),
        None => format!("{what} over a link without a set rate"),
    }
}

/// Returns the text of a link's rate: `100 Mbit/s`, `1 Gbit/s`.
pub(super) fn speed(mbit_per_s: f64) -> String {
    if mbit_per_s >= 1000.0 {
        format!("{} Gbit/s", text::plain(mbit_per_s / 1000.0))
    } else {
        format!("{} Mbit/s", text::plain(mbit_per_s))
    }
}

/// Returns the link's rate, 10^6 bits per second, as a level to compare with.
pub(super) fn link_rate(mbit_per_s: Option<f64>) -> Vec<(String, f64)> {
    mbit_per_s.map(|rate| ("link rate".into(), rate)).into_iter().collect()
}

/// Returns the text of a share of lost packets: `no loss`, `0.1 % loss`.
pub(super) fn loss(percent: f64) -> String {
    if percent == 0.0 { "no loss".into() } else { format!("{} % loss", text::plain(percent)) }
}

/// Returns the part of a file name that identifies a link: `100mbit`, `100mbit-loss-0.1`.
pub(super) fn link_slug(link: &LinkConditions) -> String {
    let rate = link
        .rate_mbit_per_s
        .map_or_else(|| "unlimited".into(), |rate| format!("{}mbit", text::plain(rate)));
    match link.loss_percent {
        0.0 => rate,
        loss => format!("{rate}-loss-{}", text::plain(loss)),
    }
}

/// Returns the note that says from how many repetitions the medians are. Empty if each measurement was made
/// once.
pub(super) fn repetitions(most: usize) -> String {
    if most > 1 { format!("; medians of {most}") } else { String::new() }
}

fn name((who, parameters): &Key, varying: &BTreeSet<&str>, alone: bool) -> String {
    let told = parameters.iter().filter(|(name, _)| varying.contains(name.as_str()));
    let told: Vec<_> = told.map(words).collect();
    match (alone, told.is_empty()) {
        (_, true) => who.clone(),
        (true, false) => told.join(", "),
        (false, false) => format!("{who}, {}", told.join(", ")),
    }
}

/// Returns how many bytes a program moved, and the parameters that have one value in all of its series.
fn constant(keys: &[Key], who: &str, figures: &[&Figure]) -> String {
    let varying = varying(keys, who);
    let parameters = keys.iter().filter(|key| key.0 == who).take(1).flat_map(|key| &key.1);
    let constant = parameters.filter(|(name, _)| !varying.contains(name.as_str()));
    let all: Vec<_> = std::iter::once(sizes(figures)).chain(constant.map(words)).collect();
    all.join(", ")
}

/// Returns the parameters that differ between the series of a program.
fn varying<'a>(keys: &'a [Key], who: &str) -> BTreeSet<&'a str> {
    let own: Vec<_> = keys.iter().filter(|key| key.0 == who).map(|key| &key.1).collect();
    let all = own.iter().flat_map(|parameters| parameters.keys());
    let differs =
        |name: &&String| own.windows(2).any(|pair| pair[0].get(*name) != pair[1].get(*name));
    all.filter(differs).map(String::as_str).collect()
}

fn words((name, value): (&String, &String)) -> String {
    format!("{} {value}", name.replace('_', " "))
}

/// Returns the numbers of bytes of the runs: one or two sizes, or the smallest and the largest of more.
pub(super) fn sizes(figures: &[&Figure]) -> String {
    let sizes = ascending(figures.iter().map(|figure| figure.bytes as f64));
    match *sizes.as_slice() {
        [] => "nothing".into(),
        [size] => text::bytes(size),
        [small, large] => format!("{} or {}", text::bytes(small), text::bytes(large)),
        [least, .., most] => format!("{} to {}", text::bytes(least), text::bytes(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::figure;
    use super::*;

    fn key(who: &str, parameters: &[(&str, &str)]) -> Key {
        let pairs = parameters.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        (who.into(), pairs.collect())
    }

    #[test]
    fn a_name_has_only_what_tells_it_apart() {
        let keys = [
            key("block-copy", &[("connections", "8"), ("queue_depth", "32")]),
            key("block-copy", &[("sessions", "8"), ("queue_depth", "32")]),
            key("iperf3", &[("flows", "4")]),
        ];
        assert_eq!(names(&keys), ["block-copy, connections 8", "block-copy, sessions 8", "iperf3"]);
        assert_eq!(names(&keys[..2]), ["connections 8", "sessions 8"]);
        assert_eq!(names(&keys[2..]), ["iperf3"]);
        let figures = ["block-copy", "iperf3", "qemu-img", "dd"].map(|who| figure(who, 4.0, 1.0));
        let figures: Vec<_> = figures.iter().collect();
        assert_eq!(
            conditions(&keys, &figures),
            "block-copy: 64 MiB, queue depth 32; iperf3: 64 MiB, flows 4; qemu-img, dd: 64 MiB"
        );
    }

    #[test]
    fn links_read_as_people_write_them() {
        assert_eq!(flow("read", Some(1000.0)), "Reads over 1 Gbit/s");
        assert_eq!(flow("write", None), "Writes over a link without a set rate");
        assert_eq!([0.0, 0.001].map(loss), ["no loss", "0.001 % loss"]);
        let link = LinkConditions { rtt_ms: 4.0, rate_mbit_per_s: Some(100.0), loss_percent: 0.1 };
        assert_eq!(link_slug(&link), "100mbit-loss-0.1");
    }
}
