//! Formulas that predict transfers over long paths, in seconds, bytes and bits per second.

use std::time::Duration;

use crate::{BitRate, ByteCount};

/// Definition of a megabit. The same rate has a different number of megabits per second under each
/// definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mega {
    /// 1000 x 1000 bits. This is the standard (IEC 80000-13), and the unit in which providers state
    /// rates.
    Decimal,
    /// 1024 x 1024 bits.
    Binary,
    /// 1000 x 1024 bits, as in some calculators.
    Mixed,
}

impl Mega {
    /// All definitions of a megabit.
    pub const ALL: [Self; 3] = [Self::Decimal, Self::Binary, Self::Mixed];

    /// Returns the number of bits in one megabit.
    pub const fn value(self) -> f64 {
        match self {
            Self::Decimal => 1_000_000.0,
            Self::Binary => 1_048_576.0,
            Self::Mixed => 1_024_000.0,
        }
    }
}

/// Returns the bandwidth-delay product: the number of bytes in flight that fill a path. A smaller
/// window cannot fill the path.
pub fn bandwidth_delay_product_bytes(rate_bits_per_s: f64, rtt: Duration) -> f64 {
    rate_bits_per_s / 8.0 * rtt.as_secs_f64()
}

/// Returns the rate of a sender that sends one window in each round trip. Returns infinity if `rtt`
/// is zero.
pub fn window_rate_bits_per_s(window: ByteCount, rtt: Duration) -> f64 {
    window.bytes() as f64 * 8.0 / rtt.as_secs_f64()
}

/// Returns the smallest shift of the TCP window scale option (RFC 7323 section 2.3) that permits a
/// window of `window_bytes`. Returns `None` if the window exceeds TCP's maximum.
pub fn window_scale_shift(window_bytes: f64) -> Option<u32> {
    (0..=WINDOW_SHIFT_MAX).find(|shift| f64::from(WINDOW_MAX << shift) >= window_bytes)
}

/// Returns an upper limit for Reno's rate at the loss rate `loss`: `MSS / RTT x sqrt(3 / (2 p))`.
/// The formula assumes that the receiver acknowledges each segment.
///
/// Source: M. Mathis, J. Semke, J. Mahdavi, T. Ott: The macroscopic behavior of the TCP congestion
/// avoidance algorithm, 1997.
pub fn mathis_bits_per_s(segment: ByteCount, rtt: Duration, loss: f64) -> f64 {
    segment.bytes() as f64 * 8.0 / rtt.as_secs_f64() * (1.5 / loss).sqrt()
}

/// Returns an upper limit for CUBIC's rate at the loss rate `loss`. The limit is the larger of
/// CUBIC's mean window and Reno's mean window, divided by the round-trip time (RFC 9438 section
/// 5.1, equation 5).
pub fn cubic_bits_per_s(segment: ByteCount, rtt: Duration, loss: f64) -> f64 {
    let factor = (CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA))).powf(0.25);
    let window_segments = factor * (rtt.as_secs_f64() / loss).powf(0.75);
    let cubic = window_segments * segment.bytes() as f64 * 8.0 / rtt.as_secs_f64();
    cubic.max(mathis_bits_per_s(segment, rtt, loss))
}

/// A path and a file to send over it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// Bytes of the file.
    pub size: ByteCount,
    /// Rate of the bottleneck, including Ethernet framing.
    pub rate: BitRate,
    /// Round-trip time without queueing delay.
    pub rtt: Duration,
    /// Fraction of packets that are lost, from 0 to less than 1.
    pub loss: f64,
    /// Largest window that sender and receiver support. `None` means a window that fills the path.
    pub window: Option<ByteCount>,
}

/// The factor that limits the goodput of a plain transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The rate of the bottleneck limits the goodput.
    Rate,
    /// The largest window limits the goodput.
    Window,
    /// Loss limits the goodput, because congestion control reduces the rate.
    Loss,
}

/// Prediction for a plain transfer, which uses a single TCP connection without gateways.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plain {
    /// Goodput after slow start, in bits per second.
    pub goodput_bits_per_s: f64,
    /// The factor that limits this goodput.
    pub limit: Limit,
    /// Time from the transfer command to the final reply.
    pub time: Duration,
}

