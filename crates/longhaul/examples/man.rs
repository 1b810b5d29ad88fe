//! Writes man pages and shell completions from the definition of the command line. `cargo xtask
//! man` runs this program.
//!
//! Command line: `man PAGES COMPLETIONS`. Both arguments are folders. The program creates missing
//! folders.

use std::{fs, io, path::Path};

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [pages, completions] = arguments.as_slice() else {
        anyhow::bail!("usage: man PAGES COMPLETIONS");
    };
    let (pages, completions) = (Path::new(pages), Path::new(completions));
    for folder in [pages, completions] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut root = without_help_commands(longhaul::command());
    root.build();
    let count = write_pages(&root, pages)?;
    let mut offered = offered(&longhaul::command()).version(env!("CARGO_PKG_VERSION"));
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut offered, "longhaul", completions)?;
    }
    println!("{count} man pages in {}", pages.display());
    println!(
        "completions for bash, zsh and fish in {}",
        completions.display()
    );
    Ok(())
}

/// Copies a command without its hidden options and subcommands. Completions would otherwise offer
/// old spellings.
fn offered(command: &Command) -> Command {
    // Names in clap are static. A few dozen are leaked.
    let name: &'static str = command.get_name().to_owned().leak();
    let arguments = command.get_arguments().filter(|one| !one.is_hide_set());
    let subcommands = command.get_subcommands().filter(|one| !one.is_hide_set());
    let offered = Command::new(name)
        .args(arguments.cloned())
        .subcommands(subcommands.map(offered));
    match command.get_about() {
        Some(about) => offered.about(about.clone()),
        None => offered,
    }
}

/// Removes the subcommands `longhaul help COMMAND`, because they repeat the page of each command.
fn without_help_commands(command: Command) -> Command {
    command
        .disable_help_subcommand(true)
        .mut_subcommands(without_help_commands)
}

/// Writes a page for a command and for each of its subcommands. Returns the number of pages.
fn write_pages(command: &Command, folder: &Path) -> Result<usize> {
    let page = Man::new(command.clone())
        .source(concat!("longhaul ", env!("CARGO_PKG_VERSION")))
        .manual("Longhaul");
    let file = folder.join(page.get_filename());
    let mut text = Vec::new();
    render(&page, command, &mut text)?;
    fs::write(&file, text).with_context(|| file.display().to_string())?;
    let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
    visible
        .map(|one| write_pages(one, folder))
        .try_fold(1, |sum, count| Ok(sum + count?))
}

fn render(page: &Man, command: &Command, to: &mut Vec<u8>) -> io::Result<()> {
    page.render_title(to)?;
    page.render_name_section(to)?;
    synopsis(command).to_writer(to)?;
    description(command).to_writer(to)?;
    page.render_options_section(to)?;
    if command.get_subcommands().any(|one| !one.is_hide_set()) {
        page.render_subcommands_section(to)?;
    }
    let after = command.get_after_help().map(ToString::to_string);
    sections(&after.unwrap_or_default()).to_writer(to)
}

/// Returns the usage lines that clap prints. The lines of `clap_mangen` lack the arguments after
/// `--`, and the values of options.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]).control("nf", []);
    for line in usage.trim_start_matches("Usage:").lines() {
        roff.text([roman(line.trim())]);
    }
    roff.control("fi", []);
    roff
}

/// Returns the long description without its first paragraph. That paragraph is in the section NAME.
fn description(command: &Command) -> Roff {
    let long = command.get_long_about().map(ToString::to_string);
    let long = long.unwrap_or_default();
    let mut roff = Roff::new();
    for (index, paragraph) in long.split("\n\n").skip(1).enumerate() {
        if index == 0 {
            roff.control("SH", ["DESCRIPTION"]);
        } else {
            roff.control("PP", []);
        }
        roff.text([roman(paragraph.trim())]);
    }
    roff
}

/// Converts the text after the options of a help text to sections of a man page. Indented lines
/// stay unchanged.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut is_in_notes = false;
    for paragraph in text.split("\n\n") {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let (heading, body) = if first.starts_with("Example") {
            ("EXAMPLES", rest.to_owned())
        } else if let Some(first) = first.strip_prefix("Exit codes: ") {
            ("EXIT STATUS", format!("{first}\n{rest}"))
        } else {
            ("NOTES", paragraph.to_owned())
        };
        if heading == "NOTES" && is_in_notes {
            roff.control("PP", []);
        } else {
            roff.control("SH", [heading]);
        }
        is_in_notes = heading == "NOTES";
        let mut is_literal = false;
        for line in body.lines() {
            if line.starts_with(' ') != is_literal {
                is_literal = !is_literal;
                roff.control(if is_literal { "nf" } else { "fi" }, []);
            }
            roff.text([roman(line.trim_start_matches("  "))]);
        }
        if is_literal {
            roff.control("fi", []);
        }
    }
    roff
}
