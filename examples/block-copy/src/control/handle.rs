//! Reports the status of a copy, and controls it by commands.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_copy::{Control, Progress};
use iscsi_initiator::TrafficClass;
use iscsi_initiator::shaping::RateLimit;
use serde_json::{Value, json};

use crate::claims::Claims;
use crate::claims::named_files::NamedFile;
use crate::classes::shared::SharedClass;
use crate::classes::{Classes, ClassesError};
use crate::end::UnitEnd;
use crate::ends::Ends;
use crate::error::Error;

/// A handle on a copy, valid before, during and after it. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    name: Arc<str>,
    rule: Option<Rule>,
    class: Option<Arc<str>>,
    claims: Claims,
    state: Arc<Mutex<State>>,
}

/// The tree that has the copy's traffic class.
#[derive(Clone, Debug)]
enum Rule {
    /// A tree of this process. The class is the one with the copy's class name.
    Tree(Classes),
    /// A class in the tree of another process, the keeper.
    Shared(SharedClass),
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    is_paused: bool,
    /// Pauses and resumes the current phase of the copy; `None` before the first phase.
    control: Option<Control>,
    /// The traffic classes of the source and the destination.
    passes: Vec<TrafficClass>,
    /// The source and the destination, once they are open.
    ends: Option<Ends>,
}

/// The state of a copy at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) phase: Phase,
    pub(crate) is_paused: bool,
    pub(crate) progress: Progress,
    /// The current rate limit, if there is one.
    pub(crate) limit: Option<RateLimit>,
    pub(crate) units: Vec<UnitEnd>,
}

/// The phase of a copy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Phase {
    /// Source and destination are being opened.
    #[default]
    Opening,
    Copying,
    Verifying,
    Ended,
}

impl Phase {
    /// The phases in their order.
    pub(crate) const ALL: [Self; 4] = [Self::Opening, Self::Copying, Self::Verifying, Self::Ended];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Copying => "copying",
            Self::Verifying => "verifying",
            Self::Ended => "ended",
        }
    }
}

impl Handle {
    /// Creates a handle on the copy `name`. With `classes`, the units of the copy use the class `class` of that
    /// tree, or its default class without a name.
    pub(crate) fn new(name: &str, classes: Option<Classes>, class: Option<&str>) -> Self {
        let (rule, class) = (classes.map(Rule::Tree), class.map(Arc::from));
        let (claims, state) = (Claims::default(), Arc::default());
        Self { name: name.into(), rule, class, claims, state }
    }

    /// Sets the claims that the copy shares with other copies.
    #[must_use]
    pub(crate) fn beside(self, claims: &Claims) -> Self {
        Self { claims: claims.clone(), ..self }
    }

    /// Creates a handle on a copy whose class is in the tree of another process, the keeper.
    pub(crate) fn sharing(name: &str, shared: SharedClass) -> Self {
        let class = shared.class().map(Arc::from);
        let (claims, state) = (Claims::default(), Arc::default());
        Self { name: name.into(), rule: Some(Rule::Shared(shared)), class, claims, state }
    }

    /// Returns the name of the copy.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Claims the source, the destination and the files of the options, so that no other copy interferes.
    ///
    /// # Errors
    /// The errors of [`Claims::claim`].
    pub(crate) async fn claim(&self, ends: &Ends, files: &[NamedFile]) -> Result<(), Error> {
        self.claims.claim(&self.name, ends, files).await
    }

    /// Returns the current rate limit of the copy's units, if there is one.
    pub(crate) fn limit(&self) -> Option<RateLimit> {
        let ceil = self.lock().passes.iter().map(TrafficClass::ceil).min();
        ceil.filter(|ceil| *ceil != RateLimit::Unlimited)
    }

    /// Returns whether the options of the copy name a class.
    pub(crate) const fn has_class(&self) -> bool {
        self.class.is_some()
    }

    /// Returns the name of the class, if the options of the copy name one.
    pub(crate) fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// Returns the traffic classes for the source and for the destination. `is_unit` says which of them are
    /// units.
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

    /// Records that source and destination are open.
    pub(crate) fn opened(&self, ends: &Ends) {
        self.lock().ends = Some(ends.clone());
    }

    /// Records that a phase of the copy begins. `control` pauses and resumes the copy.
    pub(crate) fn follow(&self, phase: Phase, control: Control) {
        let mut state = self.lock();
        (state.phase, state.control) = (phase, Some(control));
        state.obey();
    }

    /// Marks the copy as ended.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.phase = Phase::Ended;
        state.ends = None;
    }

    /// Returns the present state of the copy.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let limit = self.limit();
        let state = self.lock();
        Snapshot {
            phase: state.phase,
            is_paused: state.is_paused,
            progress: state.control.as_ref().map(Control::progress).unwrap_or_default(),
            limit,
            units: state.ends.iter().flat_map(Ends::units).cloned().collect(),
        }
    }

    /// Pauses or resumes the copy. A paused copy begins no requests.
    pub(crate) fn pause(&self, is_paused: bool) {
        let mut state = self.lock();
        state.is_paused = is_paused;
        state.obey();
    }

    /// Closes the traffic classes before the copy stops. Requests that wait for their rate then fail. Otherwise
    /// the stop could take as long as they wait.
    pub(crate) fn close(&self) {
        self.lock().passes.iter().for_each(TrafficClass::close);
    }

    /// Returns the status of the copy as JSON.
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
    /// Returns the class that the bytes are charged to.
    fn paying(&self, name: Option<&str>) -> Result<TrafficClass, ClassesError> {
        match self {
            Self::Tree(classes) => classes.paying(name),
            Self::Shared(shared) => Ok(shared.paying()),
        }
    }

    /// Returns the separate limit for a source whose bytes are charged at the destination.
    fn source(&self, name: Option<&str>) -> Result<TrafficClass, ClassesError> {
        match self {
            Self::Tree(classes) => classes.source(name),
            Self::Shared(shared) => Ok(shared.source()?),
        }
    }
}

impl State {
    /// Applies the paused state to the copy and to its classes: requests that wait in a class would otherwise
    /// still pass at its rate.
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
