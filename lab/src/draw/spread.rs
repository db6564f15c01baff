//! Moves labels apart that would overlap.

/// Moves heights apart until each is at least `gap` from the next. Keeps their order, and all of them within
/// `low..=high` if there is room. The sum of squared movements is minimal.
pub(super) fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let offsets: Vec<f64> =
        std::iter::successors(Some(0.0), |sum| Some(sum + gap)).take(wanted.len()).collect();
    // After the gaps below each height are subtracted, one condition is left: no height may be below the
    // previous one.
    let shifted = order.iter().zip(&offsets).map(|(index, offset)| wanted[*index] - offset);
    let top = (high - offsets.last().copied().unwrap_or(0.0)).max(low);
    let level = never_falling(shifted);
    let mut positions = vec![0.0; wanted.len()];
    for ((index, offset), level) in order.into_iter().zip(offsets).zip(level) {
        positions[index] = level.clamp(low, top) + offset;
    }
    positions
}

/// Returns the nearest sequence that never decreases: neighbours in the wrong order share their mean.
fn never_falling(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for value in values {
        let mut pool = (value, 1);
        while let Some((mean, count)) = pools.pop_if(|(mean, _)| *mean > pool.0) {
            pool = (mean_of((mean, count), pool), count + pool.1);
        }
        pools.push(pool);
    }
    pools.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean, count)).collect()
}

fn mean_of(a: (f64, usize), b: (f64, usize)) -> f64 {
    (a.0 * a.1 as f64 + b.0 * b.1 as f64) / (a.1 + b.1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_with_room_stay() {
        assert_eq!(spread(&[90.0, 10.0, 50.0], 15.0, 0.0, 100.0), [90.0, 10.0, 50.0]);
        assert!(spread(&[], 15.0, 0.0, 100.0).is_empty());
    }

    #[test]
    fn crowded_heights_move_evenly_about_their_middle() {
        assert_eq!(spread(&[50.0, 50.0, 50.0], 10.0, 0.0, 100.0), [40.0, 50.0, 60.0]);
        assert_eq!(spread(&[52.0, 48.0], 10.0, 0.0, 100.0), [55.0, 45.0]);
    }

    #[test]
    fn heights_stay_within_the_bounds() {
        assert_eq!(spread(&[1.0, 0.0], 10.0, 0.0, 100.0), [10.0, 0.0]);
        assert_eq!(spread(&[99.0, 100.0, 98.0], 10.0, 0.0, 100.0), [90.0, 100.0, 80.0]);
    }

    #[test]
    fn without_room_the_gap_goes_before_the_bound() {
        assert_eq!(spread(&[5.0, 5.0, 5.0], 10.0, 0.0, 12.0), [0.0, 10.0, 20.0]);
    }

    #[test]
    fn a_pool_that_grows_takes_its_neighbours_along() {
        let positions = spread(&[30.0, 40.0, 41.0, 42.0], 10.0, 0.0, 100.0);
        let gaps: Vec<f64> = positions.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (gap - 10.0).abs() < 1e-9), "{positions:?}");
        assert!((positions.iter().sum::<f64>() - 153.0).abs() < 1e-9, "{positions:?}");
    }
}
