//! Links, anchors and code of a Markdown document, with their line numbers.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{BrokenLink, CodeBlockKind, Event, LinkType, Options, Parser, Tag, TagEnd};

/// The parts of a document that are checked.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub links: Vec<Link>,
    /// Anchors of the headings, in the form that links have after `#`.
    pub anchors: BTreeSet<String>,
    pub code: Vec<Code>,
    /// Line number and description of each part that cannot be checked.
    pub faults: Vec<(usize, String)>,
}

/// A link or an image of a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub line: usize,
    /// Address of the link, exactly as in the document.
    pub target: String,
}

/// A code span or a code block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Code {
    /// Line number of the first character.
    pub line: usize,
    pub kind: CodeKind,
    pub text: String,
}

/// Kind of a piece of code.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CodeKind {
    Span,
    /// An indented block, or a fenced block without a language.
    Block,
    /// A fenced block with this language.
    Fenced(String),
}

impl Document {
    /// Parses Markdown text.
    pub(super) fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let line = |offset: usize| text[..offset].matches('\n').count() + 1;
        let mut broken = Vec::new();
        let mut note_broken = |link: BrokenLink<'_>| {
            // Links of the other forms look like plain text in brackets, and are not reported.
            if link.link_type == LinkType::Reference {
                let reference = link.reference;
                broken.push((
                    line(link.span.start),
                    format!("[{reference}] has no definition"),
                ));
            }
            None
        };
        let parser = Parser::new_with_broken_link_callback(
            text,
            Options::ENABLE_TABLES,
            Some(&mut note_broken),
        );
        let mut headings = Headings::default();
        let mut block = None;
        for (event, range) in parser.into_offset_iter() {
            let start = line(range.start);
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    document.links.push(Link {
                        line: start,
                        target: dest_url.into_string(),
                    });
                }
                Event::Start(Tag::Heading { .. }) => headings.open(),
                Event::End(TagEnd::Heading(_)) => {
                    document.anchors.extend(headings.close());
                }
                Event::Start(Tag::CodeBlock(kind)) => block = Some(Code::block(start, &kind)),
                Event::End(TagEnd::CodeBlock) => document.code.extend(block.take()),
                Event::Text(content) => match &mut block {
                    Some(code) => code.push(start, &content),
                    None => headings.push(&content),
                },
                Event::Code(content) => {
                    headings.push(&content);
                    document.code.push(Code {
                        line: start,
                        kind: CodeKind::Span,
                        text: content.into_string(),
                    });
                }
                Event::Html(html) | Event::InlineHtml(html)
                    if ["href=", "src="].iter().any(|name| html.contains(name)) =>
                {
                    let fault = "a link in HTML is not checked: write it in Markdown";
                    document.faults.push((start, fault.to_owned()));
                }
                _ => {}
            }
        }
        document.faults.append(&mut broken);
        document
    }
}

impl Code {
    fn block(line: usize, kind: &CodeBlockKind<'_>) -> Self {
        let language = match kind {
            CodeBlockKind::Indented => "",
            CodeBlockKind::Fenced(info) => info.split([' ', ',']).next().unwrap_or_default(),
        };
        Self {
            line,
            kind: match language {
                "" => CodeKind::Block,
                language => CodeKind::Fenced(language.to_owned()),
            },
            text: String::new(),
        }
    }

    fn push(&mut self, line: usize, content: &str) {
        if self.text.is_empty() {
            self.line = line;
        }
        self.text += content;
    }
}

/// State of the parser of headings, with the text of an unfinished heading.
#[derive(Default)]
struct Headings {
    open: Option<String>,
    /// Number of headings seen so far with each anchor text.
    counts: BTreeMap<String, usize>,
}

impl Headings {
    fn open(&mut self) {
        self.open = Some(String::new());
    }

    fn push(&mut self, text: &str) {
        if let Some(open) = &mut self.open {
            *open += text;
        }
    }

    /// Ends the unfinished heading, and returns its anchor.
    fn close(&mut self) -> Option<String> {
        let anchor = anchor(&self.open.take()?);
        let count = self.counts.entry(anchor.clone()).or_default();
        *count += 1;
        Some(match *count {
            1 => anchor,
            count => format!("{anchor}-{}", count - 1),
        })
    }
}

/// Returns the anchor of a heading. Forges such as GitHub and mdBook use the same rule.
fn anchor(heading: &str) -> String {
    let characters = heading.trim().chars().filter_map(|char| match char {
        ' ' => Some('-'),
        '-' | '_' => Some(char),
        _ => char.is_alphanumeric().then_some(char),
    });
    characters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::{Code, CodeKind, Document, Link};

    #[test]
    fn links_images_and_autolinks_have_their_lines() {
        let text = "# A\n\n[one](a.md#b), ![two](c.png)\n\n| a |\n|---|\n| [three][r] |\n\n<https://x.y>\n\n[r]: ../d.md\n";
        let links = Document::parse(text).links;
        let link = |line, target: &str| Link {
            line,
            target: target.to_owned(),
        };
        assert_eq!(
            links,
            [
                link(3, "a.md#b"),
                link(3, "c.png"),
                link(7, "../d.md"),
                link(9, "https://x.y")
            ]
        );
    }

    #[test]
    fn code_is_no_link() {
        let document = Document::parse("`[a](b.md)`\n\n    [c](d.md)\n\n```toml\n[[e]](f)\n```\n");
        assert_eq!(document.links, []);
    }

    #[test]
    fn a_heading_has_the_anchor_of_forges_and_mdbook() {
        let text = "# `[[ftp]]`: a listener\n## Fast and strict\n## Fast and strict\n## TLS 1.3, *again* — [x](y.md)\n";
        let anchors: Vec<_> = Document::parse(text).anchors.into_iter().collect();
        assert_eq!(
            anchors,
            [
                "fast-and-strict",
                "fast-and-strict-1",
                "ftp-a-listener",
                "tls-13-again--x"
            ]
        );
    }

    #[test]
    fn code_has_its_kind_and_first_line() {
        let text = "`a b`\n\n1. One:\n\n       c \\\n         d\n\n   ```console\n   $ e\n   ```\n";
        let code = |line, kind, text: &str| Code {
            line,
            kind,
            text: text.to_owned(),
        };
        assert_eq!(
            Document::parse(text).code,
            [
                code(1, CodeKind::Span, "a b"),
                code(5, CodeKind::Block, "c \\\n  d\n"),
                code(9, CodeKind::Fenced("console".to_owned()), "$ e\n"),
            ]
        );
    }

    #[test]
    fn a_reference_without_definition_and_a_link_in_html_are_faults() {
        let document = Document::parse("[a][b] [c] x[1]\n\n<img src=\"d.png\">\n");
        let lines: Vec<_> = document.faults.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [3, 1], "{:?}", document.faults);
    }
}
