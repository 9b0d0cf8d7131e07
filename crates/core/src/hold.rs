//! Holds: the points where a call, or a whole run, waits for something outside.
//!
//! Five kinds, one object, one table of what each does when it is denied, expires, is cancelled or superseded
//! (architecture, section 4). The rules that use it are in `decide/`.

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::approver::{Approver, SelfApproval};
use crate::body::Body;
use crate::id::{CallNo, HoldKey, RunId, Seq};
use crate::json::RawJson;
use crate::message::{FileDigest, is_default};
use crate::name::{RuleId, UserId};
use crate::time::{Millis, Timestamp};

/// What a hold waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldKind {
    /// May this call run?
    Approval,
    /// A person supplies the result: a question, also one that the model asks.
    Input,
    /// An outside system supplies the result.
    External,
    /// Credentials are needed before the call can run.
    Auth,
    /// A started call has an unknown outcome.
    Recovery,
}

impl HoldKind {
    /// Its word, for protocols and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            HoldKind::Approval => "approval",
            HoldKind::Input => "input",
            HoldKind::External => "external",
            HoldKind::Auth => "auth",
            HoldKind::Recovery => "recovery",
        }
    }

    /// Every kind, for tables and tests.
    pub const ALL: [HoldKind; 5] =
        [HoldKind::Approval, HoldKind::Input, HoldKind::External, HoldKind::Auth, HoldKind::Recovery];

    /// Whether a new message that asks to may end it: questions to people may be overtaken, a job that runs
    /// elsewhere, a login and an unknown outcome may not.
    #[must_use]
    pub fn can_be_superseded(self) -> bool {
        match self {
            HoldKind::Approval | HoldKind::Input => true,
            HoldKind::External | HoldKind::Auth | HoldKind::Recovery => false,
        }
    }

    /// Whether time may end it: nobody's silence says what a started call did.
    #[must_use]
    pub fn can_expire(self) -> bool {
        match self {
            HoldKind::Approval | HoldKind::Input | HoldKind::External | HoldKind::Auth => true,
            HoldKind::Recovery => false,
        }
    }

    /// Whether a message that does not decide waits in the queue (true) or is answered with "held" (false).
    #[must_use]
    pub fn queues_messages(self) -> bool {
        match self {
            HoldKind::External | HoldKind::Auth => true,
            HoldKind::Approval | HoldKind::Input | HoldKind::Recovery => false,
        }
    }

    /// Whether this resolution can be given to this kind by someone outside; anything else is refused (C25).
    #[must_use]
    pub fn takes(self, resolution: &Resolution) -> bool {
        match resolution {
            Resolution::Approve { edited: Some(_) } => self == HoldKind::Approval,
            Resolution::Approve { edited: None } => matches!(self, HoldKind::Approval | HoldKind::Recovery),
            Resolution::Deny { .. } => self != HoldKind::External,
            Resolution::Answer { .. } => self != HoldKind::Approval,
            Resolution::Fail { .. } => matches!(self, HoldKind::External | HoldKind::Auth),
            Resolution::Expire | Resolution::Withdraw | Resolution::Supersede => false,
        }
    }
}

/// What ends a hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// It may run; on a recovery hold: run it again.
    Approve {
        /// Other arguments than those asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited: Option<EditedArguments>,
    },
    /// It must not run; on a recovery hold: it did not happen.
    Deny {
        /// Told to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The result; on a recovery hold: it happened, and this came of it; on an auth hold: logged in.
    Answer {
        /// The value.
        value: Body,
    },
    /// The outside job failed.
    Fail {
        /// What it said.
        error: Body,
    },
    /// Nobody decided in time.
    Expire,
    /// The run ended first.
    Withdraw,
    /// A newer message took its place.
    Supersede,
}

/// Arguments that a person put in the place of the model's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditedArguments {
    /// The argument text.
    pub arguments: Body,
    /// Digest of tool, argument text and schema.
    pub digest: crate::digest::Digest,
    /// Counts the edits of a hold; what the model asked for is revision 0.
    pub revision: u32,
    /// The files that the new arguments name, as they were; part of the digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileDigest>,
}

