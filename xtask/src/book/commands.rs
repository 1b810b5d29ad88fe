//! Command lines of Longhaul's programs in the code of documents.
//!
//! The module searches code spans and blocks, and returns the words after the name of a program.
//! [`super::help`] checks these words.

use super::document::{Code, CodeKind};

/// A program whose command lines are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Program {
    Longhaul,
    Xtask,
}

impl Program {
    /// Returns the name of the program, as users type it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Longhaul => "longhaul",
            Self::Xtask => "cargo xtask",
        }
    }
}

/// A command line of a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invocation {
    pub program: Program,
    /// Words after the name of the program.
    pub words: Vec<String>,
    /// Whether the name of the program is at the beginning of a command. Otherwise the name may be
    /// an argument of another program, such as a user name.
    pub is_certain: bool,
}

/// Returns the command lines in a piece of code, with their line numbers. A line that cannot be
/// split into words yields an error.
pub(super) fn invocations(code: &Code) -> Vec<(usize, Result<Invocation, String>)> {
    let mut found = Vec::new();
    for (line, text) in shell_lines(code) {
        for invocation in invocations_of_text(&text) {
            found.push((line, invocation));
        }
    }
    found
}

/// Returns the lines of code that a shell would execute. Continuation lines are joined.
fn shell_lines(code: &Code) -> Vec<(usize, String)> {
    let lines: Vec<&str> = code.text.lines().collect();
    let with_prompts = |prompts: &[&str]| {
        let prompted = |line: &str| {
            let line = line.trim_start();
            prompts
                .iter()
                .find_map(|prompt| line.strip_prefix(prompt).map(str::to_owned))
        };
        join(&lines, code.line, prompted)
    };
    let has_prompts = lines.iter().any(|line| line.trim_start().starts_with("$ "));
    match &code.kind {
        CodeKind::Span => vec![(code.line, code.text.clone())],
        CodeKind::Fenced(language) => match language.as_str() {
            "console" => with_prompts(&["$ ", "# "]),
            "sh" | "bash" | "shell" | "text" if has_prompts => with_prompts(&["$ "]),
            "sh" | "bash" | "shell" | "text" => join(&lines, code.line, |it| Some(it.to_owned())),
            "ini" => join(&lines, code.line, unit_command),
            _ => Vec::new(),
        },
        CodeKind::Block if has_prompts => with_prompts(&["$ "]),
        CodeKind::Block => join(&lines, code.line, |it| Some(it.to_owned())),
    }
}

/// Returns the command in a line of a systemd unit, such as `ExecStart=`.
fn unit_command(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    key.starts_with("Exec")
        .then(|| value.trim_start_matches(['-', '+', '!', '@']).to_owned())
}

/// Returns the lines that `begin` accepts, each joined with its continuation lines.
fn join(
    lines: &[&str],
    first: usize,
    begin: impl Fn(&str) -> Option<String>,
) -> Vec<(usize, String)> {
    let mut joined = Vec::new();
    let mut lines = lines.iter().zip(first..);
    while let Some((line, number)) = lines.next() {
        let Some(mut text) = begin(line) else {
            continue;
        };
        while let Some(start) = text.strip_suffix('\\') {
            let next = lines.next().map_or("", |(line, _)| line.trim_start());
            text = format!("{start}{next}");
        }
        joined.push((number, text));
    }
    joined
}

fn invocations_of_text(text: &str) -> Vec<Result<Invocation, String>> {
    let (text, inner) = without_substitutions(text);
    let mut found: Vec<_> = inner
        .iter()
        .flat_map(|it| invocations_of_text(it))
        .collect();
    let words = shlex::split(&text);
    let is_split = words.is_some();
    let words = words.unwrap_or_else(|| text.split_whitespace().map(str::to_owned).collect());
    for command in simple_commands(words) {
        for invocation in invocations_of_command(&command) {
            // Prose with apostrophes is no command line.
            let is_fault = !is_split && invocation.is_certain;
            found.push(match is_fault {
                true => Err("the quotes are unbalanced".to_owned()),
                false => Ok(invocation),
            });
        }
    }
    found
}

