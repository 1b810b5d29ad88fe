//! Explicit congestion notification (RFC 3168): whether the path carries it, and how often it marked.
//!
//! In: the ECN field of arriving packets, and the counts that the peer reports. Out: whether to send packets as
//! ECN-capable, the counts to report, and the number of new marks. The controller decides what a mark means for
//! the rate.
//!
//! A sender whose controller heeds marks sends its packets as ECN-capable, ECT(0), until it finds that the path
//! clears that field or drops such packets. The checks are those of RFC 9000 section 13.4.2.

/// The ECN field in the IP header of a datagram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The sender would not understand a mark.
    #[default]
    NotCapable,
    /// The sender understands marks, and no queue has set one: ECT(0).
    Capable,
    /// A queue on the way was about to be full: CE.
    Marked,
}

/// Packets that have arrived ECN-capable without a mark, and with a mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EcnCounts {
    pub(crate) capable: u64,
    pub(crate) marked: u64,
}

/// The ECN state of a connection, for sending and for receiving.
#[derive(Debug)]
pub(crate) struct EcnState {
    usage: Use,
    /// Packets sent as ECN-capable that have arrived according to reports.
    arrived: u64,
    /// The newest counts of the peer.
    told: EcnCounts,
    /// Marks that the controller has not been given yet.
    fresh_marks: u64,
    /// Our counts of the peer's packets.
    counts: EcnCounts,
    /// The number of coming reports that carry our counts.
    tell: u8,
    /// Reports since the counts last came round, see [`REPORTS`].
    reports: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// No packet is sent as ECN-capable: the controller ignores marks, or the path does not carry them.
    Unused,
    InTest,
    Works,
}

/// The path is found to carry marks when this many ECN-capable packets have arrived and been counted.
const TEST_PACKETS: u64 = 10;
/// The path is given up when this many have arrived and the peer has reported no counts, or all were marked.
const PATIENCE_PACKETS: u64 = 100;
/// A change of the counts goes into this many reports, as an arrival does where most reports are lost.
const TELL: u8 = 12;
/// Without a change one report in this many carries the counts.
const REPORTS: u8 = 16;

impl EcnState {
    /// `is_heeded` says that the controller slows down for marks. If it does not, packets must not be sent as
    /// ECN-capable: others would get the drops.
    pub(crate) fn new(is_heeded: bool) -> Self {
        Self {
            usage: if is_heeded { Use::InTest } else { Use::Unused },
            arrived: 0,
            told: EcnCounts::default(),
            fresh_marks: 0,
            counts: EcnCounts::default(),
            tell: 0,
            reports: 0,
        }
    }

    /// Whether packets are sent as ECN-capable.
    pub(crate) fn is_marking(&self) -> bool {
        self.usage != Use::Unused
    }

    /// Whether the path has been found to carry marks.
    pub(crate) fn works(&self) -> bool {
        self.usage == Use::Works
    }

    /// Packets of ours that the path has marked, as the peer has counted.
    pub(crate) fn marked(&self) -> u64 {
        self.told.marked
    }

    /// A report shows that `packets` more ECN-capable packets have arrived.
    pub(crate) fn on_arrived(&mut self, packets: u64) {
        self.arrived += packets;
        if self.told == EcnCounts::default() && self.arrived >= PATIENCE_PACKETS {
            self.usage = Use::Unused;
        }
    }

    /// Takes in the counts in the newest packet of the peer.
    pub(crate) fn on_counts(&mut self, counts: EcnCounts) {
        if !self.is_marking() {
            return;
        }
        let is_less = counts.capable < self.told.capable || counts.marked < self.told.marked;
        let is_cleared = counts.capable + counts.marked < self.arrived;
        // A path that marks every packet carries no information.
        let is_blind = counts.capable == 0 && self.arrived >= PATIENCE_PACKETS;
        if is_less || is_cleared || is_blind {
            self.usage = Use::Unused;
            self.fresh_marks = 0;
            return;
        }
        if self.arrived >= TEST_PACKETS {
            self.usage = Use::Works;
        }
        self.fresh_marks += counts.marked - self.told.marked;
        self.told = counts;
    }