/// What happens when a hold is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDeny {
    /// The model gets the denial and goes on.
    #[default]
    Continue,
    /// The run ends as canceled.
    Cancel,
}

/// What happens when nobody decides in time (C7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The run fails.
    #[default]
    Fail,
    /// As if denied.
    Deny,
    /// The model gets an error and goes on.
    ResumeWithError,
    /// The run ends as canceled.
    Cancel,
    /// It stays open, marked, until the grace ends.
    Keep,
}

/// What happens when the grace of a kept hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterGrace {
    /// The run fails.
    #[default]
    Fail,
    /// The run ends as canceled.
    Cancel,
}

/// What deny and silence do to a hold; decided when it opens, written into it, never changed by configuration later.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HoldPolicy {
    /// When denied.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_deny: OnDeny,
    /// When nobody decides in time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_timeout: OnTimeout,
    /// How long it may wait; none means without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// How long a kept hold still takes an answer; none means without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Millis>,
    /// What the end of the grace does.
    #[serde(default, skip_serializing_if = "is_default")]
    pub after_grace: AfterGrace,
    /// How long before people are reminded; none means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind_after: Option<Millis>,
    /// How long before others are asked as well; none means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate_after: Option<Millis>,
    /// Who is asked then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalate_to: Vec<Approver>,
}

/// Others are to be asked as well, if nobody has decided by then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalation {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub to: Vec<Approver>,
    /// The rule that they may decide for; none means all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleId>,
}

/// Somebody decides a hold in the place of another person, for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    /// Whose place it is.
    pub by: UserId,
    /// Who stands in.
    pub to: UserId,
    /// Until when.
    pub until: Timestamp,
    /// The rules whose demands they count for; empty where the hold has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts_for: Vec<RuleId>,
}

/// What rules say of a hold beside who decides. What they leave open is up to the agent and its tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HoldTerms {
    /// When denied.
    pub on_deny: Option<OnDeny>,
    /// When nobody decides in time.
    pub on_timeout: Option<OnTimeout>,
    /// How long it may wait.
    pub timeout: Option<Millis>,
    /// How long a kept hold still takes an answer.
    pub grace: Option<Millis>,
    /// How long before people are reminded.
    pub remind_after: Option<Millis>,
    /// When who is asked as well, beside those whom the agent names.
    pub escalations: Vec<Escalation>,
    /// What approvers should know.
    pub stakes: Stakes,
}

impl HoldTerms {
    /// What counts for a hold: what rules say, and otherwise what its agent says.
    #[must_use]
    pub fn over(&self, usual: HoldPolicy) -> HoldPolicy {
        HoldPolicy {
            on_deny: self.on_deny.unwrap_or(usual.on_deny),
            on_timeout: self.on_timeout.unwrap_or(usual.on_timeout),
            timeout: self.timeout.or(usual.timeout),
            grace: self.grace.or(usual.grace),
            after_grace: usual.after_grace,
            remind_after: self.remind_after.or(usual.remind_after),
            escalate_after: usual.escalate_after,
            escalate_to: usual.escalate_to,
        }
    }
}

/// How bad it can get; later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// Something is lost.
    Destructive,
}

impl Risk {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
            Risk::Destructive => "destructive",
        }
    }
}

/// What is at stake, as the rules that hold a call say it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stakes {
    /// Why it is held, in the words of the rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<String>,
    /// How bad it can get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// Whether what the call does can be undone; absent where no rule says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reversible: Option<bool>,
    /// What was found by the read-only calls that rules want made before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

/// What a read-only call said before people were asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The tool.
    pub tool: String,
    /// Its arguments, as JSON.
    pub arguments: String,
    /// What it said, or why it could not be asked; cut where it is long.
    pub result: String,
    /// Whether it could not be asked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fails: bool,
    /// Digest of all of it: what is compared before the start.
    pub digest: crate::digest::Digest,
}