/// Replaces each `$(...)` in a command line by a word. Also returns the commands inside the
/// parentheses.
fn without_substitutions(text: &str) -> (String, Vec<String>) {
    let (mut outer, mut inner, mut rest) = (String::new(), Vec::new(), text);
    while let Some((before, behind)) = rest.split_once("$(") {
        let mut depth = 1;
        let end = behind.char_indices().find(|(_, char)| {
            depth += match char {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth == 0
        });
        let end = end.map_or(behind.len(), |(at, _)| at);
        outer += before;
        outer += "SUBSTITUTION";
        inner.push(behind[..end].to_owned());
        rest = behind.get(end + 1..).unwrap_or_default();
    }
    outer += rest;
    (outer, inner)
}

/// Splits a command line at the operators of a shell, and removes redirections.
fn simple_commands(words: Vec<String>) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let command = commands.last_mut().expect("there is always one");
        let target = redirection(&word);
        if OPERATORS.contains(&word.as_str()) {
            commands.push(Vec::new());
        } else if target == Some("") {
            words.next();
        } else if target.is_none() {
            match word.strip_suffix(';') {
                Some(last) => {
                    command.push(last.to_owned());
                    commands.push(Vec::new());
                }
                None => command.push(word),
            }
        }
    }
    commands
}

/// Returns the file name after the operator of a redirection. Returns `None` if the word is not a
/// redirection.
fn redirection(word: &str) -> Option<&str> {
    let operator = word.trim_start_matches(|char: char| char.is_ascii_digit() || char == '&');
    // A word such as `<FILE>` is a placeholder.
    if operator.starts_with('<') && operator.ends_with('>') {
        return None;
    }
    operator
        .starts_with(['<', '>'])
        .then(|| operator.trim_start_matches(['<', '>', '&']))
}

/// Returns the invocations of Longhaul's programs in a command. Other programs, such as `sudo`, may
/// precede them.
fn invocations_of_command(words: &[String]) -> Vec<Invocation> {
    let words = without_prefix(words);
    let Some((first, rest)) = words.split_first() else {
        return Vec::new();
    };
    if is_longhaul(first) {
        return longhaul(rest, true);
    }
    if first == "cargo" {
        return cargo(rest);
    }
    let called = rest.iter().position(|word| is_longhaul(word));
    called.map_or_else(Vec::new, |at| longhaul(&rest[at + 1..], false))
}

/// Removes prompts, variables, and programs that run the next word as a program.
fn without_prefix(mut words: &[String]) -> &[String] {
    while let Some((first, rest)) = words.split_first() {
        let is_variable = first.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|it| it.is_ascii_uppercase() || it == '_')
        });
        if first == "sudo" {
            words = rest;
            while let Some((flag, rest)) = words.split_first().filter(|it| it.0.starts_with('-')) {
                let has_value = ["-u", "-g"].contains(&flag.as_str());
                words = rest.get(usize::from(has_value)..).unwrap_or_default();
            }
        } else if is_variable || ["$", "env", "exec", "nohup", "time"].contains(&first.as_str()) {
            words = rest;
        } else {
            break;
        }
    }
    words
}

fn is_longhaul(word: &str) -> bool {
    word == "longhaul" || word.ends_with("/longhaul")
}

/// Returns the invocation of longhaul. Also returns the invocations in a command after `--`, as in
/// `longhaul wan exec`.
fn longhaul(words: &[String], is_certain: bool) -> Vec<Invocation> {
    let end = words.iter().position(|word| word == "--");
    let (own, called) = words.split_at(end.unwrap_or(words.len()));
    // In diagrams and assignments, a sign follows the name, as in `longhaul -> fleet`.
    let is_sign = own
        .first()
        .is_some_and(|word| ["->", "=", ":"].contains(&word.as_str()));
    let mut found = vec![Invocation {
        program: Program::Longhaul,
        words: own.to_vec(),
        is_certain: is_certain && !is_sign,
    }];
    found.extend(invocations_of_command(called.get(1..).unwrap_or_default()));
    found
}

/// Returns the invocation in a cargo command: `xtask`, or `run` of the default program.
fn cargo(words: &[String]) -> Vec<Invocation> {
    let Some((first, rest)) = words.split_first() else {
        return Vec::new();
    };
    let end = rest.iter().position(|word| word == "--");
    let (own, called) = rest.split_at(end.unwrap_or(rest.len()));
    let others = ["-p", "--package", "--example", "--bin", "--manifest-path"];
    match first.as_str() {
        "xtask" => vec![Invocation {
            program: Program::Xtask,
            words: own.to_vec(),
            is_certain: true,
        }],
        "run" if !own.iter().any(|word| others.contains(&word.as_str())) => {
            longhaul(called.get(1..).unwrap_or_default(), true)
        }
        _ => Vec::new(),
    }
}

/// Shell operators that end a command.
const OPERATORS: [&str; 5] = ["|", "||", "&&", "&", ";"];

#[cfg(test)]
mod tests {
    use super::{Code, CodeKind, Program, invocations};

