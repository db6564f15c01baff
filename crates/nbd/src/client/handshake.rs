//! Performs the client's handshake, from the server's greeting to transmission.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::answer::{Answer, Information};
use crate::block_sizes::BlockSizes;
use crate::error::ProtocolError;
use crate::negotiated::{MetaContext, Negotiated};
use crate::option::{self, OptionError, answer, code, info};
use crate::text;
use crate::transmission_flags::TransmissionFlags;

/// `cliserv_magic`, which an oldstyle server sends instead of `IHAVEOPT`.
const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// Largest size of all replies to one option, bytes; more is a protocol error.
const MAX_ANSWERS: usize = 4 << 20;
/// Largest number of metadata contexts that a server may select: each adds a chunk to every block status.
const MAX_CONTEXTS: usize = 64;
/// Information that the client requests with NBD_OPT_GO.
const INFORMATION: [u16; 3] = [info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];

/// The goal of a client's handshake.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Goal {
    /// List the names of the exports.
    List,
    /// Open an export, and begin transmission.
    Export {
        /// The export's name; the empty name means the default export.
        name: String,
        /// Metadata contexts to select, such as [`BASE_ALLOCATION`](crate::BASE_ALLOCATION) and
        /// `qemu:dirty-bitmap:NAME`. [`Negotiated::contexts`] has those that the server selected.
        contexts: Vec<String>,
    },
}

/// The result of a handshake.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HandshakeOutcome {
    /// The exports, for [`Goal::List`]. The output that remains to be sent ends the connection.
    Exports(Vec<ListedExport>),
    /// Transmission has begun; the rest of the input belongs to it.
    Negotiated(Negotiated),
    /// The server is ready for the handshake of TLS, for [`Handshake::over_tls`]. Encrypt the connection, then call
    /// [`Handshake::receive`] again. There is no output before that, and the input is empty.
    StartTls,
}

/// An export as a server lists it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListedExport {
    /// The export's name, for [`Goal::Export`].
    pub name: String,
    /// The export's description, as readable text; empty if the server has none.
    pub description: String,
}

/// Reasons why a handshake fails.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The server refuses. The output then has NBD_OPT_ABORT, which ends the connection in order.
    #[error("{error}{}{message}", if message.is_empty() { "" } else { ": " })]
    Refused {
        /// Reason that the server reports.
        error: OptionError,
        /// The message of the server; often empty.
        message: String,
    },
    /// The server is too old to list its exports: it does not support the "fixed newstyle" handshake.
    #[error("the server is too old to list its exports")]
    TooOld,
    /// The server does not support TLS, or is configured without it.
    #[error("the server offers no TLS")]
    NoTls,
    /// The server uses the "oldstyle" handshake, which has no options.
    #[error("the server speaks the oldstyle protocol")]
    Oldstyle,
    /// The server violates the NBD protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// The handshake of one connection: fixed newstyle, or newstyle where the server supports nothing else (NBD,
/// "Newstyle negotiation").
///
/// Call [`receive`](Self::receive) until it returns nothing, or [`HandshakeOutcome::StartTls`]; send what
/// [`poll_transmit`](Self::poll_transmit) returns, then read more. An old server refuses an unknown export by
/// closing the connection instead of sending a reply.
#[derive(Debug)]
pub struct Handshake {
    goal: Goal,
    /// Whether the connection must be encrypted before the goal is named.
    needs_tls: bool,
    state: State,
    output: BytesMut,
    no_zeroes: bool,
    /// Size of the replies to the current option so far, bytes.
    answers: usize,
    listed: Vec<ListedExport>,
    found: Negotiated,
    knows_size: bool,
}

#[derive(Debug)]
enum State {
    Greeting,
    /// An option was sent, and its last reply has not arrived.
    Option(u32),
    /// The server has accepted NBD_OPT_STARTTLS. The next call comes when the connection is encrypted.
    Secured,
    /// NBD_OPT_EXPORT_NAME was sent; its reply has no header.
    ExportName,
    Failed(HandshakeError),
    Ended,
}

impl Handshake {
    /// Creates a handshake that waits for the greeting of a server.
    pub fn new(goal: Goal) -> Self {
        Self {
            goal,
            needs_tls: false,
            state: State::Greeting,
            output: BytesMut::new(),
            no_zeroes: false,
            answers: 0,
            listed: Vec::new(),
            found: Negotiated::default(),
            knows_size: false,
        }
    }

    /// Makes TLS a condition: the handshake fails unless the server supports TLS, and the name of the export is sent over the
    /// encrypted connection only (NBD, "FORCEDTLS mode"). See [`HandshakeOutcome::StartTls`].
    #[must_use]
    pub fn over_tls(self) -> Self {
        Self { needs_tls: true, ..self }
    }

