//! Rate limit in bytes per second. The limit may depend on the time of day.

use std::str::FromStr;

use units::BitRate;

/// Rate limit in bytes per second for each time of day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// Timetable entries in order: the first minute of the day, and the rate from that minute on. A
    /// rate of `None` means no limit.
    times: Vec<(u16, Option<BitRate>)>,
}

/// An error: the text is not a rate limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateLimitError {
    /// A text is not a rate.
    #[error("{0:?} is no rate such as 10M or 300 Mbit/s")]
    Rate(String),
    /// The rate is zero, so no byte could be moved.
    #[error("a rate of 0 would move nothing")]
    Zero,
    /// A text is not a timetable entry.
    #[error("{0:?} is no entry of a timetable: expected HH:MM,RATE or HH:MM,off")]
    Entry(String),
    /// Two entries of a timetable begin at the same time.
    #[error("two entries of the timetable begin at {0}")]
    Twice(String),
}

impl RateLimit {
    /// Returns the rate at a minute of the day, counted from midnight. `None` means no limit.
    pub fn at(&self, minute: u16) -> Option<BitRate> {
        let begun = self.times.iter().rev().find(|(from, _)| *from <= minute);
        // Before the first entry of a day, the last entry of the previous day applies.
        let (_, rate) = begun.or(self.times.last())?;
        *rate
    }

    /// Returns whether the rate depends on the time of day.
    pub fn changes(&self) -> bool {
        self.times.len() > 1
    }
}

impl From<BitRate> for RateLimit {
    fn from(rate: BitRate) -> Self {
        Self {
            times: vec![(0, Some(rate))],
        }
    }
}

impl FromStr for RateLimit {
    type Err = RateLimitError;

    /// Parses a rate such as `10M`, or a timetable such as `08:00,10M 18:30,off`.
    fn from_str(text: &str) -> Result<Self, RateLimitError> {
        let is_timetable = text
            .split_once(',')
            .is_some_and(|(time, _)| time.contains(':'));
        if !is_timetable {
            return Ok(rate(text)?.into());
        }
        let entries = entries(text);
        let times: Result<Vec<_>, _> = entries.iter().map(|it| entry(it)).collect();
        let mut times = times?;
        times.sort_by_key(|(from, _)| *from);
        let twice = times.windows(2).find(|pair| pair[0].0 == pair[1].0);
        if let Some(&[(from, _), _]) = twice {
            let time = format!("{:02}:{:02}", from / 60, from % 60);
            return Err(RateLimitError::Twice(time));
        }
        Ok(Self { times })
    }
}

/// Splits a timetable into entries. Each entry begins at a word that contains a time. A rate may
/// consist of two words.
fn entries(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match entries.last_mut() {
            Some(last) if !word.contains(':') => {
                last.push(' ');
                last.push_str(word);
            }
            _ => entries.push(word.to_owned()),
        }
    }
    entries
}

fn entry(text: &str) -> Result<(u16, Option<BitRate>), RateLimitError> {
    let wrong = || RateLimitError::Entry(text.to_owned());
    let (time, limit) = text.split_once(',').ok_or_else(wrong)?;
    let (hour, minute) = time.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str, most: u16| {
        let is_number = text.len() == 2 && text.bytes().all(|it| it.is_ascii_digit());
        let number: Option<u16> = text.parse().ok();
        let number = number.filter(|it| is_number && *it <= most);
        number.ok_or_else(wrong)
    };
    let from = number(hour, 23)? * 60 + number(minute, 59)?;
    let limit = match limit.trim() {
        "off" => None,
        limit => Some(rate(limit)?),
    };
    Ok((from, limit))
}

fn rate(text: &str) -> Result<BitRate, RateLimitError> {
    let rate: Result<BitRate, _> = text.parse();
    let rate = rate.map_err(|_| RateLimitError::Rate(text.to_owned()))?;
    match rate.as_bits_per_s() {
        0 => Err(RateLimitError::Zero),
        _ => Ok(rate),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<RateLimit, RateLimitError> {
        text.parse()
    }

    #[test]
    fn a_rate_holds_all_day_and_a_timetable_by_the_clock() {
        let always = read("300 Mbit/s").expect("a rate");
        assert!(!always.changes());
        assert_eq!(always.at(0), Some(BitRate::mbit(300)));
        let timetable = read("08:00,10 Mbit/s 18:30,off 23:00,100Mbit/s").expect("a timetable");
        assert!(timetable.changes());
        for (hour, minute, expected) in [
            (0, 0, Some(100)),
            (7, 59, Some(100)),
            (8, 0, Some(10)),
            (18, 29, Some(10)),
            (18, 30, None),
            (23, 0, Some(100)),
        ] {
            let rate = timetable.at(hour * 60 + minute);
            assert_eq!(rate, expected.map(BitRate::mbit), "{hour}:{minute}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, words) in [
            ("fast", "no rate"),
            ("0 Mbit/s", "would move nothing"),
            ("08:00,0 Mbit/s", "would move nothing"),
            ("8:00,10M", "no entry"),
            ("24:00,10M", "no entry"),
            ("08:60,10M", "no entry"),
            ("+8:00,10M", "no entry"),
            ("08:00,10M 09:00", "no entry"),
            ("08:00,10M 08:00,off", "begin at 08:00"),
        ] {
            let said = read(text).expect_err(text).to_string();
            assert!(said.contains(words), "{text}: {said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}", minute in 0..1440u16) {
            if let Ok(limit) = read(&text) {
                let _ = limit.at(minute);
            }
        }
    }
}
