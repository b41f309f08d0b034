//! Places: numbers of nodes and trunks in a lab, from which values are derived that the file does not state. A running
//! node or trunk keeps its place.

/// Assigns places to things with these `keys`: those that had one `before` keep it, others get the lowest free ones.
pub(super) fn places<K: PartialEq>(keys: &[K], before: &[(K, usize)]) -> Vec<usize> {
    let mut left: Vec<_> = before.iter().collect();
    let kept: Vec<_> = keys
        .iter()
        .map(|key| {
            let found = left.iter().position(|(other, _)| other == key)?;
            Some(left.remove(found).1)
        })
        .collect();
    let mut free = (0..).filter(|place| !kept.contains(&Some(*place)));
    let place = |kept: &Option<usize>| kept.or_else(|| free.next()).unwrap_or_default();
    kept.iter().map(place).collect()
}

/// Gives both directions of the cable numbered `index` seeds that differ from those of all other cables.
pub(super) fn seed_directions(index: usize, one: &mut u64, other: &mut u64) {
    let number = index as u64 * 2;
    *one = one.wrapping_add(number);
    *other = other.wrapping_add(number + 1);
}
