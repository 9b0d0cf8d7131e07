//! What is given before and while a scenario runs: the agent, what policy says of its tools, limits, who may decide.
//!
//! Stands for the configuration and the policy of a server. A change reaches runs as the architecture says: policy,
//! limits and deciders at once, the definition only through a repin.

use std::collections::BTreeMap;

use standfast_core::actor::Actor;
use standfast_core::command::{Admission, Limits};
use standfast_core::definition::{Definition, ToolSpec};
use standfast_core::digest::{self, Digest};
use standfast_core::event::{Driver, Inbox};
use standfast_core::hold::{AfterGrace, HoldPolicy, OnDeny, OnTimeout};
use standfast_core::id::CallNo;
use standfast_core::message::Replay;
use standfast_core::name::{AgentName, InboxName, RuleId, ToolName};
use standfast_core::policy::{Effect, Role, Verdict, Verdicts};

use super::details::{not_understood, number, parsed, span};
use super::script::Tok;
use super::script::Tok::{Json, Text, Word};

/// The one who starts the runs.
pub(crate) const OWNER: &str = "client";

/// What is given.
pub(crate) struct Setting {
    /// The agent as it is configured now; new runs are pinned to it.
    pub(crate) definition: Definition,
    /// Definitions that runs are pinned to.
    pub(crate) pinned: BTreeMap<Digest, Definition>,
    pub(crate) limits: Limits,
    pub(crate) driver: Driver,
    pub(crate) inbox: Option<Inbox>,
    pub(crate) taken: Admission,
    is_over_soft_cap: bool,
    rules: Vec<Rule>,
    deciders: Option<Vec<String>>,
    excluded: Vec<String>,
}

struct Rule {
    about: RuleSubject,
    verdict: Verdict,
}

#[derive(PartialEq)]
enum RuleSubject {
    Tool(String),
    Containing(String),
}

/// A call that policy is asked about.
pub(crate) struct JudgedCall {
    pub(crate) no: CallNo,
    pub(crate) tool: String,
    pub(crate) arguments: String,
}

impl Setting {
    /// An agent without tools.
    pub(crate) fn new() -> Result<Setting, String> {
        let definition = Definition {
            agent: AgentName::new("assistant").map_err(|bad| bad.to_string())?,
            prompt: "Be careful.".into(),
            model: "model-1".into(),
            model_parameters: None,
            tools: BTreeMap::new(),
            policy: None,
            sub_agents: Vec::new(),
            show_thinking: false,
            hold_batch: false,
            holds: HoldPolicy::default(),
        };
        Ok(Setting {
            definition,
            pinned: BTreeMap::new(),
            limits: Limits::default(),
            driver: Driver::Loop,
            inbox: None,
            taken: Admission::AtOnce,
            is_over_soft_cap: false,
            rules: Vec::new(),
            deciders: None,
            excluded: Vec::new(),
        })
    }

