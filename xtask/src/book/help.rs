//! Check of command lines against the programs' own `--help`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::commands::{Invocation, Program};

/// The programs, with the help texts that were already read.
pub(super) struct Programs {
    longhaul: PathBuf,
    xtask: PathBuf,
    /// Parsed help of each command. The key consists of the program and its subcommands.
    texts: BTreeMap<(Program, Vec<String>), Help>,
}

impl Programs {
    pub(super) fn new(longhaul: PathBuf) -> Result<Self> {
        Ok(Self {
            longhaul,
            xtask: std::env::current_exe()?,
            texts: BTreeMap::new(),
        })
    }

    /// Checks a command line against the help, and returns its fault. Returns `None` if the command
    /// line is valid.
    pub(super) fn fault(&mut self, invocation: &Invocation) -> Result<Option<String>> {
        let Invocation {
            program,
            words,
            is_certain,
        } = invocation;
        if !is_certain {
            let first = words.first().map_or("", String::as_str);
            if !self.help(*program, &[])?.subcommands.contains(first) {
                return Ok(None);
            }
        }
        let mut error = None;
        let fault = fault(program.name(), words, |path| {
            match self.help(*program, path) {
                Ok(help) => help.clone(),
                Err(failure) => {
                    error.get_or_insert(failure);
                    Help::default()
                }
            }
        });
        error.map_or(Ok(fault), Err)
    }

    fn help(&mut self, program: Program, subcommands: &[String]) -> Result<&Help> {
        let key = (program, subcommands.to_vec());
        if !self.texts.contains_key(&key) {
            let path = match program {
                Program::Longhaul => &self.longhaul,
                Program::Xtask => &self.xtask,
            };
            let help = Help::parse(&help_text(path, subcommands)?);
            self.texts.insert(key.clone(), help);
        }
        Ok(&self.texts[&key])
    }
}

fn help_text(program: &Path, subcommands: &[String]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(subcommands).arg("--help").output();
    let output = output.with_context(|| program.display().to_string())?;
    let name = subcommands.join(" ");
    anyhow::ensure!(
        output.status.success(),
        "{} {name} --help failed",
        program.display()
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// The flags, arguments and subcommands in a help text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Help {
    /// Names of flags including their hyphens, and whether each flag takes a value.
    flags: BTreeMap<String, bool>,
    subcommands: BTreeSet<String>,
    has_arguments: bool,
}

impl Help {
    /// Parses the output of `--help`.
    fn parse(text: &str) -> Self {
        let mut help = Self::default();
        let mut is_in_commands = false;
        for line in text.lines() {
            let entry = line.trim_start();
            let indent = line.len() - entry.len();
            if indent == 0 && !entry.is_empty() {
                is_in_commands = entry == "Commands:";
                help.has_arguments |= entry == "Arguments:";
            } else if is_in_commands && indent == 2 {
                help.subcommands
                    .extend(entry.split(' ').next().map(str::to_owned));
            } else if indent <= FLAG_INDENT_MAX && entry.starts_with('-') {
                let names = entry.split("  ").next().unwrap_or_default();
                let has_value = names.contains('<');
                for name in names.split(", ").filter(|it| it.starts_with('-')) {
                    let end = name.find([' ', '=', '[', '.']).unwrap_or(name.len());
                    help.flags.insert(name[..end].to_owned(), has_value);
                }
            }
        }
        help
    }
}

/// Checks the words after the name of a program, and returns their fault. `help_of` returns the
/// help of a subcommand.
fn fault(
    program: &str,
    words: &[String],
    mut help_of: impl FnMut(&[String]) -> Help,
) -> Option<String> {
    let mut path: Vec<String> = Vec::new();
    let mut help = help_of(&path);
    let mut words = words
        .iter()
        .map(|word| word.trim_matches(BRACKETS))
        .peekable();
    let mut has_argument = false;
    while let Some(word) = words.next() {
        let name = || [&[program.to_owned()], &path[..]].concat().join(" ");
        if word == "..." || word == "…" {
            return None;
        }
        if word.starts_with("--") {
            let (flag, value) = word
                .split_once('=')
                .map_or((word, None), |(a, b)| (a, Some(b)));
            match help.flags.get(flag) {
                None => return Some(format!("{} has no flag {flag}", name())),
                Some(true) if value.is_none() => skip_value(&mut words),
                Some(_) => {}
            }
        } else if is_short_flag(word) {
            let mut letters = word[1..].chars();
            while let Some(letter) = letters.next() {
                match help.flags.get(&format!("-{letter}")) {
                    None => return Some(format!("{} has no flag -{letter}", name())),
                    Some(true) => {
                        if letters.as_str().is_empty() {
                            skip_value(&mut words);
                        }
                        break;
                    }
                    Some(false) => {}
                }
            }
        } else if !has_argument && help.subcommands.contains(word) {
            path.push(word.to_owned());
            help = help_of(&path);
        } else if help.has_arguments {
            has_argument = true;
        } else if is_placeholder(word) {
            return None;
        } else if help.subcommands.is_empty() {
            return Some(format!("{} takes no argument, and has {word:?}", name()));
        } else {
            return Some(format!("{} has no subcommand {word:?}", name()));
        }
    }
    None
}

fn skip_value<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) {
    words.next_if(|word| !word.starts_with("--"));
}

