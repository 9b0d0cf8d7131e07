//! What outside systems report about jobs: who may, and what it does.
//!
//! A report is shown to be the job's by a signature over the bytes that came, made with a secret that only it and this
//! server know; or it comes from the run's owner, or from somebody with the role `service`. A report that comes before
//! its hold is there waits a moment for it; one about a job of which nobody knows whether it began settles that
//! question. Nothing here is a rule about holds: those are the core's.

use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use standfast_core::body::Body;
use standfast_core::command::{Choice, Command, FinishCall};
use standfast_core::decide::Answer;
use standfast_core::digest;
use standfast_core::id::HoldId;
use standfast_core::job::JobProgress;
use standfast_core::json::RawJson;
use standfast_core::message::ToolResult;
use standfast_core::name::{AgentName, UserId};
use standfast_core::refusal::Refusal;
use standfast_core::time::{Millis, Timestamp};
use standfast_store::{SessionKey, StoreError};

use super::decisions::Decider;
use super::{Decision, Submit};
use crate::EngineError;
use crate::auth::{Principal, Scope};
use crate::commit::{Change, Commit, IdempotencyKey};
use crate::host::Host;
use crate::log::{JobView, Log, Snapshot, needs_for};
use crate::tool::Tool;
use crate::tool::secrets::Secrets;

/// The role of systems that may report about any job.
const SERVICE: &str = "service";

/// How far the clock of a sender may be from ours.
const TOLERANCE: Millis = Millis::seconds(5 * 60);

/// How long a report waits for its hold.
const EARLY_WAIT: Millis = Millis::seconds(2);

/// How often it is looked for meanwhile.
const EARLY_LOOK: Millis = Millis(50);

/// A report about a job.
#[derive(Debug, Clone)]
pub struct Report {
    /// Which job.
    pub job: HoldId,
    /// What is reported.
    pub said: ReportBody,
    /// Who is calling, if the door knows them.
    pub sender: Option<Principal>,
    /// How the body is signed, if it is.
    pub signature: Option<Signature>,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// What makes a repeat safe, if the sender gave a key. A Standard Webhook has one by itself.
    pub once: Option<IdempotencyKey>,
}

/// What is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportBody {
    /// The result.
    Result(RawJson),
    /// It failed.
    Error(String),
    /// How far it is.
    Progress {
        /// In words.
        note: Body,
        /// Whether somebody works on it.
        processing: bool,
    },
    /// It is not waited for any more.
    Withdrawn,
}

impl ReportBody {
    /// The same without what the job was given to sign with (T29).
    fn without(self, secrets: &Secrets) -> ReportBody {
        match self {
            ReportBody::Result(result) => ReportBody::Result(secrets.cut_json(result)),
            ReportBody::Error(error) => ReportBody::Error(secrets.cut(error)),
            ReportBody::Progress { note, processing } => {
                ReportBody::Progress { note: secrets.cut_body(note), processing }
            }
            ReportBody::Withdrawn => ReportBody::Withdrawn,
        }
    }
}

/// How a body is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signature {
    /// HMAC-SHA256 of the body, in hex, with or without `sha256=` before it.
    Plain(String),
    /// As Standard Webhooks has it.
    Standard {
        /// The id of the message; the same when it is sent again.
        id: String,
        /// When it was signed, in seconds.
        timestamp: String,
        /// The signatures, with spaces between them.
        signatures: String,
    },
}

/// Why a report was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// As everywhere.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There is no such job that the caller may know of.
    #[error("there is no such job")]
    NoSuchJob,
    /// The signature is missing or not right.
    #[error("{0}")]
    NotSigned(&'static str),
    /// The job has ended.
    #[error("the job has ended")]
    Over(Box<JobView>),
    /// The job is being started; its hold is not there yet.
    #[error("the job is only just being started; report again in a moment")]
    TooEarly,
}

