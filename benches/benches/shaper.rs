//! What a grant costs in a tree of classes that all have requests.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic, and names itself")]

use std::hint::black_box;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use iscsi_shaper::{Class, Rate, Tree};

/// A request is granted, and the next one of its class takes its place.
fn grant(c: &mut Criterion) {
    let mut group = c.benchmark_group("grant");
    for classes in [1, 10, 1000] {
        let mut now = Instant::now();
        let mut tree = Tree::new(Class::new("10gbit".parse().unwrap()), now).unwrap();
        let class = Class::new("1mbit".parse().unwrap()).with_ceil(Rate::Unlimited);
        for _ in 0..classes {
            let id = tree.add(tree.root(), class, now).unwrap();
            tree.request(id, 64 << 10, now);
        }
        group.bench_function(format!("{classes} classes"), |bench| {
            bench.iter(|| {
                let grant = loop {
                    if let Some(grant) = tree.poll_grant(now) {
                        break grant;
                    }
                    now = tree.poll_timeout().unwrap();
                };
                black_box(tree.request(grant.class, grant.bytes, now));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, grant);
criterion_main!(benches);
