//! Hierarchical token buckets for requests: which class may send how much, and when.
//!
//! A [`Tree`] of [`Class`]es shares the rate of its root. A class is guaranteed its own rate, and borrows what
//! other classes leave, up to its ceil, by priority and weight. All of these settings may change while requests
//! wait. The semantics are those of HTB of Linux (`tc-htb(8)`), with a request in the place of a packet, so
//! that reads are limited as well as writes. HTB leaves some things to chance; here there are rules:
//!
//! - The rates of children must not exceed the rate of their parent ([`TreeError::Overcommitted`]).
//! - No class exceeds the ceil of an ancestor, not even within its own rate. A guaranteed request that
//!   waits for such a ceil loses nothing of the guarantee.
//! - Requests without a class wait in the [default class](Tree::default_class): no request passes without
//!   limit.
//! - Borrowed bytes are shared in proportion to the rates, or to weights of any size.
//!
//! Rates are in bits per second ([`RateLimit`]); lengths of requests and bursts are in bytes. In any period, a
//! class sends at most the bytes that its ceil brings, its cburst and one request: a class that is not in debt
//! may send a request of any size, and later requests wait until the debt is paid. Bytes of its rate that the
//! ceil of an ancestor has delayed are sent later, in addition. The root has no ancestor, so nothing is added
//! to its bound.
//!
//! The crate has no clock and never waits: `now` is an argument, and [`Tree::poll_timeout`] says when to call
//! [`Tree::poll_grant`] again.
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use iscsi_shaper::{Class, Tree};
//!
//! let now = Instant::now();
//! let mut tree = Tree::new(Class::new("10mbit".parse()?), now)?;
//! let class = Class::new("4mbit".parse()?).with_ceil("10mbit".parse()?);
//! let copy = tree.add(tree.root(), class, now)?;
//!
//! tree.request(copy, 1 << 20, now);
//! tree.request(copy, 1 << 20, now);
//! assert!(tree.poll_grant(now).is_some_and(|grant| grant.class == copy));
//! // The first has taken more than there was.
//! assert!(tree.poll_grant(now).is_none());
//! let next = tree.poll_timeout().unwrap();
//! assert!(next > now + Duration::from_millis(700));
//! assert!(tree.poll_grant(next).is_some_and(|grant| grant.lender == tree.root()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod bucket;
mod class;
mod class_id;
mod deficit;
mod node;
mod queue;
mod rate_limit;
mod schedule;
mod statistics;
mod tree;

pub use class::{Class, ClassError};
pub use class_id::ClassId;
pub use iscsi_rate::{Rate, RateError};
pub use rate_limit::RateLimit;
pub use schedule::{Grant, Ticket};
pub use statistics::{Statistics, Volume};
pub use tree::{Tree, TreeError};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
