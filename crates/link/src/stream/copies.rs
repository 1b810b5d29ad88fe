//! Number of copies of a lost slot that the sender retransmits at once.

/// Returns how many copies of a lost slot the sender transmits in retransmission round `round`. The
/// path loses the fraction `loss` of its packets.
///
/// Few slots reach a late round, but all later bytes of the stream wait for such a slot. Extra
/// copies in late rounds therefore cost little. The number is chosen so that the copies add about
/// 1 % of traffic.
///
/// On very lossy paths, this rule would give only one copy. On such paths, late rounds therefore
/// have more copies. At 64 % loss, delivery then takes 8 rounds instead of 25, and the extra
/// traffic is 8 %.
pub(super) fn copies_in_round(round: u8, loss: f64) -> u32 {
    /// Extra traffic that the copies of one round may cause, as a fraction of all traffic.
    const EXTRA_TRAFFIC: f64 = 0.012;
    /// Maximum number of copies in one round on a path with little loss. More copies would not
    /// help.
    const CHEAP_COPIES_MAX: f64 = 4.0;
    let reaching = loss.max(1e-6).powi(i32::from(round));
    let cheap = (1.0 + EXTRA_TRAFFIC / reaching).min(CHEAP_COPIES_MAX) as u32;
    let late = match round {
        0..=3 => 1,
        4 => 2,
        5 => 4,
        _ => 8,
    };
    // In the first round, which is the common case, a single copy is sent.
    if round <= 1 { 1 } else { cheap.max(late) }
}

#[cfg(test)]
mod tests {
    use super::copies_in_round;

    #[test]
    fn copies_rise_early_where_losses_are_few_and_late_where_they_are_many() {
        let copies = |loss| {
            (1..=7)
                .map(|round| copies_in_round(round, loss))
                .collect::<Vec<_>>()
        };
        assert_eq!(copies(0.01), [1, 4, 4, 4, 4, 8, 8]);
        assert_eq!(copies(0.1), [1, 2, 4, 4, 4, 8, 8]);
        assert_eq!(copies(0.64), [1, 1, 1, 2, 4, 8, 8]);
    }
}
