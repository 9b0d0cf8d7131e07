//! Clients, people and outside jobs: they ask any node, repeat what was not answered, contradict each other, come late.
//!
//! What they were told is kept for the oracle. No answer is no news: the request may have been carried out or not.

use std::sync::Arc;

use standfast_core::body::Body;
use standfast_core::command::{Choice, OnHold, Say};
use standfast_core::decide::Answer;
use standfast_core::digest;
use standfast_core::hold::{HoldKind, Resolution};
use standfast_core::id::{HoldId, RunId};
use standfast_core::json::RawJson;
use standfast_core::message::Message;
use standfast_core::name::UserId;
use standfast_core::project::HoldRow;
use standfast_core::refusal::Refusal;
use standfast_core::time::Millis;
use standfast_engine::auth::Principal;
use standfast_engine::{Decision, Engine, EngineError, HoldList, HoldListPart, IdempotencyKey, NewRun};

use crate::agents;
use crate::check;
use crate::world::Sim;

/// Who starts runs.
const OWNER: &str = "ann";
/// Who may decide beside them.
pub(crate) const APPROVER: &str = "bob";
/// How long a client waits for an answer.
const PATIENCE: Millis = Millis::seconds(20);

/// What somebody was told.
#[derive(Debug, Clone)]
pub(crate) enum Acked {
    /// A run began.
    Started { run: RunId, key: String },
    /// It is decided as they wished.
    Decided { hold: HoldId, word: &'static str, key: Option<String>, arguments: Option<String> },
    /// It had been decided so.
    Told { hold: HoldId, word: &'static str },
    /// A run is canceled.
    Canceled { run: RunId },
}

impl Acked {
    fn started(&self) -> Option<RunId> {
        match self {
            Acked::Started { run, .. } => Some(*run),
            Acked::Decided { .. } | Acked::Told { .. } | Acked::Canceled { .. } => None,
        }
    }
}

/// The word of a decision.
pub(crate) fn word(resolution: &Resolution) -> &'static str {
    match resolution {
        Resolution::Approve { edited: None } => "approve",
        Resolution::Approve { edited: Some(_) } => "edit",
        Resolution::Deny { .. } => "deny",
        Resolution::Answer { .. } => "answer",
        Resolution::Fail { .. } => "fail",
        Resolution::Expire => "expire",
        Resolution::Withdraw => "withdraw",
        Resolution::Supersede => "supersede",
    }
}

fn wish(wanted: &Choice) -> &'static str {
    match wanted {
        Choice::Approve => "approve",
        Choice::ApproveEdited { .. } => "edit",
        Choice::Deny { .. } => "deny",
        Choice::Answer { .. } => "answer",
        Choice::Fail { .. } => "fail",
        Choice::Withdraw => "withdraw",
    }
}

fn who(name: &str) -> Principal {
    Principal::of(UserId::new(name).unwrap())
}

/// Everybody who comes while things go wrong.
pub(crate) fn come(sim: &Arc<Sim>) {
    let runs = 2 + sim.index(3);
    for no in 0..runs {
        let (sim_, delay) = (sim.clone(), sim.span(12_000));
        sim.spawn(async move {
            sim_.clock.sleep(delay).await;
            begin(&sim_, format!("start-{no}")).await;
        });
    }
    if sim.seed % 2 == 1 {
        let sim_ = sim.clone();
        sim.spawn(async move { chatters(&sim_).await });
    }
    for person in [OWNER, APPROVER] {
        let sim_ = sim.clone();
        sim.spawn(async move {
            while sim_.is_trouble() {
                let delay = sim_.span(2_500);
                sim_.clock.sleep(delay).await;
                act(&sim_, person).await;
            }
        });
    }
}

/// Somebody who cannot wait: has something to say to whatever runs, all the time.
async fn chatters(sim: &Arc<Sim>) {
    // Where nothing else happens it is somebody who does not stop to breathe.
    let pause = if sim.is_quiet() { 400 } else { 1_500 };
    let enough = sim.now().plus(Millis::seconds(20));
    while sim.now() < enough {
        let delay = sim.span(pause);
        sim.clock.sleep(delay).await;
        let runs: Vec<RunId> = sim.acked.lock().unwrap().iter().filter_map(Acked::started).collect();
        if !runs.is_empty() {
            let (seat, run) = (sim.index(sim.seats()), sim.pick(&runs));
            say(sim, seat, run).await;
        }
    }
}

