//! One call through a gateway, from the request to its answer: judged, shown while it waits, run once, its outcome recorded.
//!
//! It has a task of its own, so that what was started is recorded whether or not the client is still there. Who may run what is
//! `keeper.rs`'s to find out, how a call that waits is shown `ladder.rs`.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use standfast_core::digest::{self, Digest};
use standfast_core::time::Millis;
use standfast_engine::clock::random_bytes;
use standfast_engine::tool::secrets::Secrets;
use standfast_engine::upstream::UpstreamError;
use standfast_engine::{GateOutcome, GateState, GateView, LookedUpGate};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use super::super::ladder::{self, OUR_ID, Reach, Rung, STRETCH};
use super::super::message::{CallEnd, CallRequest, ServerMessage, StateChange};
use super::super::profile::ClientProfile;
use super::frame::Frame;
use super::keeper::{Keeper, Permit, StartError, kept, stored_answer};
use super::memory::{Memory, MovedCall, OpenGuard, request_key};
use super::route::{BrokenStream, Frames, Reply, UpstreamRoute, WholeReply};
use super::{seal, task, unseal};
use crate::http::gate_value;

/// Messages on their way to the client.
const FRAMES: usize = 16;

/// How often a gate is looked at again whose state has changed.
const LOOKS: usize = 16;

/// How long a server may take to answer a call that its client took back.
const AFTER_CANCEL: Millis = Millis::seconds(10);

/// What states are sealed as that a client brings back to a call under way.
const CONTINUATION: &str = "mcp call";

/// What they begin with.
const OUR_STATE: &str = "standfast-call-";

/// One call.
pub(super) struct CallRun {
    pub(super) keeper: Keeper,
    pub(super) memory: Arc<Memory>,
    pub(super) call: CallRequest,
    pub(super) client: ClientProfile,
    pub(super) route: UpstreamRoute,
    /// The client's session.
    pub(super) session: String,
}

/// What a client is answered.
pub(super) enum Output {
    /// One body.
    Whole(WholeReply, oneshot::Sender<()>),
    /// The next message.
    Frame(Frame),
}

/// What a server asked for before it runs a call that may run: sealed, and brought back by the client.
#[derive(Serialize, Deserialize)]
struct Continuation {
    gateway: String,
    user: String,
    gate: String,
    attempt: u32,
    /// Of the call as the client made it.
    call: Digest,
    /// The server's own state.
    state: Option<String>,
    /// Names this question: it is answered once.
    salt: String,
}

impl CallRun {
    /// Begins; what comes of it is to be read there.
    pub(super) fn begin(self) -> Receiver<Output> {
        let (out, answers) = channel(FRAMES);
        tokio::spawn(async move {
            let open = self.memory.opens(request_key(&self.session, &self.call.id_value()));
            self.see_through(&open, &out).await;
        });
        answers
    }

    /// Runs a call that was approved, because somebody asks what became of it. Its result is kept with its gate.
    pub(super) fn begin_approved(self, view: LookedUpGate) {
        let (out, mut answers) = channel(FRAMES);
        // What it says before its result is for nobody.
        tokio::spawn(async move { while answers.recv().await.is_some() {} });
        tokio::spawn(async move {
            let open = self.memory.opens(request_key(&self.session, &self.call.id_value()));
            if let Ok(permit) = self.keeper.start(&view).await {
                self.run(permit, &view, &open, &out).await;
            }
        });
    }

