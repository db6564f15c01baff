//! Groups figures, and keeps the order of their measurement.

use std::collections::BTreeMap;

use crate::result::Figure;

/// Groups the items by key. Keys and items keep the order of their first appearance.
pub(super) fn group<T: Copy, K: PartialEq>(items: &[T], key: impl Fn(T) -> K) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for &item in items {
        let key = key(item);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// Returns the distinct values, ascending.
pub(super) fn ascending(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// Returns the parameters of a figure except the named ones, and except `repetition`, which does not
/// distinguish figures.
pub(super) fn parameters_but(figure: &Figure, names: &[&str]) -> BTreeMap<String, String> {
    let kept = |name: &str| name != "repetition" && !names.contains(&name);
    let pairs = figure.parameters.iter().filter(|(name, _)| kept(name));
    pairs.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns one parameter of a figure.
pub(super) fn parameter<'a>(figure: &'a Figure, name: &str) -> Option<&'a str> {
    figure.parameters.get(name).map(String::as_str)
}

/// Returns the direction of the bytes. A figure without a direction is a write.
pub(super) fn direction(figure: &Figure) -> &str {
    parameter(figure, "direction").unwrap_or("write")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_members_keep_their_order() {
        let groups = group(&[3, 4, 1, 6], |n: i32| n % 2);
        assert_eq!(groups, [(1, vec![3, 1]), (0, vec![4, 6])]);
    }

    #[test]
    fn values_ascend_once() {
        assert_eq!(ascending([40.0, 0.3, 40.0, 4.0]), [0.3, 4.0, 40.0]);
    }
}
