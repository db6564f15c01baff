//! A handle on a copy: what it does, and orders to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_copy::{Control, Progress};
use iscsi_initiator::TrafficClass;
use iscsi_initiator::shaping::RateLimit;
use serde_json::{Value, json};

use crate::claims::Claims;
use crate::classes::{Classes, ClassesError};
use crate::ends::Ends;
use crate::error::Error;
use crate::named_files::NamedFile;
use crate::shared_class::SharedClass;

/// A handle on a copy, from before it begins to its end. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    name: Arc<str>,
    rule: Option<Rule>,
    class: Option<Arc<str>>,
    claims: Claims,
    state: Arc<Mutex<State>>,
}

/// What rules the copy.
#[derive(Clone, Debug)]
enum Rule {
    /// The class of its name in a tree of this process.
    Tree(Classes),
    /// A class in the tree of another process.
    Shared(SharedClass),
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    is_paused: bool,
    /// What is paused and resumed, once it runs.
    control: Option<Control>,
    /// What its ends pass by.
    passes: Vec<TrafficClass>,
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Phase {
    /// Its ends are opened.
    #[default]
    Opening,
    Copying,
    Verifying,
    Ended,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Copying => "copying",
            Self::Verifying => "verifying",
            Self::Ended => "ended",
        }
    }
}

impl Handle {
    /// A handle on a copy of this name. With `classes` its units are ruled by the one of the name `class`,
    /// or the one of those that have none.
    pub(crate) fn new(name: &str, classes: Option<Classes>, class: Option<&str>) -> Self {
        let (rule, class) = (classes.map(Rule::Tree), class.map(Arc::from));
        let (claims, state) = (Claims::default(), Arc::default());
        Self { name: name.into(), rule, class, claims, state }
    }

    /// The same, beside all others that have the same claims.
    #[must_use]
    pub(crate) fn beside(self, claims: &Claims) -> Self {
        Self { claims: claims.clone(), ..self }
    }

    /// A handle on a copy that is ruled by a class in the tree of another process.
    pub(crate) fn sharing(name: &str, shared: SharedClass) -> Self {
        let class = shared.class().map(Arc::from);
        let (claims, state) = (Claims::default(), Arc::default());
        Self { name: name.into(), rule: Some(Rule::Shared(shared)), class, claims, state }
    }

    /// What the copy is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Claims both ends and the files beside them, so that no other copy gets in its way.
    ///
    /// # Errors
    /// As [`Claims::claim`].
    pub(crate) async fn claim(&self, ends: &Ends, files: &[NamedFile]) -> Result<(), Error> {
        self.claims.claim(&self.name, ends, files).await
    }

    /// The most that may be read from a unit and written to one by now, if there is a limit.
    pub(crate) fn limit(&self) -> Option<RateLimit> {
        let ceil = self.lock().passes.iter().map(TrafficClass::ceil).min();
        ceil.filter(|ceil| *ceil != RateLimit::Unlimited)
    }

    /// Whether it has a class of its own.
    pub(crate) const fn has_class(&self) -> bool {
        self.class.is_some()
    }

    /// The name of its class, if it has one of its own.
    pub(crate) fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// The classes of the source and of the destination, by which of them are units.
    ///
    /// # Errors
    /// [`ClassesError::Unknown`], [`ClassesError::Parent`].
    pub(crate) fn classes(
        &self,
        is_unit: [bool; 2],
    ) -> Result<[Option<TrafficClass>; 2], ClassesError> {
        let Some(rule) = &self.rule else { return Ok([None, None]) };
        let name = self.class.as_deref();
        let (source, destination) = match is_unit {
            [true, true] => (Some(rule.source(name)?), Some(rule.paying(name)?)),
            [true, false] => (Some(rule.paying(name)?), None),
            [false, true] => (None, Some(rule.paying(name)?)),
            [false, false] => (None, None),
        };
        let mut state = self.lock();
        state.passes = [&source, &destination].into_iter().flatten().cloned().collect();
        state.obey();
        Ok([source, destination])
    }

    /// A part of the copy begins, which is ordered by `control`.
    pub(crate) fn follow(&self, phase: Phase, control: Control) {
        let mut state = self.lock();
        (state.phase, state.control) = (phase, Some(control));
        state.obey();
    }

    /// Nothing follows.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.phase = Phase::Ended;
    }

    /// Begins nothing new, until it is resumed.
    pub(crate) fn pause(&self, is_paused: bool) {
        let mut state = self.lock();
        state.is_paused = is_paused;
        state.obey();
    }

    /// Sends nothing that is not sent: the copy shall stop, and what waits for its rate could wait for long.
    pub(crate) fn close(&self) {
        self.lock().passes.iter().for_each(TrafficClass::close);
    }

    /// What it does, for programs.
    pub(crate) fn to_json(&self) -> Value {
        let state = self.lock();
        let Progress { done, total, flushed, .. } =
            state.control.as_ref().map(Control::progress).unwrap_or_default();
        json!({
            "name": &*self.name,
            "class": self.class.as_deref(),
            "phase": state.phase.name(),
            "paused": state.is_paused,
            "bytes": done,
            "bytes_flushed": flushed,
            "bytes_total": total,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rule {
    /// The class of the end that pays.
    fn paying(&self, name: Option<&str>) -> Result<TrafficClass, ClassesError> {
        match self {
            Self::Tree(classes) => classes.paying(name),
            Self::Shared(shared) => Ok(shared.paying()),
        }
    }

    /// The class of a source whose bytes are paid for at the destination.
    fn source(&self, name: Option<&str>) -> Result<TrafficClass, ClassesError> {
        match self {
            Self::Tree(classes) => classes.source(name),
            Self::Shared(shared) => Ok(shared.source()?),
        }
    }
}

impl State {
    /// What waits in a class would pass at its rate, however long that takes.
    fn obey(&self) {
        let passes = self.passes.iter();
        if self.is_paused {
            self.control.iter().for_each(Control::pause);
            passes.for_each(TrafficClass::pause);
        } else {
            self.control.iter().for_each(Control::resume);
            passes.for_each(TrafficClass::resume);
        }
    }
}
