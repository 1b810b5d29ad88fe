//! Findings of `longhaul doctor`: each examined subject with its state.

use serde::Serialize;

/// All findings, in the order in which they were made.
#[derive(Debug, Default, Serialize)]
pub(super) struct Findings {
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Finding {
    verdict: Verdict,
    /// The examined subject, such as a listener.
    what: String,
    /// The observed state.
    seen: String,
    /// The recommended action.
    cure: Option<String>,
}

/// State of an examined subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Good,
    /// The subject works, but not optimally, or the subject cannot be examined from this machine.
    Doubtful,
    Wrong,
}

impl Findings {
    pub(super) fn good(&mut self, what: impl Into<String>, seen: impl Into<String>) {
        self.add(Verdict::Good, what.into(), seen.into(), None);
    }

    pub(super) fn doubtful(
        &mut self,
        what: impl Into<String>,
        seen: impl Into<String>,
        cure: impl Into<String>,
    ) {
        self.add(
            Verdict::Doubtful,
            what.into(),
            seen.into(),
            Some(cure.into()),
        );
    }

    pub(super) fn wrong(
        &mut self,
        what: impl Into<String>,
        seen: impl Into<String>,
        cure: impl Into<String>,
    ) {
        self.add(Verdict::Wrong, what.into(), seen.into(), Some(cure.into()));
    }

    fn add(&mut self, verdict: Verdict, what: String, seen: String, cure: Option<String>) {
        self.findings.push(Finding {
            verdict,
            what,
            seen,
            cure,
        });
    }

    /// Returns the worst verdict of all findings.
    pub(super) fn worst(&self) -> Verdict {
        let verdicts = self.findings.iter().map(|it| it.verdict);
        verdicts.max().unwrap_or(Verdict::Good)
    }

    /// Returns a text for users. Each recommended action follows its finding.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let sign = match finding.verdict {
                Verdict::Good => "ok",
                Verdict::Doubtful => "look",
                Verdict::Wrong => "WRONG",
            };
            text += &format!("{sign:<6} {}: {}\n", finding.what, finding.seen);
            if let Some(cure) = &finding.cure {
                text += &format!("       cure: {cure}\n");
            }
        }
        let count = |verdict| {
            let findings = self.findings.iter();
            findings.filter(|it| it.verdict == verdict).count()
        };
        text + &match (count(Verdict::Wrong), count(Verdict::Doubtful)) {
            (0, 0) => "Nothing is wrong.\n".to_owned(),
            (0, doubtful) => format!("Nothing is wrong; worth a look: {doubtful}.\n"),
            (wrong, doubtful) => format!("Wrong: {wrong}; worth a look: {doubtful}.\n"),
        }
    }
}
