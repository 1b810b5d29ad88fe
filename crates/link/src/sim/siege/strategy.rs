//! Strategies of a hostile peer: their names, and the selection by a seed.

use super::super::random::Random;

/// Kind of misbehaviour of a hostile peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the table below says what each does")]
pub enum Strategy {
    ReportUnseen,
    ReportAhead,
    ReportTimes,
    ReportLoss,
    ReportWide,
    ReportBytes,
    ReportNoise,
    ReportNothing,
    LagGrows,
    DelayLies,
    CreditHuge,
    CreditNone,
    SlotOffsets,
    SlotGaps,
    SlotHalves,
    FrameNoise,
    EndLies,
    DoneLies,
    ResetLies,
    LimitLies,
    RateCrawl,
    PathHints,
    AskAgain,
    BlackHole,
    KeyTurns,
    Closes,
    Moves,
    MovesInHandshake,
    Strangers,
    Flaps,
    GuessesFromThird,
    Withholds,
    Unread,
    OpensAll,
    FloodPings,
    FloodControls,
    FloodResets,
    FloodChallenges,
    FloodTiny,
    FloodRepeats,
    FloodReplays,
    FloodNoise,
    FloodHellos,
    FloodJumps,
    FloodGaps,
    FloodReports,
    FloodCycles,
    ManyConnections,
    Restarts,
}

use Strategy::*;

/// All strategies with their names.
const TABLE: &[(Strategy, &str)] = &[
    // Reports.
    (ReportUnseen, "report-unseen"),
    (ReportAhead, "report-ahead"),
    (ReportTimes, "report-times"),
    (ReportLoss, "report-loss"),
    (ReportWide, "report-wide"),
    (ReportBytes, "report-bytes"),
    (ReportNoise, "report-noise"),
    (ReportNothing, "report-nothing"),
    (LagGrows, "lag-grows"),
    (DelayLies, "delay-lies"),
    // Credit, streams, and the path.
    (CreditHuge, "credit-huge"),
    (CreditNone, "credit-none"),
    (SlotOffsets, "slot-offsets"),
    (SlotGaps, "slot-gaps"),
    (SlotHalves, "slot-halves"),
    (FrameNoise, "frame-noise"),
    (EndLies, "end-lies"),
    (DoneLies, "done-lies"),
    (ResetLies, "reset-lies"),
    (LimitLies, "limit-lies"),
    (RateCrawl, "rate-crawl"),
    (PathHints, "path-hints"),
    (AskAgain, "ask-again"),
    (BlackHole, "black-hole"),
    (KeyTurns, "key-turns"),
    (Closes, "closes"),
    // Addresses.
    (Moves, "moves"),
    (MovesInHandshake, "moves-in-handshake"),
    (Strangers, "strangers"),
    (Flaps, "flaps"),
    (GuessesFromThird, "guesses-from-third"),
    // Withholding.
    (Withholds, "withholds"),
    (Unread, "unread"),
    (OpensAll, "opens-all"),
    // Floods.
    (FloodPings, "flood-pings"),
    (FloodControls, "flood-controls"),
    (FloodResets, "flood-resets"),
    (FloodChallenges, "flood-challenges"),
    (FloodTiny, "flood-tiny"),
    (FloodRepeats, "flood-repeats"),
    (FloodReplays, "flood-replays"),
    (FloodNoise, "flood-noise"),
    (FloodHellos, "flood-hellos"),
    (FloodJumps, "flood-jumps"),
    (FloodGaps, "flood-gaps"),
    (FloodReports, "flood-reports"),
    (FloodCycles, "flood-cycles"),
    // Connections.
    (ManyConnections, "many-connections"),
    (Restarts, "restarts"),
];

impl Strategy {
    /// Number of strategies.
    pub fn count() -> usize {
        TABLE.len()
    }

    /// Returns the name of the strategy in the results.
    pub fn name(self) -> &'static str {
        let found = TABLE.iter().find(|(strategy, _)| *strategy == self);
        found.map_or("unnamed", |(_, name)| name)
    }

    /// Parses names of strategies that are joined by `+`. Returns `None` if a name is unknown.
    pub fn parse(names: &str) -> Option<Vec<Self>> {
        let find = |name: &str| TABLE.iter().find(|(_, known)| *known == name);
        names
            .split('+')
            .map(|name| find(name).map(|it| it.0))
            .collect()
    }

    /// Returns the strategies for a seed. The seeds form rounds with one seed for each strategy. In
    /// an even round, each seed selects one strategy. In an odd round, each seed selects a mix of
    /// up to four strategies.
    pub fn of_seed(seed: u64) -> Vec<Self> {
        let count = TABLE.len() as u64;
        let (round, place) = (seed / count, (seed % count) as usize);
        let mut chosen = vec![TABLE[place].0];
        if round % 2 == 1 {
            let mut random = Random(seed);
            for _ in 0..=random.below(3) {
                let another = TABLE[random.below(TABLE.len())].0;
                if !chosen.contains(&another) {
                    chosen.push(another);
                }
            }
        }
        chosen
    }

    /// Whether the strategy is a flood: the enemy creates packets and sends them at the full rate
    /// of its line.
    pub(super) fn is_flood(self) -> bool {
        self >= FloodPings && self <= FloodCycles || self == GuessesFromThird
    }
}
