//! Pieces (byte ranges) of a file, and computation of the missing pieces.

/// Range of a file's bytes from `begin` (inclusive) to `end` (exclusive).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Offset of the first byte.
    pub begin: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl Piece {
    /// Returns the missing byte ranges of a file of `size` bytes. `done` contains the finished
    /// ranges.
    ///
    /// Each missing range is cut into pieces. The length of a piece is the number of missing bytes
    /// divided by `count`, and at least `least`. Only the last piece of a range may be shorter.
    pub fn missing(size: u64, done: &[Self], count: usize, least: u64) -> Vec<Self> {
        let mut done = done.to_vec();
        done.sort_by_key(|it| it.begin);
        let (mut gaps, mut at) = (Vec::new(), 0);
        for piece in done {
            if piece.begin > at {
                gaps.push(Self {
                    begin: at,
                    end: piece.begin,
                });
            }
            at = at.max(piece.end);
        }
        if at < size {
            gaps.push(Self {
                begin: at,
                end: size,
            });
        }
        let missing: u64 = gaps.iter().map(|it| it.end - it.begin).sum();
        let length = missing.div_ceil(count.max(1) as u64).max(least).max(1);
        let cut = |gap: Self| {
            let begins =
                (gap.begin..gap.end).step_by(usize::try_from(length).unwrap_or(usize::MAX));
            begins.map(move |begin| Self {
                begin,
                end: gap.end.min(begin.saturating_add(length)),
            })
        };
        gaps.into_iter().flat_map(cut).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_missing_and_what_is_there_make_the_file(
            size in 1..1000u64,
            ends in proptest::collection::vec((0..1000u64, 0..100u64), 0..6),
            count in 1..9usize,
            least in 0..200u64,
        ) {
            let done: Vec<Piece> = ends
                .into_iter()
                .map(|(begin, length)| Piece { begin: begin.min(size), end: (begin + length).min(size) })
                .collect();
            let missing = Piece::missing(size, &done, count, least);
            for byte in 0..size {
                let has = |all: &[Piece]| all.iter().filter(|it| (it.begin..it.end).contains(&byte)).count();
                prop_assert_eq!(has(&missing), usize::from(has(&done) == 0), "byte {}", byte);
            }
            if done.is_empty() {
                prop_assert!(missing.len() <= count);
            }
        }
    }
}