    /// Returns the bytes to send next; `None` when there are none.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        (!self.output.is_empty()).then(|| self.output.split().freeze())
    }

    /// Processes the input. Returns `None` when it needs more input, or after the end.
    ///
    /// An input of 66 KiB is always enough.
    ///
    /// # Errors
    /// Returns an error if the server refuses the request, or breaks the protocol. Even then there may be
    /// output to send.
    pub fn receive(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<HandshakeOutcome>, HandshakeError> {
        let outcome = self.advance(input);
        if let Err(error) = &outcome {
            self.state = State::Failed(error.clone());
        }
        outcome
    }

    fn advance(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<HandshakeOutcome>, HandshakeError> {
        loop {
            match &self.state {
                State::Greeting => {
                    let Some(greeting) = input.first_chunk::<18>() else { return Ok(None) };
                    let greeting = *greeting;
                    self.greeting(&greeting)?;
                    input.advance(greeting.len());
                }
                State::Option(option) => {
                    let option = *option;
                    let Some(answer) = Answer::take(input)? else { return Ok(None) };
                    let outcome = self.answer(option, &answer)?;
                    // What arrives in clear text could come from an attacker, and must not count as part of the encrypted
                    // connection.
                    if outcome == Some(HandshakeOutcome::StartTls) && !input.is_empty() {
                        let problem = "clear text follows it";
                        return Err(ProtocolError::Answer { option, problem }.into());
                    }
                    if outcome.is_some() {
                        return Ok(outcome);
                    }
                }
                State::Secured => self.begin(),
                State::ExportName => {
                    let zeroes = if self.no_zeroes { 0 } else { option::ZEROES };
                    if input.len() < 10 + zeroes {
                        return Ok(None);
                    }
                    self.found.export.size = input.get_u64();
                    self.found.export.flags = TransmissionFlags::from_bits(input.get_u16());
                    input.advance(zeroes);
                    return Ok(Some(self.transmission()));
                }
                State::Failed(error) => return Err(error.clone()),
                State::Ended => return Ok(None),
            }
        }
    }

    fn greeting(&mut self, mut greeting: &[u8]) -> Result<(), HandshakeError> {
        let magic = greeting.get_u64();
        if magic != option::INIT_MAGIC {
            return Err(ProtocolError::Magic { message: "greeting", value: magic }.into());
        }
        match greeting.get_u64() {
            option::OPTION_MAGIC => {}
            OLDSTYLE_MAGIC => return Err(HandshakeError::Oldstyle),
            value => return Err(ProtocolError::Magic { message: "greeting", value }.into()),
        }
        let flags = greeting.get_u16() & (option::FIXED_NEWSTYLE | option::NO_ZEROES);
        self.no_zeroes = flags & option::NO_ZEROES != 0;
        self.output.put_u32(flags.into());
        let is_fixed = flags & option::FIXED_NEWSTYLE != 0;
        match &self.goal {
            _ if self.needs_tls && !is_fixed => return Err(HandshakeError::NoTls),
            _ if self.needs_tls => self.send(code::STARTTLS, &[]),
            Goal::List if !is_fixed => return Err(HandshakeError::TooOld),
            Goal::Export { .. } if !is_fixed => self.send_export_name(),
            Goal::List | Goal::Export { .. } => self.begin(),
        }
        Ok(())
    }

    /// Sends the first option of the goal.
    fn begin(&mut self) {
        let first = match &self.goal {
            Goal::List => code::LIST,
            Goal::Export { .. } => code::STRUCTURED_REPLY,
        };
        self.send(first, &[]);
    }

    fn answer(
        &mut self,
        option: u32,
        answer: &Answer,
    ) -> Result<Option<HandshakeOutcome>, HandshakeError> {
        if answer.option != option {
            let problem = "another option is in progress";
            return Err(ProtocolError::Answer { option: answer.option, problem }.into());
        }
        self.answers += answer.wire_len();
        if self.answers > MAX_ANSWERS {
            let problem = "there are too many";
            return Err(ProtocolError::Answer { option, problem }.into());
        }
        if answer.kind & answer::IS_ERROR != 0 {
            return self.refused(option, answer).map(|()| None);
        }
        match (answer.kind, option) {
            (answer::ACK, _) => return self.acknowledged(option),
            (answer::SERVER, code::LIST) => {
                let (name, description) = answer.server().ok_or_else(|| answer.malformed())?;
                self.listed.push(ListedExport { name, description });
            }
            (answer::META_CONTEXT, code::SET_META_CONTEXT) => {
                let context = answer.context().ok_or_else(|| answer.malformed())?;
                self.add_context(context)?;
            }
            (answer::INFO, code::GO) => {
                let information = answer.information().ok_or_else(|| answer.malformed())?;
                self.knows_size |= matches!(information, Information::Export { .. });
                self.found.knows_block_sizes |= matches!(information, Information::BlockSizes(_));
                information.copy_to(&mut self.found.export);
            }
            // Other replies are ignored: the last reply to the option decides.
            _ => {}
        }
        Ok(None)
    }

    fn acknowledged(&mut self, option: u32) -> Result<Option<HandshakeOutcome>, HandshakeError> {
        match option {
            code::STARTTLS if !self.output.is_empty() => {
                let problem = "the option was not sent yet";
                return Err(ProtocolError::Answer { option, problem }.into());
            }
            code::STARTTLS => {
                self.state = State::Secured;
                return Ok(Some(HandshakeOutcome::StartTls));
            }
            code::LIST => {
                self.send(code::ABORT, &[]);
                self.state = State::Ended;
                let listed = std::mem::take(&mut self.listed);
                return Ok(Some(HandshakeOutcome::Exports(listed)));
            }
            code::STRUCTURED_REPLY => {
                self.found.structured = true;
                self.send_contexts();
            }
            code::GO => {
                if !self.knows_size {
                    let problem = "the size of the export is missing";
                    return Err(ProtocolError::Answer { option, problem }.into());
                }
                return Ok(Some(self.transmission()));
            }
            _ => self.send_go(),
        }
        Ok(None)
    }

    /// Continues the handshake without the refused option where that is possible; otherwise fails.
    fn refused(&mut self, option: u32, answer: &Answer) -> Result<(), HandshakeError> {
        let error = OptionError::from_wire(answer.kind);
        let is_final = matches!(error, OptionError::TlsRequired | OptionError::Shutdown);
        match option {
            code::STARTTLS if !is_final => {
                self.send(code::ABORT, &[]);
                return Err(HandshakeError::NoTls);
            }
            code::STRUCTURED_REPLY if !is_final => self.send_go(),
            code::SET_META_CONTEXT if !is_final => {
                self.found.contexts.clear();
                self.send_go();
            }
            code::GO if error == OptionError::Unsupported => self.send_export_name(),
            _ => {
                self.send(code::ABORT, &[]);
                return Err(HandshakeError::Refused {
                    error,
                    message: text::message(&answer.data),
                });
            }
        }
        Ok(())
    }

    fn add_context(&mut self, context: MetaContext) -> Result<(), ProtocolError> {
        if self.found.contexts.len() == MAX_CONTEXTS {
            let problem = "there are too many contexts";
            return Err(ProtocolError::Answer { option: code::SET_META_CONTEXT, problem });
        }
        if self.found.contexts.iter().any(|known| known.id == context.id) {
            let problem = "two contexts have one id";
            return Err(ProtocolError::Answer { option: code::SET_META_CONTEXT, problem });
        }
        self.found.contexts.push(context);
        Ok(())
    }

    fn wanted(&self) -> (&str, &[String]) {
        match &self.goal {
            Goal::List => ("", &[]),
            Goal::Export { name, contexts } => (text::limited(name), contexts),
        }
    }

    fn send_contexts(&mut self) {
        let (name, contexts) = self.wanted();
        if contexts.is_empty() {
            return self.send_go();
        }
        let mut data = Vec::new();
        put_string(&mut data, name);
        data.put_u32(u32::try_from(contexts.len()).unwrap_or_default());
        contexts.iter().for_each(|context| put_string(&mut data, text::limited(context)));
        self.send(code::SET_META_CONTEXT, &data);
    }

    fn send_go(&mut self) {
        let mut data = Vec::new();
        put_string(&mut data, self.wanted().0);
        data.put_u16(u16::try_from(INFORMATION.len()).unwrap_or_default());
        INFORMATION.iter().for_each(|kind| data.put_u16(*kind));
        self.send(code::GO, &data);
    }

    fn send_export_name(&mut self) {
        let name = self.wanted().0.to_owned();
        self.send(code::EXPORT_NAME, name.as_bytes());
        self.state = State::ExportName;
    }

    fn send(&mut self, option: u32, data: &[u8]) {
        option::put_option(&mut self.output, option, data);
        self.state = State::Option(option);
        self.answers = 0;
    }

    fn transmission(&mut self) -> HandshakeOutcome {
        self.state = State::Ended;
        let mut found = std::mem::take(&mut self.found);
        found.name = self.wanted().0.to_owned();
        if found.export.name.is_empty() {
            found.export.name.clone_from(&found.name);
        }
        found.export.contexts = found.contexts.iter().map(|context| context.name.clone()).collect();
        if !found.knows_block_sizes {
            found.export.block_sizes = BlockSizes::unreported(found.export.size);
        }
        HandshakeOutcome::Negotiated(found)
    }
}

fn put_string(data: &mut Vec<u8>, text: &str) {
    data.put_u32(u32::try_from(text.len()).unwrap_or_default());
    data.put_slice(text.as_bytes());
}
