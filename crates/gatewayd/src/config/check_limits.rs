//! Checks of `[limits]`. The value of `memory_max` determines the number of streams per peer. The
//! sum of `sessions_max`, `transfers_max` and `forwards_max` must not exceed this number.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use toml::Spanned;
use units::ByteCount;

use super::{
    file::LimitsSection,
    problem::{Problem, problem},
};
use relay::limits::RelayLimits;

/// A key of `[limits]`, with its value in the file and its default. Each key limits one kind of
/// streams.
struct Key<'a> {
    name: &'static str,
    set: Option<&'a Spanned<NonZeroUsize>>,
    default: usize,
    /// Whether the gateway needs at least one stream of this kind.
    is_used: bool,
}

impl Key<'_> {
    fn set(&self) -> Option<usize> {
        self.set.map(|set| set.get_ref().get())
    }
}

/// Returns the limits of a gateway. `memory_max` is the buffer memory that all its links share.
pub(super) fn limits(
    section: LimitsSection,
    memory_max: ByteCount,
    peers: usize,
    has_forwards: bool,
) -> Result<RelayLimits, Problem> {
    let default = RelayLimits::fitting(link::streams_at_once(memory_max, peers));
    let keys = [
        Key {
            name: "sessions_max",
            set: section.sessions_max.as_ref(),
            default: default.sessions_max,
            is_used: true,
        },
        Key {
            name: "transfers_max",
            set: section.transfers_max.as_ref(),
            default: default.transfers_max,
            is_used: true,
        },
        Key {
            name: "forwards_max",
            set: section.forwards_max.as_ref(),
            default: default.forwards_max,
            is_used: has_forwards,
        },
    ];
    let [sessions_max, transfers_max, forwards_max] = divided(&keys, memory_max, peers)?;
    let time = |time: Option<Spanned<Duration>>, default| match time {
        Some(time) if *time.get_ref() < PATIENCE_MIN => {
            Err(problem(&time, "expected at least 1 s"))
        }
        Some(time) => Ok(time.into_inner()),
        None => Ok(default),
    };
    Ok(RelayLimits {
        sessions_max,
        sessions_per_client_max: section
            .sessions_per_client_max
            .map_or(default.sessions_per_client_max, NonZeroUsize::get),
        transfers_max,
        forwards_max,
        failed_logins_per_minute_max: section
            .failed_logins_per_minute_max
            .map_or(default.failed_logins_per_minute_max, NonZeroU32::get),
        login_timeout: time(section.login_timeout, default.login_timeout)?,
        idle_timeout: time(section.idle_timeout, default.idle_timeout)?,
        stall_timeout: time(section.stall_timeout, default.stall_timeout)?,
    })
}

/// Returns the value of each key. The keys in the file use some of the streams. Each missing key
/// gets a share of the remaining streams. The share is at most the key's default.
fn divided(
    keys: &[Key<'_>; 3],
    memory_max: ByteCount,
    peers: usize,
) -> Result<[usize; 3], Problem> {
    let streams = link::streams_at_once(memory_max, peers);
    let mut needed = keys.iter().filter(|k| k.set.is_none() && k.is_used).count();
    for key in keys {
        let (Some(set), Some(value)) = (key.set, key.set()) else {
            continue;
        };
        let fits = streams.saturating_sub(needed);
        needed = needed.saturating_add(value);
        if needed > streams {
            let together = keys
                .iter()
                .filter_map(Key::set)
                .fold(0, usize::saturating_add);
            let names = keys.iter().filter(|key| key.set.is_some());
            let names: Vec<_> = names.map(|key| key.name).collect();
            return Err(problem(
                set,
                format!(
                    "{} take a stream each, {together} together, and memory_max = \"{memory_max}\" gives {streams} to \
                     {}: expected {}{}",
                    names.join(" and "),
                    match peers {
                        0 | 1 => "the peer".to_owned(),
                        peers => format!("each of {peers} peers"),
                    },
                    match fits {
                        0 => "less for the others".to_owned(),
                        fits => format!("at most {fits} here"),
                    },
                    match memory_for(together, peers) {
                        Some(memory) => format!(", or memory_max = \"{memory}\""),
                        None => String::new(),
                    }
                ),
            ));
        }
    }
    let set: usize = keys.iter().filter_map(Key::set).sum();
    let unset: usize = keys
        .iter()
        .filter(|k| k.set.is_none())
        .map(|k| k.default)
        .sum();
    let left = streams - set;
    Ok([0, 1, 2].map(|index| {
        let key = &keys[index];
        key.set().unwrap_or_else(|| {
            let share = left * key.default / unset.max(1);
            share.min(key.default).max(1)
        })
    }))
}

/// Returns the least memory, in whole MiB, that permits `streams` streams for each of `peers`
/// peers. Returns `None` if no amount of memory permits this number of streams.
fn memory_for(streams: usize, peers: usize) -> Option<ByteCount> {
    let fits = |mib| link::streams_at_once(ByteCount::mebibytes(mib), peers) >= streams;
    let (mut least, mut most) = (1, 1 << 30);
    if !fits(most) {
        return None;
    }
    while least < most {
        let middle = (least + most) / 2;
        match fits(middle) {
            true => most = middle,
            false => least = middle + 1,
        }
    }
    Some(ByteCount::mebibytes(most))
}

/// Minimum timeout. With a shorter timeout, the reply to a command on a long path would arrive too
/// late.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
