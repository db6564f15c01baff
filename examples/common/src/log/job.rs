//! Finds the job that a line of the log belongs to.
//!
//! The sessions of a disk outlive the request that opened them, so their spans are not inside the span of a
//! job. But they are created inside it, or inside a span that was created there. So each span stores the name
//! of the job in which it was created.

use std::fmt;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Span, Subscriber, error_span};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

const SPAN: &str = "job";

/// Creates the span of a job. Log lines of all work that begins inside the span have the job's name before
/// them. The span is enabled whenever the spans of disks are, whatever `RUST_LOG` selects.
#[must_use]
pub fn job(name: &str) -> Span {
    error_span!(target: "iscsi_initiator", "job", name)
}

/// A layer that stores the name of the job in each span that is created inside the job.
pub(super) struct Jobs;

/// The name of a job, stored in the extensions of a span.
#[derive(Clone)]
struct Name(Arc<str>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Jobs {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut read = ReadName(None);
        if attributes.metadata().name() == SPAN {
            attributes.record(&mut read);
        }
        let maker = || name_of(&span.parent().or_else(|| context.lookup_current())?);
        if let Some(name) = read.0.or_else(maker) {
            span.extensions_mut().insert(name);
        }
    }
}

fn name_of<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>) -> Option<Name> {
    span.extensions().get::<Name>().cloned()
}

struct ReadName(Option<Name>);

impl Visit for ReadName {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "name" {
            self.0 = Some(Name(value.into()));
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// Formats lines with the name of their job before them, if they belong to a job.
pub(super) struct OfJob<F>(pub(super) F);

impl<S, N, F> FormatEvent<S, N> for OfJob<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let name =
            context.event_scope().and_then(|mut spans| spans.find_map(|span| name_of(&span)));
        if let Some(Name(name)) = name {
            write!(writer, "{name}: ")?;
        }
        self.0.format_event(context, writer, event)
    }
}
