//! Rules for a sentence: length, first word, nominal clauses, banned words, and `TODO`.
//!
//! A table cell or a heading counts as a sentence. Code spans do not count as words.

use std::fmt;

use super::{
    text::{CODE, Sentence},
    words::{BANNED, PERSONS},
};

/// A rule that a program can check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A sentence must have at most [`WORDS_MAX`] words.
    Length,
    /// A sentence must not begin with a word of [`OPENINGS`].
    Opening,
    /// A sentence must not use `what` or `who` in place of a noun.
    Clause,
    /// A sentence must not contain a word of [`BANNED`].
    Word,
    /// A comment line must not extend beyond column 100.
    Width,
    /// A sentence must not contain `TODO`.
    Todo,
}

impl Rule {
    pub(super) const ALL: [Self; 6] = [
        Self::Length,
        Self::Opening,
        Self::Clause,
        Self::Word,
        Self::Width,
        Self::Todo,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Opening => "opening",
            Self::Clause => "clause",
            Self::Word => "word",
            Self::Width => "width",
            Self::Todo => "todo",
        }
    }
}

/// A sentence that breaks a rule.
#[derive(Debug)]
pub(super) struct Violation {
    pub rule: Rule,
    pub first_line: usize,
    last_line: usize,
    /// The word or number that breaks the rule.
    detail: String,
    sentence: String,
}

impl Violation {
    /// Returns whether the sentence, or a part of it, is on this line of the file.
    pub(super) fn covers(&self, line: usize) -> bool {
        (self.first_line..=self.last_line).contains(&line)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rule,
            first_line,
            detail,
            sentence,
            ..
        } = self;
        write!(f, "{first_line}: {} {detail}: {sentence}", rule.name())
    }
}

/// Checks a sentence, and returns its violations.
pub(super) fn judge(sentence: &Sentence) -> Vec<Violation> {
    let tokens: Vec<&str> = sentence.text.split_whitespace().collect();
    let words: Vec<String> = tokens.iter().map(|token| word(token)).collect();
    let mut faults = Vec::new();
    let count = words.iter().filter(|word| is_counted(word)).count();
    if count > WORDS_MAX {
        faults.push((Rule::Length, format!("{count} words")));
    }
    if let Some(first) = words.first()
        && OPENINGS.contains(&first.as_str())
    {
        faults.push((Rule::Opening, format!("\"{first}\"")));
    }
    if !sentence.text.trim_end().ends_with('?') {
        // If the first word is already a violation of `Opening`, it is not also a violation of
        // `Clause`.
        let is_opening = faults.iter().any(|(rule, _)| *rule == Rule::Opening);
        let clauses = nominal_clauses(&words, usize::from(is_opening));
        faults.extend(clauses.map(|clause| (Rule::Clause, format!("\"{clause}\""))));
    }
    for (phrases, better) in BANNED {
        for phrase in *phrases {
            for _ in 0..occurrences(&words, phrase) {
                let detail = format!("\"{phrase}\" (better: {better})");
                faults.push((Rule::Word, detail));
            }
        }
    }
    let is_todo = |token: &&&str| TODO.contains(&token.trim_matches(|c: char| !c.is_alphabetic()));
    let todo = tokens.iter().filter(is_todo);
    faults.extend(todo.map(|token| (Rule::Todo, format!("\"{token}\""))));
    let violation = |(rule, detail)| Violation {
        rule,
        first_line: sentence.first_line,
        last_line: sentence.last_line,
        detail,
        sentence: sentence.shown.clone(),
    };
    faults.into_iter().map(violation).collect()
}

/// Returns the violation for a comment line that is too wide.
pub(super) fn wide((line, text): (usize, String)) -> Violation {
    Violation {
        rule: Rule::Width,
        first_line: line,
        last_line: line,
        detail: "beyond column 100".to_owned(),
        sentence: text,
    }
}

/// Returns a token in lower case, without surrounding punctuation and without a genitive ending.
fn word(token: &str) -> String {
    let word = token.trim_matches(|c: char| !c.is_alphanumeric() && c != CODE);
    let word = word.to_lowercase().replace('’', "'");
    word.strip_suffix("'s").unwrap_or(&word).to_owned()
}

