//! The pace of readers whose streams have ended, so that their next streams need not begin with a small
//! window.
//!
//! In: the pace that a stream has measured. Out: the same for the next stream of that reader.

use std::collections::VecDeque;

/// The readers that were measured last.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// In the order of measurement, the latest last.
    known: VecDeque<Reader>,
}

#[derive(Debug, Clone, Copy)]
struct Reader {
    name: u64,
    slots_per_s: f64,
    at_s: f64,
}

impl Readers {
    /// Enters the pace at which reader `name` has read a stream.
    pub(crate) fn remember(&mut self, name: u64, slots_per_s: f64, at_s: f64) {
        self.known.retain(|reader| reader.name != name);
        if self.known.len() == READERS_MAX {
            self.known.pop_front();
        }
        self.known.push_back(Reader {
            name,
            slots_per_s,
            at_s,
        });
    }

    /// The pace of reader `name` in its last stream, if that was not long ago.
    pub(crate) fn slots_per_s(&self, name: u64, now_s: f64) -> Option<f64> {
        let known = self.known.iter().find(|reader| reader.name == name)?;
        (now_s - known.at_s < KNOWN_S).then_some(known.slots_per_s)
    }
}

/// Readers that are remembered: the servers behind one gateway.
const READERS_MAX: usize = 64;
/// A measurement counts for this long: a server that was fast then may be busy now.
const KNOWN_S: f64 = 600.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_measurement_counts_for_a_while() {
        let mut readers = Readers::default();
        readers.remember(1, 100.0, 0.0);
        readers.remember(2, 50.0, 0.0);
        readers.remember(1, 10.0, 5.0);
        assert_eq!(readers.slots_per_s(1, 6.0), Some(10.0));
        assert_eq!(readers.slots_per_s(2, 6.0), Some(50.0));
        assert_eq!(readers.slots_per_s(3, 6.0), None);
        assert_eq!(readers.slots_per_s(1, 5.0 + KNOWN_S), None);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut readers = Readers::default();
        for name in 0..2 * READERS_MAX as u64 {
            readers.remember(name, 1.0, name as f64);
        }
        assert_eq!(readers.known.len(), READERS_MAX);
        assert_eq!(readers.slots_per_s(READERS_MAX as u64 - 1, 100.0), None);
        assert_eq!(readers.slots_per_s(READERS_MAX as u64, 100.0), Some(1.0));
    }
}
