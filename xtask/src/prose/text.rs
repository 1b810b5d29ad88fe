//! Sentences of Markdown text, from documents and comments.
//!
//! The module parses Markdown, and returns sentences with their line numbers. It omits code blocks
//! and addresses. It replaces each code span by a placeholder.

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

use super::Exception;

/// Placeholder for a code span within a sentence.
pub(super) const CODE: char = '\u{fffc}';

/// A sentence, a heading or a table cell.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    /// Text in which [`CODE`] replaces each code span.
    pub text: String,
    /// Text of the sentence including its code spans, on one line.
    pub shown: String,
    /// Line number of the first character.
    pub first_line: usize,
    /// Line number of the last character.
    pub last_line: usize,
}

/// Sentences and exceptions of one file, and the comment lines of the file that are too wide.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub sentences: Vec<Sentence>,
    pub exceptions: Vec<Exception>,
    /// Line number and text of each comment line that is too wide.
    pub wide_lines: Vec<(usize, String)>,
}

/// Parses a Markdown document.
pub(super) fn parse_document(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let numbers: Vec<usize> = (1..=text.lines().count()).collect();
    parse(text, &numbers, &mut parsed);
    parsed
}

/// Adds the sentences of `text` to `parsed`. `numbers` contains, for each line of `text`, its line
/// number in the file.
pub(super) fn parse(text: &str, numbers: &[usize], parsed: &mut Parsed) {
    let starts = text.match_indices('\n').map(|(at, _)| at + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(starts).collect();
    let lines = Lines {
        text,
        numbers,
        starts,
    };
    let mut block = Vec::new();
    let mut ignored = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        if let Some(end) = ignored {
            if event == Event::End(end) {
                ignored = None;
            }
            continue;
        }
        match event {
            Event::Text(content) => {
                let is_verbatim = content.len() == range.len();
                block.extend(content.char_indices().map(|(at, char)| {
                    let start = range.start + if is_verbatim { at } else { 0 };
                    Character::new(char, start, start + char.len_utf8())
                }));
            }
            Event::Code(_) => block.push(Character::new(CODE, range.start, range.end)),
            Event::SoftBreak | Event::HardBreak => {
                block.push(Character::new(' ', range.start, range.end));
            }
            Event::InlineHtml(html) => {
                let line = lines.number(range.start);
                parsed.exceptions.extend(exception(&html, line, line));
            }
            Event::Html(html) => {
                let line = lines.number(range.start);
                let target = lines.next_after(range.start);
                parsed.exceptions.extend(exception(&html, line, target));
            }
            Event::Start(Tag::Emphasis | Tag::Strong)
            | Event::End(TagEnd::Emphasis | TagEnd::Strong | TagEnd::Link) => {}
            Event::Start(Tag::Link { link_type, .. }) => {
                if matches!(link_type, LinkType::Autolink | LinkType::Email) {
                    ignored = Some(TagEnd::Link);
                }
            }
            Event::Start(Tag::CodeBlock(_)) => {
                lines.split(&mut block, &mut parsed.sentences);
                ignored = Some(TagEnd::CodeBlock);
            }
            _ => lines.split(&mut block, &mut parsed.sentences),
        }
    }
    lines.split(&mut block, &mut parsed.sentences);
}

/// Returns the exception in an HTML comment, or `None` if the comment states no exception.
fn exception(html: &str, line: usize, target: usize) -> Option<Exception> {
    let reason = html.trim().strip_prefix("<!--")?.trim_start();
    let reason = reason.strip_prefix("prose:")?;
    let reason = reason.strip_suffix("-->").unwrap_or(reason).trim();
    Some(Exception {
        line,
        target,
        reason: reason.to_owned(),
    })
}

/// A character of a paragraph, with its byte range in the source.
struct Character {
    char: char,
    start: usize,
    end: usize,
}

impl Character {
    fn new(char: char, start: usize, end: usize) -> Self {
        Self { char, start, end }
    }
}

/// A text, with the line number in the file for each of its lines.
struct Lines<'a> {
    text: &'a str,
    numbers: &'a [usize],
    /// Offset of the first byte of each line.
    starts: Vec<usize>,
}