fn is_counted(word: &str) -> bool {
    !word.is_empty() && !word.contains(CODE)
}

/// Returns the clauses in which `what` or `who` replaces a noun, starting at the word number
/// `first`. Each result is the first two words of a clause.
fn nominal_clauses(words: &[String], first: usize) -> impl Iterator<Item = String> {
    let clauses = (first..words.len()).filter(move |at| {
        let next = words.get(at + 1).map(String::as_str);
        match words[*at].as_str() {
            "what" => next.is_some_and(|next| !AFTER_WHAT.contains(&next)),
            "who" | "whom" => {
                let person = at.checked_sub(1).map(|before| words[before].as_str());
                !person.is_some_and(|person| PERSONS.contains(&person))
            }
            word => ["whatever", "whoever", "whomever"].contains(&word),
        }
    });
    clauses.map(move |at| {
        words[at..words.len().min(at + 2)]
            .join(" ")
            .replace(CODE, "`...`")
    })
}

/// Returns the number of occurrences of a phrase of one or more words.
fn occurrences(words: &[String], phrase: &str) -> usize {
    let phrase: Vec<&str> = phrase.split(' ').collect();
    let windows = words.windows(phrase.len());
    windows.filter(|window| *window == phrase).count()
}

/// Maximum number of words of a sentence.
const WORDS_MAX: usize = 25;

/// Words that must not begin a sentence. They introduce a fronted genitive, infinitive or relative
/// clause.
const OPENINGS: [&str; 7] = ["of", "by", "to", "those", "so", "what", "who"];

/// Words that may follow `what`, since they form a question or an infinitive.
const AFTER_WHAT: [&str; 4] = ["to", "kind", "sort", "if"];

const TODO: [&str; 3] = ["TODO", "FIXME", "XXX"];

#[cfg(test)]
mod tests {
    use super::{Rule, judge};
    use crate::prose::text::parse_document;

    /// Returns the rules that a paragraph breaks.
    fn broken(text: &str) -> Vec<Rule> {
        let sentences = parse_document(text).sentences;
        let violations = sentences.iter().flat_map(judge);
        violations.map(|violation| violation.rule).collect()
    }

    #[test]
    fn sentence_has_25_words_at_most_without_code() {
        let words = |count: usize| format!("The {}.", vec!["word"; count - 1].join(" "));
        assert_eq!(broken(&words(25)), []);
        assert_eq!(broken(&words(26)), [Rule::Length]);
        assert_eq!(broken(&format!("`code` and {}", words(24))), []);
        assert_eq!(broken(&format!("{} {}", words(20), words(20))), []);
    }

    #[test]
    fn sentence_opens_with_no_listed_word() {
        for text in [
            "Of several sources each has a name.",
            "By default it is on.",
            "To servers it is known.",
            "Those packets are lost.",
            "So it ends.",
            "What it is, it stays.",
            "Who has it keeps it.",
        ] {
            assert_eq!(broken(text), [Rule::Opening], "{text}");
        }
        assert_eq!(broken("`Of` opens it. Sources of it. Toast."), []);
    }

    #[test]
    fn what_and_who_do_not_stand_for_nouns() {
        for text in [
            "It returns what is in flight.",
            "It returns what `f` returns.",
            "It names who has it.",
            "It serves whoever connects.",
        ] {
            assert_eq!(broken(text), [Rule::Clause], "{text}");
        }
        for text in [
            "A user who connects is served.",
            "It returns what to do next.",
            "Does it return what is in flight?",
            "It states what kind it is.",
        ] {
            assert_eq!(broken(text), [], "{text}");
        }
    }

    #[test]
    fn banned_words_are_found_with_any_marks_and_in_phrases() {
        assert_eq!(broken("Nobody's door."), [Rule::Word, Rule::Word]);
        assert_eq!(broken("It waits (so many bytes)."), [Rule::Word]);
        assert_eq!(
            broken("The `door` has many so-called indoor listeners."),
            []
        );
    }

    #[test]
    fn todo_is_found_as_a_word() {
        assert_eq!(broken("TODO: mend it."), [Rule::Todo]);
        assert_eq!(broken("The todo list, and `TODO` in code."), []);
    }
}