    async fn see_through(&self, open: &OpenGuard, out: &Sender<Output>) {
        let tool = self.keeper.tool(&self.call);
        if let Some(state) = self.call.request_state.as_ref().filter(|_| !ladder::is_return(&self.call)) {
            return self.go_on(state, open, out).await;
        }
        let listed = self.memory.tool(&self.keeper.gateway.name, &self.call.tool);
        let mut view = match self.keeper.attach(&self.call, listed.as_ref(), &self.client.name).await {
            Ok(view) => view,
            Err(why) => {
                let text =
                    format!("Not executed: Standfast could not be asked whether {tool} may run ({why}).");
                return self.tell(text, None, true, out).await;
            }
        };
        for _ in 0..LOOKS {
            let looked = match view.state {
                GateState::Held => match self.wait(view, open, out).await {
                    Some(decided) => Ok(decided),
                    None => return,
                },
                GateState::Allowed => {
                    let is_edited = view.decision.as_ref().is_some_and(|decision| decision.is_edited);
                    if is_edited && self.route.has_argument_headers() {
                        return self.tell(self.keeper.text(&view), Some(&view), true, out).await;
                    }
                    if out.is_closed() {
                        // Nothing runs that nobody waits for.
                        return;
                    }
                    match self.keeper.start(&view).await {
                        Ok(permit) => return self.run(permit, &view, open, out).await,
                        Err(StartError::Elsewhere) => self.keeper.look(view.gate).await,
                        Err(StartError::Failed(why)) => Err(why),
                    }
                }
                // Somebody runs the same: its result is the answer to both.
                GateState::Started => {
                    let at_most = self.budget(Rung::Answer);
                    let joined = tokio::select! {
                        () = out.closed() => return,
                        joined = self.keeper.past(&[GateState::Started], view.gate, at_most) => joined,
                    };
                    match joined {
                        Ok(still) if still.state == GateState::Started => {
                            return self.tell(self.keeper.text(&still), Some(&still), true, out).await;
                        }
                        Ok(done) => {
                            if done.state == GateState::Done {
                                return self.hand_out(&done, out).await;
                            }
                            Ok(done)
                        }
                        Err(why) => Err(why),
                    }
                }
                GateState::Done => return self.hand_out(&view, out).await,
                GateState::Denied | GateState::Expired | GateState::Withdrawn | GateState::OutcomeUnknown => {
                    return self.tell(self.keeper.text(&view), Some(&view), true, out).await;
                }
            };
            view = match looked {
                Ok(view) => view,
                Err(why) => {
                    let text = format!("Not executed: {tool} could not be started ({why}).");
                    return self.tell(text, None, true, out).await;
                }
            };
        }
        self.tell(format!("Not executed: {tool} could not be started."), Some(&view), true, out).await;
    }

    pub(super) fn budget(&self, rung: Rung) -> Millis {
        let usual = ladder::budget(&self.client, &self.call, rung, Reach::Network);
        self.keeper.gateway.wait.filter(|_| usual.0 > 0).unwrap_or(usual)
    }

    /// Waits for a decision as long as the client can; none when nothing more is to be done for it.
    async fn wait(
        &self,
        mut view: LookedUpGate,
        open: &OpenGuard,
        out: &Sender<Output>,
    ) -> Option<LookedUpGate> {
        let (clock, rung) =
            (self.keeper.app.engine.clock(), ladder::rung(&self.client, &self.call, self.keeps_tasks()));
        if rung == Rung::Task {
            drop(self.answer(task::created(&self.keeper, &self.call, &view), out).await);
            return None;
        }
        let until = clock.now().plus(self.budget(rung));
        let mut question = Question::none(self);
        if matches!(rung, Rung::Address | Rung::Form) {
            let url = self.keeper.url(&view);
            question.ask(&ladder::WaitReason::Approval(&self.call.tool), url.as_deref(), out).await;
        }
        let (mut step, mut is_wanted) = (0, true);
        while view.state == GateState::Held && is_wanted {
            let left = until.since(clock.now());
            if left.0 <= 0 || self.keeper.app.engine.is_stopping() {
                break;
            }
            step += 1;
            let url = self.keeper.url(&view).map(|url| format!(": {url}")).unwrap_or_default();
            if let Some(line) = self.call.still_waits(step, &format!("waiting for approval{url}")) {
                self.send(line, out).await;
            }
            let stretch = if self.call.progress.is_some() { STRETCH.min(left) } else { left };
            tokio::select! {
                () = out.closed() => return None,
                () = open.request.cancelled.notified() => return None,
                declined = question.is_declined() => is_wanted = !declined,
                looked = self.keeper.past(&[GateState::Held], view.gate, stretch) => match looked {
                    Ok(now) => view = now,
                    Err(why) => {
                        let text = format!("Not executed: {why}");
                        self.tell(text, Some(&view), true, out).await;
                        return None;
                    }
                },
            }
        }
        question.end(view.state != GateState::Held, out).await;
        if view.state != GateState::Held {
            return Some(view);
        }
        if rung == Rung::ComeBack {
            let url = self.keeper.url(&view);
            drop(self.answer(ladder::come_back(&self.call, &self.client, url.as_deref()), out).await);
        } else {
            self.tell(self.keeper.text(&view), Some(&view), false, out).await;
        }
        None
    }

    /// Tasks are asked for without a session, so only programs that are shared, and addresses, can have them.
    fn keeps_tasks(&self) -> bool {
        self.client.is_sessionless()
    }

    /// Runs a call that may run, and records what came of it.
    async fn run(&self, permit: Permit, view: &GateView, open: &OpenGuard, out: &Sender<Output>) {
        let state = if ladder::is_return(&self.call) { StateChange::Drop } else { StateChange::Keep };
        self.pass(permit, view, state, open, out).await;
    }

