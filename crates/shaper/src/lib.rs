//! Hierarchical token buckets for requests: which class may send how much, and when.
//!
//! A [`Tree`] of [`Class`]es shares what its root has. A class is guaranteed its rate, borrows what others
//! leave, up to its ceil, and is ordered by priority and weight; all of that may change while requests
//! wait. The semantics are those of Linux' HTB (`tc-htb(8)`), with a request in the place of a packet,
//! so that reads are ruled as well as writes, but for what HTB leaves to chance:
//!
//! - More than there is cannot be guaranteed ([`TreeError::Overcommitted`]).
//! - No class exceeds the ceil of a class above it, not even within its rate. A guarantee that is late for
//!   that loses nothing.
//! - What has no class waits in the [default class](Tree::default_class): nothing passes for free.
//! - What is borrowed is shared out in proportion to the rates, or to weights, of whatever size.
//!
//! Rates are bits a second ([`RateLimit`]); requests and buckets are bytes. Within any time, a class sends at
//! most what its ceil brings, its cburst and one request: a class that is not in debt may send a request of
//! any size, and later requests wait until the debt is paid. Only what a ceil above has held back of its
//! rate comes on top of that, later; nothing does at the root.
//!
//! There is no clock and nothing waits: `now` is an argument, and [`Tree::poll_timeout`] says when to ask
//! again.
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
