//! Which rules can be about a call at all: by its tool, and by the agent, caller or session, or the text, command or number among its
//! arguments, that the fewest other rules name.
//!
//! Leaves out only rules that certainly do not match, and says of some that they certainly do, so it changes the time that an
//! answer takes and nothing else. Ranges of numbers are in `ranges.rs`, patterns of names in `patterns.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use standfast_core::approver::Approver;
use standfast_core::name::SessionId;

use crate::argv::program_names;
use crate::call::Call;
use crate::condition::Condition;
use crate::glob::{Glob, Trigram, is_roundabout, trigrams};
use crate::matcher::Globs;
use crate::matching::CheckedRule;
use crate::patterns::{ByName, NamePart};
use crate::ranges::{Bounds, RangeEnd, Ranges};
use crate::truth::Truth;
use crate::value::{ArgumentPath, Value};

/// Rules by the tools that they are about.
#[derive(Debug, Default)]
pub(crate) struct Index(ByName<Bucket>);

/// A rule that can be about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its place among the rules.
    pub(crate) no: usize,
    /// What its conditions come to, where the index knows; otherwise it must be tested.
    pub(crate) truth: Option<Truth>,
}

/// A rule in a bucket.
#[derive(Debug, Clone, Copy)]
struct IndexedRule {
    no: usize,
    /// Whether it asks for nothing but the tool and what the bucket sorts it by.
    extent: IndexExtent,
}

/// How much of a rule an index has looked at when it finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexExtent {
    /// All of it.
    Whole,
    /// There is more to test.
    Part,
}

impl IndexedRule {
    fn with(self, truth: Truth) -> Candidate {
        let truth = match self.extent {
            IndexExtent::Whole => Some(truth),
            IndexExtent::Part => None,
        };
        Candidate { no: self.no, truth }
    }
}

/// Rules that one argument distinguishes.
#[derive(Debug)]
struct Branch<T> {
    /// All of them, in their order: for an argument that is missing or of another type.
    all: Vec<IndexedRule>,
    by: T,
}

/// Rules about the same tools.
#[derive(Debug, Default)]
struct Bucket {
    plain: Vec<IndexedRule>,
    /// Those that want one of some texts at a path.
    by_text: BTreeMap<ArgumentPath, Branch<HashMap<String, Vec<IndexedRule>>>>,
    /// Those that want a command at a path, by the names of its programs.
    by_program: BTreeMap<ArgumentPath, Branch<HashMap<String, Vec<usize>>>>,
    /// Those that want a number in a range at a path.
    by_range: BTreeMap<ArgumentPath, Branch<Ranges<IndexedRule>>>,
    /// Those that want a text at a path that fits a pattern, by three bytes that it must have.
    by_trigram: BTreeMap<ArgumentPath, Branch<HashMap<Trigram, Vec<usize>>>>,
    /// Those about some agents, callers or sessions.
    by_name: BTreeMap<NameKind, Branch<ByName<Vec<usize>>>>,
}

/// Whose name a rule asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum NameKind {
    Agent,
    Caller,
    Session,
}

impl NameKind {
    /// The name of a call; none is a session that nobody named.
    fn of(self, call: &Call) -> Option<&str> {
        match self {
            NameKind::Agent => Some(call.agent.as_str()),
            NameKind::Caller => Some(call.caller.user.as_str()),
            NameKind::Session => call.session.as_ref().map(SessionId::as_str),
        }
    }
}

impl<T: Default> Default for Branch<T> {
    fn default() -> Branch<T> {
        Branch { all: Vec::new(), by: T::default() }
    }
}

