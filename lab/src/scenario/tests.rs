//! Tests of valid and invalid scenarios, and of the measurements that they give.

use std::path::Path;

use super::*;
use crate::result::LinkConditions;

const WHOLE: &str = r#"
title = "all there is"
limit = 60
modules = ["tcp_bbr"]

[sysctl]
"net.ipv4.tcp_wmem" = "4096 16384 8388608"

[target]
luns = ["0:64M", "1:2G:512:null"]
depth = 32
keys = { InitialR2T = "No" }

[[link]]
rtt_ms = [0.3, 100]
rate = ["100mbit", "1gbit"]
loss = [0, 0.1]

[[link]]
rtt_ms = [0]

[[measure]]
who = "block-copy"
args = ["--sessions", "{sessions}", "--nodelay", "{nodelay}"]
vary = { sessions = ["1", "8"], nodelay = ["on", "off"] }
parameters = { variant = "both" }

[[measure]]
who = "iperf3"
bytes = "48M"
repeat = 2
limit = 10

[[measure]]
who = "block-copy"
direction = "read"

[[goal]]
who = "block-copy"
over = { direction = "write", rtt_ms = [100], rate = ["100mbit"], loss = [0.1] }
steady = 88
start = { rtts = 20, seconds = 0.3 }
no_slower_than = "iperf3"

[[goal.reasons]]
over = { loss = [0.1] }
text = "the queue is short"
"#;

fn whole() -> Scenario {
    Scenario::parse(WHOLE).unwrap()
}

/// Parses a scenario with this line in its only `[[measure]]`.
fn with_measure(line: &str) -> Result<Scenario, String> {
    let head = "title = \"t\"\ntarget = { luns = [\"0:64M\"] }\n[[link]]\nrtt_ms = [1]\n";
    Scenario::parse(&format!("{head}[[measure]]\n{line}\n"))
}

#[test]
fn all_links_are_combined() {
    let mut links: Vec<LinkConditions> =
        whole().points().into_iter().map(|point| point.link).collect();
    links.dedup();
    let link = |rtt_ms, rate_mbit_per_s, loss_percent| LinkConditions {
        rtt_ms,
        rate_mbit_per_s,
        loss_percent,
    };
    assert_eq!(links.len(), 9);
    assert_eq!(links[0], link(0.3, Some(100.0), 0.0));
    assert_eq!(links[3], link(100.0, Some(100.0), 0.1));
    assert_eq!(links[7], link(100.0, Some(1000.0), 0.1));
    assert_eq!(links[8], link(0.0, None, 0.0));
}

#[test]
fn all_values_are_combined_and_told() {
    let points = whole().points();
    let of_first_link: Vec<_> = points.iter().take(7).collect();
    let args: Vec<_> = of_first_link[..4].iter().map(|p| p.measure.args.join(" ")).collect();
    assert_eq!(
        args,
        [
            "--sessions 1 --nodelay on",
            "--sessions 8 --nodelay on",
            "--sessions 1 --nodelay off",
            "--sessions 8 --nodelay off"
        ]
    );
    let told = &of_first_link[1].parameters;
    assert_eq!((told["sessions"].as_str(), told["nodelay"].as_str()), ("8", "on"));
    assert_eq!((told["variant"].as_str(), told["direction"].as_str()), ("both", "write"));
    assert_eq!(of_first_link[5].parameters["repetition"], "2");
    assert_eq!(of_first_link[6].parameters["direction"], "read");
}

#[test]
fn a_measurement_without_bytes_moves_the_whole_unit() {
    let points = whole().points();
    assert_eq!((points[0].bytes, points[4].bytes), (64 << 20, 48 << 20));
    assert_eq!((points[0].limit.as_secs(), points[4].limit.as_secs()), (60, 10));
}

