//! Checks the help of a program against the rules for all programs. The tests of each program call this.

use clap::{Arg, Command};

use super::{Documented, Manual, command, short};

/// Maximum number of columns of a line of `-h`.
const COLUMNS: usize = 100;
/// Maximum number of characters of an option's first sentence.
const SENTENCE: usize = 100;
const EXAMPLES: usize = 5;
/// Maximum number of words in a cell of a README's table.
const CELL: usize = 25;

/// Returns the words that public text must not have, and the replacement of each.
pub fn plain_words() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../../../../docs/plain-words.txt").lines();
    lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('\t'))
}

/// Returns the words of a text that public text must not have, each with its replacement.
#[must_use]
pub fn words_to_replace(text: &str) -> Vec<String> {
    let words = text.split(|character: char| !character.is_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    let text = format!(" {} ", words.join(" "));
    let found = plain_words().filter(|(word, _)| text.contains(&format!(" {word} ")));
    found.map(|(word, instead)| format!("{word:?}; write instead: {instead}")).collect()
}

/// Returns what is wrong with the help of a program.
#[must_use]
pub fn faults<A: Documented>() -> Vec<String> {
    short(command::<A>()).debug_assert();
    let mut command = command::<A>();
    command.build();
    let mut faults = Vec::new();
    faults_of(&command, &mut faults);
    examples_of::<A>(&A::MANUAL, &mut faults);
    faults
}

/// Returns what is wrong with the README of a program, and with other texts about it. The README must have each
/// option and each example, the cells of its tables must be short, and the words of all texts plain.
#[must_use]
pub fn faults_of_texts<A: Documented>(readme: &str, others: &[&str]) -> Vec<String> {
    let texts = [&[readme], others].concat().into_iter();
    let mut faults: Vec<_> = texts.flat_map(|text| words_to_replace(&prose(text))).collect();
    let mut options = Vec::new();
    options_of(&command::<A>(), &mut options);
    let missing = options.into_iter().filter(|option| !has_word(readme, option));
    faults.extend(missing.map(|option| format!("{option} is not in the README")));
    let line_of =
        |text: &str| text.replace('\\', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    let all = line_of(readme);
    let missing = A::MANUAL.examples.iter().filter(|(_, line)| !all.contains(&line_of(line)));
    faults.extend(missing.map(|(_, line)| format!("an example is not in the README: {line}")));
    let cells =
        readme.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split(" | "));
    let long = cells.filter(|cell| cell.split_whitespace().count() > CELL);
    faults.extend(long.map(|cell| format!("a cell has more than {CELL} words: {cell}")));
    faults
}

/// Removes the code blocks from a text: the rules do not apply to the output of programs.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// Returns whether an option is in the text, other than as the beginning of a longer option.
fn has_word(text: &str, option: &str) -> bool {
    text.match_indices(option).any(|(at, _)| {
        let rest = text.get(at + option.len()..).unwrap_or_default();
        !rest.starts_with(|next: char| next == '-' || next.is_alphanumeric())
    })
}

fn options_of(command: &Command, options: &mut Vec<String>) {
    let longs = command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long);
    options.extend(longs.map(|long| format!("--{long}")));
    command.get_subcommands().for_each(|command| options_of(command, options));
}

fn faults_of(command: &Command, faults: &mut Vec<String>) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut fault = |text: String| faults.push(format!("{name}: {text}"));
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let id = arg.get_id().as_str();
        if ["help", "version"].contains(&id) {
            continue;
        }
        if !arg.is_positional() && arg.get_help_heading().is_none() {
            fault(format!("{id} has no heading"));
        }
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        if help.is_empty() || help.chars().count() > SENTENCE || help.contains(". ") {
            fault(format!(
                "the short help of {id} is not one sentence of {SENTENCE} characters: {help}"
            ));
        }
    }
    // The help is rendered without wrapping: a text that does not fit in one line then makes its line too long,
    // which is a fault.
    let mut whole = command.clone().term_width(0);
    let brief = short(whole.clone()).render_help().to_string();
    for line in brief.lines().filter(|line| line.chars().count() > COLUMNS) {
        fault(format!("a line of -h is too long: {line}"));
    }
    for line in brief.lines().filter(|line| line.trim() == "Options:") {
        let options = command.get_arguments().filter(|arg| arg.get_help_heading().is_none());
        if options.filter(|arg| !arg.is_positional()).count() > 2 {
            fault(format!("more than help and version below {line}"));
        }
    }
    for text in [brief, whole.render_long_help().to_string()] {
        words_to_replace(&text).into_iter().for_each(&mut fault);
    }
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help")
    {
        faults_of(subcommand, faults);
    }
}