/// By what a bucket may sort a rule.
#[derive(Debug)]
enum SortKey<'a> {
    Texts(&'a ArgumentPath, Vec<&'a str>),
    Programs(&'a ArgumentPath, Vec<String>),
    Range(&'a ArgumentPath, Bounds),
    /// Of each pattern what every text has that fits it.
    Trigrams(&'a ArgumentPath, Vec<BTreeSet<Trigram>>),
    Names(NameKind, Vec<NamePart>),
}

/// How many rules of a bucket name what.
#[derive(Debug, Default)]
struct Frequencies {
    texts: HashMap<(ArgumentPath, String), usize>,
    programs: HashMap<(ArgumentPath, String), usize>,
    ranges: HashMap<ArgumentPath, usize>,
    trigrams: BTreeMap<ArgumentPath, HashMap<Trigram, usize>>,
    names: HashMap<(NameKind, NamePart), usize>,
}

impl Frequencies {
    fn count(&mut self, key: &SortKey<'_>) {
        match key {
            SortKey::Texts(path, texts) => {
                for text in texts {
                    *self.texts.entry(((*path).clone(), (*text).to_owned())).or_default() += 1;
                }
            }
            SortKey::Programs(path, names) => {
                for name in names {
                    *self.programs.entry(((*path).clone(), name.clone())).or_default() += 1;
                }
            }
            SortKey::Range(path, _) => *self.ranges.entry((*path).clone()).or_default() += 1,
            SortKey::Trigrams(path, patterns) => {
                let counts = self.trigrams.entry((*path).clone()).or_default();
                for trigram in patterns.iter().flatten() {
                    *counts.entry(*trigram).or_default() += 1;
                }
            }
            SortKey::Names(kind, parts) => {
                for part in parts {
                    *self.names.entry((*kind, part.clone())).or_default() += 1;
                }
            }
        }
    }

    /// With how many others a rule is found that is sorted by this key, about.
    fn company(&self, key: &SortKey<'_>) -> usize {
        match key {
            SortKey::Texts(path, texts) => {
                let of = |text: &&str| self.texts.get(&((*path).clone(), (*text).to_owned())).copied();
                texts.iter().filter_map(of).max().unwrap_or(0)
            }
            SortKey::Programs(path, names) => {
                let of = |name: &String| self.programs.get(&((*path).clone(), name.clone())).copied();
                names.iter().filter_map(of).max().unwrap_or(0)
            }
            SortKey::Range(path, bounds) => {
                let all = self.ranges.get(*path).copied().unwrap_or(0);
                match (&bounds.low, &bounds.high) {
                    (RangeEnd::Open, _) | (_, RangeEnd::Open) => all / 2,
                    (_, _) => all / 8,
                }
            }
            SortKey::Trigrams(path, patterns) => {
                let of = |pattern: &BTreeSet<Trigram>| Some(self.rarest(path, pattern)?.0);
                patterns.iter().filter_map(of).max().unwrap_or(0)
            }
            SortKey::Names(kind, parts) => {
                let of = |part: &NamePart| self.names.get(&(*kind, part.clone())).copied();
                parts.iter().filter_map(of).max().unwrap_or(0)
            }
        }
    }

    /// Which of these the fewest rules want at a path, and how many do.
    fn rarest(&self, path: &ArgumentPath, pattern: &BTreeSet<Trigram>) -> Option<(usize, Trigram)> {
        let counts = self.trigrams.get(path)?;
        pattern.iter().map(|trigram| (counts.get(trigram).copied().unwrap_or(0), *trigram)).min()
    }
}

/// The names that a rule may be sorted by. Groups and roles of a caller are no names.
fn name_keys(rule: &CheckedRule) -> impl Iterator<Item = SortKey<'_>> {
    let parts = |globs: &Globs| globs.0.iter().map(NamePart::of).collect::<Vec<_>>();
    let scoped = rule.scope.agent.as_ref().map(|agent| vec![NamePart::Whole(agent.to_string())]);
    let user = |one: &Approver| match one {
        Approver::User(user) => Some(NamePart::Whole(user.to_string())),
        Approver::Owner | Approver::Group(_) | Approver::Role(_) => None,
    };
    let asks = &rule.rule;
    [
        (NameKind::Agent, scoped.or_else(|| asks.agent.as_ref().map(parts))),
        (NameKind::Caller, asks.caller.as_ref().and_then(|all| all.iter().map(user).collect())),
        (NameKind::Session, asks.session.as_ref().map(parts)),
    ]
    .into_iter()
    .filter_map(|(kind, parts)| Some(SortKey::Names(kind, parts?)))
}

/// What a rule may be sorted by: names, and what it asks of single values.
fn sort_keys(rule: &CheckedRule) -> Vec<SortKey<'_>> {
    let singular = rule.rule.conditions.iter().filter(|(path, _)| !path.is_plural());
    let mut found: Vec<SortKey<'_>> = name_keys(rule).collect();
    for (path, matcher) in singular {
        for condition in matcher.conditions() {
            match condition {
                Condition::Texts(texts) => found.push(SortKey::Texts(path, texts)),
                Condition::Command(argv, _) => found.push(SortKey::Programs(path, argv.programs())),
                Condition::Range(bounds) => found.push(SortKey::Range(path, bounds)),
                Condition::Numbers(numbers) => {
                    if let [number] = numbers.as_slice() {
                        let end = || RangeEnd::At((*number).clone());
                        found.push(SortKey::Range(path, Bounds { low: end(), high: end() }));
                    }
                }
                Condition::Glob(globs) => {
                    let patterns: Vec<_> = globs.0.iter().map(Glob::trigrams).collect();
                    // A pattern that asks for no three bytes can fit any text.
                    if patterns.iter().all(|pattern| !pattern.is_empty()) {
                        found.push(SortKey::Trigrams(path, patterns));
                    }
                }
                Condition::Mixed(_) | Condition::Present(_) | Condition::Not(_) | Condition::Any(_) => {}
            }
        }
    }
    found
}