fn is_short_flag(word: &str) -> bool {
    let mut characters = word.chars();
    characters.next() == Some('-') && characters.next().is_some_and(|it| it.is_ascii_alphabetic())
}

/// Returns whether a word stands for a value that the reader chooses, such as `COMMAND`, `<FILE>`
/// and `$NAME`.
fn is_placeholder(word: &str) -> bool {
    let is_name = word
        .chars()
        .all(|char| char.is_ascii_uppercase() || "_.".contains(char));
    word.starts_with(['<', '$']) || is_name
}

/// Brackets around optional words in a synopsis.
const BRACKETS: [char; 2] = ['[', ']'];

/// Maximum number of columns before a flag in a help text. Descriptions are indented further.
const FLAG_INDENT_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use super::{Help, fault};

    const TOP: &str = "Moves files

Usage: p [OPTIONS] <COMMAND>

Commands:
  copy     Copies, also with --to
           several
  wan      Networks

Options:
  -h, --help
          Print help

Global options:
  -v, --verbose...
          Log more
      --log <FILTER>
          --none or all
";

    const COPY: &str = "Usage: p copy [OPTIONS] SRC... DST

Arguments:
  <SRC>...  Sources

Options:
  -n, --dry-run              Changes nothing
  -P, --transfers <N>        Number
      --list [<PATH>]        Prints
  -v, --verbose...           More
";

    const WAN: &str = "Usage: p wan <COMMAND>\n\nCommands:\n  up  Begin\n";

    const UP: &str = "Usage: p wan up\n\nOptions:\n      --rate <RATE>\n";

    fn judged(line: &str) -> Option<String> {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        fault("p", &words, |path| {
            Help::parse(match path.join(" ").as_str() {
                "" => TOP,
                "copy" => COPY,
                "wan" => WAN,
                "wan up" => UP,
                other => panic!("no command {other}"),
            })
        })
    }

    #[test]
    fn a_help_text_has_flags_subcommands_and_arguments() {
        let help = Help::parse(COPY);
        let flags: Vec<_> = help
            .flags
            .iter()
            .map(|(name, has)| (name.as_str(), *has))
            .collect();
        assert_eq!(
            flags,
            [
                ("--dry-run", false),
                ("--list", true),
                ("--transfers", true),
                ("--verbose", false),
                ("-P", true),
                ("-n", false),
                ("-v", false),
            ]
        );
        assert!(help.has_arguments && help.subcommands.is_empty());
        let help = Help::parse(TOP);
        assert_eq!(Vec::from_iter(&help.subcommands), ["copy", "wan"]);
        assert_eq!(help.flags.len(), 5, "{:?}", help.flags);
    }

    #[test]
    fn right_command_lines_have_no_fault() {
        for line in [
            "copy a b -nP8 -vv --transfers=4 --list --dry-run",
            "--log info copy wan b",
            "wan up --rate RATE",
            "copy -",
            "copy SRC... [--transfers N]",
            "COMMAND --help",
            "wan",
        ] {
            assert_eq!(judged(line), None, "{line}");
        }
    }

    #[test]
    fn unknown_flags_subcommands_and_arguments_are_named() {
        for (line, expected) in [
            ("copy a --to b", "p copy has no flag --to"),
            ("copy a -nx", "p copy has no flag -x"),
            ("move a", "p has no subcommand \"move\""),
            ("wan down", "p wan has no subcommand \"down\""),
            ("wan up now", "p wan up takes no argument, and has \"now\""),
            ("copy a [--all]", "p copy has no flag --all"),
        ] {
            assert_eq!(judged(line).as_deref(), Some(expected), "{line}");
        }
    }
}
