//! Performs the server's handshake, from the first byte to transmission.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::option_data::{ContextRequest, InfoRequest};
use crate::error::ProtocolError;
use crate::export::Export;
use crate::negotiated::{MetaContext, Negotiated};
use crate::option::{self, OptionError, answer, code, info};
use crate::text;

/// Largest option that is processed, bytes; longer ones are skipped.
const MAX_OPTION: usize = 64 * 1024;
/// Largest number of options that a client may send; more end the connection.
const MAX_OPTIONS: u32 = 1024;

/// The handshake of one connection, fixed newstyle (NBD, "Newstyle negotiation").
///
/// Call [`receive`](Self::receive) until it returns nothing, send what [`poll_transmit`](Self::poll_transmit)
/// returns, then read more. When it returns a query of the client ([`HandshakeEvent::List`],
/// [`HandshakeEvent::Export`]), call [`answer_list`](Self::answer_list),
/// [`answer_export`](Self::answer_export) or [`refuse`](Self::refuse), at any time. No input is consumed
/// before that.
///
/// Options that are unknown, malformed or too long are refused. The data of a refused option is skipped, and
/// takes no memory. Without [`with_tls`](Self::with_tls), NBD_OPT_STARTTLS counts as unknown.
#[derive(Debug)]
pub struct Handshake {
    tls: TlsPolicy,
    /// Whether the client has started TLS.
    is_secured: bool,
    state: State,
    output: BytesMut,
    no_zeroes: bool,
    structured: bool,
    selection: Option<Selection>,
    options: u32,
}

/// Whether clients may or must encrypt their connections (NBD, "TLS support").
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TlsPolicy {
    /// TLS is refused (NOTLS mode).
    #[default]
    Off,
    /// Clients may use TLS (SELECTIVETLS mode, with the same exports for both kinds of clients).
    Allow,
    /// Before TLS, all options but NBD_OPT_STARTTLS and NBD_OPT_ABORT are refused (FORCEDTLS mode).
    Require,
}

/// Queries of the client during a handshake, and results of the handshake.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HandshakeEvent {
    /// The client queries the list of exports. Respond with [`Handshake::answer_list`].
    List,
    /// The client queries the export of this name. Respond with [`Handshake::answer_export`]. The empty name
    /// means the default export.
    Export(String),
    /// The client starts TLS: send the output, encrypt the connection, and continue with an empty input. What was negotiated before
    /// has no effect any more.
    StartTls,
    /// Transmission begins as soon as all output is sent; the rest of the input belongs to it.
    Negotiated(Negotiated),
    /// The client has aborted the handshake: send the output, and close the connection.
    Aborted,
}

/// The contexts that the last NBD_OPT_SET_META_CONTEXT has selected.
#[derive(Debug)]
struct Selection {
    /// The name of the export for which the contexts are selected; for another export the selection is not
    /// valid.
    export: String,
    contexts: Vec<MetaContext>,
}

#[derive(Debug)]
enum State {
    ClientFlags,
    Option,
    Data { option: u32, len: usize },
    Skip { option: u32, left: usize, outcome: Result<(), OptionError> },
    Asked(Question),
    Failed(ProtocolError),
    Negotiated(Negotiated),
    Ended,
}

#[derive(Debug)]
enum Question {
    List,
    ExportName(String),
    Info { option: u32, request: InfoRequest },
    ListContexts(ContextRequest),
    SetContexts(ContextRequest),
}

impl Question {
    const fn option(&self) -> u32 {
        match self {
            Self::List => code::LIST,
            Self::ExportName(_) => code::EXPORT_NAME,
            Self::Info { option, .. } => *option,
            Self::ListContexts(_) => code::LIST_META_CONTEXT,
            Self::SetContexts(_) => code::SET_META_CONTEXT,
        }
    }

    fn event(&self) -> HandshakeEvent {
        let name = match self {
            Self::List => return HandshakeEvent::List,
            Self::ExportName(name) => name,
            Self::Info { request, .. } => &request.export,
            Self::ListContexts(request) | Self::SetContexts(request) => &request.export,
        };
        HandshakeEvent::Export(name.clone())
    }
}

impl Default for Handshake {
    fn default() -> Self {
        Self::new()
    }
}

