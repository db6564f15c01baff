//! Tests of pages drawn from small result files.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use iscsi_lab::draw::{Page, draw};
use iscsi_lab::error::Error;
use iscsi_lab::result::{Figure, LinkConditions, Machine, Outcome, ResultFile};
use iscsi_lab::scenario::Goal;
use serde_json::json;

fn result(figures: Vec<Figure>) -> ResultFile {
    ResultFile {
        title: "Writes by <round-trip> time".into(),
        command: "lab run lab/scenarios/small.toml".into(),
        date: "2026-01-02T03:04:05Z".into(),
        commit: "0123456789abcdef0123456789abcdef01234567+".into(),
        machine: Machine {
            processor: "A processor".into(),
            processors: 2,
            memory_bytes: 8 << 30,
            kernel: "6.12".into(),
            lab_kernel: "6.1".into(),
            environment: "guest".into(),
            stolen: Some(0.034),
        },
        settings: BTreeMap::from([("net.ipv4.tcp_wmem".into(), "4096 16384 4194304".into())]),
        figures,
    }
}

fn figure(who: &str, (rtt_ms, loss_percent): (f64, f64), goodput: Option<f64>) -> Figure {
    let link = LinkConditions { rtt_ms, rate_mbit_per_s: Some(100.0), loss_percent };
    Figure {
        link,
        who: who.into(),
        parameters: BTreeMap::new(),
        outcome: if goodput.is_some() { Outcome::Complete } else { Outcome::TimedOut },
        bytes: 64 << 20,
        seconds: goodput.map(|rate| 536.87 / rate),
        goodput_mbit_per_s: goodput,
        steady_mbit_per_s: None,
        start_seconds: None,
        carried: None,
        allocated_bytes: None,
        samples_mbit_per_s: Vec::new(),
        detail: if goodput.is_some() { json!(null) } else { json!({ "limit_seconds": 120 }) },
    }
}

fn with(mut figure: Figure, parameters: &[(&str, &str)]) -> Figure {
    let pairs = parameters.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    figure.parameters.extend(pairs);
    figure
}

/// Returns an empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("draw").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    folder
}

/// Draws one page without goals, and returns its files by name.
fn drawn(name: &str, figures: Vec<Figure>) -> BTreeMap<String, String> {
    drawn_with(name, figures, Vec::new())
}

/// Draws one page, and returns its files by name.
fn drawn_with(name: &str, figures: Vec<Figure>, goals: Vec<Goal>) -> BTreeMap<String, String> {
    let out = folder(name);
    let pages = [Page { name: name.into(), result: result(figures), goals }];
    let files = draw(&pages, &out).unwrap();
    let named = |path: &PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap())
    };
    files.iter().map(named).collect()
}

fn names(files: &BTreeMap<String, String>) -> Vec<&str> {
    files.keys().map(String::as_str).collect()
}

/// The whole page of programs by round-trip time is as expected.
#[test]
fn programs_by_round_trip_time() {
    let mut figures = Vec::new();
    for (rtt, peer, ours) in [(4.0, 95.0, 95.5), (100.0, 20.0, 93.2)] {
        figures.push(figure("iperf3", (rtt, 0.0), Some(peer)));
        for (repetition, change) in [("1", 0.0), ("2", -9.0), ("3", 1.0)] {
            let ours = Figure {
                steady_mbit_per_s: Some(ours),
                start_seconds: Some(rtt / 50.0),
                ..figure("block-copy", (rtt, 0.0), Some(ours + change))
            };
            figures.push(with(ours, &[("repetition", repetition), ("direction", "write")]));
        }
    }
    figures.push(figure("qemu-img", (100.0, 0.0), None));
    let skipped = Outcome::Skipped("not | installed".into());
    figures.push(Figure { outcome: skipped, ..figure("open-iscsi", (4.0, 0.0), None) });
    let files = drawn("programs", figures);
    assert_eq!(names(&files), ["programs-write-100mbit-by-rtt.svg", "programs.md"]);
    insta::assert_snapshot!(files["programs.md"]);
    insta::assert_snapshot!("programs_chart", files["programs-write-100mbit-by-rtt.svg"]);
}

