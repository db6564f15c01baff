//! Limits the rates of the copies of a process by a tree of traffic classes. A class has a guaranteed rate, and
//! a ceil: the most that it reaches with the rate that other classes do not use.

pub(crate) mod clients;
pub(crate) mod keeper;
pub(crate) mod lines;
pub(crate) mod protocol;
pub(crate) mod shared;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iscsi_initiator::shaping::{Class, ClassId, RateLimit};
use iscsi_initiator::{Shaper, TrafficClass};
use iscsi_shaper::{Statistics, TreeError};
use iscsi_tuner::Rate;
use serde_json::{Value, json};

/// Time for which a busy machine may keep the program from sending without a loss of rate.
const STALL: Duration = Duration::from_millis(200);

/// Returns a class with this rate on average, and a burst of [`STALL`].
pub(crate) fn limit(rate: RateLimit) -> Class {
    let burst = rate.bytes_in(STALL);
    Class::new(rate).with_burst(burst).with_cburst(burst)
}

/// A tree of named classes, for all copies of a process. Clones share the tree.
///
/// Each byte of a copy is charged to its class once: at the destination if the destination is a unit, otherwise
/// at the source. Between two units, both must keep to the limit, but charging the source as well would take
/// the rate from other copies twice. So the source has a separate limit, equal to the ceil of the class.
#[derive(Clone, Debug)]
pub struct Classes {
    shaper: Shaper,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    named: BTreeMap<String, Named>,
    /// Limits of sources whose bytes are charged at the destination, with the class name of each copy.
    sources: Vec<(Option<String>, Shaper)>,
}

#[derive(Clone, Debug)]
struct Named {
    id: ClassId,
    parent: Option<String>,
}

/// The source of a class's guaranteed rate. Processes whose classes have the same fund divide its rate among them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Fund {
    /// The guaranteed rate of this class.
    Own(String),
    /// The part of this class's rate, or of the root's, that is guaranteed to no class below it.
    Spare(Option<String>),
}