/// Takes what outside systems report about jobs.
pub struct Reports {
    host: Arc<Host>,
    log: Arc<Log>,
    commit: Arc<Commit>,
    submit: Arc<Submit>,
}

impl Reports {
    pub(crate) fn new(submit: Arc<Submit>) -> Reports {
        let (host, log, commit) = (submit.host.clone(), submit.log.clone(), submit.commit.clone());
        Reports { host, log, commit, submit }
    }

    /// Takes a report. It is durable when this comes back.
    pub async fn take(&self, report: Report) -> Result<JobView, ReportError> {
        let run = report.job.run;
        let snapshot = match (&report.signature, &report.sender) {
            // Before the log is read: a run of somebody else must not take longer than one that does not exist (T15).
            (None, Some(who)) if !is_a_service(who) => self.log.snapshot(who, run).await,
            (_, _) => self.log.any_snapshot(run).await,
        };
        let snapshot = match snapshot {
            Err(EngineError::NotFound) => return Err(ReportError::NoSuchJob),
            other => other?,
        };
        let view = self.reportable(&snapshot, report.job).await?;
        let by = self.right_of(&report, &view)?;
        let tool = self.tool_of(&view);
        let handed = tool.and_then(|tool| tool.external().map(|job| job.handed(report.job)));
        let said = report.said.without(&handed.unwrap_or_default());
        let once = match &report.signature {
            Some(Signature::Standard { id, .. }) => {
                let request = digest::of_bytes(&report.body);
                Some(IdempotencyKey::new(format!("async-tool {}", report.job), id.clone(), request))
            }
            Some(Signature::Plain(_)) | None => report.once.clone(),
        };
        if self.commit.done_before(by.principal(), once.as_ref()).await?.is_some() {
            return Ok(view);
        }
        let (view, snapshot) = self.begun(view, snapshot).await?;
        let done = match &view.job.stands {
            JobProgress::Starting => return Err(ReportError::TooEarly),
            JobProgress::Over { .. } => return Err(ReportError::Over(Box::new(view))),
            JobProgress::Waiting { .. } => self.settle_job(&by, snapshot, report.job, &said, once).await,
            JobProgress::Unknown { attempt } => {
                let attempt = *attempt;
                self.tell_truth(&by, snapshot, (&view, attempt), &said, once).await
            }
        };
        match done {
            Ok(_) => Ok(self.log.any_job(report.job).await?),
            Err(EngineError::Refused(refusal)) if has_moved_on(&refusal) => {
                match self.log.any_job(report.job).await? {
                    view if view.job.is_open() => Err(EngineError::Refused(refusal).into()),
                    view => Err(ReportError::Over(Box::new(view))),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The job, if its conversation is still there (S2-40).
    async fn reportable(&self, snapshot: &Snapshot, id: HoldId) -> Result<JobView, ReportError> {
        let view = match self.log.job_in(snapshot, id).await {
            Err(EngineError::NotFound) => return Err(ReportError::NoSuchJob),
            other => other?,
        };
        let session = self.log.store.session(SessionKey::of(&view.run)).await.map_err(EngineError::from)?;
        let is_there = session.is_some_and(|session| !session.closed);
        if is_there { Ok(view) } else { Err(ReportError::NoSuchJob) }
    }

    /// Decider what right this is reported. A signature that is there must be right, whoever else the caller is.
    fn right_of(&self, report: &Report, view: &JobView) -> Result<Decider, ReportError> {
        if let Some(signature) = &report.signature {
            let secrets = self.secrets_of(view);
            verify(signature, &report.body, &secrets, self.host.clock.now())
                .map_err(ReportError::NotSigned)?;
            return Ok(Decider::Callback(reporter(view, UserId::new(view.job.tool.as_str()).ok())));
        }
        let Some(who) = &report.sender else {
            return Err(ReportError::NotSigned("sign the body with the secret of this call"));
        };
        if is_service(who, &view.run.agent) && who.tenant == view.run.tenant {
            return Ok(Decider::Callback(reporter(view, Some(who.user.clone()))));
        }
        if self.log.may_see(who, &view.run) {
            Ok(Decider::Person(who.clone()))
        } else {
            Err(ReportError::NoSuchJob)
        }
    }

    /// What its reports may be signed with. A tool that is not there any more has none, and nothing is taken.
    pub(crate) fn secrets_of(&self, view: &JobView) -> Vec<String> {
        let tool = self.tool_of(view);
        tool.and_then(|tool| tool.external().map(|job| job.secrets(view.id()))).unwrap_or_default()
    }

    fn tool_of(&self, view: &JobView) -> Option<Arc<dyn Tool>> {
        let agent = self.host.agent(&view.run.agent).ok()?;
        agent.tools.get(&view.job.tool).cloned()
    }

    /// Waits a moment for a job whose hold is not there yet.
    async fn begun(
        &self,
        mut view: JobView,
        mut snapshot: Snapshot,
    ) -> Result<(JobView, Snapshot), ReportError> {
        let id = view.id();
        let clock = &self.host.clock;
        let until = clock.now().plus(EARLY_WAIT);
        while view.job.stands == JobProgress::Starting && clock.now() < until {
            clock.sleep(EARLY_LOOK).await;
            snapshot = self.log.any_snapshot(id.run).await?;
            view = self.log.job_in(&snapshot, id).await?;
        }
        Ok((view, snapshot))
    }

    async fn settle_job(
        &self,
        by: &Decider,
        snapshot: Snapshot,
        job: HoldId,
        said: &ReportBody,
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        let wanted = match said {
            ReportBody::Result(result) => Choice::Answer { value: Body::Json(result.clone()) },
            ReportBody::Error(error) => Choice::Fail { error: Body::text(error) },
            ReportBody::Withdrawn => Choice::Withdraw,
            ReportBody::Progress { note, processing } => {
                let (note, processing) = (note.clone(), Some(*processing));
                let progress = Command::Progress { call: job.key.call, note, processing };
                return self.put_report(by, snapshot, progress, once).await;
            }
        };
        if let Decider::Person(who) = by {
            needs_for(who, Scope::HoldsDecide, &snapshot.run().facts.agent)?;
        }
        let decision = Decision { hold: job, wanted, digest: None, revision: None, once };
        Ok(self.submit.decide_by(by, decision.into(), snapshot.into()).await?.answer)
    }

    /// Whoever started the job is gone, and people are asked whether it began: the job itself knows.
    async fn tell_truth(
        &self,
        by: &Decider,
        snapshot: Snapshot,
        (view, attempt): (&JobView, u32),
        said: &ReportBody,
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        let result = match said {
            ReportBody::Result(result) => {
                if let Some(schema) = self.result_schema(view) {
                    crate::schema::check(&schema, result).map_err(EngineError::BreaksSchema)?;
                }
                ToolResult::Ok(Body::Json(result.clone()))
            }
            ReportBody::Error(error) => ToolResult::Failed(Body::text(error)),
            ReportBody::Withdrawn => ToolResult::Failed(Body::text("Cancelled")),
            // It is at work: nothing is decided by that.
            ReportBody::Progress { .. } => return Ok(Answer::Repeated),
        };
        let call = view.job.key.call;
        let finish = FinishCall { call, attempt, result, worker: None };
        self.put_report(by, snapshot, Command::FinishCall(finish), once).await
    }

    fn result_schema(&self, view: &JobView) -> Option<RawJson> {
        let agent = self.host.agent(&view.run.agent).ok()?;
        agent.tools.get(&view.job.tool)?.external()?.result_schema().cloned()
    }

    /// Puts what a job says on record.
    async fn put_report(
        &self,
        by: &Decider,
        snapshot: Snapshot,
        command: Command,
        once: Option<IdempotencyKey>,
    ) -> Result<Answer, EngineError> {
        if let Decider::Person(who) = by {
            needs_for(who, Scope::RunsWrite, &snapshot.run().facts.agent)?;
        }
        let (who, once) = (by.principal(), once.as_ref());
        let change = Change { writes: self.commit.mark(who, once), ..Change::new(by.actor(), vec![command]) };
        self.commit.commit_once(who, once, snapshot.stored().row.clone(), change).await
    }
}

/// Whether somebody may report about any job of their tenant, or of the agents that their credential is for.
fn is_service(who: &Principal, agent: &AgentName) -> bool {
    is_a_service(who) && who.has_for(Scope::HoldsDecide, agent.as_str())
}

/// The same of some agent at least.
fn is_a_service(who: &Principal) -> bool {
    who.has(Scope::HoldsDecide) && who.roles.iter().any(|role| role.as_str() == SERVICE)
}

/// Whoever reports, for the record.
fn reporter(view: &JobView, user: Option<UserId>) -> Principal {
    let user = user.unwrap_or_else(UserId::local);
    Principal { tenant: view.run.tenant.clone(), ..Principal::of(user) }
}

/// Whether a refusal says that somebody or something was faster.
fn has_moved_on(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::AlreadyDecided(_)
            | Refusal::NoSuchHold(_)
            | Refusal::Expired(_)
            | Refusal::Ended(_)
            | Refusal::CallNotReady(_)
            | Refusal::StaleAttempt { .. }
    )
}

impl From<StoreError> for ReportError {
    fn from(error: StoreError) -> ReportError {
        ReportError::Engine(error.into())
    }
}

/// Whether a signature is right. Compared in constant time, with each secret that may be used.
fn verify(
    signature: &Signature,
    body: &[u8],
    secrets: &[String],
    now: Timestamp,
) -> Result<(), &'static str> {
    const WRONG: &str = "the signature is not right";
    if secrets.is_empty() {
        return Err("this server has no secret for this call any more");
    }
    match signature {
        Signature::Plain(text) => {
            let text = text.strip_prefix("sha256=").unwrap_or(text);
            let shown = from_hex(text).ok_or("the signature must be 64 hex digits")?;
            let is_right = |secret: &String| is_signed(secret.as_bytes(), &[body], &shown);
            secrets.iter().any(is_right).then_some(()).ok_or(WRONG)
        }
        Signature::Standard { id, timestamp, signatures } => {
            if id.is_empty() || id.len() > 256 || id.contains('.') {
                return Err("webhook-id must have 1 to 256 characters and no dot");
            }
            let at: i64 = timestamp.parse().map_err(|_| "webhook-timestamp must be a number of seconds")?;
            if (now.0 / 1000).saturating_sub(at).saturating_abs() > TOLERANCE.0 / 1000 {
                return Err("webhook-timestamp is more than five minutes from now");
            }
            let parts: [&[u8]; 5] = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body];
            let shown = signatures.split(' ').filter_map(|one| one.strip_prefix("v1,"));
            let shown: Vec<Vec<u8>> = shown.filter_map(|one| BASE64_STANDARD.decode(one).ok()).collect();
            let is_right = |key: &Vec<u8>| shown.iter().any(|shown| is_signed(key, &parts, shown));
            secrets
                .iter()
                .flat_map(|secret| standard_keys(secret))
                .any(|key| is_right(&key))
                .then_some(())
                .ok_or(WRONG)
        }
    }
}

/// What a library for Standard Webhooks makes of a secret: its bytes, or what they are the base64 of.
fn standard_keys(secret: &str) -> Vec<Vec<u8>> {
    let decoded = BASE64_STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).ok();
    decoded.into_iter().chain([secret.as_bytes().to_vec()]).collect()
}

fn is_signed(key: &[u8], parts: &[&[u8]], shown: &[u8]) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return false };
    parts.iter().for_each(|part| mac.update(part));
    mac.verify_slice(shown).is_ok()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.bytes().map(|c| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests;