    async fn pass(
        &self,
        permit: Permit,
        view: &GateView,
        state: StateChange<'_>,
        open: &OpenGuard,
        out: &Sender<Output>,
    ) {
        let is_edited = view.decision.as_ref().is_some_and(|decision| decision.is_edited);
        let edited = gate_value(&view.arguments);
        let line = match (is_edited, state) {
            (false, StateChange::Keep) => Ok(self.call.as_asked()),
            (_, _) => self.call.changed(is_edited.then_some(&*edited), state),
        };
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                self.keeper.report(permit, GateOutcome::NotExecuted).await;
                let text = format!("Not executed: the approved arguments cannot be sent ({error}).");
                return self.tell(text, Some(view), true, out).await;
            }
        };
        open.runs();
        // Before it is asked: a login may be another one afterwards.
        let mut secrets = self.route.secrets().await;
        let mut sent = self.route.ask(&line, &self.call.id, self.call.progress.as_deref()).await;
        let mut needs_login = None;
        if let Err(UpstreamError::LoginRequired(why)) = &sent {
            let logged_in = self.logs_in(why, open, out).await;
            match logged_in {
                Ok(()) => {
                    secrets = self.route.secrets().await;
                    sent = self.route.ask(&line, &self.call.id, self.call.progress.as_deref()).await;
                }
                Err(text) => needs_login = Some(text),
            }
        }
        match sent {
            Ok(Reply::Whole(reply)) => self.take_whole((permit, &secrets), reply, out).await,
            Ok(Reply::Frames(frames)) => self.take_frames((permit, &secrets), frames, open, out).await,
            Err(UpstreamError::NotSent(why) | UpstreamError::LoginRequired(why)) => {
                self.keeper.give_back(permit).await;
                let text = needs_login.unwrap_or_else(|| format!("Not executed: {why}."));
                self.tell(text, Some(view), true, out).await;
            }
            Err(UpstreamError::Lost(why)) => self.lost(permit, &why, out).await,
        }
    }

    /// One body is the answer.
    async fn take_whole(
        &self,
        (permit, secrets): (Permit, &Secrets),
        mut reply: WholeReply,
        out: &Sender<Output>,
    ) {
        let id = self.call.id_value();
        reply.text = secrets.cut_message(reply.text);
        let end = ServerMessage::read(&reply.text).filter(|message| message.answers(&id));
        let outcome = match end.map(|answer| outcome(&answer)) {
            Some(Some(outcome)) => Some(outcome),
            Some(None) => {
                reply.text = self.wrapped(permit, &reply.text).unwrap_or(reply.text);
                None
            }
            // Whoever does not know the session, or does not want the request, has not run it.
            None if reply.status.is_client_error() => {
                self.keeper.give_back(permit).await;
                None
            }
            None => {
                let why = format!("the MCP server answered with HTTP {} and no result", reply.status);
                return self.lost(permit, &why, out).await;
            }
        };
        let is_over = outcome.is_some();
        if let Some(outcome) = outcome {
            self.keeper.report(permit, outcome).await;
        }
        let (taken, was_taken) = oneshot::channel();
        // Nobody reads it: that is heard below.
        drop(out.send(Output::Whole(reply, taken)).await);
        if is_over {
            self.settle(permit, was_taken).await;
        }
    }

    /// Messages one by one, the last of which is the answer.
    async fn take_frames(
        &self,
        (permit, secrets): (Permit, &Secrets),
        mut frames: Frames,
        open: &OpenGuard,
        out: &Sender<Output>,
    ) {
        let (id, clock) = (self.call.id_value(), self.keeper.app.engine.clock());
        let mut has_places = false;
        let mut is_cancelled = false;
        loop {
            let frame = tokio::select! {
                frame = frames.next() => frame,
                // In the versions without sessions going away takes the call back; in those before, it does not.
                () = out.closed(), if self.client.is_sessionless() => {
                    let why = "the client took the call back while it ran".to_owned();
                    return self.keeper.report(permit, GateOutcome::Unknown(why)).await;
                }
                () = open.request.cancelled.notified(), if !is_cancelled => {
                    if matches!(self.route, UpstreamRoute::Translated(_)) {
                        // Such a server hears it when nobody reads its answer any more.
                        let why = "the client took the call back while it ran".to_owned();
                        return self.keeper.report(permit, GateOutcome::Unknown(why)).await;
                    }
                    is_cancelled = true;
                    continue;
                }
                () = clock.sleep(AFTER_CANCEL), if is_cancelled => {
                    let why = "the client took the call back while it ran".to_owned();
                    return self.keeper.report(permit, GateOutcome::Unknown(why)).await;
                }
            };
            let mut frame = match frame {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(BrokenStream) => {
                    has_places = false;
                    break;
                }
            };
            has_places |= frame.id.is_some();
            frame.text = secrets.cut_message(frame.text);
            let end = ServerMessage::read(&frame.text).filter(|message| message.answers(&id));
            let Some(end) = end.map(|answer| outcome(&answer)) else {
                // Whoever has gone misses it, and may ask the server for it.
                drop(out.send(Output::Frame(frame)).await);
                continue;
            };
            let is_over = end.is_some();
            match end {
                Some(outcome) => self.keeper.report(permit, outcome).await,
                None => frame.text = self.wrapped(permit, &frame.text).unwrap_or(frame.text),
            }
            let (taken, was_taken) = oneshot::channel();
            frame.taken = Some(taken);
            drop(out.send(Output::Frame(frame)).await);
            if is_over {
                self.settle(permit, was_taken).await;
            }
            return;
        }
        if has_places && matches!(self.route, UpstreamRoute::Address(_)) {
            // The server closed the stream, and the client asks for the rest of it by the place where it was.
            let moved = MovedCall { keeper: self.keeper.clone(), permit, secrets: secrets.clone() };
            return self.memory.moves(open.key(), moved);
        }
        self.lost(permit, "the MCP server ended while the call ran", out).await;
    }

    /// Whether anybody has the result; if nobody does, the next who makes the same call gets it.
    async fn settle(&self, permit: Permit, was_taken: oneshot::Receiver<()>) {
        if was_taken.await.is_ok() {
            self.keeper.handed_out(permit).await;
        }
    }

    /// The server may have done anything.
    async fn lost(&self, permit: Permit, why: &str, out: &Sender<Output>) {
        self.keeper.report(permit, GateOutcome::Unknown(why.to_owned())).await;
        let text = format!("Outcome unknown: {why}. Do not run it again; a person looks at it.");
        drop(self.answer(self.call.not_run(&text, Some(&permit.gate.to_string()), true), out).await);
    }

    /// Answers with the result of a call that has run.
    async fn hand_out(&self, view: &GateView, out: &Sender<Output>) {
        match stored_answer(view, &self.call.id) {
            Some(answer) => {
                let was_taken = self.answer(answer, out).await;
                self.settle(Permit::of(view, view.attempt.unwrap_or_default()), was_taken).await;
            }
            None => self.tell(self.keeper.text(view), Some(view), true, out).await,
        }
    }

    /// A call goes on whose server asked for something first.
    async fn go_on(&self, state: &str, open: &OpenGuard, out: &Sender<Output>) {
        match self.continuation(state).await {
            Ok((continuation, view)) => {
                let permit = Permit::of(&view, continuation.attempt);
                let state = StateChange::Restore(continuation.state.as_deref());
                self.pass(permit, &view, state, open, out).await;
            }
            Err(why) => self.tell(format!("Not executed: {why}"), None, true, out).await,
        }
    }

    async fn continuation(&self, state: &str) -> Result<(Continuation, LookedUpGate), String> {
        let unknown = "the requestState was not issued by this server for this call; make the call again";
        let used = "the requestState was used before; make the call again";
        let sealed = state.strip_prefix(OUR_STATE).ok_or(unknown)?;
        let opened = unseal(&self.keeper.app, CONTINUATION, sealed).ok_or(unknown)?;
        let found: Continuation = serde_json::from_str(&opened).map_err(|_| unknown)?;
        let is_same = found.gateway == self.keeper.gateway.name
            && found.user == self.keeper.who.user.as_str()
            && found.call == self.digest();
        if !is_same {
            return Err(unknown.to_owned());
        }
        let view = match found.gate.parse() {
            Ok(gate) => self.keeper.look(gate).await.map_err(|_| unknown)?,
            Err(_) => return Err(unknown.to_owned()),
        };
        // What is remembered of it is stored: another node, or this one after a restart, takes it no second time.
        let question = digest::of_parts("standfast.mcp-question.1", &[found.salt.as_bytes()]);
        match self.keeper.hands_on(view.gate, found.attempt, question).await {
            Ok(true) => Ok((found, view)),
            Ok(false) => Err(used.to_owned()),
            Err(why) => Err(why),
        }
    }

    /// Of the call as the client made it.
    fn digest(&self) -> Digest {
        let parts = [self.call.tool.as_bytes(), self.call.arguments.get().as_bytes()];
        digest::of_parts("standfast.mcp-call.1", &parts)
    }

    /// A server's request for something first, with a state by which the answer finds back to this call.
    fn wrapped(&self, permit: Permit, text: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct State {
            #[serde(default, rename = "requestState")]
            state: Option<String>,
        }
        let message = ServerMessage::read(text)?;
        let result: &RawValue = message.result?;
        let State { state } = serde_json::from_str(result.get()).ok()?;
        let continuation = Continuation {
            gateway: self.keeper.gateway.name.clone(),
            user: self.keeper.who.user.as_str().to_owned(),
            gate: permit.gate.to_string(),
            attempt: permit.attempt,
            call: self.digest(),
            state,
            salt: format!("{:016x}", u64::from_be_bytes(random_bytes())),
        };
        let sealed = seal(&self.keeper.app, CONTINUATION, &serde_json::to_string(&continuation).ok()?)?;
        let mut members: std::collections::BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(result.get()).ok()?;
        let state = serde_json::value::to_raw_value(&format!("{OUR_STATE}{sealed}")).ok()?;
        members.insert("requestState".to_owned(), state);
        Some(super::super::message::spliced(text, result, &serde_json::to_string(&members).ok()?))
    }

    /// Answers in words for the model.
    async fn tell(&self, text: String, view: Option<&GateView>, is_final: bool, out: &Sender<Output>) {
        let listed = self.memory.tool(&self.keeper.gateway.name, &self.call.tool);
        // A success without what its schema promises is an error for many clients.
        let has_schema = listed.is_none_or(|tool| tool.output_schema.is_some());
        let gate = view.map(|view| view.gate.to_string());
        drop(self.answer(self.call.not_run(&text, gate.as_deref(), is_final || has_schema), out).await);
    }

    /// Answers; says whether somebody has it.
    pub(super) async fn answer(&self, text: String, out: &Sender<Output>) -> oneshot::Receiver<()> {
        let headers = HeaderMap::from_iter([(
            axum::http::header::CONTENT_TYPE,
            axum::http::HeaderValue::from_static("application/json"),
        )]);
        let (taken, was_taken) = oneshot::channel();
        // A client that has gone misses it; the gate stays.
        drop(out.send(Output::Whole(WholeReply { status: StatusCode::OK, headers, text }, taken)).await);
        was_taken
    }

    /// Says something before the answer.
    pub(super) async fn send(&self, line: String, out: &Sender<Output>) {
        drop(out.send(Output::Frame(Frame::of(line))).await);
    }
}

