//! Measures units behind links of their own that are joined to one device. All bytes of the device are
//! written or read.

mod member;
mod raid;
mod volume;

use crate::peers::{Bench, Reading};
use crate::result::Outcome;
use crate::scenario::{Direction, Joiner, Point, Striped};
use crate::testbed::traffic;
use member::portal;

/// Returns the words for `lab/lio` that put a portal on each link.
pub fn words(striped: &Striped) -> Vec<String> {
    (1..striped.links).map(|link| format!("portal={}", portal(link))).collect()
}

/// Returns the number of bytes of the image; `None` if no image is written.
pub fn image_bytes(point: &Point, striped: &Striped) -> Option<u64> {
    let bytes = match striped.who {
        Joiner::Volume => point.bytes,
        Joiner::Apart => point.bytes / u64::from(striped.links.max(1)),
        Joiner::MdRaid0 => return None,
    };
    (point.measure.direction == Direction::Write).then_some(bytes)
}

/// Moves all bytes once, by the program that joins the units.
///
/// # Errors
/// An [`Outcome`] other than [`Outcome::Complete`]; also if the target counts less than its share for a unit.
pub async fn measure(point: &Point, striped: &Striped, bench: &Bench) -> Result<Reading, Outcome> {
    let before = seen(striped, point.measure.direction);
    let reading = match striped.who {
        Joiner::Volume => volume::measure(point, striped, bench).await,
        Joiner::Apart => volume::measure_apart(point, striped, bench).await,
        Joiner::MdRaid0 => raid::measure(point, striped, bench).await,
    }?;
    let after = seen(striped, point.measure.direction);
    let share = (point.bytes / u64::from(striped.links.max(1))) >> 20;
    came_through(&before, &after, share)?;
    Ok(reading)
}

/// Returns the MiB that the target has counted in this direction for each unit so far.
fn seen(striped: &Striped, direction: Direction) -> Vec<Option<u64>> {
    let counted = (0..u16::from(striped.links)).map(traffic);
    let one_way = |(written, read)| match direction {
        Direction::Write => written,
        Direction::Read => read,
    };
    counted.map(|both| both.map(one_way)).collect()
}

/// Checks by the target's counts that each unit has transferred its share. The program's own report does not
/// show that.
fn came_through(before: &[Option<u64>], after: &[Option<u64>], share: u64) -> Result<(), Outcome> {
    for (unit, (before, after)) in before.iter().zip(after).enumerate() {
        let (Some(before), Some(after)) = (before, after) else {
            return Err(Outcome::Failed("the target has no count of the traffic".to_owned()));
        };
        let seen = after.saturating_sub(*before);
        if seen < share {
            let reason = format!("only {seen} of {share} MiB came through unit {unit}");
            return Err(Outcome::Failed(reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_behind_its_own_link() {
        let striped = Striped { who: Joiner::Volume, links: 3, chunk: 512 << 10 };
        assert_eq!(words(&striped), ["portal=10.99.1.2:3260", "portal=10.99.2.2:3260"]);
    }

    #[test]
    fn each_unit_must_have_seen_its_share() {
        let (before, after) = ([Some(4), Some(0)], [Some(14), Some(9)]);
        assert_eq!(came_through(&before, &after, 9), Ok(()));
        let reason = "only 9 of 10 MiB came through unit 1".to_owned();
        assert_eq!(came_through(&before, &after, 10), Err(Outcome::Failed(reason)));
        assert!(came_through(&[None], &[Some(1)], 0).is_err());
    }
}
