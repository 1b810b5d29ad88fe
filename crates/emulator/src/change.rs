//! Changes to a path's settings, and the text forms of these settings.

use std::time::Duration;

use units::{BitRate, ByteCount};
use wansim::{GilbertElliott, Jitter, PathConfig, Reordering, Straggler};

use super::{config::Direction, error::WanError};

/// A change to the settings of one or both directions. `None` in a field keeps the setting.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathChange {
    /// Bottleneck rate. `Some(None)` removes the bottleneck.
    pub rate: Option<Option<BitRate>>,
    /// Round-trip time. The one-way delay of each direction becomes half of this time, even if the
    /// change concerns only one direction.
    pub rtt: Option<Duration>,
    /// One-way delay.
    pub delay: Option<Duration>,
    /// Size of the bottleneck's queue. `None` keeps the size. There is one exception: if the queue
    /// has the default size for the old settings, it gets the default size for the new settings.
    pub queue: Option<ByteCount>,
    /// Variation of the one-way delay.
    pub jitter: Option<Jitter>,
    /// Fraction of packets lost at random.
    pub loss: Option<f64>,
    /// Loss in bursts. `Some(None)` removes this loss.
    pub bursts: Option<Option<GilbertElliott>>,
    /// Fraction of packets with one flipped bit.
    pub corruption: Option<f64>,
    /// Reordering of packets.
    pub reordering: Option<Reordering>,
    /// Fraction of packets that arrive twice.
    pub duplication: Option<f64>,
    /// Whether every packet is lost.
    pub outage: Option<bool>,
    /// Longest IP packet that passes, in bytes.
    pub mtu: Option<usize>,
}

impl PathChange {
    /// Applies the change to the given directions of `paths`. The first path is A to B, the second
    /// B to A.
    pub fn apply(&self, paths: &mut [PathConfig; 2], directions: &[Direction]) {
        let default_queues = paths.each_ref().map(|path| default_queue(path, paths));
        let had_default = [0, 1].map(|at| {
            let path = &paths[at];
            path.rate.is_none() || Some(path.queue) == default_queues[at]
        });
        for direction in Direction::BOTH {
            let path = &mut paths[direction.index()];
            if let Some(rtt) = self.rtt {
                path.delay = rtt / 2;
            }
            if directions.contains(&direction) {
                self.apply_to(path);
            }
        }
        let default_queues = paths.each_ref().map(|path| default_queue(path, paths));
        for direction in Direction::BOTH {
            let at = direction.index();
            let chosen = self.queue.is_some() && directions.contains(&direction);
            if had_default[at] && !chosen {
                paths[at].queue = default_queues[at].unwrap_or(PathConfig::default().queue);
            }
        }
    }

    fn apply_to(&self, path: &mut PathConfig) {
        fn set<T: Clone>(field: &mut T, change: &Option<T>) {
            if let Some(value) = change {
                *field = value.clone();
            }
        }
        set(&mut path.rate, &self.rate);
        set(&mut path.delay, &self.delay);
        set(&mut path.queue, &self.queue);
        set(&mut path.jitter, &self.jitter);
        set(&mut path.loss, &self.loss);
        set(&mut path.bursts, &self.bursts);
        set(&mut path.corruption, &self.corruption);
        set(&mut path.reordering, &self.reordering);
        set(&mut path.duplication, &self.duplication);
        set(&mut path.outage, &self.outage);
        set(&mut path.mtu, &self.mtu);
    }
}

/// Returns the default queue size of `path`, or `None` without a bottleneck. `paths` provides the
/// round-trip time.
fn default_queue(path: &PathConfig, paths: &[PathConfig; 2]) -> Option<ByteCount> {
    let rtt = paths[0].delay + paths[1].delay;
    path.rate.map(|rate| PathConfig::default_queue(rate, rtt))
}

/// Parses a rate such as `300 Mbit/s`, or `unlimited`.
///
/// # Errors
/// [`WanError::Invalid`] for other text, and for zero. An outage has its own setting.
pub fn parse_rate(text: &str) -> Result<Option<BitRate>, WanError> {
    if text == "unlimited" {
        return Ok(None);
    }
    match text.parse::<BitRate>() {
        Ok(rate) if rate > BitRate::default() => Ok(Some(rate)),
        Ok(_) => Err(WanError::Invalid(
            "a rate of zero passes nothing; use an outage".to_owned(),
        )),
        Err(error) => Err(WanError::Invalid(format!("{error}, or \"unlimited\""))),
    }
}

/// Parses a percentage such as `0.1%`.
///
/// # Errors
/// [`WanError::Invalid`] for text that [`units::parse_share`] refuses.
pub fn parse_share(text: &str) -> Result<f64, WanError> {
    units::parse_share(text).map_err(|error| WanError::Invalid(error.to_string()))
}

/// Parses a path's delay such as `200ms`. The maximum is one minute.
///
/// # Errors
/// [`WanError::Invalid`] for text that [`units::parse_duration`] refuses, and for more than a
/// minute.
pub fn parse_delay(text: &str) -> Result<Duration, WanError> {
    at_most(text, DELAY_MAX)
}

/// Parses a duration such as `90s` or `10 min`. The maximum is one day.
///
/// # Errors
/// [`WanError::Invalid`] for text that [`units::parse_duration`] refuses, and for more than a day.
pub fn parse_span(text: &str) -> Result<Duration, WanError> {
    at_most(text, SPAN_MAX)
}