impl Lines<'_> {
    fn index(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset) - 1
    }

    fn number(&self, offset: usize) -> usize {
        let index = self.index(offset);
        self.numbers.get(index).copied().unwrap_or_default()
    }

    /// Returns the number of the next line that is not blank.
    fn next_after(&self, offset: usize) -> usize {
        let mut rest = self.text.lines().zip(self.numbers);
        let next = rest.by_ref().skip(self.index(offset) + 1);
        let mut next = next.filter(|(line, _)| !line.trim().is_empty());
        next.next().map_or(0, |(_, number)| *number)
    }

    /// Splits a paragraph into sentences, and adds them to `sentences`.
    fn split(&self, block: &mut Vec<Character>, sentences: &mut Vec<Sentence>) {
        let mut rest = block.as_slice();
        while let Some(begin) = rest.iter().position(|it| !it.char.is_whitespace()) {
            rest = &rest[begin..];
            let end = (0..rest.len()).find_map(|at| sentence_end(rest, at));
            let (sentence, others) = rest.split_at(end.unwrap_or(rest.len()));
            sentences.extend(self.sentence(sentence));
            rest = others;
        }
        block.clear();
    }

    fn sentence(&self, characters: &[Character]) -> Option<Sentence> {
        let is_blank = |it: &&Character| it.char.is_whitespace();
        let (first, last) = (
            characters.first()?,
            characters.iter().rfind(|it| !is_blank(it))?,
        );
        // The mark of a link or of emphasis stands before the first character of the text.
        let marks = self.text.get(..first.start).unwrap_or_default();
        let start = marks.trim_end_matches(['[', '*']).len();
        let source = self.text.get(start..last.end).unwrap_or_default();
        Some(Sentence {
            text: characters.iter().map(|it| it.char).collect(),
            shown: source.split_whitespace().collect::<Vec<_>>().join(" "),
            first_line: self.number(first.start),
            last_line: self.number(last.end - 1),
        })
    }
}

/// Returns the index after a sentence, if the mark at index `at` ends a sentence.
fn sentence_end(characters: &[Character], at: usize) -> Option<usize> {
    if !matches!(characters[at].char, '.' | '!' | '?') {
        return None;
    }
    let rest = characters.get(at + 1..)?;
    let closing = rest.iter().take_while(|it| CLOSING.contains(it.char));
    let end = at + 1 + closing.count();
    let mut rest = characters[end..].iter();
    match rest.next() {
        None => return Some(end),
        Some(next) if !next.char.is_whitespace() => return None,
        Some(_) => {}
    }
    let next = rest.find(|it| !it.char.is_whitespace());
    if next.is_some_and(|it| it.char.is_lowercase()) || is_abbreviation(&characters[..at]) {
        return None;
    }
    Some(end)
}

/// Returns whether the word at the end of `characters` is an abbreviation. A full stop after an
/// abbreviation does not end the sentence.
fn is_abbreviation(characters: &[Character]) -> bool {
    let word = characters.rsplit(|it| !(it.char.is_alphabetic() || it.char == '.'));
    let word = word.take(1).flatten().map(|it| it.char).collect::<String>();
    ABBREVIATIONS.contains(&word.to_lowercase().as_str())
}

/// Marks that may appear between the full stop and the following space.
const CLOSING: &str = "\"')]”’";

const ABBREVIATIONS: [&str; 6] = ["e.g", "i.e", "cf", "vs", "fig", "approx"];

#[cfg(test)]
mod tests {
    use super::{Sentence, parse_document};

    /// Returns the sentences of a document with their code spans.
    fn shown(text: &str) -> Vec<String> {
        let sentences = parse_document(text).sentences.into_iter();
        sentences.map(|sentence| sentence.shown).collect()
    }

    #[test]
    fn paragraph_is_split_at_full_stops_and_joined_over_lines() {
        let text = "One stays. Two\ngoes (by 1.5, e.g. Rust). `three` works. Four?";
        assert_eq!(
            shown(text),
            [
                "One stays.",
                "Two goes (by 1.5, e.g. Rust).",
                "`three` works.",
                "Four?"
            ]
        );
    }

    #[test]
    fn sentence_has_its_first_and_last_line_and_a_placeholder_for_code() {
        let text = "# A\n\nOne. [Two](a.md) `a b`\nends [here](https://x.y/z).\n";
        let sentences = parse_document(text).sentences;
        assert_eq!(
            sentences[2],
            Sentence {
                text: "Two \u{fffc} ends here.".into(),
                shown: "[Two](a.md) `a b` ends [here](https://x.y/z).".into(),
                first_line: 3,
                last_line: 4
            }
        );
    }

    #[test]
    fn code_blocks_and_addresses_are_left_out() {
        let text =
            "Before.\n\n    code. Of it.\n\n```\nmore. Of it.\n```\n\nSee <https://x.y/of>.\n";
        assert_eq!(shown(text), ["Before.", "See <https://x.y/of>."]);
        let sentences = parse_document(text).sentences;
        assert_eq!(sentences[1].text, "See .");
    }

    #[test]
    fn headings_items_and_cells_are_sentences_of_their_own() {
        let text = "# Head\n- item one\n- item two\n\n| a | b `c` |\n|---|---|\n| d | `e` |\n";
        assert_eq!(
            shown(text),
            ["Head", "item one", "item two", "a", "b `c`", "d", "`e`"]
        );
    }
}
