//! Parses the filter in `RUST_LOG`.

use std::str::FromStr;

use thiserror::Error;
use tracing_subscriber::filter::{ParseError, Targets};

/// A filter: levels of modules, separated by commas. `warn` is the level of all modules,
/// `iscsi_initiator=debug` that of one module, and `iscsi_session` enables all levels of a module.
///
/// Supports the directives of `tracing_subscriber`'s `EnvFilter` that need no regular expressions, which would
/// take a tenth of a program's build time. Spans and the values of fields cannot be selected.
#[derive(Debug)]
pub(super) struct Filter(pub(super) Targets);

/// Reasons why a filter is invalid.
#[derive(Debug, Error)]
pub(super) enum FilterError {
    #[error("invalid filter directive {0:?}: {1}; write MODULE=LEVEL")]
    Directive(String, #[source] ParseError),
    #[error("spans and fields cannot be chosen, as in {0:?}; write MODULE=LEVEL")]
    Span(String),
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut targets = Targets::new();
        // An empty directive would enable all levels of all modules, so skip it.
        for directive in text.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
            if directive.contains(['[', '{']) {
                return Err(FilterError::Span(directive.to_owned()));
            }
            let parsed = directive.parse::<Targets>();
            let parsed = parsed.map_err(|why| FilterError::Directive(directive.to_owned(), why))?;
            if let Some(level) = parsed.default_level() {
                targets = targets.with_default(level);
            }
            targets.extend(&parsed);
        }
        Ok(Self(targets))
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn enables(filter: &str, target: &str, level: Level) -> bool {
        filter.parse::<Filter>().unwrap().0.would_enable(target, &level)
    }

    #[test]
    fn levels_hold_for_all_and_for_modules() {
        let session = "iscsi_session::receive";
        assert!(enables("debug", session, Level::DEBUG));
        assert!(!enables("debug", session, Level::TRACE));
        let filter = "iscsi_session=trace,warn";
        assert!(enables(filter, session, Level::TRACE));
        assert!(enables(filter, "iscsi_initiator", Level::WARN));
        assert!(!enables(filter, "iscsi_initiator", Level::INFO));
        assert!(enables("iscsi_session", session, Level::TRACE), "a module alone: all of it");
        assert!(!enables("iscsi_session", "iscsi_initiator", Level::ERROR));
        assert!(!enables("off", session, Level::ERROR));
    }

    #[test]
    fn what_is_empty_asks_for_nothing() {
        assert!(!enables("warn,", "iscsi_session", Level::INFO));
        assert!(!enables(" , ", "iscsi_session", Level::ERROR));
        assert!(enables(" warn , iscsi_session=debug", "iscsi_session", Level::WARN));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for filter in ["a=b=c", "a=loud", "iscsi[disk]=debug", "[disk{lun=0}]=info", "a[{lun}]"] {
            assert!(filter.parse::<Filter>().is_err(), "{filter}");
        }
    }
}