impl Transfer {
    /// Returns the goodput that the bottleneck permits: its rate without headers and lost packets.
    pub fn line_goodput_bits_per_s(&self) -> f64 {
        self.rate.as_bits_per_s() as f64 * PAYLOAD_SHARE * (1.0 - self.loss)
    }

    /// Predicts an FTP transfer over one CUBIC connection.
    ///
    /// Set-up takes three round trips, and slow start begins with ten segments. After slow start,
    /// the lowest of three limits determines the rate: bottleneck, window and loss.
    pub fn plain(&self) -> Plain {
        let rtt_s = self.rtt.as_secs_f64();
        let mut candidates = vec![(self.line_goodput_bits_per_s(), Limit::Rate)];
        if rtt_s > 0.0 {
            let window = self
                .window
                .map(|window| window_rate_bits_per_s(window, self.rtt));
            candidates.extend(window.map(|rate| (rate, Limit::Window)));
            if self.loss > 0.0 {
                let rate = cubic_bits_per_s(SEGMENT, self.rtt, self.loss);
                candidates.push((rate, Limit::Loss));
            }
        }
        let (goodput_bits_per_s, limit) = candidates
            .into_iter()
            .min_by(|one, other| one.0.total_cmp(&other.0))
            .unwrap_or((0.0, Limit::Rate));
        let size = self.size.bytes() as f64;
        let full_window = goodput_bits_per_s / 8.0 * rtt_s;
        let (mut sent, mut window, mut rounds) = (0.0, INITIAL_WINDOW_BYTES, 0.0);
        while sent + window < size && window < full_window {
            sent += window;
            window *= 2.0;
            rounds += 1.0;
        }
        let rest_s = (size - sent).max(0.0) * 8.0 / goodput_bits_per_s;
        let trips = SETUP_ROUND_TRIPS + rounds + 1.0;
        Plain {
            goodput_bits_per_s,
            limit,
            time: seconds(trips * rtt_s + rest_s),
        }
    }

    /// Returns the ideal time according to `docs/measuring.md`. A link that has already measured
    /// the path approaches this time.
    ///
    /// The ideal time is the time that the bottleneck needs for all bytes, plus one round trip
    /// until the end is acknowledged. A path with loss adds another round trip.
    pub fn ideal_time(&self) -> Duration {
        let trips = if self.loss > 0.0 { 2.0 } else { 1.0 };
        let line_s = self.size.bytes() as f64 * 8.0 / self.line_goodput_bits_per_s();
        seconds(line_s + trips * self.rtt.as_secs_f64())
    }

    /// Returns the ideal time if the optimiser reduces the bytes to the fraction `1 / shrink`.
    ///
    /// The prediction assumes that the gateways' processors are fast enough for the path.
    pub fn optimised_time(&self, shrink: f64) -> Duration {
        let whole = self.ideal_time().as_secs_f64();
        let line_s = self.size.bytes() as f64 * 8.0 / self.line_goodput_bits_per_s();
        seconds(whole - line_s + line_s / shrink)
    }
}

/// Converts seconds to a duration. Returns `Duration::MAX` if the value is too large, which happens
/// at rates near zero.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Payload of a TCP segment with timestamps in a packet of 1500 bytes.
pub const SEGMENT: ByteCount = ByteCount::new(1448);

/// Payload as a fraction of the rate on Ethernet. A full packet takes 1538 bytes and carries 1448
/// payload bytes.
pub const PAYLOAD_SHARE: f64 = 0.94;

/// Initial window of TCP in bytes: ten segments (RFC 6928).
const INITIAL_WINDOW_BYTES: f64 = 14_480.0;

/// Number of round trips before the first byte of a plain transfer: one each for `PASV`, the data
/// connection and the transfer command.
const SETUP_ROUND_TRIPS: f64 = 3.0;

/// Constants of CUBIC (RFC 9438 sections 4.6 and 5.1).
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;

/// Largest window without scaling. The field of the TCP header has 16 bits.
const WINDOW_MAX: u32 = 0xffff;