/// Whether a rule asks for nothing but the tool and one condition with one part, where the tool is known to fit.
fn extent(rule: &CheckedRule, tool: Option<&str>) -> IndexExtent {
    let asks = &rule.rule;
    let is_about_names = asks.agent.is_some() || asks.caller.is_some() || asks.session.is_some();
    let is_tool_known = tool.is_some_and(|tool| rule.tools.matches(tool));
    let has_one_part =
        asks.conditions.len() == 1 && asks.conditions.values().all(|matcher| matcher.conditions().len() == 1);
    if is_tool_known && !is_about_names && rule.scope.agent.is_none() && rule.when.is_none() && has_one_part {
        IndexExtent::Whole
    } else {
        IndexExtent::Part
    }
}

impl Bucket {
    /// A bucket of rules, each sorted by what it has in common with the fewest others.
    fn of(rules: &[CheckedRule], named: &NamedRules) -> Bucket {
        let tool = named.tool.as_deref();
        let mut frequencies = Frequencies::default();
        let numbered = || named.rules.iter().filter_map(|no| Some((*no, rules.get(*no)?)));
        for (_, rule) in numbered() {
            sort_keys(rule).iter().for_each(|key| frequencies.count(key));
        }
        let mut bucket = Bucket::default();
        for (no, rule) in numbered() {
            let best = sort_keys(rule).into_iter().min_by_key(|key| frequencies.company(key));
            bucket.add(IndexedRule { no, extent: extent(rule, tool) }, best, &frequencies);
        }
        bucket.by_range.values_mut().for_each(|branch| branch.by.sort());
        bucket
    }

    fn add(&mut self, indexed: IndexedRule, by: Option<SortKey<'_>>, frequencies: &Frequencies) {
        match by {
            Some(SortKey::Texts(path, texts)) => {
                let branch = self.by_text.entry(path.clone()).or_default();
                branch.all.push(indexed);
                for text in texts {
                    branch.by.entry(text.to_owned()).or_default().push(indexed);
                }
            }
            Some(SortKey::Programs(path, names)) => {
                let branch = self.by_program.entry(path.clone()).or_default();
                branch.all.push(indexed);
                names.into_iter().for_each(|name| branch.by.entry(name).or_default().push(indexed.no));
            }
            Some(SortKey::Range(path, bounds)) => {
                let branch = self.by_range.entry(path.clone()).or_default();
                branch.all.push(indexed);
                branch.by.add(bounds, indexed);
            }
            Some(SortKey::Trigrams(path, patterns)) => {
                let branch = self.by_trigram.entry(path.clone()).or_default();
                branch.all.push(indexed);
                for (_, trigram) in patterns.iter().filter_map(|pattern| frequencies.rarest(path, pattern)) {
                    branch.by.entry(trigram).or_default().push(indexed.no);
                }
            }
            Some(SortKey::Names(kind, parts)) => {
                let branch = self.by_name.entry(kind).or_default();
                branch.all.push(indexed);
                parts.into_iter().for_each(|part| branch.by.entry(part).push(indexed.no));
            }
            None => self.plain.push(IndexedRule { extent: IndexExtent::Part, ..indexed }),
        }
    }

