//! Bars: what a figure must reach, and whether it does.

use serde_json::{Value, json};

use super::plan::{Cell, Unit};

/// How a figure is put against its rival's, and what must come out of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The figure divided by the rival's must be this at least.
    RatioMin(f64),
    /// The figure divided by the rival's must be this at most.
    RatioMax(f64),
    /// The figure minus the rival's must be this at most.
    MoreMax(f64),
    /// The figure alone must be this at most.
    Max(f64),
    /// The figure divided by the rival's is shown, and nothing must be reached.
    Shown,
}

impl Limit {
    /// Whether a value meets the limit; one that is no number meets none.
    pub fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::RatioMin(min) => value >= min,
            Self::RatioMax(max) | Self::MoreMax(max) | Self::Max(max) => value <= max,
            Self::Shown => true,
        }
    }

    /// Whether a figure is divided by the rival's.
    pub const fn is_ratio(self) -> bool {
        matches!(self, Self::RatioMin(_) | Self::RatioMax(_) | Self::Shown)
    }

    /// The limit as tables show it; empty where nothing must be reached.
    pub fn text(self, unit: Unit) -> String {
        match self {
            Self::RatioMin(min) => format!("≥ {min:.2}"),
            Self::RatioMax(max) => format!("≤ {max:.2}"),
            Self::MoreMax(max) => format!("≤ + {}", (unit.show)(max)),
            Self::Max(max) => format!("≤ {}", (unit.show)(max)),
            Self::Shown => String::new(),
        }
    }

    /// The limit as one JSON object; null where nothing must be reached.
    pub fn json(self) -> Value {
        match self {
            Self::RatioMin(min) => json!({ "ratio_min": min }),
            Self::RatioMax(max) => json!({ "ratio_max": max }),
            Self::MoreMax(max) => json!({ "more_max": max }),
            Self::Max(max) => json!({ "max": max }),
            Self::Shown => Value::Null,
        }
    }
}

/// Whether the exit status depends on a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The comparison fails where the bar is missed.
    Must,
    /// The verdict is shown, and the comparison does not depend on it.
    Aim,
}

/// What one rival must reach in one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Whose figure is judged.
    pub ours: Cell,
    /// Whose figure it is put against; the limit [`Limit::Max`] has none.
    pub against: Option<Cell>,
    /// What must be reached.
    pub limit: Limit,
    /// Whether the exit status depends on it.
    pub weight: Weight,
}

impl Bar {
    /// A bar that the exit status depends on, against a rival.
    pub const fn must(ours: Cell, against: Cell, limit: Limit) -> Self {
        Self {
            ours,
            against: Some(against),
            limit,
            weight: Weight::Must,
        }
    }

    /// A bar that the exit status depends on, for a figure alone.
    pub const fn alone(ours: Cell, max: f64) -> Self {
        Self {
            ours,
            against: None,
            limit: Limit::Max(max),
            weight: Weight::Must,
        }
    }
}

/// Whether a bar is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The bar is met.
    Met,
    /// The bar is missed.
    Missed,
    /// Fewer rounds count than it takes to judge the bar.
    TooFew,
}

impl Verdict {
    /// The verdict as tables show it, where it takes so many rounds.
    pub fn text(self, rounds_min: u32) -> String {
        match self {
            Self::Met => "yes".to_owned(),
            Self::Missed => "NO".to_owned(),
            Self::TooFew => format!("needs {rounds_min} rounds"),
        }
    }

    /// The verdict as JSON has it.
    pub fn json(self) -> Value {
        match self {
            Self::Met => Value::Bool(true),
            Self::Missed => Value::Bool(false),
            Self::TooFew => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_hold_at_their_edge() {
        assert!(Limit::RatioMin(1.0).is_met_by(1.0) && !Limit::RatioMin(1.0).is_met_by(0.999));
        assert!(Limit::RatioMax(1.05).is_met_by(1.05) && !Limit::RatioMax(1.05).is_met_by(1.051));
        assert!(!Limit::RatioMax(1.05).is_met_by(f64::NAN) && !Limit::RatioMin(1.0).is_met_by(f64::NAN));
    }
}