/// What people, or the outside system, are asked. Arguments are not repeated here: they stand in the call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ask {
    /// Why it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the call would not do what it seems to: it is shown with the reason and in the text of an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// What is at stake, where rules say.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stakes: Stakes,
    /// The question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Body>,
    /// Answers to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_schema: Option<RawJson>,
    /// More to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Body>,
    /// What people see while an outside job runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interim: Option<Body>,
    /// The outside system's own name for the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<String>,
    /// When the outside job is expected to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_at: Option<Timestamp>,
    /// The sub-run whose end settles it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// What the tool goes on with. Where there is something, an answer is not the result of the call: the call is
    /// started again with this and the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Box<Body>>,
    /// The file that the call would change, as it was when it was asked. Shown with what it has now; it decides nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Box<FileDigest>>,
}

/// Begins the list of files in the reason of a hold.
const FILES_NAMED: &str = "Files it names: ";

/// The reason of a hold with the files that its call names, instead of those that it had before: what is in them is
/// approved with the call.
#[must_use]
pub fn name_files(reason: Option<String>, files: &[FileDigest]) -> Option<String> {
    let plain = match reason.as_deref().and_then(|reason| reason.split_once(FILES_NAMED)) {
        Some(("", _)) => None,
        Some((plain, _)) => Some(plain.trim_end_matches(". ").to_owned()),
        None => reason,
    };
    if files.is_empty() {
        return plain;
    }
    let each: Vec<String> =
        files.iter().map(|file| format!("{} (sha256 {})", file.path, file.sha256)).collect();
    let named = format!("{FILES_NAMED}{}", each.join(", "));
    Some(plain.map_or_else(|| named.clone(), |plain| format!("{plain}. {named}")))
}

/// What one rule demands of those who decide a hold (C24). Where several rules hold a call, each one's demand must be met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// The rule.
    pub rule: RuleId,
    /// Exactly who may decide for it; absent means whoever the agent says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Vec<Approver>>,
    /// How many of them must agree; 0 and 1 mean one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub quorum: u32,
    /// Whether whoever started the run may be one of them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub self_approval: SelfApproval,
    /// How long ago whoever approves may have signed in at the identity provider; absent means that nobody asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_in_max_age: Option<Millis>,
    /// Who has agreed and counts for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agreed: Vec<UserId>,
}

impl Demand {
    /// One of whoever the agent says: what a rule demands that says nothing itself.
    #[must_use]
    pub fn of(rule: RuleId) -> Demand {
        Demand {
            rule,
            approvers: None,
            quorum: 0,
            self_approval: SelfApproval::Allow,
            sign_in_max_age: None,
            agreed: Vec::new(),
        }
    }

    /// How many must still agree.
    #[must_use]
    pub fn missing(&self) -> u32 {
        let agreed = u32::try_from(self.agreed.len()).unwrap_or(u32::MAX);
        self.quorum.max(1).saturating_sub(agreed)
    }

    /// Whether it is what every hold demands anyway.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        self.approvers.is_none()
            && self.quorum <= 1
            && self.self_approval == SelfApproval::Allow
            && self.sign_in_max_age.is_none()
    }

    /// Demands as a hold keeps them: each rule's once, and nobody has agreed.
    #[must_use]
    pub fn listed(demands: impl IntoIterator<Item = Demand>) -> Vec<Demand> {
        let mut listed: Vec<Demand> = Vec::new();
        for demand in demands {
            if listed.iter().all(|one| one.rule != demand.rule) {
                listed.push(Demand { agreed: Vec::new(), ..demand });
            }
        }
        listed
    }

    /// How many people must agree at least: one counts for every demand that they may decide.
    #[must_use]
    pub fn votes(demands: &[Demand]) -> u32 {
        demands.iter().map(|demand| demand.quorum).max().unwrap_or(0).max(1)
    }
}

