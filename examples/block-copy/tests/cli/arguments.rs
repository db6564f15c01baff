//! Tests of arguments that are invalid, alone or in combination.

use crate::support::{Folder, block_copy, fails};

/// Checks that the program refuses the arguments before it does anything, and that the message contains `part`.
fn refused(arguments: &[&str], part: &str) {
    let output = block_copy(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(part), "{said:?} does not say {part:?}");
    assert!(output.stdout.is_empty() && !said.contains("panicked"), "{said}");
}

#[test]
fn missing_and_surplus_ones() {
    refused(&[], "<SOURCE>");
    refused(&["a"], "<DESTINATION>");
    refused(&["a", "b", "c"], "'c'");
    refused(&["a", "b", "--fast"], "--fast");
}

#[test]
fn values_out_of_range() {
    refused(&["a", "b", "--io-size", "1MB"], "256K, 1M");
    refused(&["a", "b", "--io-size", "1"], "between 512 bytes and 64 MiB");
    for granularity in ["1", "65M"] {
        let arguments = ["a", "b", "--zero-granularity", granularity];
        refused(&arguments, "between 512 bytes and 64 MiB");
    }
    refused(&["a", "b", "--queue-depth", "0"], "auto, or a number from 1 to 1024");
    for count in ["0", "65", "many"] {
        refused(&["a", "b", "--sessions", count], "auto, or a number from 1 to 64");
    }
    refused(&["a", "b", "--connections", "0"], "1..=16");
    refused(&["a", "b", "--connections", "17"], "1..=16");
    refused(&["a", "b", "--progress", "loud"], "plain");
    refused(&["a", "b", "--tune", "faster"], "auto, static, autotune, thesis and off");
    refused(&["a", "b", "--bandwidth", "100"], "such as 100mbit");
    refused(&["a", "b", "--bandwidth", "1e30gbit"], "from 1kbit to 1000gbit");
    refused(&["a", "b", "--nodelay", "maybe"], "on, off, auto");
    refused(&["a", "b", "--rate-limit", "5Mb/s"], "bits such as 100mbit, or bytes such as 5MB/s");
    refused(&["a", "b", "--rate-limit", "0"], "nothing would ever pass");
    refused(&["a", "b", "--rate-limit", "1bit"], "from 1kbit to 1000gbit");
}

#[test]
fn combinations() {
    let none = ["--progress", "none"];
    for (arguments, part) in [
        (&["a", "-", "--json"][..], "standard output"),
        (&["a", "-", "--verify"], "cannot be read back"),
        (&["a", "b", "--io-size", "64M", "--queue-depth", "17"], "more than 1 GiB"),
        (&["", "b"], "name a path"),
        (&["a", "b", "--rate-limit", "5MB/s"], "neither end is one"),
    ] {
        fails(&block_copy(&[arguments, &none].concat()), 2, &[part]);
    }
}

#[test]
fn a_stream_behind_a_path_cannot_be_read_back_either() {
    let folder = Folder::new();
    let source = folder.file("image", b"x");
    let output = block_copy(&[&source, "/dev/null", "--verify", "--progress", "none"]);
    fails(&output, 2, &["cannot be read back"]);
}

#[test]
fn short_help_has_a_line_for_an_option() {
    let text = printed(&["-h"]);
    assert!(text.contains("  --on-read-error <stop|skip>  What to do at bytes"), "{text}");
    assert!(!text.contains("possible values") && text.contains("Examples:\n"), "{text}");
}

#[test]
fn help_is_no_error() {
    let output = block_copy(&["--help"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for option in [
        "--io-size",
        "--queue-depth",
        "--sessions",
        "--connections",
        "--tune",
        "--bandwidth",
        "--nodelay",
        "--congestion",
        "--offset",
        "--length",
        "--destination-offset",
        "--zero-granularity",
        "--destination-is-zero",
        "--verify",
        "--checkpoint",
        "--resume",
        "--on-read-error",
        "--flush-bytes",
        "--rate-limit",
        "--control",
        "--progress",
        "--json",
        "--json-lines",
        "--initiator-name",
        "--password-file",
        "--source-password-file",
        "--destination-password-file",
        "--target-password-file",
        "--completions",
        "--man",
    ] {
        assert!(text.contains(option), "{option} is not in the help");
    }
}

/// Returns what the program prints on standard output. Checks that standard error is empty.
fn printed(arguments: &[&str]) -> String {
    let output = block_copy(arguments);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_manual_page_and_completions_stand_alone() {
    let page = printed(&["--man"]);
    assert!(page.contains(".TH block-copy 1") && page.contains(r"\-\-on\-read\-error"), "{page}");
    for section in ["EXAMPLES", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES"] {
        assert!(page.contains(&format!(".SH {section}\n")), "{section}: {page}");
    }
    for (shell, part) in [
        ("bash", "compgen -W \"stop skip\""),
        ("zsh", "#compdef block-copy"),
        ("fish", "complete -c block-copy -l checkpoint"),
    ] {
        let script = printed(&["--completions", shell]);
        assert!(script.contains(part), "{script}");
        assert_eq!(printed(&[&format!("--completions={shell}")]), script);
    }
    refused(&["--completions", "sh"], "bash, elvish, fish, powershell, zsh");
    refused(&["--man", "a", "b"], "'--man' cannot be used with");
    refused(&["a", "b", "--completions", "zsh"], "'--completions <SHELL>' cannot be used with");
}