#[test]
fn values_reach_the_keys_of_the_target() {
    let text = "who = \"block-copy\"\nkeys = { InitialR2T = \"{r2t}\" }\nvary = { r2t = [\"No\"] }";
    let point = with_measure(text).unwrap().points().remove(0);
    assert_eq!(point.measure.keys["InitialR2T"], "No");
    assert_eq!(point.parameters["InitialR2T"], "No");
}

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    let error = with_measure("who = \"iperf3\"\nflows = 8").unwrap_err();
    assert!(error.contains("line 7") && error.contains("`flows`"), "{error}");
    let error = with_measure("who = \"ftp\"").unwrap_err();
    assert!(error.contains("line 6") && error.contains("`ftp`"), "{error}");
}

#[test]
fn an_error_names_the_file() {
    let path = std::env::temp_dir().join(format!("lab-scenario-{}.toml", std::process::id()));
    std::fs::write(&path, "title = 1\n").unwrap();
    let error = Scenario::read(&path).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error.starts_with(&path.display().to_string()) && error.contains("line 1"), "{error}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (measure, reason) in [
        ("who = \"iperf3\"\nrepeat = 0", "`repeat`"),
        ("who = \"iperf3\"\nlimit = 0", "`limit`"),
        ("who = \"iperf3\"\nbytes = \"0\"", "`bytes`"),
        ("who = \"iperf3\"\nbytes = \"1M\"\nseconds = 1", "not both"),
        ("who = \"qemu-img\"\nseconds = 1", "only iperf3"),
        ("who = \"qemu-img\"\nbytes = \"65M\"", "do not fit"),
        ("who = \"qemu-img\"\nlun = 1", "no unit 1"),
        ("who = \"qemu-img\"\nbytes = \"1M\"\ndirection = \"read\"", "as a whole"),
        ("who = \"qemu-img\"\nprogram = [\"cat\"]", "`program`"),
        ("who = \"program\"\nlabel = \"cat\"", "`program`"),
        ("who = \"program\"\nprogram = [\"cat\"]", "`label`"),
        ("who = \"iperf3\"\nvary = { flows = [] }", "`vary`"),
        ("who = \"qemu-img\"\nsource = \"scattered\"", "in a file"),
    ] {
        let error = with_measure(measure).unwrap_err();
        assert!(error.contains(reason) && error.contains("[[measure]] number 1"), "{error}");
    }
}

#[test]
fn links_without_sense_are_refused() {
    for link in ["rtt_ms = []", "rtt_ms = [-1]", "rtt_ms = [inf]", "rtt_ms = [1]\nloss = [101]"] {
        let text = WHOLE.replacen("rtt_ms = [0]", link, 1);
        let error = Scenario::parse(&text).unwrap_err();
        assert!(error.starts_with("[[link]] number 2: "), "{error}");
    }
}

#[test]
fn a_scenario_can_be_narrowed_to_some() {
    let mut scenario = whole();
    scenario.keep_only(&[]).unwrap();
    assert_eq!(scenario.measures.len(), 3);
    assert!(matches!(scenario.keep_only(&["fio".to_owned()]), Err(Error::Usage(_))));
    scenario.keep_only(&["iperf3".to_owned()]).unwrap();
    assert_eq!(scenario.points().len(), 18);
}

#[test]
fn a_scenario_can_be_narrowed_to_one_direction() {
    let mut scenario = whole();
    scenario.keep_direction(None).unwrap();
    assert_eq!(scenario.measures.len(), 3);
    scenario.keep_direction(Some(Direction::Read)).unwrap();
    assert_eq!(scenario.points().len(), 9);
    let error = scenario.keep_direction(Some(Direction::Write)).unwrap_err();
    assert_eq!(error.to_string(), "nothing of this is a write");
}

