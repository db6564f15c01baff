//! What requests pay to their class.

use iscsi_shaper::{Class, RateLimit, Statistics};

use super::*;
use crate::shaper::Shaper;

/// Sends a request over links whose bytes are counted; says what of it.
async fn counted(links: &[Link]) -> (Statistics, u64) {
    let shaper = Shaper::new(Class::new(RateLimit::Unlimited)).unwrap();
    let class = shaper.traffic_class(shaper.default_class());
    let policy = Options::default().with_class(Some(class.clone())).policy(Some(PATIENCE));
    let budget = links[0].0.budget.clone();
    let paths = Paths::new(links[0].clone(), ROOM, budget, policy, Arc::default());
    for link in &links[1..] {
        paths.add(link.clone(), ROOM);
    }
    assert_eq!(send(&paths, 1, 1).await.1, 0);
    (shaper.statistics(shaper.default_class()).unwrap(), paths.hedged())
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_pays_as_well() {
    let budget = Budget::new(1024, 64 << 20);
    let stall = Some((Duration::ZERO, Duration::from_secs(100)));
    let links = [Link::with(&budget, 10.0, 50, None, stall), Link::new(&budget, 10.0, 50)];
    let (statistics, duplicates) = counted(&links).await;
    assert_eq!(duplicates, 1);
    assert_eq!((statistics.sent.requests, statistics.sent.bytes), (2, 2 * LEN as u64));
}

/// The first try is answered by nothing, which gives its bytes back.
#[tokio::test(start_paused = true)]
async fn every_try_pays_and_a_read_that_fails_has_moved_nothing() {
    let budget = Budget::new(1024, 64 << 20);
    let dies = Some(Duration::from_millis(10));
    let links = [Link::with(&budget, 10.0, 50, dies, None), Link::new(&budget, 10.0, 50)];
    let (statistics, duplicates) = counted(&links).await;
    assert_eq!(duplicates, 0);
    assert_eq!((statistics.sent.requests, statistics.sent.bytes), (2, LEN as u64));
}

/// Requests wait for memory because those that have it wait in their class.
#[tokio::test(start_paused = true)]
async fn paths_are_not_busy_with_what_a_class_holds_back() {
    let shaper = Shaper::new(Class::new("1kbit".parse().unwrap())).unwrap();
    let class = shaper.traffic_class(shaper.default_class());
    let policy = Options::default().with_class(Some(class)).policy(Some(PATIENCE));
    let budget = Budget::new(2, 64 << 20);
    let link = Link::new(&budget, 10.0, 50);
    let paths = Paths::new(link.clone(), ROOM, budget, policy, Arc::default());
    let requests = tokio::spawn({
        let paths = paths.clone();
        async move { send(&paths, 8, 8).await }
    });
    sleep(Duration::from_secs(1)).await;
    _ = paths.progress();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(link.carried(), LEN as u64);
    assert!(paths.budget().has_waiters());
    assert!(!paths.progress().is_busy);
    requests.abort();
}