    fn collect(&self, call: &Call, found: &mut Vec<Candidate>) {
        let at = |path: &ArgumentPath| call.arguments.value().and_then(|arguments| path.find_one(arguments));
        let tested = |no: &usize| Candidate { no: *no, truth: None };
        found.extend(self.plain.iter().map(|one| tested(&one.no)));
        for (kind, Branch { all, by }) in &self.by_name {
            match kind.of(call) {
                Some(name) => found.extend(by.find(name).flatten().map(tested)),
                // Of a session that nobody named nothing can be told.
                None => found.extend(all.iter().map(|one| tested(&one.no))),
            }
        }
        for (path, Branch { all, by }) in &self.by_text {
            match at(path) {
                Some(Value::Text(text)) => {
                    found.extend(by.get(text).into_iter().flatten().map(|one| one.with(Truth::Yes)));
                }
                // Missing or of another type: a hold or deny matches, whatever text it wants.
                Some(_) | None => found.extend(all.iter().map(|one| one.with(Truth::Unknown))),
            }
        }
        for (path, Branch { all, by }) in &self.by_program {
            match at(path).and_then(program_names) {
                Some(names) => {
                    found.extend(names.iter().filter_map(|name| by.get(name)).flatten().map(tested));
                }
                None => found.extend(all.iter().map(|one| tested(&one.no))),
            }
        }
        for (path, Branch { all, by }) in &self.by_trigram {
            match at(path) {
                // A path that leads elsewhere than it reads can be told nothing of.
                Some(Value::Text(text)) if !is_roundabout(text) => {
                    found.extend(
                        trigrams(text).iter().filter_map(|three| by.get(three)).flatten().map(tested),
                    );
                }
                Some(_) | None => found.extend(all.iter().map(|one| tested(&one.no))),
            }
        }
        for (path, Branch { all, by }) in &self.by_range {
            match at(path) {
                Some(Value::Number(Some(number))) => {
                    by.find(number, &mut |one| found.push(one.with(Truth::Yes)));
                }
                // Missing or of another type: a range says nothing of it.
                Some(_) | None => found.extend(all.iter().map(|one| one.with(Truth::Unknown))),
            }
        }
    }
}

/// Rules about the same tools, before they are sorted.
#[derive(Debug, Default)]
struct NamedRules {
    /// The tool, where it is one.
    tool: Option<String>,
    rules: Vec<usize>,
}

impl Index {
    pub(crate) fn of(rules: &[CheckedRule]) -> Index {
        let mut named = ByName::<NamedRules>::default();
        for (no, rule) in rules.iter().enumerate() {
            let parts = match &rule.scope.tool {
                Some(tool) => vec![NamePart::Whole(tool.to_string())],
                None => rule.tools.0.iter().map(NamePart::of).collect(),
            };
            for part in parts {
                let tool = if let NamePart::Whole(tool) = &part { Some(tool.clone()) } else { None };
                let entry = named.entry(part);
                entry.tool = tool;
                entry.rules.push(no);
            }
        }
        Index(named.map(|named| Bucket::of(rules, &named)))
    }

    /// The rules that can be about a call, in their order.
    pub(crate) fn candidates(&self, call: &Call) -> Vec<Candidate> {
        let mut found = Vec::new();
        for bucket in self.0.find(call.tool.as_str()) {
            bucket.collect(call, &mut found);
        }
        // Mostly one list, in order already.
        if !found.is_sorted_by_key(|one| one.no) {
            found.sort_unstable_by_key(|one| one.no);
        }
        found.dedup_by_key(|one| one.no);
        found
    }
}