/// After the last fault: whatever waits is decided, until nothing is left.
pub(crate) fn clear_up(sim: &Arc<Sim>) {
    let sim_ = sim.clone();
    sim.spawn(async move {
        loop {
            sim_.clock.sleep(Millis(1_500)).await;
            if check::all_is_over(&sim_) {
                // Whoever is late is heard out: they look at what was decided.
                sim_.clock.sleep(Millis::seconds(60)).await;
                sim_.is_over();
                return;
            }
            let seat = sim_.index(sim_.seats());
            for hold in open_holds(&sim_, seat, OWNER).await {
                let wanted = chosen(&sim_, hold.kind);
                decide(&sim_, seat, OWNER, hold.id, wanted, None).await;
            }
        }
    });
}

/// An outside job that was told where to report, maybe before anybody waits for it.
pub(crate) fn calls_back(sim: &Arc<Sim>, hold: HoldId) {
    let (sim_, delay) = (sim.clone(), sim.span(3_000));
    sim.spawn(async move {
        sim_.clock.sleep(delay).await;
        let wanted = chosen(&sim_, HoldKind::External);
        let key = Some(format!("job-{}", hold.key.call));
        for _ in 0..20 {
            let seat = sim_.index(sim_.seats());
            if decide(&sim_, seat, OWNER, hold, wanted.clone(), key.clone()).await {
                return;
            }
            sim_.clock.sleep(Millis(700)).await;
        }
    });
}

/// Asks a node; none when it did not answer.
async fn ask<T, F>(
    sim: &Sim,
    seat: usize,
    question: impl FnOnce(Engine) -> F,
) -> Option<Result<T, EngineError>>
where
    F: Future<Output = Result<T, EngineError>> + Send,
{
    let node = sim.node(seat)?;
    let gone = node.gone.clone();
    let answer = node.clock.follows(question(node.engine.clone()));
    drop(node);
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = gone.notified() => None,
        () = sim.clock.sleep(PATIENCE) => None,
    }
}

async fn begin(sim: &Arc<Sim>, key: String) {
    for _ in 0..40 {
        let seat = sim.index(sim.seats());
        let once = IdempotencyKey::new("start", key.clone(), digest::of_bytes(key.as_bytes()));
        let new =
            NewRun { agent: agents::clerk(), session: None, message: Message::text(&key), once: Some(once) };
        let answer =
            ask(sim, seat, |engine| async move { engine.submit().start(&who(OWNER), new).await }).await;
        sim.tell(|| format!("{OWNER} begins {key} at {seat}: {answer:?}"));
        if let Some(Ok(run)) = answer {
            sim.acked.lock().unwrap().push(Acked::Started { run, key: key.clone() });
            // Now and then it is sent once more, by someone who did not listen.
            if !sim.one_in(3) {
                return;
            }
        }
        let delay = sim.span(900);
        sim.clock.sleep(delay).await;
    }
}

async fn open_holds(sim: &Arc<Sim>, seat: usize, person: &'static str) -> Vec<HoldRow> {
    let list = HoldList {
        kind: None,
        agent: None,
        tool: None,
        session: None,
        part: HoldListPart::All,
        cursor: None,
        limit: 50,
    };
    let page = ask(sim, seat, |engine| async move { engine.reads().holds(&who(person), list).await }).await;
    page.and_then(Result::ok).map(|page| page.items).unwrap_or_default()
}