impl Handshake {
    /// Creates a handshake. The first output is the greeting.
    pub fn new() -> Self {
        let mut output = BytesMut::new();
        output.put_u64(option::INIT_MAGIC);
        output.put_u64(option::OPTION_MAGIC);
        output.put_u16(option::FIXED_NEWSTYLE | option::NO_ZEROES);
        Self {
            tls: TlsPolicy::Off,
            is_secured: false,
            state: State::ClientFlags,
            output,
            no_zeroes: false,
            structured: false,
            selection: None,
            options: 0,
        }
    }

    /// Sets whether the client may or must encrypt the connection.
    #[must_use]
    pub fn with_tls(self, tls: TlsPolicy) -> Self {
        Self { tls, ..self }
    }

    /// Returns the bytes to send next; `None` when there are none.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        (!self.output.is_empty()).then(|| self.output.split().freeze())
    }

    /// Processes the input up to the next event. Returns `None` when it needs more input, or while a query is
    /// open.
    ///
    /// An input of 64 KiB is always enough.
    ///
    /// Returns an error if the connection is unusable. Even then there may be output to send.
    pub fn receive(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<HandshakeEvent>, ProtocolError> {
        loop {
            match &mut self.state {
                State::ClientFlags => {
                    let Ok(flags) = input.try_get_u32() else { return Ok(None) };
                    self.client_flags(flags)?;
                }
                State::Option => {
                    let Some(header) = take_header(input) else { return Ok(None) };
                    self.option_header(&header)?;
                }
                State::Data { option, len } => {
                    if input.len() < *len {
                        return Ok(None);
                    }
                    let (option, data) = (*option, input.split_to(*len).freeze());
                    self.state = State::Option;
                    if let Some(event) = self.option(option, data)? {
                        return Ok(Some(event));
                    }
                }
                State::Skip { option, left, outcome } => {
                    let now = input.len().min(*left);
                    input.advance(now);
                    *left -= now;
                    if *left > 0 {
                        return Ok(None);
                    }
                    let (option, outcome) = (*option, *outcome);
                    let event = self.skipped(option, outcome);
                    // What arrived in clear text could come from an attacker, and must not count as part of the encrypted
                    // connection. A client waits for the reply before it continues.
                    if event == Some(HandshakeEvent::StartTls) && !input.is_empty() {
                        return self.fail(ProtocolError::ClearText);
                    }
                    if event.is_some() {
                        return Ok(event);
                    }
                }
                State::Failed(error) => return Err(error.clone()),
                State::Negotiated(negotiated) => {
                    let event = HandshakeEvent::Negotiated(std::mem::take(negotiated));
                    self.state = State::Ended;
                    return Ok(Some(event));
                }
                State::Asked(_) | State::Ended => return Ok(None),
            }
        }
    }

    /// Responds to [`HandshakeEvent::List`] with names of exports and their descriptions. Does nothing if no
    /// such query is open.
    pub fn answer_list<'a>(
        &mut self,
        exports: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) {
        if !matches!(self.state, State::Asked(Question::List)) {
            return;
        }
        for (name, description) in exports {
            let name = text::limited(name).as_bytes();
            let len = u32::try_from(name.len()).unwrap_or_default().to_be_bytes();
            let description = text::limited(description.unwrap_or_default()).as_bytes();
            self.answer(code::LIST, answer::SERVER, &[&len, name, description]);
        }
        self.acknowledge(code::LIST);
        self.state = State::Option;
    }

    /// Responds to [`HandshakeEvent::Export`]. Does nothing if no such query is open.
    pub fn answer_export(&mut self, export: Export) {
        let Some(question) = self.take_question() else { return };
        match question {
            Question::List => self.state = State::Asked(question),
            Question::ExportName(name) => {
                let flags = export.offered_flags(self.structured);
                self.output.put_u64(export.size);
                self.output.put_u16(flags.bits());
                if !self.no_zeroes {
                    self.output.put_bytes(0, option::ZEROES);
                }
                self.begin_transmission(export, name, false);
            }
            Question::Info { option, request } => {
                self.append_info(option, &request, &export);
                self.acknowledge(option);
                if option == code::GO {
                    let knows_block_sizes = request.types.contains(&info::BLOCK_SIZE);
                    self.begin_transmission(export, request.export, knows_block_sizes);
                }
            }
            Question::ListContexts(request) => {
                for name in export.contexts.iter().filter(|name| request.lists(name)) {
                    self.context(code::LIST_META_CONTEXT, 0, name);
                }
                self.acknowledge(code::LIST_META_CONTEXT);
            }
            Question::SetContexts(request) => self.select(request, &export),
        }
    }

    /// Refuses the open query. Does nothing if no query is open.
    pub fn refuse(&mut self, error: OptionError) {
        self.refuse_because(error, "");
    }

    /// Refuses the open query, with a message as readable text, which may be empty. NBD_OPT_EXPORT_NAME has no
    /// error reply, so that its client gets no reply: [`receive`](Self::receive) then fails, and the caller
    /// closes the connection. Does nothing if no query is open.
    pub fn refuse_because(&mut self, error: OptionError, message: &str) {
        let Some(question) = self.take_question() else { return };
        if let Question::ExportName(name) = question {
            self.state = State::Failed(ProtocolError::Export { name, error });
        } else {
            let message = text::limited(message).as_bytes();
            self.answer(question.option(), error.to_wire(), &[message]);
        }
    }

    fn client_flags(&mut self, flags: u32) -> Result<(), ProtocolError> {
        let known = u32::from(option::FIXED_NEWSTYLE | option::NO_ZEROES);
        if flags & !known != 0 {
            return self.fail(ProtocolError::ClientFlags(flags));
        }
        self.no_zeroes = flags & u32::from(option::NO_ZEROES) != 0;
        self.state = State::Option;
        Ok(())
    }

    fn option_header(&mut self, mut header: &[u8]) -> Result<(), ProtocolError> {
        let magic = header.get_u64();
        if magic != option::OPTION_MAGIC {
            return self.fail(ProtocolError::Magic { message: "option", value: magic });
        }
        self.options += 1;
        if self.options > MAX_OPTIONS {
            return self.fail(ProtocolError::Options(MAX_OPTIONS));
        }
        let option = header.get_u32();
        let len = usize::try_from(header.get_u32()).unwrap_or(usize::MAX);
        if option == code::SET_META_CONTEXT {
            // The option replaces the previous selection, even if it fails.
            self.selection = None;
        }
        let skip = |outcome| State::Skip { option, left: len, outcome };
        let is_refused = self.tls == TlsPolicy::Require && !self.is_secured;
        self.state = match option {
            code::ABORT => skip(Ok(())),
            code::STARTTLS if self.tls == TlsPolicy::Off => skip(Err(OptionError::Unsupported)),
            code::STARTTLS if self.is_secured || len > 0 => skip(Err(OptionError::Invalid)),
            code::STARTTLS => skip(Ok(())),
            _ if is_refused => skip(Err(OptionError::TlsRequired)),
            code::LIST | code::STRUCTURED_REPLY if len > 0 => skip(Err(OptionError::Invalid)),
            code::SET_META_CONTEXT if !self.structured => skip(Err(OptionError::Invalid)),
            code::EXPORT_NAME
            | code::LIST
            | code::INFO
            | code::GO
            | code::STRUCTURED_REPLY
            | code::LIST_META_CONTEXT
            | code::SET_META_CONTEXT => {
                if len > MAX_OPTION {
                    skip(Err(OptionError::TooBig))
                } else {
                    State::Data { option, len }
                }
            }
            _ => skip(Err(OptionError::Unsupported)),
        };
        Ok(())
    }

    /// Processes an option with its data. Returns the event for the caller, if the option causes one.
    fn option(
        &mut self,
        option: u32,
        data: Bytes,
    ) -> Result<Option<HandshakeEvent>, ProtocolError> {
        let question = match option {
            code::EXPORT_NAME => {
                let Some(name) = text::string(&data) else {
                    let error = OptionError::Invalid;
                    return self.fail(ProtocolError::Export { name: String::new(), error });
                };
                Some(Question::ExportName(name))
            }
            code::LIST => Some(Question::List),
            code::INFO | code::GO => {
                InfoRequest::decode(data).map(|request| Question::Info { option, request })
            }
            code::LIST_META_CONTEXT => ContextRequest::decode(data).map(Question::ListContexts),
            code::SET_META_CONTEXT => ContextRequest::decode(data).map(Question::SetContexts),
            code::STRUCTURED_REPLY => {
                self.structured = true;
                self.acknowledge(option);
                return Ok(None);
            }
            // `option_header` skips the data of every other option, so no other option comes here.
            _ => {
                self.answer(option, OptionError::Unsupported.to_wire(), &[]);
                return Ok(None);
            }
        };
        let Some(question) = question else {
            self.answer(option, OptionError::Invalid.to_wire(), &[]);
            return Ok(None);
        };
        let event = question.event();
        self.state = State::Asked(question);
        Ok(Some(event))
    }

    /// Completes an option whose data was skipped.
    fn skipped(&mut self, option: u32, outcome: Result<(), OptionError>) -> Option<HandshakeEvent> {
        match outcome {
            Ok(()) if option == code::STARTTLS => {
                self.acknowledge(option);
                self.is_secured = true;
                self.structured = false;
                self.selection = None;
                self.state = State::Option;
                return Some(HandshakeEvent::StartTls);
            }
            Ok(()) => {
                self.acknowledge(option);
                self.state = State::Ended;
                return Some(HandshakeEvent::Aborted);
            }
            Err(error) if option == code::EXPORT_NAME => {
                self.state = State::Failed(ProtocolError::Export { name: String::new(), error });
            }
            Err(error) => {
                self.answer(option, error.to_wire(), &[]);
                self.state = State::Option;
            }
        }
        None
    }

    /// Appends the information on an export (NBD, "`NBD_REP_INFO`").
    fn append_info(&mut self, option: u32, request: &InfoRequest, export: &Export) {
        let flags = export.offered_flags(self.structured).bits();
        let kind = info::EXPORT.to_be_bytes();
        let fields = [&kind[..], &export.size.to_be_bytes(), &flags.to_be_bytes()];
        self.answer(option, answer::INFO, &fields);
        if request.types.contains(&info::NAME) {
            let name = text::limited(&export.name).as_bytes();
            self.answer(option, answer::INFO, &[&info::NAME.to_be_bytes(), name]);
        }
        if let Some(description) = &export.description
            && request.types.contains(&info::DESCRIPTION)
        {
            let description = text::limited(description).as_bytes();
            self.answer(option, answer::INFO, &[&info::DESCRIPTION.to_be_bytes(), description]);
        }
        if request.types.contains(&info::BLOCK_SIZE) {
            let sizes = export.block_sizes;
            let sizes = [sizes.minimum, sizes.preferred, sizes.max_payload()];
            let sizes = sizes.map(u32::to_be_bytes);
            let kind = info::BLOCK_SIZE.to_be_bytes();
            self.answer(option, answer::INFO, &[&kind, sizes.as_flattened()]);
        }
    }

    fn select(&mut self, request: ContextRequest, export: &Export) {
        let mut contexts = Vec::new();
        for (id, name) in (0..).zip(&export.contexts) {
            if request.selects(name) {
                self.context(code::SET_META_CONTEXT, id, name);
                contexts.push(MetaContext { id, name: name.clone() });
            }
        }
        self.acknowledge(code::SET_META_CONTEXT);
        self.selection = Some(Selection { export: request.export, contexts });
    }

    fn begin_transmission(&mut self, mut export: Export, name: String, knows_block_sizes: bool) {
        export.flags = export.offered_flags(self.structured);
        export.block_sizes.maximum = export.block_sizes.max_payload();
        let selection = self.selection.take().filter(|selection| selection.export == name);
        let contexts = selection.map(|selection| selection.contexts).unwrap_or_default();
        let structured = self.structured;
        self.state =
            State::Negotiated(Negotiated { export, name, structured, contexts, knows_block_sizes });
    }

    /// Removes and returns the open query, so that the next option can be processed.
    fn take_question(&mut self) -> Option<Question> {
        if !matches!(self.state, State::Asked(_)) {
            return None;
        }
        let state = std::mem::replace(&mut self.state, State::Option);
        if let State::Asked(question) = state { Some(question) } else { None }
    }

    fn context(&mut self, option: u32, id: u32, name: &str) {
        let name = text::limited(name).as_bytes();
        self.answer(option, answer::META_CONTEXT, &[&id.to_be_bytes(), name]);
    }

    fn acknowledge(&mut self, option: u32) {
        self.answer(option, answer::ACK, &[]);
    }

    fn answer(&mut self, option: u32, kind: u32, parts: &[&[u8]]) {
        option::put_answer(&mut self.output, option, kind, parts);
    }

    fn fail<T>(&mut self, error: ProtocolError) -> Result<T, ProtocolError> {
        self.state = State::Failed(error.clone());
        Err(error)
    }
}

/// Removes and returns the head of the next option, without its data; `None` while it is not complete.
fn take_header(input: &mut BytesMut) -> Option<[u8; option::OPTION_LEN]> {
    let header = *input.first_chunk()?;
    input.advance(option::OPTION_LEN);
    Some(header)
}