#[test]
fn a_goal_is_read_with_its_reasons() {
    let goal = whole().goals.remove(0);
    let link = LinkConditions { rtt_ms: 100.0, rate_mbit_per_s: Some(100.0), loss_percent: 0.1 };
    assert!(goal.over.holds(&link, "write") && !goal.over.holds(&link, "read"));
    assert_eq!(goal.steady, Some(88.0));
    assert_eq!(goal.start, Some(Start { rtts: 20.0, seconds: 0.3 }));
    assert_eq!(goal.no_slower_than.as_deref(), Some("iperf3"));
    assert_eq!(goal.reason(&link, "write"), Some("the queue is short"));
}

#[test]
fn goals_without_sense_are_refused() {
    for (goal, reason) in [
        ("who = \"fio\"\nsteady = 1", "called `fio`"),
        ("who = \"iperf3\"\nno_slower_than = \"fio\"", "called `fio`"),
        ("who = \"iperf3\"", "`no_slower_than`"),
        ("who = \"iperf3\"\nsteady = 0", "`steady` wants"),
        ("who = \"iperf3\"\nsteady = inf", "`steady` wants"),
        ("who = \"iperf3\"\nstart = { rtts = -1, seconds = 0 }", "`start` wants"),
    ] {
        let error = Scenario::parse(&format!("{WHOLE}\n[[goal]]\n{goal}\n")).unwrap_err();
        assert!(error.starts_with("[[goal]] number 2: ") && error.contains(reason), "{error}");
    }
}

/// Parses a scenario with these units, and these lines in its only `[[fault]]`.
fn with_fault(lines: &str, units: &str) -> Result<Scenario, String> {
    let head = format!("title = \"t\"\ntarget = {{ luns = [{units}] }}\n[[link]]\nrtt_ms = [1]\n");
    Scenario::parse(&format!("{head}[[fault]]\n{lines}\n"))
}

const TWO_UNITS: &str = r#""0:64M:512:/mnt/units/0", "1:64M:512:/mnt/units/1""#;
const ONE_RUN: &str = r#"runs = [{ job = "write", over = "one-session" }]"#;

#[test]
fn a_fault_becomes_a_measurement_for_each_of_its_copies() {
    let lines = r#"
        what = "target-killed"
        lun = 1
        seconds = 5
        patience = 20
        runs = [
          { job = "write", over = "one-session" },
          { job = "verify", over = "two-connections", error = "lost|gone" },
        ]
    "#;
    let points = with_fault(lines, TWO_UNITS).unwrap().points();
    let told = |point: &Point| point.parameters.values().cloned().collect::<Vec<_>>().join("; ");
    assert_eq!(
        points.iter().map(told).collect::<Vec<_>>(),
        [
            "target killed (LUN 1), 5 s; write; one session",
            "target killed (LUN 1), 5 s; verify; two connections"
        ]
    );
    let (point, ordeal) = (&points[1], points[1].ordeal.as_ref().unwrap());
    assert_eq!(point.measure.args.join(" "), "--sessions 1 --connections 2 --verify");
    assert_eq!((point.bytes, point.measure.lun), (64 << 20, 1));
    assert_eq!((ordeal.lasts.map(|s| s.as_secs()), ordeal.patience), (Some(5), Some(20)));
    assert_eq!(ordeal.error.as_deref(), Some("lost|gone"));
}