fn at_most(text: &str, most: Duration) -> Result<Duration, WanError> {
    match units::parse_duration(text) {
        Ok(time) if time <= most => Ok(time),
        Ok(_) => Err(WanError::Invalid(format!(
            "{text:?} is longer than {} s",
            most.as_secs()
        ))),
        Err(error) => Err(WanError::Invalid(error.to_string())),
    }
}

/// Longest delay of a path. It far exceeds the 0.3 s of a geostationary satellite.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Longest duration of a script, a capture or a test.
const SPAN_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Parses `5ms` (packets may overtake each other) or `5ms/in-order`.
///
/// # Errors
/// [`WanError::Invalid`] for other text.
pub fn parse_jitter(text: &str) -> Result<Jitter, WanError> {
    let (spread, in_order) = match text.split_once('/') {
        Some((spread, "in-order")) => (spread, true),
        Some(_) => {
            return Err(WanError::Invalid(format!(
                "{text:?} is not \"5ms\" or \"5ms/in-order\""
            )));
        }
        None => (text, false),
    };
    Ok(Jitter {
        spread: parse_delay(spread)?,
        in_order,
    })
}

/// Parses `1%/10` or `off`. The example means that 1 % of the packets are lost, in bursts with a
/// mean length of 10 packets.
///
/// # Errors
/// [`WanError::Invalid`] for other text.
pub fn parse_bursts(text: &str) -> Result<Option<GilbertElliott>, WanError> {
    if text == "off" || text == "0" {
        return Ok(None);
    }
    let error = || WanError::Invalid(format!("{text:?} is not \"off\" or such as \"1%/10\""));
    let (loss, burst) = text.split_once('/').ok_or_else(error)?;
    let burst: f64 = burst.trim().parse().map_err(|_| error())?;
    if !(1.0..=1e6).contains(&burst) {
        return Err(error());
    }
    Ok(Some(GilbertElliott::bursts_of(burst, parse_share(loss)?)))
}

/// Parses a reordering. `1%` means that 1 % of the packets skip the delay. `1%/50%` adds a
/// correlation of 50 %.
///
/// `1%/late 5ms` and `1%/50%/late 5ms` mean that these packets have an extra delay of 5 ms instead
/// of no delay.
///
/// # Errors
/// [`WanError::Invalid`] for other text.
pub fn parse_reordering(text: &str) -> Result<Reordering, WanError> {
    let mut parts = text.split('/');
    let probability = parse_share(parts.next().unwrap_or_default())?;
    let mut reordering = Reordering {
        probability,
        ..Reordering::default()
    };
    for part in parts {
        match part.trim().strip_prefix("late") {
            Some(extra) => reordering.straggler = Straggler::Late(parse_delay(extra)?),
            None => reordering.correlation = parse_share(part)?,
        }
    }
    Ok(reordering)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_people_write_them_and_nothing_else_does() {
        assert_eq!(parse_rate("unlimited").expect("a rate"), None);
        for text in ["5", "5 min", "-1s", "61s", "ms"] {
            assert!(parse_delay(text).is_err(), "{text}");
        }
        assert!(parse_rate("0 Mbit/s").is_err());
        assert_eq!(
            parse_rate("fast").expect_err("no rate").to_string(),
            "\"fast\" is not a rate such as \"300 Mbit/s\" or \"300M\", or \"unlimited\""
        );
    }

    #[test]
    fn impairments_with_parts_read_their_parts() {
        let jitter = parse_jitter("5ms/in-order").expect("jitter");
        assert_eq!(
            jitter,
            Jitter {
                spread: Duration::from_millis(5),
                in_order: true
            }
        );
        let bursts = parse_bursts("1%/10").expect("bursts").expect("on");
        assert!((bursts.mean_loss() - 0.01).abs() < 1e-9);
        assert_eq!(parse_bursts("off").expect("bursts"), None);
        let late = Straggler::Late(Duration::from_millis(5));
        assert_eq!(
            parse_reordering("1%/50%/late 5ms").expect("reordering"),
            Reordering {
                probability: 0.01,
                correlation: 0.5,
                straggler: late
            }
        );
        assert!(parse_jitter("5ms/sorted").is_err() && parse_bursts("1%").is_err());
    }

    #[test]
    fn the_default_queue_follows_rate_and_rtt_until_one_is_chosen() {
        let mut paths = [PathConfig::default(), PathConfig::default()];
        let fast = PathChange {
            rate: Some(Some(BitRate::mbit(300))),
            rtt: Some(Duration::from_millis(200)),
            ..PathChange::default()
        };
        fast.apply(&mut paths, &Direction::BOTH);
        assert_eq!(paths[0].delay, Duration::from_millis(100));
        assert_eq!(
            paths[1].queue,
            ByteCount::new(3_750_000),
            "half of 300 Mbit/s x 200 ms"
        );

        let faster = PathChange {
            rate: Some(Some(BitRate::gbit(1))),
            ..PathChange::default()
        };
        faster.apply(&mut paths, &[Direction::AToB]);
        assert_eq!(paths[0].queue, ByteCount::new(12_500_000));
        assert_eq!(
            paths[1].queue,
            ByteCount::new(3_750_000),
            "the other direction is left alone"
        );

        let chosen = PathChange {
            queue: Some(ByteCount::megabytes(1)),
            ..PathChange::default()
        };
        chosen.apply(&mut paths, &[Direction::AToB]);
        fast.apply(&mut paths, &Direction::BOTH);
        assert_eq!(paths[0].queue, ByteCount::megabytes(1));
    }
}
