//! `cargo xtask book`: builds the documents into a book, and checks them.
//!
//! The book contains the README, the other documents of the root, and `docs`. The command writes
//! HTML pages with a search function. It prints complaints with file and line. [`links`] checks
//! links, and [`page`] checks the list of pages. [`commands`] finds command lines, and [`help`]
//! checks them. [`site`] calls mdBook.

mod commands;
mod document;
mod help;
mod links;
mod page;
mod site;

use std::path::{Path, PathBuf};

use anyhow::Result;

use self::{help::Programs, page::Page};
use crate::{
    Failure,
    shell::{cargo, root, succeeds, target_folder},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Check command lines against the help texts of this program [default: a new build of
    /// longhaul]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// First generate the tables of docs/configuration.md from the doc comments of the
    /// configuration
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Result<(), Failure>> {
    if arguments.write {
        let mut write = cargo([
            "test",
            "-p",
            "longhaul-gatewayd",
            "--lib",
            "config::reference_tests",
        ]);
        if !succeeds(write.env("LONGHAUL_WRITE_REFERENCE", "1"))? {
            return Ok(Err(Failure::Failed));
        }
    }
    let longhaul = match &arguments.program {
        Some(program) => std::path::absolute(program)?,
        None if succeeds(&mut cargo(["build", "--quiet", "-p", "longhaul"]))? => {
            target_folder().join("debug/longhaul")
        }
        None => return Ok(Err(Failure::Failed)),
    };
    let root = root();
    let pages = Page::read_all(root)?;
    let mut complaints = complaints_about(root, &pages);
    let (count, wrong) = check_commands(&pages, Programs::new(longhaul)?)?;
    complaints.extend(wrong);
    let out = target_folder().join("book");
    let linked = links::linked_files(root, &pages);
    complaints.extend(site::build(root, &pages, &linked, &out)?);
    for complaint in &complaints {
        println!("{complaint}");
    }
    let links: usize = pages.iter().map(|page| page.document.links.len()).sum();
    println!(
        "book: {} pages, {links} links, {count} command lines, {} faults: {}",
        pages.len(),
        complaints.len(),
        out.join("index.html").display()
    );
    Ok(if complaints.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed)
    })
}

/// Returns complaints about links and about the list of pages in the tree at `root`. These checks
/// need no other program.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>> {
    Ok(complaints_about(root, &Page::read_all(root)?))
}

fn complaints_about(root: &Path, pages: &[Page]) -> Vec<String> {
    let mut complaints = links::complaints(root, pages);
    complaints.extend(page::complaints(pages));
    for page in pages {
        let faults = page.document.faults.iter();
        complaints.extend(faults.map(|(line, fault)| page.complaint(*line, fault)));
    }
    complaints
}

/// Checks the command lines of all pages except the changelog. Returns their number, and a
/// complaint for each wrong command line.
fn check_commands(pages: &[Page], mut programs: Programs) -> Result<(usize, Vec<String>)> {
    let (mut count, mut complaints) = (0, Vec::new());
    for page in pages
        .iter()
        .filter(|page| page.path != Path::new("CHANGELOG.md"))
    {
        for code in &page.document.code {
            for (line, invocation) in commands::invocations(code) {
                count += 1;
                let fault = match invocation {
                    Ok(invocation) => programs.fault(&invocation)?,
                    Err(fault) => Some(fault),
                };
                complaints.extend(fault.map(|fault| page.complaint(line, &fault)));
            }
        }
    }
    Ok((count, complaints))
}

#[cfg(test)]
mod tests {
    use crate::shell::root;

    #[test]
    fn the_documents_have_right_links_and_are_all_listed() {
        let complaints = super::complaints(root()).expect("the documents can be read");
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}