#[test]
fn faults_without_sense_are_refused() {
    let removed = "what = \"unit-removed\"\n";
    for (lines, units, reason) in [
        (format!("{removed}seconds = 1\n{ONE_RUN}"), TWO_UNITS, "it cannot end"),
        (format!("{removed}runs = []"), TWO_UNITS, "`runs` is empty"),
        (format!("{removed}limit = 0\n{ONE_RUN}"), TWO_UNITS, "`limit`"),
        (format!("{removed}lun = 2\n{ONE_RUN}"), TWO_UNITS, "no such unit"),
        (format!("{removed}{ONE_RUN}"), r#""0:64M""#, "files of one folder"),
        (format!("{removed}{ONE_RUN}"), r#""0:64M:512:/a/0", "1:64M:512:/b/1""#, "one folder"),
        (
            format!(
                "{removed}runs = [{{ job = \"read\", over = \"one-session\", error = \"(\" }}]"
            ),
            TWO_UNITS,
            "`error`",
        ),
    ] {
        let error = with_fault(&lines, units).unwrap_err();
        assert!(error.starts_with("[[fault]] number 1: ") && error.contains(reason), "{error}");
    }
}

#[test]
fn a_scenario_can_be_narrowed_to_some_faults() {
    let lines =
        format!("what = \"unit-full\"\n{ONE_RUN}\n[[fault]]\nwhat = \"link-dark\"\n{ONE_RUN}");
    let mut scenario = with_fault(&lines, TWO_UNITS).unwrap();
    scenario.keep_only(&["link-dark".to_owned()]).unwrap();
    let points = scenario.points();
    assert_eq!(points.len(), 1);
    assert_eq!(points[0].parameters["fault"], "link dark, for ever");
    scenario.keep_direction(Some(Direction::Read)).unwrap_err();
}

#[test]
fn an_order_keeps_a_scenario_as_it_is() {
    let text = serde_json::to_string(&whole()).unwrap();
    let back: Scenario = serde_json::from_str(&text).unwrap();
    assert_eq!(format!("{back:?}"), format!("{:?}", whole()));
}

#[test]
fn the_scenarios_of_the_project_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        let scenario = Scenario::read(&file).unwrap_or_else(|error| panic!("{error}"));
        assert!(!scenario.points().is_empty(), "{}", file.display());
    }
}

const FLOWS: &str = r#"
    title = "ruled"
    target = { luns = ["0:10M"] }
    link = [{ rtt_ms = [1] }]
    [[flows]]
    name = "a limit"
    who = "block-copy"
    seconds = 10
    rate = "10mbit"
    bytes = "1M"
    flows = [{ name = "one" }]
    orders = [{ at = 4, order = "rate off" }]
    expect = [[10], [-1]]
"#;

#[test]
fn flows_are_points_of_their_own() {
    let scenario = Scenario::parse(FLOWS).unwrap();
    let points = scenario.points();
    assert_eq!(points.len(), 1);
    assert_eq!(points[0].parameters["flows"], "a limit");
    assert_eq!(points[0].bytes, 1 << 20);
    assert!(points[0].flows.is_some());
}

#[test]
fn flows_without_sense_are_refused() {
    for (from, to, told) in [
        ("\"block-copy\"", "\"iperf3\"", "`who` is block-copy or open-iscsi"),
        ("at = 4", "at = 10", "`at` of `orders`"),
        ("rate off", "stop", "`stop` is not"),
        ("rate off", "pause two", "no flow `two`"),
        ("[[10], [-1]]", "[[10]]", "`expect` has a list for each phase"),
        ("[{ name = \"one\" }]", "[]", "`flows` is empty"),
        ("\"a limit\"", "\"16\"", "`name` is a number"),
        ("[{ name = \"one\" }]", "[{ name = \"one\" }, { name = \"two\" }]", "`expect`"),
        ("0:10M", "1:10M", "a unit of its own"),
    ] {
        let error = Scenario::parse(&FLOWS.replace(from, to)).unwrap_err();
        assert!(error.starts_with("[[flows]] number 1: ") && error.contains(told), "{error}");
    }
}

const MIRROR: &str = r#"
    title = "moved"
    limit = 60
    target = { luns = ["0:10M:512:/mnt/units/0"] }
    link = [{ rtt_ms = [1] }]
    [[mirror]]
    through = "block-serve"
    args = ["--write-behind", "1M"]
    load = { rate = "5M", sizes = ["4K", "64K"], depth = 4 }
    granularity = "4K"
    limit = 9
    [[mirror]]
    through = "qemu-iscsi"
"#;