/// An open hold, as the run carries it: control state only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Its id within the run.
    pub key: HoldKey,
    /// What it waits for.
    pub kind: HoldKind,
    /// The event that opened it: what is asked stands there.
    pub at: Seq,
    /// When it opened.
    #[serde(rename = "since")]
    pub opened_at: Timestamp,
    /// Rules that its approval satisfies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleId>,
    /// How many edits it has seen.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u32,
    /// How many people must agree; 0 and 1 mean one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub votes_needed: u32,
    /// Who has agreed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<UserId>,
    /// What each rule demands of those who decide; empty means one of whoever the agent says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demands: Vec<Demand>,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it expired, if it is kept open all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired_at: Option<Timestamp>,
    /// When people are to be reminded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind_at: Option<Timestamp>,
    /// What deny and silence do.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: HoldPolicy,
    /// Over a cap: listed, but nobody is notified.
    #[serde(default, skip_serializing_if = "is_default")]
    pub muted: bool,
    /// Who is asked in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<UserId>,
    /// Until when; none means until somebody says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_until: Option<Timestamp>,
    /// Who will be asked as well, and when; the earliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalations: Vec<Escalation>,
    /// Who is asked as well by now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalated: Vec<Escalation>,
    /// Who decides in whose place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegations: Vec<Delegation>,
    /// In whose place somebody has agreed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stood_in: Vec<UserId>,
    /// The sub-run whose end settles it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// The attempt whose outcome is unknown, on a recovery hold.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt: u32,
    /// The outside system said that it works on it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub processing: bool,
    /// Whether an answer starts the call again instead of being its result.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resumes: bool,
}

impl Hold {
    /// Which call waits; the run itself when it is number 0.
    #[must_use]
    pub fn call(&self) -> CallNo {
        self.key.call
    }

    /// When a kept hold ends after all.
    #[must_use]
    pub fn grace_ends_at(&self) -> Option<Timestamp> {
        // Counted from the deadline, not from the moment somebody noticed: a slow sweeper changes nothing.
        self.expired_at?;
        Some(self.expires_at?.plus(self.policy.grace?))
    }

    /// When time next has something to say about it.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        let deadline = match self.expired_at {
            Some(_) => self.grace_ends_at(),
            None => self.expires_at.filter(|_| self.kind.can_expire()),
        };
        let escalation = self.escalations.first().map(|next| next.at);
        [deadline, self.remind_at, escalation, self.assigned_until].into_iter().flatten().min()
    }

    /// Who may decide beside those that the agent says, because it was escalated to them.
    pub fn asked_as_well(&self) -> impl Iterator<Item = &Approver> {
        self.escalated.iter().flat_map(|escalation| &escalation.to)
    }

    /// In whose place this person decides now, if it is not their own.
    pub fn delegated_to<'a>(
        &'a self,
        who: &'a UserId,
        now: Timestamp,
    ) -> impl Iterator<Item = &'a Delegation> {
        self.delegations.iter().filter(move |one| one.to == *who && now < one.until)
    }

    /// Whether one person's yes may be too little.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        let has_others = self.demands.len() > 1 && !self.demands.iter().all(Demand::is_usual);
        let has_voted = !self.votes.is_empty();
        self.votes_needed > 1
            || has_others
            || has_voted
            || self.demands.iter().any(|demand| demand.quorum > 1)
    }

    /// How many people must still agree at least.
    #[must_use]
    pub fn votes_missing(&self) -> u32 {
        let votes = u32::try_from(self.votes.len()).unwrap_or(u32::MAX);
        let needed = self.votes_needed.max(1).saturating_sub(votes);
        match self.demands.iter().map(Demand::missing).max() {
            // Whoever agreed may count for one demand and not for another.
            Some(missing) => missing,
            None => needed,
        }
    }
}

/// The decision on a hold that is no longer open; later attempts are answered with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedDecision {
    /// What was decided.
    pub resolution: Resolution,
    /// By whom.
    pub by: Actor,
    /// When.
    pub at: Timestamp,
    /// The key it was sent with, if any.
    pub idempotency_key: Option<String>,
}