    /// Returns the line, program and words of each invocation that is certain.
    fn found(kind: CodeKind, text: &str) -> Vec<(usize, Program, String)> {
        let code = Code {
            line: 7,
            kind,
            text: text.to_owned(),
        };
        let found = invocations(&code).into_iter();
        let found = found.map(|(line, it)| (line, it.expect("a command line")));
        found
            .filter(|(_, it)| it.is_certain)
            .map(|(line, it)| (line, it.program, it.words.join(" ")))
            .collect()
    }

    fn words(text: &str) -> Vec<String> {
        let found = found(CodeKind::Block, text).into_iter();
        found.map(|(_, _, words)| words).collect()
    }

    #[test]
    fn comments_pipes_and_redirections_are_no_arguments() {
        assert_eq!(
            words("longhaul status --json | jq '.peers[] | {name}'    # peer's name\n"),
            ["status --json"]
        );
        assert_eq!(
            words("mkdir a && longhaul copy a b; longhaul ls c"),
            ["copy a b", "ls c"]
        );
        assert_eq!(
            words("longhaul gateway 2> far.log >/dev/null 2>&1 &"),
            ["gateway"]
        );
        assert_eq!(
            words("longhaul calc time --size '1 GB' <FILE>"),
            ["calc time --size 1 GB <FILE>"]
        );
    }

    #[test]
    fn a_command_begins_behind_prompts_variables_and_callers() {
        assert_eq!(
            words("$ sudo -u longhaul LONGHAUL_PASSWORD=x longhaul doctor"),
            ["doctor"]
        );
        assert_eq!(words("/usr/bin/longhaul doctor"), ["doctor"]);
        assert_eq!(
            words("install -o longhaul site-a.key /var/lib"),
            [] as [&str; 0]
        );
        assert_eq!(
            words("longhaul wan exec site-a -- longhaul status --json"),
            ["wan exec site-a", "status --json"]
        );
        assert_eq!(
            words("longhaul peer add oslo $(longhaul pubkey oslo.key) --endpoint a:1"),
            [
                "pubkey oslo.key",
                "peer add oslo SUBSTITUTION --endpoint a:1"
            ]
        );
    }

    #[test]
    fn continuation_lines_are_joined_and_output_behind_a_prompt_is_left_out() {
        let text = "longhaul copy a \\\n    --to b\nlonghaul ls c\n";
        assert_eq!(
            found(CodeKind::Fenced("sh".to_owned()), text),
            [
                (7, Program::Longhaul, "copy a --to b".to_owned()),
                (9, Program::Longhaul, "ls c".to_owned())
            ]
        );
        let text = "$ longhaul --version\nlonghaul 0.1.0\n";
        assert_eq!(words(text), ["--version"]);
        let text = "$ longhaul ls a\nlonghaul no command\n# longhaul doctor\n";
        let console = found(CodeKind::Fenced("console".to_owned()), text);
        assert_eq!(console.len(), 2, "{console:?}");
    }

    #[test]
    fn blocks_of_other_languages_have_no_commands_but_units_do() {
        let text = "[Service]\nExecStart=/usr/bin/longhaul agent --config a.toml\n# longhaul x\n";
        let unit = found(CodeKind::Fenced("ini".to_owned()), text);
        assert_eq!(
            unit,
            [(8, Program::Longhaul, "agent --config a.toml".to_owned())]
        );
        assert_eq!(words("longhaul  -> fleet, mover\n"), [] as [&str; 0]);
        let text = "longhaul = \"x\"\n";
        assert_eq!(found(CodeKind::Fenced("toml".to_owned()), text), []);
    }

    #[test]
    fn cargo_runs_xtask_and_the_default_program() {
        let text = "cargo xtask bench fair --kernel -- --quick\ncargo run --release -- demo\ncargo run -p longhaul-eval -- x\ncargo test\n";
        assert_eq!(
            found(CodeKind::Block, text),
            [
                (7, Program::Xtask, "bench fair --kernel".to_owned()),
                (8, Program::Longhaul, "demo".to_owned())
            ]
        );
    }

    #[test]
    fn a_command_with_unbalanced_quotes_is_a_fault_and_prose_is_not() {
        let fault = |text: &str| {
            let code = Code {
                line: 1,
                kind: CodeKind::Block,
                text: text.to_owned(),
            };
            invocations(&code).iter().any(|(_, it)| it.is_err())
        };
        assert!(fault("longhaul copy 'a b\n"));
        assert!(!fault("426 gateway: the gateway's front door\n"));
    }
}
