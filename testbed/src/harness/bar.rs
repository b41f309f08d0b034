//! Bars: what a figure must reach, and whether it does.

use serde_json::{Value, json};

use super::plan::{Cell, Unit};

/// A limit says how a figure is compared with its rival's, and what the comparison must yield.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The figure divided by the rival's figure must be at least this.
    RatioMin(f64),
    /// The figure divided by the rival's figure must be at most this.
    RatioMax(f64),
    /// The figure minus the rival's figure must be at most this.
    MoreMax(f64),
    /// The figure alone must be at most this.
    Max(f64),
    /// The figure alone must be at least this.
    Min(f64),
    /// The figure divided by the rival's figure is shown without any requirement.
    Shown,
}

impl Limit {
    /// Returns whether a value satisfies the limit. NaN satisfies none.
    pub fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::RatioMin(min) | Self::Min(min) => value >= min,
            Self::RatioMax(max) | Self::MoreMax(max) | Self::Max(max) => value <= max,
            Self::Shown => true,
        }
    }

    /// Returns whether the limit divides a figure by the rival's.
    pub const fn is_ratio(self) -> bool {
        matches!(self, Self::RatioMin(_) | Self::RatioMax(_) | Self::Shown)
    }

    /// Returns the limit as tables show it; empty where nothing is required.
    pub fn text(self, unit: Unit) -> String {
        match self {
            Self::RatioMin(min) => format!("≥ {min:.2}"),
            Self::RatioMax(max) => format!("≤ {max:.2}"),
            Self::MoreMax(max) => format!("≤ + {}", (unit.show)(max)),
            Self::Max(max) => format!("≤ {}", (unit.show)(max)),
            Self::Min(min) => format!("≥ {}", (unit.show)(min)),
            Self::Shown => String::new(),
        }
    }

    /// Returns the limit as one JSON object; null where nothing is required.
    pub fn json(self) -> Value {
        match self {
            Self::RatioMin(min) => json!({ "ratio_min": min }),
            Self::RatioMax(max) => json!({ "ratio_max": max }),
            Self::MoreMax(max) => json!({ "more_max": max }),
            Self::Max(max) => json!({ "max": max }),
            Self::Min(min) => json!({ "min": min }),
            Self::Shown => Value::Null,
        }
    }
}

/// A weight says whether the exit status depends on a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The comparison fails where the bar is missed.
    Must,
    /// The verdict is shown, and the comparison does not depend on it.
    Aim,
}

/// A bar is what one rival must reach in one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// The cell whose figure is judged.
    pub ours: Cell,
    /// The cell whose figure it is compared with; the limits [`Limit::Max`] and [`Limit::Min`] have none.
    pub against: Option<Cell>,
    /// The value to reach.
    pub limit: Limit,
    /// Whether the exit status depends on the bar.
    pub weight: Weight,
}

impl Bar {
    /// Makes a bar against a rival that the exit status depends on.
    pub const fn must(ours: Cell, against: Cell, limit: Limit) -> Self {
        Self {
            ours,
            against: Some(against),
            limit,
            weight: Weight::Must,
        }
    }

    /// Makes a bar for a figure alone that the exit status depends on.
    pub const fn alone(ours: Cell, max: f64) -> Self {
        Self {
            ours,
            against: None,
            limit: Limit::Max(max),
            weight: Weight::Must,
        }
    }
}

/// A verdict says whether a bar is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The bar is met.
    Met,
    /// The bar is missed.
    Missed,
    /// Fewer rounds count than are needed to judge the bar.
    TooFew,
}

impl Verdict {
    /// Returns the verdict as tables show it, where `rounds_min` rounds are needed.
    pub fn text(self, rounds_min: u32) -> String {
        match self {
            Self::Met => "yes".to_owned(),
            Self::Missed => "NO".to_owned(),
            Self::TooFew => format!("needs {rounds_min} rounds"),
        }
    }

    /// Returns the verdict as it appears in JSON.
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
