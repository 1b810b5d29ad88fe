//! Deviations of servers from the standards.

use std::time::Duration;

use crate::channel::Rng;

/// Deviations of one server. Most servers have none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quirks {
    /// Reaction to `SYST`, `FEAT` or `PWD`, which the gateway sends before the client does.
    pub(crate) at_question: AtQuestion,
    /// Whether the last line of a long reply has another code.
    pub(crate) ends_with_other_code: bool,
    pub(crate) abort: AtAbort,
    /// Whether the server accepts `PROT` only from users who are logged in.
    pub(crate) prot_needs_login: bool,
    pub(crate) passive: PassiveAnswer,
    /// Whether the server answers the log-in twice.
    pub(crate) greets_twice: bool,
    /// Whether the server answers an empty download with only a success, and resets the data
    /// connection.
    pub(crate) skips_empty: bool,
    /// Whether the server never answers `XYZZY`.
    pub(crate) is_silent: bool,
    /// Whether the server's replies to other commands have the code of its reply to `FEAT`.
    pub(crate) has_odd_codes: bool,
    /// A prefetched command that the server refuses or answers with a wrong code, and the line of
    /// the reply.
    pub(crate) odd_answer: Option<(&'static str, &'static str)>,
    /// Time for each third command that is neither a transfer nor prefetched.
    pub(crate) work: Option<Duration>,
}

/// Reaction to `SYST`, `FEAT` or `PWD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum AtQuestion {
    #[default]
    Answers,
    Silent(&'static str),
    /// The server answers after a delay, and reads no commands meanwhile.
    Late(&'static str, Duration),
    /// The server answers after a delay, and handles other commands meanwhile.
    LateAside(&'static str, Duration),
    /// The server answers twice.
    Twice(&'static str),
    /// The server ends the session, with a reply or without one.
    Leaves(&'static str, Option<&'static str>),
}

/// Reaction to `ABOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum AtAbort {
    #[default]
    Answers,
    /// The server ends the transfer with 426, and does not answer the `ABOR`.
    Single,
    /// The server does not support the command, and continues the transfer.
    Unknown,
}

/// Reply to `PASV`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PassiveAnswer {
    #[default]
    Plain,
    /// With blanks after the commas.
    Blanks,
    /// In the form of `EPSV`.
    Extended,
    /// `PASV` is refused, and the reply to `EPSV` has the form of `PASV`.
    OnlyEpsv,
    /// Neither command is supported.
    None,
}

impl Quirks {
    /// Draws the quirks of one server. `SIEGE_QUIRKS` has a bit for each permitted kind.
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let allowed = crate::number("SIEGE_QUIRKS", KINDS);
        let has_any = rng.chance(50);
        let mut may = |kind: u64, percent: u64| {
            let is_drawn = rng.chance(percent);
            has_any && is_drawn && allowed & (1 << kind) != 0
        };
        let is_silent_at_question = may(0, 10);
        let leaves = may(1, 10);
        let ends_with_other_code = may(2, 20);
        let (is_single, is_unknown) = (may(3, 25), may(4, 25));
        let prot_needs_login = may(5, 50);
        let (has_other_form, has_no_passive) = (may(6, 60), may(7, 20));
        let greets_twice = may(8, 20);
        let skips_empty = may(9, 30);
        let is_silent = may(10, 5);
        let (is_late, has_odd_codes) = (may(11, 20), may(12, 30));
        let is_double = may(13, 10);
        let subject = rng.pick(&["SYST", "FEAT", "PWD"]);
        let at_question = match (is_silent_at_question, leaves, is_late) {
            (_, true, _) => {
                let farewell = rng.pick(&[None, Some("221 bye"), Some("421 bye")]);
                AtQuestion::Leaves(subject, farewell)
            }
            (true, ..) => AtQuestion::Silent(subject),
            (.., true) => {
                let seconds = rng.pick(&[1, 3, 5, 8, 10, 40, 400]);
                let delay = Duration::from_secs(seconds) + rng.time(200);
                match rng.chance(20) {
                    true => AtQuestion::LateAside(subject, delay),
                    false => AtQuestion::Late(subject, delay),
                }
            }
            _ if is_double => AtQuestion::Twice(subject),
            _ => AtQuestion::Answers,
        };
        Self {
            at_question,
            ends_with_other_code,
            abort: match (is_single, is_unknown) {
                (true, _) => AtAbort::Single,
                (_, true) => AtAbort::Unknown,
                _ => AtAbort::Answers,
            },
            prot_needs_login,
            passive: match (has_other_form, has_no_passive) {
                (_, true) => PassiveAnswer::None,
                (true, _) => rng.pick(&[
                    PassiveAnswer::Blanks,
                    PassiveAnswer::Extended,
                    PassiveAnswer::OnlyEpsv,
                ]),
                _ => PassiveAnswer::Plain,
            },
            greets_twice,
            skips_empty,
            is_silent,
            has_odd_codes,
            odd_answer: None,
            work: None,
        }
    }

    /// Draws quirks that were added later, from another generator: each seed keeps its sessions.
    pub(crate) fn draw_more(&mut self, rng: &mut Rng) {
        if rng.chance(15) {
            let subject = match self.at_question {
                AtQuestion::Twice(subject) => subject,
                _ => rng.pick(&["SYST", "FEAT", "PWD"]),
            };
            self.odd_answer = Some((subject, rng.pick(&ODD_ANSWERS)));
        }
        if rng.chance(10) {
            self.work = Some(Duration::from_secs(rng.pick(&[4, 9, 60])));
        }
    }

    /// Returns the answer to `SYST`, `FEAT` or `PWD`.
    pub(crate) fn answer(&self, verb: &str) -> Option<&'static str> {
        let odd = self.odd_answer.filter(|(subject, _)| *subject == verb);
        odd.map(|(_, line)| line).or(question_answer(verb))
    }
}

/// Returns the standard answer to a command that gateways prefetch.
pub(crate) fn question_answer(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "SYST" => "215 UNIX",
        "FEAT" => "211 none",
        "PWD" => "257 \"/\"",
        _ => return None,
    })
}

/// Refusals, and answers with wrong codes.
const ODD_ANSWERS: [&str; 6] = [
    "500 odd",
    "530 odd",
    "200 odd",
    "211 odd",
    "215 odd",
    "257 \"odd\"",
];

/// All kinds of quirks.
const KINDS: u64 = (1 << 14) - 1;
