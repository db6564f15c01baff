//! Links that answer nothing for a while.

use super::*;

const STALL: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(600));
/// When what has stalled is found dead.
const DEATH: Duration = Duration::from_secs(48);

/// How long nothing was answered at most, and how long one request took at most.
async fn longest(paths: &Paths<Link>, count: usize, depth: usize) -> (Duration, Duration) {
    let (mut requests, mut left) = (JoinSet::new(), count);
    let (mut last, mut pause, mut wait) = (Instant::now(), Duration::ZERO, Duration::ZERO);
    loop {
        while left > 0 && requests.len() < depth {
            left -= 1;
            let (paths, begun) = (paths.clone(), Instant::now());
            let transfer = Transfer::query(Cdb::read_16(0, 512), LEN);
            requests.spawn(async move {
                drop(paths.execute(transfer).await.unwrap());
                begun.elapsed()
            });
        }
        let Some(time) = requests.join_next().await else { return (pause, wait) };
        (pause, wait) = (pause.max(last.elapsed()), wait.max(time.unwrap()));
        last = Instant::now();
    }
}

/// What a stalled link holds is no more than its share, so the others go on. By the rate that it had it
/// would be the first choice of every request.
#[tokio::test(start_paused = true)]
async fn a_stalled_link_does_not_stop_the_others_whatever_the_budget() {
    let budgets = [2, 4, 8, 16, 64].map(|megabytes| (1024, megabytes << 20));
    for (requests, bytes) in budgets.into_iter().chain([(2, 64 << 20), (8, 64 << 20)]) {
        for count in [2, 4] {
            let budget = Budget::new(requests, bytes);
            let mut links: Vec<_> = (1..count).map(|_| Link::new(&budget, 10.0, 400)).collect();
            links.push(Link::with(&budget, 100.0, 200, Some(DEATH), Some(STALL)));
            let depth = budget.max_of(LEN) * 2;
            let (pause, _) = longest(&paths(&links), 60 * depth, depth).await;
            let what = format!("{requests} requests, {bytes} bytes, {count} links");
            assert!(pause < Duration::from_secs(10), "nothing for {pause:?}: {what}");
        }
    }
}

/// What is stuck gets memory for its duplicate in its turn, also where others always wait for some.
#[tokio::test(start_paused = true)]
async fn what_is_stuck_gets_its_turn_where_others_wait_for_memory() {
    let budget = Budget::new(1024, 4 << 20);
    let links = [Link::new(&budget, 10.0, 50), Link::with(&budget, 10.0, 50, None, Some(STALL))];
    let (_, wait) = longest(&paths(&links), 2000, 64).await;
    assert!(wait < Duration::from_secs(20), "{wait:?}");
}

/// A duplicate that waited for room that there never is beside the first copy would have all others wait behind it.
#[tokio::test(start_paused = true)]
async fn what_is_stuck_stops_nobody_where_there_is_no_room_for_it_twice() {
    for len in [2 * LEN, 2 * LEN + 1, 3 * LEN] {
        let budget = Budget::new(1024, 4 * LEN);
        let stall = Some((Duration::ZERO, Duration::from_secs(600)));
        let links = [Link::with(&budget, 10.0, 50, None, stall), Link::new(&budget, 10.0, 50)];
        let paths = paths(&links);
        let stuck = tokio::spawn({
            let paths = paths.clone();
            let transfer = Transfer::query(Cdb::read_16(0, 512), len);
            async move { paths.execute(transfer).await.map(drop) }
        });
        sleep(Duration::from_secs(1)).await;
        let mut pause = Duration::ZERO;
        while links[1].carried() < 1200 * LEN as u64 && pause < Duration::from_secs(100) {
            let short = Transfer::query(Cdb::read_16(0, 512), LEN / 4);
            let begun = Instant::now();
            drop(paths.execute(short).await.unwrap());
            pause = pause.max(begun.elapsed());
        }
        let is_twice = 2 * len <= 4 * LEN;
        assert_eq!(stuck.is_finished(), is_twice);
        assert_eq!(paths.hedged(), u64::from(is_twice));
        assert!(pause < Duration::from_secs(1), "nothing for {pause:?}");
    }
}

/// Of two copies the first may have been executed, whatever the second one was.
#[tokio::test(start_paused = true)]
async fn an_error_tells_that_one_of_two_copies_may_have_been_executed() {
    let budget = Budget::new(1024, 64 << 20);
    let secs = Duration::from_secs;
    let stalls = Some((Duration::ZERO, secs(600)));
    for swap in [false, true] {
        let first = Link::with(&budget, 10.0, 10, Some(secs(20)), stalls);
        let second = Link::with(&budget, 10.0, 10, Some(secs(21)), stalls);
        let links = if swap {
            [first.that_sends_nothing(), second]
        } else {
            [first, second.that_sends_nothing()]
        };
        let paths = paths(&links);
        let transfer = Transfer::query(Cdb::read_16(0, 512), LEN);
        let error = paths.execute(transfer).await.map(drop).unwrap_err();
        assert_eq!(paths.hedged(), 1);
        assert!(error.may_have_executed(), "{error}");
    }
}

/// A second copy that finds no port that serves the unit goes out once one does: nothing waits for the end of the
/// session that holds the first.
#[tokio::test(start_paused = true)]
async fn what_is_stuck_goes_over_a_port_as_soon_as_that_serves_the_unit() {
    let budget = Budget::new(1024, 64 << 20);
    let secs = Duration::from_secs;
    for is_known in [false, true] {
        let stalls = Some((secs(2), secs(600)));
        let standby = Link::new(&budget, 10.0, 10).that_serves_after(secs(8));
        let links = [Link::with(&budget, 10.0, 10, None, stalls), standby];
        let paths = paths(&links);
        paths.follow_access(true);
        let port = paths.open()[1].0;
        let state = |state| paths.set_access([(port, Access { state, preferred: false })]);
        let states = async {
            if is_known {
                state(AccessState::Standby);
            }
            sleep(secs(9)).await;
            state(AccessState::ActiveOptimized);
        };
        let ((pause, _), ()) = tokio::join!(longest(&paths, 400, 16), states);
        assert!((secs(6)..secs(9)).contains(&pause), "nothing for {pause:?}");
        assert!(links[1].carried() > 0);
    }
}
