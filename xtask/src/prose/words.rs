//! Banned words, each with a replacement.
//!
//! If the replacement is a term of `docs/glossary.md`, it has the same spelling as in the glossary.
//! A test compares the spellings.

/// Banned phrases in lower case, and their replacements.
pub(super) const BANNED: &[(&[&str], &str)] = &[
    // Terms of the glossary.
    (&["door", "doors"], "listener"),
    (&["patience", "patient", "impatient"], "timeout"),
    (&["told", "untold"], "acknowledged, reported"),
    (&["on its way", "on their way", "under way"], "in flight"),
    (&["given up wrongly", "wrongly given up"], "spuriously lost"),
    (
        &["became of", "become of", "becomes of", "come of"],
        "outcome",
    ),
    (
        &[
            "loan", "loans", "lend", "lends", "lent", "lender", "lending",
        ],
        "outstanding reference",
    ),
    (
        &["taken on", "take on", "takes on", "taking on", "took on"],
        "reload",
    ),
    (
        &[
            "gone on with",
            "go on with",
            "goes on with",
            "going on with",
            "went on with",
        ],
        "resume",
    ),
    (
        &["the other one", "the other side"],
        "near gateway, far gateway, peer",
    ),
    // Machines report, return, store and detect.
    (&["tell", "tells", "telling"], "report, return"),
    (&["say", "says", "said", "saying"], "report, state, contain"),
    (&["knows", "knew"], "stores, has, detects"),
    (&["hear", "hears", "heard", "hearing"], "receive"),
    (&["believe", "believes", "believed"], "accept, assume"),
    // Pronouns without a noun.
    (&["somebody", "nobody"], "the actor's name"),
    (&["those of", "of those", "those that"], "the noun"),
    (&["one that", "ones that", "that which"], "the noun"),
    // Quantities without a number.
    (&["so many", "so much", "so long", "so often"], "the number"),
    // Idioms.
    (&["of use"], "useful"),
    (&["of late"], "recently"),
    (&["anew"], "again, from the beginning"),
    (&["but for"], "except for"),
    (&["in the midst"], "during"),
    (&["muster", "musters", "mustered"], "collect"),
];

/// Nouns that may precede `who`.
pub(super) const PERSONS: &[&str] = &[
    "administrator",
    "administrators",
    "anybody",
    "anyone",
    "attacker",
    "attackers",
    "author",
    "authors",
    "contributor",
    "contributors",
    "everybody",
    "everyone",
    "observer",
    "operator",
    "operators",
    "owner",
    "owners",
    "people",
    "person",
    "persons",
    "reader",
    "readers",
    "reviewer",
    "someone",
    "stranger",
    "strangers",
    "user",
    "users",
];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::BANNED;
    use crate::shell::root;

    /// Returns the terms of the glossary.
    fn terms() -> BTreeSet<String> {
        let path = root().join("docs/glossary.md");
        let text = fs::read_to_string(path).expect("the glossary can be read");
        let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
        let terms = rows.filter_map(|row| row.split(" |").next());
        terms.skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn better_words_of_glossary_terms_are_in_the_glossary() {
        let terms = terms();
        assert!(terms.len() > 50, "the glossary has {} terms", terms.len());
        let all = BANNED
            .iter()
            .take_while(|(phrases, _)| phrases[0] != "tell");
        for (phrases, better) in all {
            let first = better.split(", ").next().unwrap_or_default();
            assert!(terms.contains(first), "{phrases:?}: no term {first}");
        }
    }

    #[test]
    fn no_phrase_is_banned_twice_and_no_term_is_banned() {
        let mut seen = BTreeSet::new();
        for phrase in BANNED.iter().flat_map(|(phrases, _)| *phrases) {
            assert!(seen.insert(*phrase), "{phrase}");
            assert!(!terms().contains(*phrase), "{phrase}");
        }
    }

    #[test]
    fn glossary_terms_are_sorted_and_their_meanings_are_short() {
        let path = root().join("docs/glossary.md");
        let text = fs::read_to_string(path).expect("the glossary can be read");
        let rows = text.lines().filter(|line| line.starts_with("| "));
        let mut before = String::new();
        for row in rows.skip(1) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            assert_eq!(cells.len(), 6, "{row}");
            let term = cells[1].to_lowercase();
            assert!(before < term, "{term} stands behind {before}");
            before = term;
            let words = cells[2].split_whitespace().count();
            assert!((1..=25).contains(&words), "{row}");
        }
    }
}