/// What an answer says of a call; none when the server asks for something first.
pub(super) fn outcome(answer: &ServerMessage<'_>) -> Option<GateOutcome> {
    match answer.outcome() {
        CallEnd::Succeeded(result) => Some(GateOutcome::Succeeded(kept(result))),
        CallEnd::Failed(error) => Some(GateOutcome::Failed(kept(error))),
        CallEnd::AsksFirst(_) => None,
        CallEnd::Silent => Some(GateOutcome::Unknown(
            "the MCP server answered with neither a result nor an error".to_owned(),
        )),
    }
}

/// What the client's user is asked while a call waits.
pub(super) struct Question<'a> {
    run: &'a CallRun,
    id: Option<String>,
    answer: Option<oneshot::Receiver<String>>,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.run.memory.ask_no_more(id);
        }
    }
}

impl<'a> Question<'a> {
    pub(super) fn none(run: &'a CallRun) -> Question<'a> {
        Question { run, id: None, answer: None }
    }

    pub(super) async fn ask(
        &mut self,
        asked: &ladder::WaitReason<'_>,
        url: Option<&str>,
        out: &Sender<Output>,
    ) {
        let id = format!("{OUR_ID}{:032x}", u128::from_be_bytes(random_bytes()));
        self.answer = Some(self.run.memory.ask(&id));
        self.run.send(ladder::elicitation(&id, asked, &self.run.client, url), out).await;
        self.id = Some(id);
    }

    /// Comes back when there is an answer: whether it says that nobody wants to wait.
    pub(super) async fn is_declined(&mut self) -> bool {
        let Some(answer) = &mut self.answer else { return std::future::pending().await };
        let answer = answer.await;
        self.answer = None;
        let answer: Option<Value> = answer.ok().and_then(|answer| serde_json::from_str(&answer).ok());
        answer.is_some_and(|answer| ladder::is_refusal(&answer["result"]))
    }

    /// Nobody has to answer any more.
    pub(super) async fn end(self, is_decided: bool, out: &Sender<Output>) {
        let Some(id) = &self.id else { return };
        let is_open = self.answer.is_some();
        for line in ladder::elicitation_ends(id, &self.run.client, is_decided, is_open) {
            self.run.send(line, out).await;
        }
    }
}