    /// Nothing comes back: perhaps the path drops ECN-capable packets.
    pub(crate) fn on_silence(&mut self) {
        if self.usage == Use::InTest {
            self.usage = Use::Unused;
        }
    }

    /// Marks since the last call.
    pub(crate) fn take_marks(&mut self) -> u64 {
        std::mem::take(&mut self.fresh_marks)
    }

    /// A packet of the peer has arrived for the first time.
    pub(crate) fn on_received(&mut self, ecn: Ecn) {
        let is_first = self.counts == EcnCounts::default();
        match ecn {
            Ecn::NotCapable => return,
            Ecn::Capable => self.counts.capable += 1,
            Ecn::Marked => self.counts.marked += 1,
        }
        if is_first || ecn == Ecn::Marked {
            self.tell = TELL;
        }
    }

    /// The counts to put beside the report that is being made, if any are due.
    pub(crate) fn take_counts(&mut self) -> Option<EcnCounts> {
        if self.counts == EcnCounts::default() {
            return None;
        }
        self.reports = (self.reports + 1) % REPORTS;
        let is_due = self.tell > 0 || self.reports == 0;
        self.tell = self.tell.saturating_sub(1);
        is_due.then_some(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(capable: u64, marked: u64) -> EcnCounts {
        EcnCounts { capable, marked }
    }

    #[test]
    fn a_path_that_carries_marks_is_used_and_its_marks_are_told_once() {
        let mut ecn = EcnState::new(true);
        assert!(ecn.is_marking() && !ecn.works(), "while it is tested");
        ecn.on_counts(counts(12, 0));
        ecn.on_arrived(12);
        ecn.on_counts(counts(15, 3));
        assert!(ecn.works());
        assert_eq!((ecn.take_marks(), ecn.take_marks()), (3, 0));
        ecn.on_silence();
        assert!(ecn.works(), "what worked is not doubted for an outage");
    }

    #[test]
    fn a_path_that_clears_drops_or_marks_all_is_given_up_for_good() {
        let cleared = |ecn: &mut EcnState| {
            ecn.on_arrived(20);
            ecn.on_counts(counts(19, 0));
        };
        let untold = |ecn: &mut EcnState| ecn.on_arrived(PATIENCE_PACKETS);
        let blind = |ecn: &mut EcnState| {
            ecn.on_counts(counts(0, PATIENCE_PACKETS));
            ecn.on_arrived(PATIENCE_PACKETS);
            ecn.on_counts(counts(0, PATIENCE_PACKETS));
        };
        let counts_back = |ecn: &mut EcnState| {
            ecn.on_counts(counts(20, 5));
            ecn.on_counts(counts(30, 4));
        };
        let cases: [&dyn Fn(&mut EcnState); 5] = [
            &cleared,
            &untold,
            &blind,
            &counts_back,
            &EcnState::on_silence,
        ];
        for (case, spoil) in cases.into_iter().enumerate() {
            let mut ecn = EcnState::new(true);
            spoil(&mut ecn);
            assert!(!ecn.is_marking(), "case {case}");
            ecn.on_counts(counts(1000, 1000));
            assert!(!ecn.is_marking(), "case {case}");
        }
    }

    #[test]
    fn marks_are_told_in_several_reports_and_counts_now_and_then() {
        let mut ecn = EcnState::new(false);
        assert_eq!(ecn.take_counts(), None, "there is nothing to tell");
        ecn.on_received(Ecn::Capable);
        let told = |ecn: &mut EcnState| (0..160).filter(|_| ecn.take_counts().is_some()).count();
        assert_eq!(told(&mut ecn), 12 + 10);
        ecn.on_received(Ecn::Capable);
        assert_eq!(told(&mut ecn), 10);
        ecn.on_received(Ecn::Marked);
        assert!((20..=22).contains(&told(&mut ecn)));
        assert!(!ecn.is_marking());
    }
}