/// Largest shift of the TCP window scale option (RFC 7323 section 2.3).
const WINDOW_SHIFT_MAX: u32 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    const PRIMER_RTT: Duration = Duration::from_millis(173);

    fn rounded(value: f64, digits: i32) -> f64 {
        (value * 10f64.powi(digits)).round() / 10f64.powi(digits)
    }

    #[test]
    fn the_primers_product_is_the_same_number_with_any_mega() {
        for mega in Mega::ALL {
            let bytes = bandwidth_delay_product_bytes(100.0 * mega.value(), PRIMER_RTT);
            assert_eq!(rounded(bytes / mega.value(), 4), 2.1625, "{mega:?}");
        }
        let bytes = bandwidth_delay_product_bytes(100.0 * Mega::Binary.value(), PRIMER_RTT);
        assert_eq!(bytes.round(), (18_140_365.0f64 / 8.0).round());
    }

    #[test]
    fn the_primers_windows_give_its_rates_with_its_megas() {
        let rates = |kibibytes| {
            let rate = window_rate_bits_per_s(ByteCount::kibibytes(kibibytes), PRIMER_RTT);
            Mega::ALL.map(|mega| rounded(rate / mega.value(), 2))
        };
        assert_eq!(rates(64), [3.03, 2.89, 2.96]);
        assert_eq!(rates(128), [6.06, 5.78, 5.92]);
    }

    #[test]
    fn windows_above_64_kib_need_the_scale_option() {
        assert_eq!(window_scale_shift(65_535.0), Some(0));
        assert_eq!(window_scale_shift(65_536.0), Some(1));
        assert_eq!(window_scale_shift(2_162_500.0), Some(6));
        assert_eq!(window_scale_shift(1_073_725_440.0), Some(14));
        assert_eq!(window_scale_shift(1_073_725_441.0), None);
    }

    #[test]
    fn loss_limits_follow_their_laws() {
        let at = |loss| mathis_bits_per_s(SEGMENT, Duration::from_millis(100), loss);
        assert_eq!(rounded(at(0.0001) / at(0.01), 3), 10.0);
        // 1448 bytes, 100 ms, 1 %: 115,840 bit/s for one segment in each round trip, times 12.247.
        assert_eq!(rounded(at(0.01), 0), 1_418_744.0);
        // RFC 9438, table 2 (RTT 0.1 s, C = 0.4): windows of 12, 187 and 1054 segments.
        for (loss, segments) in [(1e-2, 12.0), (1e-4, 187.0), (1e-5, 1054.0)] {
            let rate = cubic_bits_per_s(SEGMENT, Duration::from_millis(100), loss);
            let window = rate * 0.1 / 8.0 / SEGMENT.bytes() as f64;
            assert!((window - segments).abs() < 1.0, "{loss}: {window}");
        }
    }

    #[test]
    fn a_plain_transfer_is_held_back_by_the_least() {
        let base = Transfer {
            size: ByteCount::megabytes(1000),
            rate: BitRate::gbit(1),
            rtt: Duration::from_millis(200),
            loss: 0.001,
            window: None,
        };
        assert_eq!(base.plain().limit, Limit::Loss);
        let window = Some(ByteCount::kibibytes(64));
        assert_eq!(Transfer { window, ..base }.plain().limit, Limit::Window);
        let short = Transfer {
            loss: 0.0,
            rtt: Duration::ZERO,
            ..base
        };
        assert_eq!(short.plain().limit, Limit::Rate);
        assert_eq!(rounded(short.plain().time.as_secs_f64(), 2), 8.51);
        assert_eq!(rounded(base.ideal_time().as_secs_f64(), 2), 8.92);
        assert!(base.plain().time > 30 * base.ideal_time());
        // 8.52 s of the line, and two round trips.
        assert_eq!(rounded(base.optimised_time(4.0).as_secs_f64(), 2), 2.53);
        assert_eq!(base.optimised_time(1.0), base.ideal_time());
    }

    #[test]
    fn a_small_file_is_all_round_trips() {
        let small = Transfer {
            size: ByteCount::new(10_000),
            rate: BitRate::gbit(1),
            rtt: Duration::from_millis(200),
            loss: 0.0,
            window: None,
        };
        assert_eq!(rounded(small.plain().time.as_secs_f64(), 1), 0.8);
    }
}
