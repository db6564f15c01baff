//! Benchmarks of granting a request in a tree of classes, while every class has waiting requests.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic, and names itself")]

use std::hint::black_box;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use iscsi_shaper::{Class, Grant, RateLimit, Tree};

/// Number of classes on the lowest level below each class of the middle level.
const BROTHERS: usize = 16;
const LEN: u64 = 64 << 10;

/// Returns a tree of three levels with `classes` classes on the lowest level. Each of them has a waiting
/// request.
fn tree(classes: usize, now: Instant) -> Tree {
    let mut tree = Tree::new(Class::new("10gbit".parse().unwrap()), now).unwrap();
    let middle = Class::new("500mbit".parse().unwrap()).with_ceil(RateLimit::Unlimited);
    let low = Class::new("1mbit".parse().unwrap()).with_ceil(RateLimit::Unlimited);
    let mut ids = Vec::new();
    while ids.len() < classes {
        let parent = tree.add(tree.root(), middle, now).unwrap();
        let room = BROTHERS.min(classes - ids.len());
        ids.extend((0..room).map(|_| tree.add(parent, low, now).unwrap()));
    }
    for id in &ids {
        tree.request(*id, LEN, now);
    }
    tree
}

/// Returns the next request that may be sent, and advances `now` to that time.
fn next(tree: &mut Tree, now: &mut Instant) -> Grant {
    loop {
        if let Some(grant) = tree.poll_grant(*now) {
            return grant;
        }
        *now = tree.poll_timeout().unwrap();
    }
}

/// Measures granting one request, and queueing the next request of the same class.
fn grant(c: &mut Criterion) {
    let mut group = c.benchmark_group("shaper, a request");
    for classes in [1, 16, 256] {
        let mut now = Instant::now();
        let mut tree = tree(classes, now);
        group.bench_function(format!("granted, of {classes} classes"), |bench| {
            bench.iter(|| {
                let grant = next(&mut tree, &mut now);
                black_box(tree.request(grant.class, grant.bytes, now));
            });
        });
        group.bench_function(format!("granted and corrected, of {classes} classes"), |bench| {
            bench.iter(|| {
                let grant = next(&mut tree, &mut now);
                tree.correct(&grant, grant.bytes / 2, now);
                black_box(tree.request(grant.class, grant.bytes, now));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, grant);
criterion_main!(benches);
