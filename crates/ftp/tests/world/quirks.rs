//! Deviations of simulated servers from the standards.

use std::time::Duration;

use crate::channel::Rng;

/// Deviations of one server from the standards. Most servers have no deviation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quirks {
    /// Behaviour of the server at a prefetched `SYST`, `FEAT` or `PWD`. The gateway sends these
    /// commands before the client does.
    pub(crate) at_question: AtQuestion,
    /// Whether the first and last lines of a multi-line reply have different codes.
    pub(crate) ends_with_other_code: bool,
    pub(crate) abort: AtAbort,
    /// Whether the server accepts `PROT` only after the log-in.
    pub(crate) prot_needs_login: bool,
    pub(crate) passive: PassiveAnswer,
    /// Whether the server replies twice to the log-in.
    pub(crate) greets_twice: bool,
    /// Whether the server handles an empty download specially. If so, it resets the data
    /// connection, and its only reply is a success.
    pub(crate) skips_empty: bool,
    /// Whether the server never replies to `XYZZY`.
    pub(crate) is_silent: bool,
    /// Whether replies to other commands have the same code as the reply to `FEAT`.
    pub(crate) has_odd_codes: bool,
    /// Prefetched command that the server refuses, or answers with a wrong code. The second text is
    /// the line of that reply.
    pub(crate) odd_answer: Option<(&'static str, &'static str)>,
    /// Time that the server takes for each third command. Transfers and prefetched commands are not
    /// counted.
    pub(crate) work: Option<Duration>,
}

/// Behaviour of a server at a prefetched `SYST`, `FEAT` or `PWD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum AtQuestion {
    #[default]
    Answers,
    Silent(&'static str),
    /// The server replies after a delay, and reads no other command before that.
    Late(&'static str, Duration),
    /// The server replies after a delay, and handles other commands before that.
    LateAside(&'static str, Duration),
    /// The server replies twice.
    Twice(&'static str),
    /// The server ends the session. The optional text is its last reply.
    Leaves(&'static str, Option<&'static str>),
}

/// Behaviour of a server at `ABOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum AtAbort {
    #[default]
    Answers,
    /// The server sends the reply 426 to the transfer, and no reply to the `ABOR`.
    Single,
    /// The server does not support `ABOR`, and continues the transfer.
    Unknown,
}

/// Behaviour of a server at `PASV` and `EPSV`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PassiveAnswer {
    #[default]
    Plain,
    /// The reply to `PASV` has blanks after the commas.
    Blanks,
    /// The reply to `PASV` has the format of a reply to `EPSV`.
    Extended,
    /// The server refuses `PASV`. Its reply to `EPSV` has the format of a reply to `PASV`.
    OnlyEpsv,
    /// The server supports neither command.
    None,
}

impl Quirks {
    /// Chooses the deviations of one server at random. The variable `SIEGE_QUIRKS` has one bit for
    /// each permitted kind.
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

    /// Chooses deviations that later versions of the test have added. These choices use another
    /// generator, so each seed still produces its earlier session.
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

    /// Returns the server's reply to `SYST`, `FEAT` or `PWD`. Returns `None` for any other verb.
    pub(crate) fn answer(&self, verb: &str) -> Option<&'static str> {
        let odd = self.odd_answer.filter(|(subject, _)| *subject == verb);
        odd.map(|(_, line)| line).or(question_answer(verb))
    }
}

/// Returns the standard reply to a command that gateways prefetch.
pub(crate) fn question_answer(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "SYST" => "215 UNIX",
        "FEAT" => "211 none",
        "PWD" => "257 \"/\"",
        _ => return None,
    })
}

/// Refusals, and replies with wrong codes.
const ODD_ANSWERS: [&str; 6] = [
    "500 odd",
    "530 odd",
    "200 odd",
    "211 odd",
    "215 odd",
    "257 \"odd\"",
];

/// Bit mask of all kinds of deviations.
const KINDS: u64 = (1 << 14) - 1;
