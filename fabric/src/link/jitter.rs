//! How far the delay of a frame is from the one that was set: uniform, normal or Pareto, in whole numbers.
//!
//! The two curved distributions are tables of quantiles that the compiler fills. A 32-bit random number picks one, finer
//! towards the tail: each halving of the probability has as many entries. Nothing here knows what the number is used for.

use super::chance::Chance;

weft_settings::named! {
    /// How the delays of frames spread around the one that was set.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(
        feature = "serde",
        derive(serde::Serialize, serde::Deserialize),
        serde(rename_all = "lowercase")
    )]
    pub enum JitterDistribution {
        /// Evenly from the jitter before to the jitter behind it.
        #[default]
        Uniform = "uniform",
        /// The bell curve, with the jitter as its standard deviation.
        Normal = "normal",
        /// A long tail of late frames: Pareto of shape 3, with the set delay as its mean and the jitter as its standard
        /// deviation. The earliest come 0.58 jitters before the mean, one in a thousand 9.8 and one in a million 114 behind it.
        Pareto = "pareto",
    }
}

/// The most that jitter adds to a delay, in nanoseconds: 10 s. A Pareto tail has no end of its own.
pub const JITTER_NS_MAX: u64 = 10_000_000_000;

/// Entries for each halving of the probability.
const CELLS: usize = 1 << CELL_BITS;
const CELL_BITS: u32 = 5;
/// Halvings that 32 random bits can distinguish.
const OCTAVES: usize = 32;
/// One deviation in the unit of the tables.
const ONE: f64 = (1u64 << ONE_BITS) as f64;
const ONE_BITS: u32 = 16;

/// Deviations from the mean, in parts of 2¹⁶, at the probabilities of [`probability`].
type Quantiles = [i32; OCTAVES * CELLS + 1];

static NORMAL: Quantiles = normal();
static PARETO: Quantiles = pareto();

/// How much later (or earlier, below 0) than its mean a frame arrives, in nanoseconds.
pub(super) fn offset_ns(distribution: JitterDistribution, jitter_ns: u64, stream: &mut Chance) -> i64 {
    let bits = stream.bits();
    let jitter_ns = jitter_ns.min(JITTER_NS_MAX) as i64;
    let deviations = match distribution {
        // Half a step up, so that the mean is the middle.
        JitterDistribution::Uniform => {
            return (((i128::from(bits as i32) * 2 + 1) * i128::from(jitter_ns)) >> 32) as i64;
        }
        JitterDistribution::Normal => {
            let size = quantile(&NORMAL, bits << 1);
            if bits >> 31 == 0 { size } else { -size }
        }
        JitterDistribution::Pareto => quantile(&PARETO, bits),
    };
    // At most 2²⁷ · 2³⁴.
    ((i64::from(deviations) * jitter_ns + (1 << (ONE_BITS - 1))) >> ONE_BITS).min(JITTER_NS_MAX as i64)
}

/// The value that is exceeded with probability `bits` / 2³².
fn quantile(table: &Quantiles, bits: u32) -> i32 {
    let bits = bits.max(1);
    let octave = bits.leading_zeros() as usize;
    // Behind the leading one.
    let rest = bits << octave << 1;
    let cell = (rest >> (32 - CELL_BITS)) as usize;
    let within = i64::from(rest << CELL_BITS);
    let at = (OCTAVES - 1 - octave) * CELLS + cell;
    let (here, next) = (i64::from(table[at]), i64::from(table[at + 1]));
    (here + (((next - here) * within) >> 32)) as i32
}

/// The probability that entry `at` of a table stands for, from 2⁻³² to 1.
const fn probability(at: usize) -> f64 {
    let mut probability = 1.0 + (at % CELLS) as f64 / CELLS as f64;
    let mut octave = at / CELLS;
    while octave < OCTAVES {
        probability /= 2.0;
        octave += 1;
    }
    probability
}

const fn rounded(deviations: f64) -> i32 {
    let scaled = deviations * ONE;
    (if scaled < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i32
}

/// What a normal variable's distance from its mean exceeds. The slope of a quantile is the inverse of the density: from the
/// far end, where errors die out, one Runge-Kutta step leads to the next entry, and in the end to 0.
const fn normal() -> Quantiles {
    const fn slope(z: f64) -> f64 {
        // √(π/2)
        const ROOT_HALF_PI: f64 = 1.253_314_137_315_500_3;
        -ROOT_HALF_PI * exp(z * z / 2.0)
    }
    // What is exceeded with probability 2⁻³².
    const FARTHEST: f64 = 6.337_957_754_553_789;
    let mut table = [0; OCTAVES * CELLS + 1];
    let (mut at, mut z) = (0, FARTHEST);
    while at < OCTAVES * CELLS {
        table[at] = rounded(z);
        let step = probability(at + 1) - probability(at);
        let k1 = slope(z);
        let k2 = slope(z + step / 2.0 * k1);
        let k3 = slope(z + step / 2.0 * k2);
        let k4 = slope(z + step * k3);
        z += step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4);
        at += 1;
    }
    table[at] = rounded(z);
    table
}

/// What a Pareto variable of shape 3 exceeds, in deviations from its mean: the inverse cube root of the probability has
/// the mean 3/2 and the variance 3/4.
const fn pareto() -> Quantiles {
    // √(4/3)
    const INVERSE_DEVIATION: f64 = 1.154_700_538_379_251_7;
    let mut table = [0; OCTAVES * CELLS + 1];
    let mut at = 0;
    while at < table.len() {
        table[at] = rounded((inverse_cube_root(probability(at)) - 1.5) * INVERSE_DEVIATION);
        at += 1;
    }
    table
}