    /// Takes one sentence after `given`.
    pub(crate) fn given(&mut self, toks: &[Tok<'_>]) -> Result<(), String> {
        match toks {
            [Word("tool"), Word(tool), rest @ ..] => self.tool(tool, rest)?,
            [
                Word("arguments"),
                Word("containing"),
                Text(text),
                Word("are"),
                Word("forbidden"),
                rest @ ..,
            ] => {
                let verdict = verdict(Effect::Deny, &format!("no-{text}"), rest)?;
                self.rules.push(Rule { about: RuleSubject::Containing((*text).into()), verdict });
            }
            [
                Word("arguments"),
                Word("containing"),
                Text(text),
                Word("need"),
                Word("approval"),
                rest @ ..,
            ] => {
                let verdict = verdict(Effect::Hold, &format!("about-{text}"), rest)?;
                self.rules.push(Rule { about: RuleSubject::Containing((*text).into()), verdict });
            }
            [Word("hold_batch")] => self.definition.hold_batch = true,
            [Word("at"), Word("most"), Word(count), rest @ ..] => self.limit(number(count)?, rest)?,
            [Word("the"), Word("agent"), Word("is"), Word("driven"), Word("from"), Word("outside")] => {
                (self.driver, self.taken) = (Driver::Outside, Admission::Queued);
            }
            [
                Word("inbox"),
                Word(inbox),
                Word("with"),
                Word("priority"),
                Word(priority),
                Word("and"),
                Word(attempts),
                Word("attempts" | "attempt"),
            ] => self.inbox = Some(place(inbox, number(priority)?, number(attempts)?)?),
            [Word("new"), Word("runs"), Word("are"), Word("queued")] => self.taken = Admission::Queued,
            [
                Word("the"),
                Word("agent"),
                Word("is"),
                Word("over"),
                Word("its"),
                Word("soft"),
                Word("cap"),
            ] => {
                self.is_over_soft_cap = true;
            }
            [Word(name), Word("may"), Word("decide")] => {
                self.deciders.get_or_insert_default().push((*name).to_owned());
            }
            [Word(name), Word("may"), Word("not"), Word("decide")] => self.excluded.push((*name).to_owned()),
            policy => keep(&mut self.definition.holds, policy)?,
        }
        Ok(())
    }

    fn tool(&mut self, name: &str, toks: &[Tok<'_>]) -> Result<(), String> {
        let tool = ToolName::new(name).map_err(|bad| bad.to_string())?;
        let holds = self.definition.holds.clone();
        let schema = parsed(r#"{"type":"object"}"#)?;
        let spec = self.definition.tools.entry(tool).or_insert_with(|| ToolSpec {
            description: format!("does {name}"),
            schema,
            replay: Replay::Never,
            reversible: false,
            approval_prompt: None,
            holds: None,
        });
        let rule = format!("about-{name}");
        let effect = match toks {
            [Word("is"), Word("allowed"), Word("and"), Word("idempotent")] => {
                spec.replay = Replay::Idempotent;
                Some((Effect::Allow, &toks[4..]))
            }
            [Word("is"), Word("allowed"), rest @ ..] => Some((Effect::Allow, rest)),
            [Word("needs"), Word("approval"), rest @ ..] => Some((Effect::Hold, rest)),
            [Word("is"), Word("forbidden"), rest @ ..] => Some((Effect::Deny, rest)),
            [Word("also"), Word("needs"), Word("approval"), rest @ ..] => {
                let verdict = verdict(Effect::Hold, &rule, rest)?;
                self.rules.push(Rule { about: RuleSubject::Tool(name.into()), verdict });
                return Ok(());
            }
            [Word("has"), Word("no"), Word("verdict")] => None,
            [Word("has"), Word("schema"), Json(schema)] => {
                spec.schema = parsed(schema)?;
                return Ok(());
            }
            [Word("is"), Word("idempotent")] => {
                spec.replay = Replay::Idempotent;
                return Ok(());
            }
            [Word("is"), Word("gone")] => {
                self.definition.tools.retain(|known, _| known.as_str() != name);
                return Ok(());
            }
            policy => return keep(spec.holds.get_or_insert(holds), policy),
        };
        self.rules.retain(|rule| rule.about != RuleSubject::Tool(name.into()));
        if let Some((effect, rest)) = effect {
            let verdict = verdict(effect, &rule, rest)?;
            self.rules.push(Rule { about: RuleSubject::Tool(name.into()), verdict });
        }
        Ok(())
    }

    fn limit(&mut self, count: u32, toks: &[Tok<'_>]) -> Result<(), String> {
        let limits = &mut self.limits;
        match toks {
            [Word("open"), Word("hold" | "holds")] => limits.open_holds = count as usize,
            [Word("model"), Word("attempts")] => limits.model_attempts = count,
            [Word("call"), Word("attempts")] => limits.call_attempts = count,
            [Word("turns" | "turn")] => limits.turns = count,
            [Word("tokens")] => limits.tokens = Some(u64::from(count)),
            [Word("sub-runs" | "sub-run")] => limits.children = count,
            [Word("level" | "levels"), Word("of"), Word("sub-runs")] => limits.depth = count,
            other => return Err(not_understood(other)),
        }
        Ok(())
    }

    /// What policy says of these calls now.
    pub(crate) fn verdicts(&self, calls: &[JudgedCall]) -> Verdicts {
        let mut by_call = Vec::new();
        for call in calls {
            let speaks = |rule: &&Rule| match &rule.about {
                RuleSubject::Tool(tool) => *tool == call.tool,
                RuleSubject::Containing(text) => call.arguments.contains(text.as_str()),
            };
            by_call.extend(self.rules.iter().filter(speaks).map(|rule| (call.no, rule.verdict.clone())));
        }
        let policy = Some(digest::of_bytes(b"policy"));
        Verdicts { policy, by_call, mutes: self.is_over_soft_cap, ..Verdicts::default() }
    }

    /// In what role an actor may decide now.
    pub(crate) fn authority(&self, actor: &Actor) -> Option<Role> {
        match actor {
            Actor::Person(user) | Actor::Link(user)
                if self.excluded.iter().any(|name| name == user.as_str()) =>
            {
                None
            }
            Actor::Person(user) | Actor::Link(user) if user.as_str() == OWNER => Some(Role::Owner),
            Actor::Person(user) | Actor::Link(user) => match &self.deciders {
                Some(named) if !named.iter().any(|name| name == user.as_str()) => None,
                Some(_) | None => Some(Role::Approver),
            },
            Actor::Callback(_) => Some(Role::Callback),
            Actor::Client(_) | Actor::Outside(_) | Actor::Node(_) | Actor::Clock => None,
        }
    }

    /// Who sees an open hold in a list.
    pub(crate) fn audience(&self) -> Vec<String> {
        let named = self.deciders.clone().unwrap_or_default();
        let all = named.into_iter().chain([OWNER.to_owned()]);
        all.filter(|name| !self.excluded.contains(name)).collect()
    }
}

fn verdict(effect: Effect, rule: &str, toks: &[Tok<'_>]) -> Result<Verdict, String> {
    let (mut rule, mut votes, mut reason, mut rest) = (rule, 1, None, toks);
    while !rest.is_empty() {
        rest = match rest {
            [Word("by"), Word("rule"), Word(name), after @ ..] => {
                rule = name;
                after
            }
            [Word("by"), Word(count), Word("people"), after @ ..] => {
                votes = number(count)?;
                after
            }
            [Word("because"), Text(why), after @ ..] => {
                reason = Some((*why).to_owned());
                after
            }
            other => return Err(not_understood(other)),
        };
    }
    let rule = RuleId::new(rule).map_err(|bad| bad.to_string())?;
    Ok(Verdict { votes, reason, ..Verdict::new(effect, rule) })
}

/// What deny and silence do.
fn keep(policy: &mut HoldPolicy, toks: &[Tok<'_>]) -> Result<(), String> {
    match toks {
        [Word("on_deny"), Word("continue")] => policy.on_deny = OnDeny::Continue,
        [Word("on_deny"), Word("cancel")] => policy.on_deny = OnDeny::Cancel,
        [Word("on_timeout"), Word("fail")] => policy.on_timeout = OnTimeout::Fail,
        [Word("on_timeout"), Word("deny")] => policy.on_timeout = OnTimeout::Deny,
        [Word("on_timeout"), Word("resume_with_error")] => policy.on_timeout = OnTimeout::ResumeWithError,
        [Word("on_timeout"), Word("cancel")] => policy.on_timeout = OnTimeout::Cancel,
        [Word("on_timeout"), Word("keep")] => policy.on_timeout = OnTimeout::Keep,
        [Word("timeout"), Word(count), Word(unit)] => policy.timeout = Some(span(count, unit)?),
        [Word("grace"), Word(count), Word(unit)] => policy.grace = Some(span(count, unit)?),
        [Word("after_grace"), Word("fail")] => policy.after_grace = AfterGrace::Fail,
        [Word("after_grace"), Word("cancel")] => policy.after_grace = AfterGrace::Cancel,
        [Word("reminders"), Word("every"), Word(count), Word(unit)] => {
            policy.remind_after = Some(span(count, unit)?);
        }
        other => return Err(not_understood(other)),
    }
    Ok(())
}

fn place(inbox: &str, priority: u32, max_attempts: u32) -> Result<Inbox, String> {
    Ok(Inbox {
        inbox: InboxName::new(inbox).map_err(|bad| bad.to_string())?,
        kind: "work".into(),
        priority: u8::try_from(priority).map_err(|_| "priorities are 0 to 3")?,
        target_agent: None,
        title: None,
        source_id: None,
        source_url: None,
        max_attempts,
        expires_at: None,
        metadata: None,
    })
}