/// A decision of a kind that the hold takes.
fn chosen(sim: &Sim, kind: HoldKind) -> Choice {
    let some = sim.below(1_000_000);
    let answer = Choice::Answer { value: Body::text(format!("answer {some}")) };
    let deny = Choice::Deny { reason: Some(format!("no {some}")) };
    let arguments = RawJson::parse(&format!(r#"{{"amount": {some},  "edited": true}}"#)).unwrap();
    let of = |all: &[Choice]| sim.pick(all);
    match kind {
        HoldKind::Approval => {
            of(&[Choice::Approve, Choice::Approve, Choice::ApproveEdited { arguments }, deny])
        }
        HoldKind::Input | HoldKind::Auth => answer,
        HoldKind::External => of(&[answer, Choice::Fail { error: Body::text("failed") }]),
        HoldKind::Recovery => of(&[Choice::Approve, answer, deny]),
    }
}

/// Does one of the things that people do.
async fn act(sim: &Arc<Sim>, person: &'static str) {
    let seat = sim.index(sim.seats());
    let holds = open_holds(sim, seat, person).await;
    if holds.is_empty() {
        return;
    }
    let hold = sim.pick(&holds);
    let what = sim.below(20);
    match what {
        0 => return cancel(sim, seat, hold.id.run).await,
        1 | 2 => return say(sim, seat, hold.id.run).await,
        // Looks at it, and decides when it may be too late.
        3 | 4 => {
            let delay = sim.span(20_000);
            sim.clock.sleep(delay).await;
        }
        _ => {}
    }
    let wanted = chosen(sim, hold.kind);
    let key = sim.one_in(2).then(|| format!("key-{}", sim.next_number()));
    if sim.one_in(3) {
        // At the same time on another node: the same again, or something else.
        let is_same = key.is_some() && sim.one_in(2);
        let other = if is_same { wanted.clone() } else { chosen(sim, hold.kind) };
        let other_key = key.clone().filter(|_| is_same);
        let (sim_, other_seat) = (sim.clone(), sim.index(sim.seats()));
        sim.spawn(async move {
            decide(&sim_, other_seat, person, hold.id, other, other_key).await;
        });
    }
    for _ in 0..3 {
        let seat = sim.index(sim.seats());
        if decide(sim, seat, person, hold.id, wanted.clone(), key.clone()).await {
            return;
        }
        let delay = sim.span(500);
        sim.clock.sleep(delay).await;
    }
}

/// Sends a decision; says whether the answer was a yes or a no.
async fn decide(
    sim: &Arc<Sim>,
    seat: usize,
    person: &'static str,
    hold: HoldId,
    wanted: Choice,
    key: Option<String>,
) -> bool {
    let once = key.clone().map(|key| {
        IdempotencyKey::new(format!("decide/{hold}"), key, digest::of_bytes(format!("{wanted:?}").as_bytes()))
    });
    let decision = Decision { hold, wanted: wanted.clone(), digest: None, revision: None, once };
    let answer =
        ask(sim, seat, |engine| async move { engine.submit().decide(&who(person), decision).await }).await;
    let word_ = wish(&wanted);
    sim.tell(|| format!("{person} decides {word_} on {hold} at {seat} with {key:?}: {answer:?}"));
    let acked = match answer {
        Some(Ok(Answer::Done | Answer::Repeated)) => {
            let arguments = match wanted {
                Choice::ApproveEdited { arguments } => Some(arguments.text().to_owned()),
                Choice::Approve
                | Choice::Deny { .. }
                | Choice::Answer { .. }
                | Choice::Fail { .. }
                | Choice::Withdraw => None,
            };
            Acked::Decided { hold, word: word_, key, arguments }
        }
        Some(Err(EngineError::Refused(Refusal::AlreadyDecided(recorded)))) => {
            Acked::Told { hold, word: word(&recorded.resolution) }
        }
        Some(Err(EngineError::Refused(_))) => return true,
        Some(Ok(_) | Err(_)) | None => return false,
    };
    sim.acked.lock().unwrap().push(acked);
    true
}

async fn cancel(sim: &Arc<Sim>, seat: usize, run: RunId) {
    let answer =
        ask(sim, seat, |engine| async move { engine.submit().cancel(&who(OWNER), run, None, None).await })
            .await;
    sim.tell(|| format!("{OWNER} cancels {run} at {seat}: {answer:?}"));
    if let Some(Ok(_)) = answer {
        sim.acked.lock().unwrap().push(Acked::Canceled { run });
    }
}

async fn say(sim: &Arc<Sim>, seat: usize, run: RunId) {
    let on_hold = if sim.one_in(2) { OnHold::Supersede } else { OnHold::Refuse };
    let say = Say { message: Message::text("by the way"), on_hold };
    let answer =
        ask(sim, seat, |engine| async move { engine.submit().say(&who(OWNER), run, say, None).await }).await;
    sim.tell(|| format!("{OWNER} says something to {run} at {seat}: {answer:?}"));
}