/// Reasons why a class cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClassesError {
    /// No class has that name.
    #[error("there is no class {0:?}; check its spelling")]
    Unknown(String),
    /// A class of that name exists already.
    #[error("there are two classes {0:?}; give one of them another name")]
    Twice(String),
    /// The class has children, and requests wait only in classes without children.
    #[error("there are classes below {0:?}; name one of them")]
    Parent(String),
    /// The settings of a class contradict each other, or the settings of other classes.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl Classes {
    /// Creates a tree whose copies together keep to `rate`.
    ///
    /// # Errors
    /// [`ClassesError::Tree`] for a rate of 0.
    pub fn new(rate: RateLimit) -> Result<Self, ClassesError> {
        Ok(Self { shaper: Shaper::new(limit(rate))?, state: Arc::default() })
    }

    /// Adds a class below the class `parent`, or below the root.
    ///
    /// # Errors
    /// [`ClassesError`].
    pub fn add(&self, name: &str, parent: Option<&str>, class: Class) -> Result<(), ClassesError> {
        let above = self.id(parent)?;
        let mut state = self.lock();
        if state.named.contains_key(name) {
            return Err(ClassesError::Twice(name.to_owned()));
        }
        let id = self.shaper.add(above, class)?;
        state.named.insert(name.to_owned(), Named { id, parent: parent.map(str::to_owned) });
        Ok(())
    }

    /// Returns the class that bytes are charged to: the class `name`, or the default class.
    ///
    /// # Errors
    /// [`ClassesError::Unknown`], [`ClassesError::Parent`].
    pub(crate) fn paying(&self, name: Option<&str>) -> Result<TrafficClass, ClassesError> {
        if let Some(name) = name
            && self.lock().named.values().any(|named| named.parent.as_deref() == Some(name))
        {
            return Err(ClassesError::Parent(name.to_owned()));
        }
        let id = match name {
            Some(_) => self.id(name)?,
            None => self.shaper.default_class(),
        };
        Ok(self.shaper.traffic_class(id))
    }

    /// Returns a traffic class that limits a source whose bytes are charged at the destination. Its limit is
    /// the ceil of the class `name`, also after changes.
    ///
    /// # Errors
    /// [`ClassesError::Unknown`].
    pub(crate) fn source(&self, name: Option<&str>) -> Result<TrafficClass, ClassesError> {
        let shaper = Shaper::new(limit(self.ceil(name)?))?;
        let class = shaper.traffic_class(shaper.default_class());
        self.lock().sources.push((name.map(str::to_owned), shaper));
        Ok(class)
    }

    /// Returns the source of the guaranteed rate of a class, or of the default class, and that rate. The rates of all sources
    /// together do not exceed the rate of the root.
    ///
    /// # Errors
    /// [`ClassesError::Unknown`].
    pub(crate) fn fund(&self, name: Option<&str>) -> Result<(Fund, RateLimit), ClassesError> {
        let mut parent = None;
        if let Some(name) = name {
            let rate = self.class(self.id(Some(name))?)?.rate;
            if rate > RateLimit::Zero {
                return Ok((Fund::Own(name.to_owned()), rate));
            }
            parent = self.lock().named.get(name).and_then(|named| named.parent.clone());
        }
        let rate = self.spare(parent.as_deref())?;
        Ok((Fund::Spare(parent), rate))
    }

    /// Returns the part of a class's rate, or of the root's, that is guaranteed to no class below it.
    fn spare(&self, parent: Option<&str>) -> Result<RateLimit, ClassesError> {
        let Some(rate) = self.class(self.id(parent)?)?.rate.bits_per_second() else {
            return Ok(RateLimit::Unlimited);
        };
        let state = self.lock();
        let below = state.named.values().filter(|named| named.parent.as_deref() == parent);
        let guaranteed = below.filter_map(|named| self.shaper.class(named.id));
        let guaranteed = guaranteed.filter_map(|class| class.rate.bits_per_second()).sum();
        let spare = Rate::from_bits_per_second(rate.saturating_sub(guaranteed));
        Ok(spare.map_or(RateLimit::Zero, RateLimit::Limited))
    }

    /// Changes the rate of a class; without a name, of the root. The ceil of the root is always its rate. A
    /// class whose ceil equals its rate borrows nothing, and its ceil stays equal to its rate.
    ///
    /// # Errors
    /// [`ClassesError`].
    pub(crate) fn set_rate(&self, name: Option<&str>, rate: RateLimit) -> Result<(), ClassesError> {
        self.change(name, |class| {
            if name.is_none() {
                return limit(rate);
            }
            let ceil = if class.ceil == class.rate { rate } else { class.ceil };
            let mut class = class.with_ceil(ceil);
            class.rate = rate;
            class
        })
    }

    /// Changes the ceil of a class, the most that it may use with borrowed rate.
    ///
    /// # Errors
    /// [`ClassesError`].
    pub(crate) fn set_ceil(&self, name: &str, ceil: RateLimit) -> Result<(), ClassesError> {
        self.change(Some(name), |class| class.with_ceil(ceil))
    }

    fn change(
        &self,
        name: Option<&str>,
        change: impl FnOnce(Class) -> Class,
    ) -> Result<(), ClassesError> {
        let id = self.id(name)?;
        let class = self.shaper.class(id).ok_or(TreeError::Unknown)?;
        self.shaper.change(id, change(class))?;
        let sources = self.lock().sources.clone();
        for (name, shaper) in sources {
            shaper.change(shaper.root(), limit(self.ceil(name.as_deref())?))?;
        }
        Ok(())
    }

    /// Returns the smallest ceil of a class and of its ancestors.
    ///
    /// # Errors
    /// [`ClassesError::Unknown`].
    pub(crate) fn ceil(&self, name: Option<&str>) -> Result<RateLimit, ClassesError> {
        let mut narrowest = self.class(self.shaper.root())?.rate;
        let mut next = name.map(str::to_owned);
        while let Some(name) = next {
            narrowest = narrowest.min(self.class(self.id(Some(&name))?)?.ceil);
            next = self.lock().named.get(&name).and_then(|named| named.parent.clone());
        }
        Ok(narrowest)
    }

    fn class(&self, id: ClassId) -> Result<Class, TreeError> {
        self.shaper.class(id).ok_or(TreeError::Unknown)
    }

    /// Returns the id of the class with this name, or of the root without a name.
    fn id(&self, name: Option<&str>) -> Result<ClassId, ClassesError> {
        let Some(name) = name else { return Ok(self.shaper.root()) };
        let named = self.lock().named.get(name).map(|named| named.id);
        named.ok_or_else(|| ClassesError::Unknown(name.to_owned()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rates of the root as JSON.
    pub(crate) fn to_json(&self) -> Value {
        self.described(self.shaper.root())
    }

    /// Returns the rates of each class as JSON, by the name of the class.
    pub(crate) fn each_to_json(&self) -> Value {
        let named: Vec<_> =
            self.lock().named.iter().map(|(name, named)| (name.clone(), named.id)).collect();
        named
            .into_iter()
            .map(|(name, id)| (name, self.described(id)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    fn described(&self, id: ClassId) -> Value {
        let statistics = self.shaper.statistics(id).unwrap_or_default();
        let Some(class) = self.shaper.class(id) else { return Value::Null };
        let Statistics { sent, borrowed, waited, waiting_time, waiting, .. } = statistics;
        json!({
            "rate_bit_per_s": class.rate.bits_per_second(),
            "ceil_bit_per_s": class.ceil.bits_per_second(),
            "sent_bytes": sent.bytes,
            "sent_requests": sent.requests,
            "borrowed_bytes": borrowed.bytes,
            "waited_requests": waited.requests,
            "waited_seconds": waiting_time.as_secs_f64(),
            "waiting_requests": waiting,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> RateLimit {
        text.parse().unwrap()
    }

    fn classes() -> Classes {
        let classes = Classes::new(rate("10mbit")).unwrap();
        let backup = Class::new(rate("1mbit")).with_ceil(rate("8mbit"));
        classes.add("backup", None, backup).unwrap();
        classes.add("nightly", Some("backup"), Class::new(rate("1mbit"))).unwrap();
        classes
    }

    #[tokio::test]
    async fn names_are_known_and_stand_once() {
        let classes = classes();
        let class = Class::new(rate("1mbit"));
        let twice = classes.add("backup", None, class).unwrap_err().to_string();
        assert_eq!(twice, "there are two classes \"backup\"; give one of them another name");
        let unknown = classes.add("x", Some("y"), class).unwrap_err().to_string();
        assert_eq!(unknown, "there is no class \"y\"; check its spelling");
        assert!(classes.paying(Some("x")).is_err());
        assert!(classes.set_rate(Some("backup"), rate("11mbit")).is_err());
    }

    /// The source has the ceil of its class, or of an ancestor if that is lower, also after a change.
    #[tokio::test]
    async fn a_source_between_units_has_the_narrowest_ceil() {
        let classes = classes();
        let limit = TrafficClass::ceil;
        let (all, nightly) =
            (classes.source(None).unwrap(), classes.source(Some("nightly")).unwrap());
        assert_eq!((limit(&all), limit(&nightly)), (rate("10mbit"), rate("1mbit")));
        classes.set_ceil("nightly", rate("9mbit")).unwrap();
        assert_eq!((limit(&all), limit(&nightly)), (rate("10mbit"), rate("8mbit")));
        classes.set_rate(None, rate("4mbit")).unwrap();
        assert_eq!((limit(&all), limit(&nightly)), (rate("4mbit"), rate("4mbit")));
        // The burst of the root has changed as well: it is 200 ms of the new rate.
        let root = classes.shaper.class(classes.shaper.root()).unwrap();
        assert_eq!((root.burst, root.cburst), (Some(100_000), Some(100_000)));
    }

    #[tokio::test]
    async fn what_classes_can_live_on_without_the_others_is_no_more_than_there_is() {
        let classes = classes();
        classes
            .add("rest", None, Class::new(RateLimit::Zero).with_ceil(RateLimit::Unlimited))
            .unwrap();
        let below = Class::new(RateLimit::Zero).with_ceil(RateLimit::Unlimited);
        classes.add("below", Some("backup"), below).unwrap();
        let fund = |name| classes.fund(name).unwrap();
        assert_eq!(fund(Some("nightly")), (Fund::Own("nightly".to_owned()), rate("1mbit")));
        assert_eq!(fund(Some("rest")), (Fund::Spare(None), rate("9mbit")));
        assert_eq!(fund(None), fund(Some("rest")));
        let none = (Fund::Spare(Some("backup".to_owned())), RateLimit::Zero);
        assert_eq!(fund(Some("below")), none);
        classes.set_rate(Some("backup"), rate("3mbit")).unwrap();
        assert_eq!(fund(Some("below")), (none.0, rate("2mbit")));
        assert_eq!(fund(None).1, rate("7mbit"));
        let parent = classes.paying(Some("backup")).unwrap_err().to_string();
        assert_eq!(parent, "there are classes below \"backup\"; name one of them");
        assert!(classes.paying(Some("nightly")).is_ok() && classes.fund(Some("x")).is_err());
    }

    #[tokio::test]
    async fn the_ceil_of_a_class_that_borrows_nothing_goes_with_its_rate() {
        let classes = classes();
        classes.set_rate(None, RateLimit::Unlimited).unwrap();
        assert_eq!(classes.to_json()["ceil_bit_per_s"], Value::Null);
        classes.set_rate(Some("backup"), rate("2mbit")).unwrap();
        assert_eq!(classes.each_to_json()["backup"]["ceil_bit_per_s"], 8_000_000);
        assert_eq!(classes.each_to_json()["backup"]["rate_bit_per_s"], 2_000_000);
    }
}
