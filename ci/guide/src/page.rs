//! Parses a page of the guide into a list of steps.
//!
//! A block of commands has the language `console`. A line that begins with `$ ` is a command, and `> `
//! continues it. The lines below are its output: first standard error, then standard output. `...` stands for
//! any number of lines, or for a part of a line. A number with a decimal point, such as `0.4 s` or `671.2
//! Mbit/s`, is measured, and stands for any such number. All commands of a page run in one shell, in order, in
//! a new folder. A command that fails is followed by `$ echo $?`.
//!
//! | info string | meaning |
//! |---|---|
//! | `console` | runs |
//! | `console needs=nc,zstd` | runs where these programs are installed |
//! | `console ignore: REASON` | does not run; the command lines of our own programs are parsed all the same |
//!
//! `<!-- setup` begins commands that only the test runs, up to a line `-->`. ` needs=...` may follow.

use thiserror::Error;

/// The language of a block of commands.
const COMMANDS: &str = "console";

/// A page of the guide.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page {
    /// The commands in the order of the page.
    pub steps: Vec<Step>,
    /// The page without its blocks and comments.
    pub text: String,
}

/// A command, and its output on the page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// Line of the page on which the command begins, counted from 1.
    pub line: usize,
    /// The command, for a shell.
    pub command: String,
    /// The output lines; `None` if the page shows no output, as for a setup.
    pub shown: Option<Vec<String>>,
    /// Whether the command runs.
    pub run: Run,
}

/// Whether a command runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Run {
    /// The command runs if these programs are installed.
    With(Vec<String>),
    /// The command does not run, for this reason.
    Ignored(String),
}

/// The reason why a page cannot be parsed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum PageError {
    /// The block or comment that begins on this line has no end.
    #[error("line {0}: the block has no end")]
    NoEnd(usize),
    /// The info string of this line is unknown.
    #[error(
        "line {0}: the info string {1:?} is neither `console`, `console needs=...` nor `console ignore: REASON`"
    )]
    InfoString(usize, String),
    /// The first line of a block is output.
    #[error("line {0}: a block of commands begins with `$ `")]
    NoCommand(usize),
}

impl Page {
    /// Parses a page.
    ///
    /// # Errors
    ///
    /// A block has no end, no command, or an unknown info string.
    pub fn parse(source: &str) -> Result<Self, PageError> {
        let mut page = Self { steps: Vec::new(), text: String::new() };
        let mut lines = source.lines().enumerate().map(|(at, line)| (at + 1, line));
        while let Some((at, line)) = lines.next() {
            if let Some(info) = line.strip_prefix("```") {
                let body = until(&mut lines, "```").ok_or(PageError::NoEnd(at))?;
                if let Some(run) = run(at, info)? {
                    page.steps.extend(steps(&body, &run)?);
                }
            } else if let Some(info) = line.strip_prefix("<!-- setup") {
                let body = until(&mut lines, "-->").ok_or(PageError::NoEnd(at))?;
                let body: Vec<_> = body.into_iter().map(|(_, line)| line).collect();
                if let Some(run) = run(at, &format!("{COMMANDS}{info}"))? {
                    let command = body.join("\n");
                    page.steps.push(Step { line: at + 1, command, shown: None, run });
                }
            } else {
                page.text.push_str(line);
                page.text.push('\n');
            }
        }
        Ok(page)
    }
}

/// Returns the lines up to `end`, each with its number.
fn until<'a>(
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
    end: &str,
) -> Option<Vec<(usize, &'a str)>> {
    let mut body = Vec::new();
    loop {
        let (at, line) = lines.next()?;
        if line == end {
            return Some(body);
        }
        body.push((at, line));
    }
}

/// Parses the info string of a block. Returns `None` for a block of another language.
fn run(at: usize, info: &str) -> Result<Option<Run>, PageError> {
    let Some(rest) = info.strip_prefix(COMMANDS) else {
        return Ok(None);
    };
    let run = if rest.is_empty() {
        Run::With(Vec::new())
    } else if let Some(programs) = rest.strip_prefix(" needs=") {
        Run::With(programs.split(',').map(str::to_owned).collect())
    } else if let Some(reason) = rest.strip_prefix(" ignore: ") {
        Run::Ignored(reason.to_owned())
    } else {
        return Err(PageError::InfoString(at, info.to_owned()));
    };
    Ok(Some(run))
}

fn steps(body: &[(usize, &str)], run: &Run) -> Result<Vec<Step>, PageError> {
    let mut steps: Vec<Step> = Vec::new();
    for (at, line) in body {
        if let Some(command) = line.strip_prefix("$ ") {
            let (command, run) = (command.to_owned(), run.clone());
            steps.push(Step { line: *at, command, shown: Some(Vec::new()), run });
            continue;
        }
        let step = steps.last_mut().ok_or(PageError::NoCommand(*at))?;
        let shown = step.shown.get_or_insert_default();
        match line.strip_prefix("> ").or_else(|| (*line == ">").then_some("")) {
            Some(more) if shown.is_empty() => {
                step.command.push('\n');
                step.command.push_str(more);
            }
            _ => shown.push((*line).to_owned()),
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_commands_with_their_output() {
        let page =
            Page::parse("Do:\n\n```console\n$ cat <<X\n> a\n>\n> X\na\n$ true\n```\n").unwrap();
        assert_eq!(page.text, "Do:\n\n");
        let [cat, quiet] = page.steps.as_slice() else { panic!("{page:?}") };
        assert_eq!((cat.line, cat.command.as_str()), (4, "cat <<X\na\n\nX"));
        assert_eq!(cat.shown, Some(vec!["a".to_owned()]));
        assert_eq!(quiet.shown, Some(vec![]));
        assert_eq!(quiet.run, Run::With(vec![]));
    }

    #[test]
    fn info_strings_say_whether_it_runs() {
        let run = |info: &str| {
            Page::parse(&format!("```{info}\n$ a\n```\n")).map(|page| page.steps[0].run.clone())
        };
        assert_eq!(run("console needs=nc,zstd"), Ok(Run::With(vec!["nc".into(), "zstd".into()])));
        assert_eq!(run("console ignore: no QEMU"), Ok(Run::Ignored("no QEMU".into())));
        assert_eq!(run("console ignore"), Err(PageError::InfoString(1, "console ignore".into())));
        assert!(Page::parse("```toml\n$ a\n```\n").unwrap().steps.is_empty());
    }

    #[test]
    fn a_setup_shows_nothing() {
        let page = Page::parse("<!-- setup needs=x\nhead -c 1M\n-->\ntext\n").unwrap();
        assert_eq!(page.steps[0].run, Run::With(vec!["x".into()]));
        assert_eq!(page.steps[0].command, "head -c 1M");
        assert_eq!((page.steps[0].shown.as_ref(), page.text.as_str()), (None, "text\n"));
    }

    #[test]
    fn blocks_that_cannot_be_meant() {
        assert_eq!(Page::parse("```console\n$ a\n"), Err(PageError::NoEnd(1)));
        assert_eq!(Page::parse("x\n```console\nout\n```\n"), Err(PageError::NoCommand(3)));
        assert_eq!(Page::parse("<!-- setup\na\n"), Err(PageError::NoEnd(1)));
    }
}