#[test]
fn reads_and_each_loss_have_sections_of_their_own() {
    let mut figures = Vec::new();
    for link in [(4.0, 0.0), (40.0, 0.0), (4.0, 0.1), (40.0, 0.1)] {
        figures.push(figure("block-copy", link, Some(90.0)));
        figures.push(with(figure("block-copy", link, Some(80.0)), &[("direction", "read")]));
    }
    let files = drawn("sections", figures);
    let headings: Vec<_> =
        files["sections.md"].lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(
        headings,
        [
            "## Writes over 100 Mbit/s, no loss",
            "## Writes over 100 Mbit/s, 0.1 % loss",
            "## Reads over 100 Mbit/s, no loss",
            "## Reads over 100 Mbit/s, 0.1 % loss",
        ]
    );
    assert_eq!(files.len(), 5);
}

#[test]
fn one_round_trip_time_is_drawn_by_loss() {
    let losses = [0.001, 0.01, 0.1, 1.0];
    let figures =
        losses.map(|loss| figure("block-copy", (100.0, loss), (loss < 1.0).then_some(90.0)));
    let files = drawn("loss", figures.to_vec());
    let page = &files["loss.md"];
    assert!(page.contains("## Writes over 100 Mbit/s, RTT 100 ms"));
    assert!(page.contains("| Loss | 0.001 % | 0.01 % | 0.1 % | 1 % |"));
    assert!(page.contains("| block-copy | 90.0 | 90.0 | 90.0 | none in 120 s |"));
    let chart = &files["loss-write-100mbit-by-loss.svg"];
    assert!(chart.contains("×: nothing arrived in time"));
    for tick in losses {
        assert!(chart.contains(&format!(">{tick}</text>")), "no tick at {tick}");
    }
}