/// By Newton's method from below, where it converges.
const fn inverse_cube_root(value: f64) -> f64 {
    let (mut root, mut scaled) = (1.0, value);
    while scaled < 0.125 {
        scaled *= 8.0;
        root *= 2.0;
    }
    let mut round = 0;
    while round < 8 {
        root = root * (4.0 - value * root * root * root) / 3.0;
        round += 1;
    }
    root
}

/// eˣ: the series of a 1024th of `x`, squared ten times.
const fn exp(x: f64) -> f64 {
    let x = x / 1024.0;
    let mut value = 1.0 + x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0))));
    let mut round = 0;
    while round < 10 {
        value *= value;
        round += 1;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::super::chance::Use;
    use super::*;
    use std::vec::Vec;

    /// Known quantiles of the normal distribution: (probability that the distance from the mean is larger, that distance).
    const NORMAL_POINTS: [(f64, f64); 6] = [
        (0.5, 0.674_489_75),
        (0.317_310_508, 1.0),
        (0.045_500_264, 2.0),
        (0.002_699_796, 3.0),
        (6.334_248e-5, 4.0),
        (1.973_175e-9, 6.0),
    ];

    fn deviations(table: &Quantiles, probability: f64) -> f64 {
        f64::from(quantile(table, (probability * 4_294_967_296.0) as u32)) / ONE
    }

    #[test]
    fn tables_agree_with_published_quantiles() {
        for (probability, distance) in NORMAL_POINTS {
            let off = deviations(&NORMAL, probability) - distance;
            // 2 of 2³² are a coarse 1.97e-9 · 2³².
            let allowed = if probability < 1e-8 { 0.05 } else { 3e-4 };
            assert!(off.abs() < allowed, "{probability}: {off}");
        }
        for probability in [0.9_f64, 0.5, 0.1, 1e-3, 1e-6] {
            let exact = (probability.powf(-1.0 / 3.0) - 1.5) / 0.75f64.sqrt();
            let off = deviations(&PARETO, probability) - exact;
            assert!(off.abs() < 3e-4 * (1.0 + exact.abs()), "{probability}: {off}");
        }
    }

    #[test]
    fn quantiles_fall_as_probability_rises() {
        for table in [&NORMAL, &PARETO] {
            assert!(table.is_sorted_by(|a, b| a > b));
        }
        assert_eq!(quantile(&NORMAL, u32::MAX), 0);
        assert_eq!(quantile(&NORMAL, 0), quantile(&NORMAL, 1));
    }

    #[test]
    fn offsets_have_the_mean_and_the_quantiles_of_their_distribution() {
        const SAMPLES: usize = 400_000;
        const JITTER_NS: u64 = 1_000_000;
        // Share of samples below, and the offset there in jitters.
        type Points = [(f64, f64); 5];
        let uniform: Points = [(0.01, -0.98), (0.25, -0.5), (0.5, 0.0), (0.75, 0.5), (0.99, 0.98)];
        let normal: Points = [
            (0.01, -2.3263),
            (0.25, -0.6745),
            (0.5, 0.0),
            (0.75, 0.6745),
            (0.99, 2.3263),
        ];
        let pareto_at = |below: f64| ((1.0 - below).powf(-1.0 / 3.0) - 1.5) / 0.75f64.sqrt();
        let pareto: Points = [0.01, 0.25, 0.5, 0.75, 0.99].map(|below| (below, pareto_at(below)));
        for (distribution, points, deviation) in [
            (JitterDistribution::Uniform, uniform, (1.0f64 / 3.0).sqrt()),
            (JitterDistribution::Normal, normal, 1.0),
            (JitterDistribution::Pareto, pareto, 1.0),
        ] {
            let mut stream = Chance::new(7, Use::Jitter);
            let draw = |_| offset_ns(distribution, JITTER_NS, &mut stream) as f64 / JITTER_NS as f64;
            let mut drawn: Vec<f64> = (0..SAMPLES).map(draw).collect();
            let mean = drawn.iter().sum::<f64>() / SAMPLES as f64;
            assert!(
                mean.abs() < 3.0 * deviation / (SAMPLES as f64).sqrt(),
                "{distribution:?}: mean {mean}"
            );
            let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / SAMPLES as f64;
            // A Pareto variable of shape 3 has no fourth moment: its samples' deviation settles slowly.
            let allowed = if distribution == JitterDistribution::Pareto {
                0.1
            } else {
                0.01
            };
            assert!(
                (variance.sqrt() / deviation - 1.0).abs() < allowed,
                "{distribution:?}: deviation {}",
                variance.sqrt()
            );
            drawn.sort_by(f64::total_cmp);
            for (below, offset) in points {
                let at = (below * SAMPLES as f64) as usize;
                // Three standard errors of a quantile, taken as shares of the samples.
                let around = (3.0 * (below * (1.0 - below) * SAMPLES as f64).sqrt()) as usize;
                let (low, high) = (drawn[at.saturating_sub(around)], drawn[(at + around).min(SAMPLES - 1)]);
                assert!(
                    (low - 1e-3..=high + 1e-3).contains(&offset),
                    "{distribution:?}: {low} … {high} instead of {offset}"
                );
            }
        }
    }

    #[test]
    fn no_jitter_and_the_largest_are_safe() {
        for distribution in [
            JitterDistribution::Uniform,
            JitterDistribution::Normal,
            JitterDistribution::Pareto,
        ] {
            let mut stream = Chance::new(1, Use::Jitter);
            for _ in 0..10_000 {
                assert_eq!(offset_ns(distribution, 0, &mut stream), 0);
                let largest = offset_ns(distribution, u64::MAX, &mut stream);
                assert!(largest <= JITTER_NS_MAX as i64);
            }
        }
    }
}
