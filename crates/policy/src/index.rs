//! Which rules can be about a call at all: by its tool, and by the text, command or number among its arguments that the fewest
//! other rules name.
//!
//! Leaves out only rules that certainly do not match, and says of some that they certainly do, so it changes the time that an
//! answer takes and nothing else. Ranges of numbers are in `ranges.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::argv::program_names;
use crate::call::Call;
use crate::condition::Condition;
use crate::matching::CheckedRule;
use crate::ranges::{Bounds, RangeEnd, Ranges};
use crate::truth::Truth;
use crate::value::{ArgumentPath, Value};

/// Rules by what they are about.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// By the whole name of a tool.
    exact: HashMap<String, Bucket>,
    /// By what the names of tools begin with.
    prefix: HashMap<String, Bucket>,
    /// How long those beginnings are.
    lengths: BTreeSet<usize>,
}

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
}

/// How many rules of a bucket name what.
#[derive(Debug, Default)]
struct Frequencies {
    texts: HashMap<(ArgumentPath, String), usize>,
    programs: HashMap<(ArgumentPath, String), usize>,
    ranges: HashMap<ArgumentPath, usize>,
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
        }
    }
}

/// What a rule may be sorted by: what it asks of single values.
fn sort_keys(rule: &CheckedRule) -> Vec<SortKey<'_>> {
    let singular = rule.rule.conditions.iter().filter(|(path, _)| !path.is_plural());
    let mut found = Vec::new();
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
                Condition::Glob(_)
                | Condition::Mixed(_)
                | Condition::Present(_)
                | Condition::Not(_)
                | Condition::Any(_) => {}
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
            bucket.add(IndexedRule { no, extent: extent(rule, tool) }, best);
        }
        bucket.by_range.values_mut().for_each(|branch| branch.by.sort());
        bucket
    }

    fn add(&mut self, indexed: IndexedRule, by: Option<SortKey<'_>>) {
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
            None => self.plain.push(IndexedRule { extent: IndexExtent::Part, ..indexed }),
        }
    }

    fn collect(&self, call: &Call, found: &mut Vec<Candidate>) {
        let at = |path: &ArgumentPath| call.arguments.value().and_then(|arguments| path.find_one(arguments));
        found.extend(self.plain.iter().map(|one| Candidate { no: one.no, truth: None }));
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
            let tested = |no: &usize| Candidate { no: *no, truth: None };
            match at(path).and_then(program_names) {
                Some(names) => {
                    found.extend(names.iter().filter_map(|name| by.get(name)).flatten().map(tested));
                }
                None => found.extend(all.iter().map(|one| tested(&one.no))),
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
        let (mut exact, mut prefix) =
            (HashMap::<String, NamedRules>::new(), HashMap::<String, NamedRules>::new());
        let mut name = |tool: &str, no: usize| {
            let named = exact.entry(tool.to_owned()).or_default();
            named.tool = Some(tool.to_owned());
            named.rules.push(no);
        };
        for (no, rule) in rules.iter().enumerate() {
            if let Some(tool) = &rule.scope.tool {
                name(tool.as_str(), no);
                continue;
            }
            for glob in &rule.tools.0 {
                match glob.literal() {
                    Some(tool) => name(tool, no),
                    None => prefix.entry(glob.prefix().to_owned()).or_default().rules.push(no),
                }
            }
        }
        let lengths = prefix.keys().map(String::len).collect();
        let sorted = |all: HashMap<String, NamedRules>| {
            all.into_iter().map(|(name, named)| (name, Bucket::of(rules, &named))).collect()
        };
        Index { exact: sorted(exact), prefix: sorted(prefix), lengths }
    }

    /// The rules that can be about a call, in their order.
    pub(crate) fn candidates(&self, call: &Call) -> Vec<Candidate> {
        let mut found = Vec::new();
        let tool = call.tool.as_str();
        if let Some(bucket) = self.exact.get(tool) {
            bucket.collect(call, &mut found);
        }
        for length in &self.lengths {
            if let Some(bucket) = tool.get(..*length).and_then(|prefix| self.prefix.get(prefix)) {
                bucket.collect(call, &mut found);
            }
        }
        // Mostly one list, in order already.
        if !found.is_sorted_by_key(|one| one.no) {
            found.sort_unstable_by_key(|one| one.no);
        }
        found.dedup_by_key(|one| one.no);
        found
    }
}