fn examples_of<A: Documented>(manual: &Manual, faults: &mut Vec<String>) {
    if manual.examples.len() != EXAMPLES {
        faults.push(format!("there are {} examples, not {EXAMPLES}", manual.examples.len()));
    }
    let name = command::<A>().get_name().to_owned();
    for (_, line) in manual.examples {
        let lines: Vec<_> = calls(line).into_iter().filter(|words| words[0] == name).collect();
        if lines.is_empty() {
            faults.push(format!("no call of {name}: {line}"));
        }
        for words in lines {
            let parsed = command::<A>().try_get_matches_from(words);
            if let Err(error) = parsed.and_then(|matches| A::from_arg_matches(&matches)) {
                faults.push(format!("{line}\n{error}"));
            }
        }
    }
}

/// Splits a shell line into the words of each program that it calls. Supports what the examples need: single
/// quotes, pipes, lists and continued lines.
fn calls(line: &str) -> Vec<Vec<String>> {
    let (mut calls, mut call) = (Vec::new(), Vec::new());
    let (mut word, mut is_quoted) = (String::new(), false);
    for character in line.chars().chain([';']) {
        match character {
            '\'' => is_quoted = !is_quoted,
            character if is_quoted => word.push(character),
            '\\' => {}
            ' ' | '\n' | '|' | '&' | ';' => {
                if !word.is_empty() {
                    call.push(std::mem::take(&mut word));
                }
                if !character.is_whitespace() && !call.is_empty() {
                    calls.push(std::mem::take(&mut call));
                }
            }
            character => word.push(character),
        }
    }
    // A redirection is not an argument.
    for call in &mut calls {
        if let Some(at) = call.iter().position(|word| word == ">" || word == "]") {
            call.truncate(at);
        }
        let bracket = call.iter().position(|word| word == "[").map_or(0, |at| at + 1);
        call.drain(..bracket);
    }
    calls.retain(|call| !call.is_empty());
    calls
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "bad")]
    struct Bad {
        /// Whoever reads this. Is told.
        #[arg(long)]
        option: Option<String>,
    }

    impl Documented for Bad {
        const MANUAL: Manual = Manual {
            examples: &[("One", "bad --other"), ("Two", "good | good")],
            exit_status: &[],
            environment: &[],
            files: &[("a file", "Nobody goes\nwithout.")],
        };
    }

    #[test]
    fn each_fault_is_found() {
        let faults = faults::<Bad>().join("\n");
        for part in [
            "option has no heading",
            "option is not one sentence",
            "\"whoever\"",
            "\"told\"",
            "\"goes without\"",
            "2 examples",
            "unexpected argument '--other'",
            "no call of bad: good | good",
        ] {
            assert!(faults.contains(part), "{part}\n{faults}");
        }
        let mut long = Vec::new();
        let arg = Arg::new("a").long("a").help_heading("A").help("a ".repeat(50));
        faults_of(&Command::new("long").arg(arg), &mut long);
        assert!(long.iter().any(|fault| fault.contains("too long")), "{long:?}");
    }

    #[test]
    fn each_fault_of_a_readme_is_found() {
        let readme = format!("bad \\\n  --other --option-b\n| {} |\n", "a ".repeat(30));
        let faults = faults_of_texts::<Bad>(&readme, &["somebody"]).join("\n");
        for part in
            ["--option is not in", "example is not in the README: good", "25 words", "somebody"]
        {
            assert!(faults.contains(part), "{part}\n{faults}");
        }
        assert!(!faults.contains("README: bad --other"), "{faults}");
    }

    #[test]
    fn a_line_is_divided_into_calls() {
        assert_eq!(calls("a 'b c' | d - > e & f"), [&["a", "b c"][..], &["d", "-"], &["f"]]);
        assert_eq!(calls("a -- [ b c ]"), [["b", "c"]]);
        assert_eq!(calls("a \\\n b"), [["a", "b"]]);
    }
}