#[test]
fn mirrors_are_points_of_their_own() {
    let mut scenario = Scenario::parse(MIRROR).unwrap();
    let points = scenario.points();
    let told: Vec<_> = points
        .iter()
        .map(|point| {
            let words = ["mirror", "granularity", "args"];
            let words = words.map(|name| point.parameters.get(name).map_or("-", String::as_str));
            format!("{}: {}", point.measure.name(), words.join("; "))
        })
        .collect();
    assert_eq!(
        told,
        [
            "block-serve: 5M/s, 4K to 64K, 4 in flight; 4K; --write-behind 1M",
            "qemu-iscsi: none; 64K; -"
        ]
    );
    assert_eq!((points[0].bytes, points[0].limit.as_secs()), (10 << 20, 9));
    assert_eq!(points[1].limit.as_secs(), 60);
    scenario.keep_only(&["qemu-iscsi".to_owned()]).unwrap();
    assert_eq!(scenario.points().len(), 1);
    scenario.keep_direction(Some(Direction::Read)).unwrap_err();
}

#[test]
fn mirrors_without_sense_are_refused() {
    for (from, to, told) in [
        (":512:/mnt/units/0", "", "in files of one folder"),
        ("limit = 9", "lun = 1", "no such unit"),
        ("limit = 9", "limit = 0", "`limit`"),
        ("\"4K\"\n", "\"5K\"\n", "`granularity`"),
        ("\"4K\"\n", "\"128M\"\n", "`granularity`"),
        ("[\"4K\", \"64K\"]", "[\"64K\", \"4K\"]", "`sizes`"),
        ("[\"4K\", \"64K\"]", "[\"0\", \"64K\"]", "`sizes`"),
        ("[\"4K\", \"64K\"]", "[\"4K\", \"1000\"]", "`sizes`"),
        ("depth = 4", "depth = 0", "`depth`"),
        ("rate = \"5M\"", "rate = \"0\"", "`rate`"),
        ("block-serve", "qemu-iscsi", "words for block-serve"),
    ] {
        let error = Scenario::parse(&MIRROR.replace(from, to)).unwrap_err();
        assert!(error.starts_with("[[mirror]] number 1: ") && error.contains(told), "{error}");
    }
}

const FAILOVER: &str = r#"
    title = "two paths"
    limit = 60
    target = { luns = ["0:10M:512:/mnt/units/0"], groups = { nonop_delay_msecs = "0" } }
    link = [{ rtt_ms = [1] }]
    [multipath]
    overrides = { no_path_retry = "30" }
    [[failover]]
    event = "standby"
    orders = [{ at = 2.5, order = "group 1 standby" }, { at = 8, order = "cut 2" }]
    [[failover]]
    event = "a cut"
    orders = [{ at = 0, order = "cut 1" }]
    runs = [{ through = "dm-multipath", writes = "random" }]
    limit = 9
"#;

#[test]
fn failovers_are_points_of_their_own() {
    let mut scenario = Scenario::parse(FAILOVER).unwrap();
    assert_eq!(scenario.count_of_links(), 2);
    let points = scenario.points();
    let told: Vec<_> = points
        .iter()
        .map(|point| {
            let word = |name| point.parameters[name].as_str();
            format!("{}: {}, {}", point.measure.name(), word("failover"), word("load"))
        })
        .collect();
    assert_eq!(
        told,
        [
            "block-copy: standby, copy",
            "dm-multipath: standby, copy",
            "block-serve: standby, random",
            "dm-multipath: standby, random",
            "dm-multipath: a cut, random",
        ]
    );
    assert_eq!((points[0].bytes, points[0].limit.as_secs()), (10 << 20, 60));
    assert_eq!(points[4].limit.as_secs(), 9);
    scenario.keep_only(&["block-serve".to_owned()]).unwrap();
    assert_eq!((scenario.points().len(), scenario.failovers.len()), (1, 1));
    scenario.keep_direction(Some(Direction::Read)).unwrap_err();
}

