//! Figures of a bench, with their required limits, and the cases that produce the figures.

use std::fmt;

/// A measured value, with the limit that it must meet.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Name of the quantity, with its unit if it has one.
    pub label: &'static str,
    /// Limit that the value must meet.
    pub bound: FigureBound,
    /// Value measured in one run.
    pub value: f64,
    /// Whether the limit applies to the mean of all runs instead of each run.
    pub is_mean: bool,
}

/// Limit for a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FigureBound {
    /// Lowest permitted value.
    AtLeast(f64),
    /// Highest permitted value.
    AtMost(f64),
    /// No limit. The value is shown, but not checked.
    None,
}

/// One case of a bench: a name, and a function that runs the case with a seed.
pub struct BenchCase<T> {
    /// Name of the case in tables. Filters select cases by this name.
    pub name: String,
    /// Function that runs the case with a seed.
    pub run: Box<dyn Fn(u64) -> T + Send + Sync>,
}

impl<T> BenchCase<T> {
    /// Creates a case from a name and a function.
    pub fn new(name: impl Into<String>, run: impl Fn(u64) -> T + Send + Sync + 'static) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }

    /// Returns the seed of this case for a seed of the bench. The function mixes an FNV-1a hash of
    /// the case's name into the seed.
    ///
    /// If all cases had the same seed, many of them would lose the same packet of the handshake.
    /// The hash does not depend on the selection of cases.
    pub fn seed(&self, seed: u64) -> u64 {
        let mix =
            |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        let hash = self.name.bytes().fold(0xCBF2_9CE4_8422_2325, mix);
        (hash >> 40) * 1000 + seed
    }
}

impl<T> fmt::Debug for BenchCase<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BenchCase")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Figure {
    /// Creates a figure whose value must be at least `bound`.
    pub fn at_least(label: &'static str, bound: f64, value: f64) -> Self {
        Self::new(label, FigureBound::AtLeast(bound), value)
    }

    /// Creates a figure whose value must be at most `bound`.
    pub fn at_most(label: &'static str, bound: f64, value: f64) -> Self {
        Self::new(label, FigureBound::AtMost(bound), value)
    }

    /// Creates a figure without a limit.
    pub fn shown(label: &'static str, value: f64) -> Self {
        Self::new(label, FigureBound::None, value)
    }

    /// Makes the limit apply to the mean of all runs.
    pub fn by_mean(self) -> Self {
        Self {
            is_mean: true,
            ..self
        }
    }

    /// Returns whether the value meets its limit.
    pub fn is_reached(&self) -> bool {
        self.bound.holds(self.value)
    }

    fn new(label: &'static str, bound: FigureBound, value: f64) -> Self {
        Self {
            label,
            bound,
            value,
            is_mean: false,
        }
    }
}

impl FigureBound {
    /// Returns whether a value meets the limit. NaN violates every limit.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
            Self::None => true,
        }
    }

    /// Returns the worst of several values. It is the highest value for an upper limit, and the
    /// lowest value otherwise.
    pub fn worst(self, values: &[f64]) -> f64 {
        match self {
            Self::AtLeast(_) | Self::None => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::AtMost(_) => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

impl fmt::Display for FigureBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // With three decimals, a bound that is a product of settings is printed without rounding
        // errors.
        let rounded = |bound: f64| (bound * 1e3).round() / 1e3;
        match self {
            Self::AtLeast(bound) => f.pad(&format!(">= {}", rounded(*bound))),
            Self::AtMost(bound) => f.pad(&format!("<= {}", rounded(*bound))),
            Self::None => f.pad("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_tells_what_keeps_it_and_what_is_worst() {
        let (least, most) = (FigureBound::AtLeast(0.1 + 0.2), FigureBound::AtMost(2.0));
        assert!(least.holds(0.5) && !least.holds(0.2) && most.holds(2.0) && !most.holds(2.1));
        assert!(!least.holds(f64::NAN) && !most.holds(f64::NAN));
        assert_eq!(least.worst(&[2.0, 1.0, 3.0]), 1.0);
        assert_eq!(most.worst(&[2.0, 1.0, 3.0]), 3.0);
        assert_eq!(format!("{least:>8}|{most}"), "  >= 0.3|<= 2");
    }

    #[test]
    fn a_cell_draws_by_its_name_and_by_the_seed() {
        let cell = |name: &str| BenchCase::new(name, |_| ());
        assert_eq!(cell("a").seed(2), cell("a").seed(1) + 1);
        assert_ne!(cell("a").seed(1), cell("b").seed(1));
    }
}
