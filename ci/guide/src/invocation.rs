//! Finds the programs that a shell command starts, with their arguments.

/// Words that begin another command, or end the arguments of one.
const ENDS: [&str; 9] = ["|", "||", "&&", "&", ";", ")", "]", "then", "do"];

/// Returns each place where `command` starts `program`: the program and its arguments, without redirections.
/// `None` if the quotes of the command are not balanced.
#[must_use]
pub fn invocations(command: &str, program: &str) -> Option<Vec<Vec<String>>> {
    let words = shlex::split(&command.replace("\\\n", " "))?;
    let starts = words.iter().enumerate().filter(|(_, word)| *word == program);
    Some(starts.map(|(at, _)| arguments(words.iter().skip(at))).collect())
}

fn arguments<'a>(words: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut taken = Vec::new();
    let mut is_file = false;
    for word in words.take_while(|word| !ENDS.contains(&word.as_str())) {
        if is_file {
            is_file = false;
        } else if let Some(redirection) =
            word.trim_start_matches(['1', '2']).strip_prefix(['<', '>'])
        {
            // If nothing follows the redirection sign, the file name is the next word.
            is_file = redirection.trim_start_matches('>').is_empty();
        } else {
            taken.push(word.clone());
            if let Some(last) = taken.last_mut().filter(|last| last.ends_with(';')) {
                last.pop();
                break;
            }
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, expected: &[&str]) {
        let found = invocations(command, "block-copy").unwrap();
        let found: Vec<_> = found.iter().map(|words| words.join(" ")).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn arguments_end_where_another_command_begins() {
        check("block-copy a b --verify && echo done", &["block-copy a b --verify"]);
        check("block-copy a - | zstd >a.zst", &["block-copy a -"]);
        check("sudo block-copy a b; block-copy c d &", &["block-copy a b", "block-copy c d"]);
        check("nbdcopy a -- [ block-copy b ]", &["block-copy b"]);
        check("echo none", &[]);
    }

    #[test]
    fn redirections_are_no_arguments() {
        check("block-copy a b >log 2>&1", &["block-copy a b"]);
        check("block-copy a b 2> log --verify", &["block-copy a b --verify"]);
        check("block-copy a \\\nb", &["block-copy a b"]);
    }

    #[test]
    fn quotes_must_match() {
        assert_eq!(invocations("block-copy 'a", "block-copy"), None);
    }
}
