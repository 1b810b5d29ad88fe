//! Comments of Rust source: doc comments and ordinary comments.
//!
//! The compiler's own lexer finds the comments, so text in string literals does not count.

use ra_ap_rustc_lexer::{DocStyle, FrontmatterAllowed, TokenKind, tokenize};

use super::{
    Exception,
    text::{self, Parsed},
};

/// Parses the comments of Rust source.
pub(super) fn parse(source: &str) -> Parsed {
    let mut parser = CommentParser::default();
    let mut line = 1;
    let mut offset = 0;
    for token in tokenize(source, FrontmatterAllowed::No) {
        let end = offset + token.len as usize;
        let content = &source[offset..end];
        let column = offset - source[..offset].rfind('\n').map_or(0, |at| at + 1);
        match token.kind {
            TokenKind::LineComment { doc_style } => {
                let before = &source[offset - column..offset];
                parser.add_line(line, before, content, doc_style);
            }
            TokenKind::BlockComment { .. } => {
                let before = &source[offset - column..offset];
                parser.add_block(line, before, content);
            }
            _ => {}
        }
        line += content.matches('\n').count();
        offset = end;
    }
    parser.end_comment();
    parser.parsed
}

/// Parser that joins the lines of each comment into one text.
#[derive(Default)]
struct CommentParser {
    parsed: Parsed,
    /// Lines of the current comment, without their markers.
    lines: Vec<String>,
    /// Line numbers of the current comment.
    numbers: Vec<usize>,
    /// Kind of the current comment.
    style: Option<DocStyle>,
    /// Last line of the current comment, or of an exception within the comment.
    last_line: usize,
}

impl CommentParser {
    fn add_line(&mut self, number: usize, before: &str, content: &str, style: Option<DocStyle>) {
        self.check_width(number, before, content);
        let is_alone = before.trim().is_empty();
        let is_next = is_alone && number == self.last_line + 1;
        if let Some(reason) = content.strip_prefix("// prose: ") {
            self.parsed.exceptions.push(Exception {
                line: number,
                target: number + 1,
                reason: reason.trim().to_owned(),
            });
            if is_next {
                self.last_line = number;
            }
            return;
        }
        if !is_next || style != self.style {
            self.end_comment();
        }
        let text = content.trim_start_matches('/');
        let text = text.strip_prefix('!').unwrap_or(text);
        let text = text.strip_prefix(' ').unwrap_or(text);
        self.lines.push(text.trim_end().to_owned());
        self.numbers.push(number);
        self.style = style;
        // A comment behind code ends on its line. The next comment is a separate text.
        self.last_line = if is_alone { number } else { 0 };
    }

    fn add_block(&mut self, number: usize, before: &str, content: &str) {
        self.end_comment();
        let text = content.trim_start_matches(['/', '*', '!']);
        let text = text.trim_end_matches(['/', '*']);
        for (index, line) in text.lines().enumerate() {
            let trimmed = line.trim_start().trim_start_matches('*');
            self.lines.push(trimmed.trim_start().to_owned());
            self.numbers.push(number + index);
        }
        for (index, line) in content.lines().enumerate() {
            let before = if index == 0 { before } else { "" };
            self.check_width(number + index, before, line);
        }
        self.end_comment();
    }

    fn check_width(&mut self, number: usize, before: &str, content: &str) {
        if before.chars().count() + content.chars().count() > WIDTH_MAX {
            let line = content.trim().to_owned();
            self.parsed.wide_lines.push((number, line));
        }
    }

    fn end_comment(&mut self) {
        let text = self.lines.join("\n");
        text::parse(&text, &self.numbers, &mut self.parsed);
        self.lines.clear();
        self.numbers.clear();
        self.last_line = 0;
    }
}

/// Maximum width of a line with a comment. It equals the maximum width of code (`rustfmt.toml`).
const WIDTH_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::parse;

    /// Returns the line number and the text of each sentence.
    fn sentences(source: &str) -> Vec<(usize, String)> {
        let sentences = parse(source).sentences.into_iter();
        sentences.map(|it| (it.first_line, it.shown)).collect()
    }

    fn owned<const N: usize>(sentences: [(usize, &str); N]) -> Vec<(usize, String)> {
        sentences.map(|(line, text)| (line, text.to_owned())).into()
    }

    #[test]
    fn consecutive_lines_of_one_kind_are_one_text() {
        let source =
            "//! Module\n//! text.\n\n/// Doc one\n/// goes on.\n// Plain.\nfn f() {} // Behind.\n";
        assert_eq!(
            sentences(source),
            owned([
                (1, "Module text."),
                (4, "Doc one goes on."),
                (6, "Plain."),
                (7, "Behind.")
            ])
        );
    }

    #[test]
    fn literals_and_lifetimes_contain_no_comments() {
        let source = "const A: &str = \"// no\";\nconst B: &str = r#\"\" // no\n// no\"#;\n\
            fn f<'a>(x: &'a u8) -> char { '\"' } // Yes.\nconst C: &[u8] = b\"/* no */\";\n";
        assert_eq!(sentences(source), owned([(4, "Yes.")]));
    }

    #[test]
    fn block_comments_nest() {
        let source = "/* One.\n * Two /* inner */ goes\n * on. */ fn f() {} // Three.\n";
        assert_eq!(
            sentences(source),
            owned([(1, "One."), (2, "Two /* inner */ goes on."), (3, "Three.")])
        );
    }

    #[test]
    fn code_in_doc_comments_is_left_out() {
        let source = "/// Text.\n///\n/// ```\n/// let of = 1; // Of it.\n/// ```\nfn f() {}\n";
        assert_eq!(sentences(source), owned([(1, "Text.")]));
    }

    #[test]
    fn comment_beyond_column_100_is_wide() {
        let fits = format!("// {}\n", "x".repeat(97));
        assert!(parse(&fits).wide_lines.is_empty());
        let wide = format!("    // {}\n", "x".repeat(94));
        assert_eq!(parse(&wide).wide_lines[0].0, 1);
        let code = format!("const A: &str = \"{}\";\n", "x".repeat(100));
        assert!(parse(&code).wide_lines.is_empty());
    }

    #[test]
    fn exception_does_not_split_a_comment() {
        let source = "/// One goes\n// prose: why\n/// on.\nfn f() {}\n";
        assert_eq!(sentences(source), owned([(1, "One goes on.")]));
        assert_eq!(parse(source).exceptions[0].target, 3);
    }
}