/// The part of a page about goals shows goals that are met, missed with and without a reason, not reached in
/// time, and without a figure to compare with.
#[test]
fn figures_beside_their_goals() {
    let ours = |link, goodput, steady, start| Figure {
        steady_mbit_per_s: Some(steady),
        start_seconds: Some(start),
        ..figure("block-copy", link, Some(goodput))
    };
    let figures = vec![
        figure("iperf3", (4.0, 0.0), Some(95.0)),
        ours((4.0, 0.0), 95.0, 95.5, 0.3),
        figure("iperf3", (100.0, 0.0), Some(90.0)),
        ours((100.0, 0.0), 89.0, 95.4, 2.4),
        with(ours((100.0, 0.0), 88.0, 92.0, 2.2), &[("direction", "read")]),
        figure("block-copy", (100.0, 1.0), None),
    ];
    let goal = |value| serde_json::from_value::<Goal>(value).unwrap();
    let goals = vec![
        goal(json!({
            "who": "block-copy", "over": { "loss": [0] }, "steady": 93,
            "start": { "rtts": 20, "seconds": 0.3 }, "no_slower_than": "iperf3",
            "reasons": [{ "over": { "direction": "read" }, "text": "The target | sends." }],
        })),
        goal(json!({ "who": "block-copy", "over": { "loss": [1] }, "steady": 80 })),
    ];
    let files = drawn_with("goals", figures, goals);
    let page = &files["goals.md"];
    let (_, part) = page.split_once("</details>\n\n").unwrap();
    let (part, _) = part.split_once("\n## Writes").unwrap();
    insta::assert_snapshot!(part, @r"
    ## Goals

    1 of 4 are met. Steady: Mbit/s from the fifth second on. Start: seconds beyond the bytes at the link's rate. Whole: goodput, Mbit/s, beside that of iperf3 over as many bytes.

    | block-copy | Steady | Start | Whole | Goal |
    |---|---:|---:|---:|---:|
    | Writes over 100 Mbit/s, RTT 4 ms, no loss | 95.5 ≥ 93.0 | 0.30 ≤ 0.38 | 95.0 ≥ 95.0 | met |
    | Writes over 100 Mbit/s, RTT 100 ms, no loss | 95.4 ≥ 93.0 | **2.40 &gt; 2.30** | **89.0 &lt; 90.0** | **falls short** |
    | Reads over 100 Mbit/s, RTT 100 ms, no loss | **92.0 &lt; 93.0** | 2.20 ≤ 2.30 | - | **falls short**<sup>1</sup> |
    | Writes over 100 Mbit/s, RTT 100 ms, 1 % loss | **none in 120 s** | - | - | **falls short** |

    <sup>1</sup> The target \| sends.
    ");
}

/// 100 Mbit/s by 40 ms are 500000 bytes, 488 KiB, which is between the buffers. By 0.3 ms the product is far
/// below any buffer.
#[test]
fn variants_by_send_buffer() {
    let mut figures = Vec::new();
    for (rtt, auto) in [(0.3, 90.0), (40.0, 60.0)] {
        for (variant, factor) in [("default", 1.0), ("nagle", 0.9)] {
            let sizes = [("auto", auto), ("524288", 89.0), ("1048576", 90.0), ("131072", 25.0)];
            for (size, rate) in sizes {
                let figure = figure("block-copy", (rtt, 0.0), Some(rate * factor));
                figures.push(with(figure, &[("variant", variant), ("send_buffer", size)]));
            }
        }
    }
    let files = drawn("buffers", figures);
    assert_eq!(
        names(&files),
        [
            "buffers-block-copy-100mbit-best.svg",
            "buffers-block-copy-100mbit-rtt-0.3.svg",
            "buffers-block-copy-100mbit-rtt-40.svg",
            "buffers.md",
        ]
    );
    let page = &files["buffers.md"];
    assert!(page.contains("| Variant | 128 KiB | 512 KiB | 1 MiB | auto |"));
    assert!(page.contains("| nagle | 22.5 | 80.1 | 81.0 | 54.0 |"));
    assert!(page.contains("| 40 ms | 488 KiB | default | 1 MiB | 90.0 | 60.0 | 1.50 | 512 KiB |"));
    let near = &files["buffers-block-copy-100mbit-rtt-40.svg"];
    assert!(near.contains(">bandwidth-delay product 488 KiB</text>"));
    assert!(near.contains(">auto</text>"));
    let far = &files["buffers-block-copy-100mbit-rtt-0.3.svg"];
    assert!(far.contains("dashed: autotuning; bandwidth-delay product 3750 B</text>"));
}

#[test]
fn the_own_tuner_is_a_level_beside_the_grid() {
    let point = |variant, size, rate| {
        let figure = figure("initiator", (40.0, 0.0), Some(rate));
        with(figure, &[("variant", variant), ("send_buffer", size)])
    };
    let figures = [
        point("default", "131072", 25.0),
        point("default", "auto", 60.0),
        point("tuned", "tuned", 94.5),
    ];
    let files = drawn("tuned", figures.to_vec());
    let page = &files["tuned.md"];
    assert!(page.contains("| **40 ms** | 488 KiB | tuned | - | 94.5 | - | - | - |"));
    assert!(page.contains("Goodput, Mbit/s, RTT 40 ms; tuned 94.5:"));
    assert!(
        page.contains("| Variant | 128 KiB | auto |\n|---|---:|---:|\n| default | 25.0 | 60.0 |")
    );
    let chart = &files["tuned-initiator-100mbit-rtt-40.svg"];
    assert!(chart.contains("dashed: autotuning, tuned"));
    assert!(chart.contains(">tuned</text>"));
}

#[test]
fn a_page_without_figures_is_its_head() {
    let files = drawn("empty", Vec::new());
    assert_eq!(names(&files), ["empty.md"]);
    assert!(files["empty.md"].ends_with("</details>\n"));
}

#[test]
fn two_pages_of_one_name_write_nothing() {
    let page = Page { name: "same".into(), result: result(Vec::new()), goals: Vec::new() };
    let out = folder("same-name");
    let error = draw(&[page.clone(), page], &out).unwrap_err();
    assert_eq!(error.to_string(), "two result files are called same");
    assert!(!out.exists());
}

#[test]
fn a_result_file_is_read_back_under_its_own_name() {
    let folder = folder("read");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("Peers 1gbit.json");
    let written = result(vec![figure("iperf3", (4.0, 0.0), Some(95.0))]);
    fs::write(&path, serde_json::to_vec(&written).unwrap()).unwrap();
    let page = Page::read(&path).unwrap();
    assert_eq!(page, Page { name: "peers-1gbit".into(), result: written, goals: Vec::new() });
}

#[test]
fn what_is_no_result_file_is_told_with_its_name() {
    let folder = folder("malformed");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("x.json");
    fs::write(&path, r#"{ "title": 1 }"#).unwrap();
    let error = Page::read(&path).unwrap_err();
    assert!(matches!(error, Error::Result { .. }));
    assert!(error.to_string().contains("x.json is no result file"));
    assert!(matches!(Page::read(&folder.join("missing")), Err(Error::File { .. })));
}

#[test]
fn committed_results_are_read_and_written_alike() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/results");
    let files = fs::read_dir(&results).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|e| e == "json")).collect();
    assert!(!files.is_empty());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let page = Page::read(&file).unwrap();
        let again = serde_json::to_value(&page.result).unwrap();
        assert_eq!(again, serde_json::from_str::<serde_json::Value>(&text).unwrap(), "{file:?}");
    }
}
