//! The statistics of samples: one median, one quantile and one mean for all scenarios.

/// Returns the middle value, or the mean of the two middle values of an even number. No values have no median.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let values = sorted(values);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Returns the quantile `share` by the nearest rank. No values have no quantile.
pub fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> Option<f64> {
    let values = sorted(values);
    let at = values.len().saturating_sub(1) as f64 * share;
    values.get(at.round() as usize).copied()
}

/// Returns the arithmetic mean. No values have no mean.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values
        .into_iter()
        .fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_quantiles_and_means_are_those_of_the_textbook() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let tens = || (0..=10).map(|ten| f64::from(ten) * 10.0);
        assert_eq!(
            [0.0, 0.1, 0.9, 1.0].map(|share| quantile(tens(), share)),
            [0.0, 10.0, 90.0, 100.0].map(Some)
        );
        assert_eq!(quantile([], 0.5), None);
        assert_eq!((mean([]), mean([1.0, 2.0, 6.0])), (None, Some(3.0)));
    }
}
