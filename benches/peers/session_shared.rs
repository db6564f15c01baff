//! Measures the session's state machine behind an interface for many tasks, and nothing else. Each read in
//! flight has a task, which submits and sends it, and receives its result; one more task reads from the
//! socket. An initiator with such an interface does all of this, and more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::BytesMut;
use iscsi_pdu::Itt;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::Trouble;
use crate::session_alone::{Alone, WARM_UP, whole};
use crate::usage::Usage;

/// A session that tasks share.
struct Shared {
    socket: Arc<TcpStream>,
    state: Mutex<State>,
}

struct State {
    alone: Alone,
    /// The reads in flight, with the channels for their results. There are few, so a list is fast enough.
    waiting: Vec<(Itt, oneshot::Sender<Result<BytesMut, Trouble>>)>,
}

/// Executes `count` reads on each session. Returns the resources that they used.
pub(crate) async fn measure(sessions: Vec<Alone>, count: u64) -> Result<Value, Trouble> {
    let sessions: Vec<_> = sessions.into_iter().map(Shared::new).collect();
    let mut readers = JoinSet::new();
    for session in &sessions {
        readers.spawn(Arc::clone(session).answer());
    }
    let measured = async {
        carry_out(&sessions, |depth| WARM_UP * depth).await?;
        let begun = Usage::of_program()?;
        carry_out(&sessions, |_| count).await?;
        Ok(Usage::of_program()?.since(&begun))
    };
    tokio::select! {
        result = measured => result,
        Some(ended) = readers.join_next() => Err(ended?),
    }
}

/// Executes reads on each session. `count` computes the number of reads from the session's depth.
async fn carry_out(sessions: &[Arc<Shared>], count: impl Fn(u64) -> u64) -> Result<(), Trouble> {
    let mut under_way = JoinSet::new();
    for session in sessions {
        let depth = u64::from(session.lock().alone.depth);
        let count = count(depth);
        for number in 0..depth {
            under_way.spawn(Arc::clone(session).read(number, depth, count));
        }
    }
    while let Some(ended) = under_way.join_next().await {
        ended??;
    }
    Ok(())
}

impl Shared {
    fn new(alone: Alone) -> Arc<Self> {
        let socket = Arc::clone(&alone.socket);
        Arc::new(Self { socket, state: Mutex::new(State { alone, waiting: Vec::new() }) })
    }

    /// Executes the reads with the numbers from `first` to `end`, in steps of `step`, one after the other.
    async fn read(self: Arc<Self>, first: u64, step: u64, end: u64) -> Result<(), Trouble> {
        let io = self.lock().alone.io;
        let mut buffer = BytesMut::from(&vec![0x5a; io][..]);
        let mut number = first;
        while number < end {
            let answer = self.begin(number, buffer)?;
            buffer = answer.await??;
            number += step;
        }
        Ok(())
    }

    fn begin(
        &self,
        number: u64,
        buffer: BytesMut,
    ) -> Result<oneshot::Receiver<Result<BytesMut, Trouble>>, Trouble> {
        let (tell, answer) = oneshot::channel();
        let mut state = self.lock();
        let now = Instant::now();
        let itt = state.alone.submit(number, buffer, now)?;
        state.waiting.push((itt, tell));
        if !state.alone.try_send(now)? {
            return Err("so many commands are under way that the socket is full".into());
        }
        Ok(answer)
    }

    /// Reads from the socket, and sends the results to the waiting tasks, until the session ends.
    async fn answer(self: Arc<Self>) -> Trouble {
        loop {
            if let Err(error) = self.socket.readable().await {
                return error.into();
            }
            let State { alone, waiting } = &mut *self.lock();
            if let Err(trouble) = alone.take_in() {
                return trouble;
            }
            let io = alone.io;
            for (itt, status, data) in alone.ended.drain(..) {
                if let Some(at) = waiting.iter().position(|(other, _)| *other == itt) {
                    // A task that has failed does not receive its result, so an error of the channel is
                    // ignored.
                    let (_, tell) = waiting.swap_remove(at);
                    let _ = tell.send(whole(status, data, io));
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