#[test]
fn failovers_without_sense_are_refused() {
    for (from, to, told) in [
        (":512:/mnt/units/0", "", "in files of one folder"),
        ("group 1 standby", "group 1 asleep", "`group 1 asleep` is not"),
        ("cut 2", "cut 3", "`cut 3` is not"),
        ("at = 8", "at = 2", "do not fall"),
        ("at = 2.5", "at = -1", "do not fall"),
        ("\"standby\"\n", "\" \"\n", "`event`"),
        ("event = \"standby\"", "event = \"none\"\nruns = []", "`runs` is empty"),
        ("event = \"standby\"", "event = \"none\"\nlimit = 0", "`limit`"),
        ("event = \"standby\"", "event = \"none\"\nlun = 1", "no such unit"),
        (
            "event = \"standby\"",
            "event = \"none\"\nstates = [\"standby\", \"offline\"]",
            "no path serves",
        ),
    ] {
        let error = Scenario::parse(&FAILOVER.replacen(from, to, 1)).unwrap_err();
        assert!(error.starts_with("[[failover]] number 1: ") && error.contains(told), "{error}");
    }
}

const STRIPE: &str = r#"
    title = "as one"
    target = { luns = ["0:8M", "1:8M", "2:8M:512:null"] }
    link = [{ rtt_ms = [1] }]
    [[stripe]]
    who = "volume"
    links = [1, 3]
    bytes = "8M"
    repeat = 2
    [[stripe]]
    who = "md-raid0"
    directions = ["read"]
    links = [2]
    bytes = "8M"
    chunk = "64K"
"#;

#[test]
fn stripes_are_points_of_their_own() {
    let mut scenario = Scenario::parse(STRIPE).unwrap();
    assert_eq!(scenario.count_of_links(), 3);
    let points = scenario.points();
    assert_eq!(points.len(), 9);
    let last = points.last().unwrap();
    let stripe = last.stripe.as_ref().unwrap();
    assert_eq!((last.measure.name(), last.bytes), ("md-raid0", 16 << 20));
    assert_eq!((stripe.links, stripe.chunk), (2, 64 << 10));
    assert_eq!((points[2].bytes, points[2].parameters["links"].as_str()), (24 << 20, "3"));
    assert_eq!(points[3].parameters["repetition"], "2");
    scenario.keep_direction(Some(Direction::Write)).unwrap();
    assert_eq!((scenario.points().len(), scenario.stripes.len()), (4, 1));
    let error = scenario.keep_only(&["md-raid0".to_owned()]).unwrap_err();
    assert!(matches!(error, Error::Usage(_)));
    assert!(!points[0].parameters.contains_key("args"));
    let told = STRIPE.replacen("repeat = 2", "args = [\"--sessions\", \"1\"]", 1);
    let points = Scenario::parse(&told).unwrap().points();
    assert_eq!(points[0].parameters["args"], "--sessions 1");
}

#[test]
fn stripes_without_sense_are_refused() {
    for (from, to, told) in [
        ("links = [1, 3]", "links = []", "`links`"),
        ("links = [1, 3]", "links = [0]", "`links`"),
        ("links = [1, 3]", "links = [11]", "`links`"),
        ("links = [1, 3]", "links = [4]", "a unit of `bytes`"),
        ("\"8M\"\n", "\"4M\"\n", "a unit of `bytes`"),
        ("repeat = 2", "repeat = 0", "`repeat`"),
        ("repeat = 2", "limit = 0", "`limit`"),
        ("repeat = 2", "chunk = \"96K\"", "`chunk`"),
        ("repeat = 2", "directions = []", "`directions`"),
        ("\"volume\"", "\"md-raid0\"\nargs = [\"--json\"]", "words for block-copy"),
    ] {
        let error = Scenario::parse(&STRIPE.replacen(from, to, 1)).unwrap_err();
        assert!(error.starts_with("[[stripe]] number 1: ") && error.contains(told), "{error}");
    }
}
