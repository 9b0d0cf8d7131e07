//! The conditions of all rules, prepared once, so that a call is looked at once and each rule is then told by comparing
//! numbers: every text and every bound that rules name at a path has a number, and a call's value becomes one of them.
//!
//! Says what `matching.rs` says of the same rules, which stays the plain way and is what people are shown; a property test
//! compares the two. Which rules have to be looked at is `index.rs`.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, HashMap};

use crate::argv::{Argv, CommandWords, Extent};
use crate::call::Call;
use crate::condition::Condition;
use crate::decimal::Decimal;
use crate::glob::is_roundabout;
use crate::matcher::{Globs, Matcher, Scalar};
use crate::matching::{CheckedRule, all_say, readable};
use crate::ranges::{Bounds, RangeEnd};
use crate::truth::Truth;
use crate::value::{ArgumentPath, Value};

/// A text that no rule names at its path.
const UNNAMED: u32 = u32::MAX;

/// What all rules ask of calls.
#[derive(Debug, Default)]
pub(crate) struct PreparedPolicy {
    paths: Vec<PreparedPath>,
    /// The conditions of all rules, one rule after the other: of each the cheap ones first.
    conditions: Vec<PreparedCondition>,
    /// What conditions are made of that have others in them.
    parts: Vec<PreparedTest>,
    rules: Vec<PreparedRule>,
    /// What takes time; each asked once for a call, however many rules ask it.
    slow: Vec<SlowCondition>,
}

/// What rules name at one path.
#[derive(Debug)]
struct PreparedPath {
    path: ArgumentPath,
    texts: HashMap<String, u32>,
    /// In order.
    numbers: Vec<Decimal>,
}

/// A rule as far as it is told by its call alone.
#[derive(Debug, Clone, Copy)]
struct PreparedRule {
    /// Its conditions are those from here …
    from: u32,
    /// … to before here.
    to: u32,
    /// Whether names have to be looked at: a pattern of tools, agents, callers, a session.
    asks_names: bool,
}

/// A condition of a rule: what it asks at a path.
#[derive(Debug)]
struct PreparedCondition {
    path: u32,
    test: PreparedTest,
}

/// What is asked of a value.
#[derive(Debug)]
enum PreparedTest {
    /// It is this text.
    Text(u32),
    /// It is one of these texts, in order.
    Texts(Box<[u32]>),
    /// It is a number with one of these ranks, in order.
    Numbers(Box<[u32]>),
    /// It is one of these, of several kinds.
    Mixed(Box<MixedValues>),
    /// It is a number with a rank in this range.
    Range(u32, u32),
    /// There is one, or not.
    Present(bool),
    /// Not all of these parts hold.
    Not(PartRange),
    /// One of these parts holds.
    Any(PartRange),
    /// All of these parts hold.
    All(PartRange),
    /// One of the slow ones.
    Slow(u32),
}

/// Parts from here to before there.
#[derive(Debug, Clone, Copy)]
struct PartRange {
    from: u32,
    to: u32,
}

/// Values of several kinds; of a kind that none of them has it cannot be told whether it is one of them.
#[derive(Debug, Default)]
struct MixedValues {
    texts: Vec<u32>,
    ranks: Vec<u32>,
    bools: Vec<bool>,
}

/// A condition that takes time.
#[derive(Debug)]
enum SlowCondition {
    Glob(u32, Globs),
    Command { path: u32, argv: Argv, extent: Extent, programs: Vec<String> },
    Other(ArgumentPath, Matcher),
}

/// What a call has at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FoundValue {
    /// A text, by its number.
    Text(u32),
    /// A number, by its rank: twice the numbers that are below it, and one more if it is one of them.
    Number(u32),
    /// A truth value.
    Bool(bool),
    /// Something that none of these are.
    Other,
    /// Nothing.
    Missing,
    /// Arguments that cannot be read.
    Unreadable,
}

/// A call as all rules see it, as far as one of them has asked.
#[derive(Debug)]
pub(crate) struct CallReading<'a> {
    prepared: &'a PreparedPolicy,
    call: &'a Call,
    readable: Truth,
    found: Vec<Cell<Option<FoundValue>>>,
    /// The same of paths that lead to several values: each of them once.
    many: OnceCell<Vec<OnceCell<Vec<FoundValue>>>>,
    slow: OnceCell<SlowReading>,
}

/// What slow conditions need of a call.
#[derive(Debug)]
struct SlowReading {
    said: Vec<Cell<Option<Truth>>>,
    texts: Vec<OnceCell<TextReading>>,
    commands: Vec<OnceCell<CommandWords>>,
}

/// A text as many patterns see it.
#[derive(Debug)]
struct TextReading {
    is_roundabout: bool,
    chars: OnceCell<Vec<char>>,
}

impl TextReading {
    fn of(text: &str) -> TextReading {
        TextReading { is_roundabout: is_roundabout(text), chars: OnceCell::new() }
    }

    /// Whether the text fits one of these patterns; a path that leads elsewhere than it reads can be told nothing of.
    fn test(&self, text: &str, globs: &Globs) -> Truth {
        if self.is_roundabout {
            return Truth::Unknown;
        }
        Truth::of(globs.0.iter().any(|glob| glob.fits(text, &self.chars)))
    }
}

/// Collects what rules name, before it has its numbers.
#[derive(Default)]
struct Collection<'a> {
    paths: BTreeMap<&'a ArgumentPath, u32>,
    texts: Vec<HashMap<String, u32>>,
    numbers: Vec<Vec<Decimal>>,
}

impl<'a> Collection<'a> {
    fn path(&mut self, path: &'a ArgumentPath) -> u32 {
        let next = number(self.paths.len());
        let found = *self.paths.entry(path).or_insert(next);
        if found == next {
            self.texts.push(HashMap::new());
            self.numbers.push(Vec::new());
        }
        found
    }

    fn collect(&mut self, path: &'a ArgumentPath, condition: &Condition<'a>) {
        match condition {
            Condition::Texts(named) => named.iter().for_each(|text| self.text(path, text)),
            Condition::Numbers(named) => named.iter().for_each(|number| self.number(path, number)),
            Condition::Mixed(scalars) => {
                for scalar in *scalars {
                    match scalar {
                        Scalar::Text(text) => self.text(path, text),
                        Scalar::Number(number) => self.number(path, number),
                        Scalar::Bool(_) => {}
                    }
                }
            }
            Condition::Range(Bounds { low, high }) => {
                for end in [low, high] {
                    match end {
                        RangeEnd::At(number) | RangeEnd::Beside(number) => self.number(path, number),
                        RangeEnd::Open => {}
                    }
                }
            }
            Condition::Not(parts) => parts.iter().for_each(|part| self.collect(path, part)),
            Condition::Any(all) => all.iter().flatten().for_each(|part| self.collect(path, part)),
            Condition::Present(_) | Condition::Glob(_) | Condition::Command(..) => {}
        }
    }

    fn text(&mut self, path: &'a ArgumentPath, text: &str) {
        let at = self.path(path) as usize;
        if let Some(texts) = self.texts.get_mut(at) {
            let next = number(texts.len());
            texts.entry(text.to_owned()).or_insert(next);
        }
    }

    fn number(&mut self, path: &'a ArgumentPath, number: &Decimal) {
        let at = self.path(path) as usize;
        if let Some(numbers) = self.numbers.get_mut(at) {
            numbers.push(number.clone());
        }
    }

    fn finish(self) -> (BTreeMap<&'a ArgumentPath, u32>, Vec<PreparedPath>) {
        let mut paths: Vec<(&ArgumentPath, u32)> = self.paths.iter().map(|(path, no)| (*path, *no)).collect();
        paths.sort_by_key(|(_, no)| *no);
        let named = self.texts.into_iter().zip(self.numbers);
        let prepared = paths.into_iter().zip(named).map(|((path, _), (texts, mut numbers))| {
            numbers.sort();
            numbers.dedup();
            PreparedPath { path: path.clone(), texts, numbers }
        });
        (self.paths, prepared.collect())
    }
}

/// A place in one of the lists.
fn number(at: usize) -> u32 {
    // As many rules as that do not fit into memory.
    u32::try_from(at).unwrap_or(UNNAMED)
}

impl PreparedPath {
    /// The rank of a number among those that rules name here.
    fn rank(&self, of: &Decimal) -> u32 {
        match self.numbers.binary_search(of) {
            Ok(at) => number(2 * at + 1),
            Err(at) => number(2 * at),
        }
    }

    /// The first rank and the last one of a range.
    fn ranks(&self, bounds: &Bounds) -> (u32, u32) {
        let from = match &bounds.low {
            RangeEnd::Open => 0,
            RangeEnd::At(low) => self.rank(low),
            RangeEnd::Beside(low) => self.rank(low).saturating_add(1),
        };
        let to = match &bounds.high {
            RangeEnd::Open => u32::MAX,
            RangeEnd::At(high) => self.rank(high),
            // A named number has an odd rank, so there is one below.
            RangeEnd::Beside(high) => self.rank(high).saturating_sub(1),
        };
        (from, to)
    }

    /// A condition that numbers tell, without others in it.
    fn test(&self, condition: &Condition<'_>) -> Option<PreparedTest> {
        match condition {
            Condition::Texts(texts) => {
                let texts = sorted(texts.iter().map(|text| self.text(text)));
                Some(match texts.as_slice() {
                    [text] => PreparedTest::Text(*text),
                    _ => PreparedTest::Texts(texts.into_boxed_slice()),
                })
            }
            Condition::Numbers(numbers) => {
                let ranks = sorted(numbers.iter().map(|number| self.rank(number)));
                Some(PreparedTest::Numbers(ranks.into_boxed_slice()))
            }
            Condition::Mixed(scalars) => {
                let mut values = MixedValues::default();
                for scalar in *scalars {
                    match scalar {
                        Scalar::Text(text) => values.texts.push(self.text(text)),
                        Scalar::Number(number) => values.ranks.push(self.rank(number)),
                        Scalar::Bool(truth) => values.bools.push(*truth),
                    }
                }
                Some(PreparedTest::Mixed(Box::new(values)))
            }
            Condition::Range(bounds) => {
                let (from, to) = self.ranks(bounds);
                Some(PreparedTest::Range(from, to))
            }
            Condition::Present(wanted) => Some(PreparedTest::Present(*wanted)),
            Condition::Not(_) | Condition::Any(_) | Condition::Glob(_) | Condition::Command(..) => None,
        }
    }

    fn text(&self, text: &str) -> u32 {
        self.texts.get(text).copied().unwrap_or(UNNAMED)
    }

    /// What a value is here.
    fn find(&self, value: Option<&Value>) -> FoundValue {
        match value {
            Some(Value::Text(text)) => FoundValue::Text(self.text(text)),
            Some(Value::Number(Some(number))) => FoundValue::Number(self.rank(number)),
            Some(Value::Bool(truth)) => FoundValue::Bool(*truth),
            Some(Value::Null | Value::Number(None) | Value::List(_) | Value::Map(_)) => FoundValue::Other,
            None => FoundValue::Missing,
        }
    }
}

fn sorted(all: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut all: Vec<u32> = all.collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl PreparedPolicy {
    pub(crate) fn of(rules: &[CheckedRule]) -> PreparedPolicy {
        let mut collection = Collection::default();
        for (path, matcher) in rules.iter().flat_map(|rule| &rule.rule.conditions) {
            collection.path(path);
            matcher.conditions().iter().for_each(|condition| collection.collect(path, condition));
        }
        let (numbers, paths) = collection.finish();
        let mut prepared = PreparedPolicy { paths, ..PreparedPolicy::default() };
        let mut known: HashMap<String, u32> = HashMap::new();
        for rule in rules {
            let from = number(prepared.conditions.len());
            let (mut quick, mut slow) = (Vec::new(), Vec::new());
            for (path, matcher) in &rule.rule.conditions {
                let at = numbers.get(path).copied().unwrap_or(UNNAMED);
                if path.is_plural() {
                    let test = prepared.of_many(&mut known, (path, at), matcher);
                    slow.push(PreparedCondition { path: at, test });
                    continue;
                }
                for condition in matcher.conditions() {
                    let test = prepared.test(&mut known, at, &condition);
                    let list = if test.is_quick() { &mut quick } else { &mut slow };
                    list.push(PreparedCondition { path: at, test });
                }
            }
            prepared.conditions.append(&mut quick);
            prepared.conditions.append(&mut slow);
            let to = number(prepared.conditions.len());
            prepared.rules.push(PreparedRule { from, to, asks_names: asks_names(rule) });
        }
        prepared
    }

    /// What a condition asks of the one value at a path.
    fn test(&mut self, known: &mut HashMap<String, u32>, at: u32, condition: &Condition<'_>) -> PreparedTest {
        if let Some(test) = self.paths.get(at as usize).and_then(|named| named.test(condition)) {
            return test;
        }
        match condition {
            Condition::Not(parts) => PreparedTest::Not(self.parts_of(known, at, parts)),
            Condition::Any(all) => {
                let mut each = Vec::with_capacity(all.len());
                for parts in all {
                    each.push(PreparedTest::All(self.parts_of(known, at, parts)));
                }
                PreparedTest::Any(self.put_parts(each))
            }
            Condition::Glob(globs) => self.slow_test(known, SlowCondition::Glob(at, (*globs).clone())),
            Condition::Command(argv, extent) => {
                let (argv, programs) = ((*argv).clone(), argv.programs());
                self.slow_test(known, SlowCondition::Command { path: at, argv, extent: *extent, programs })
            }
            Condition::Texts(_)
            | Condition::Numbers(_)
            | Condition::Mixed(_)
            | Condition::Range(_)
            | Condition::Present(_) => unreachable!("every path is prepared before its conditions"),
        }
    }

    /// What a matcher asks of the values at a path that leads to several: all of it, or the plain way.
    fn of_many(
        &mut self,
        known: &mut HashMap<String, u32>,
        (path, at): (&ArgumentPath, u32),
        matcher: &Matcher,
    ) -> PreparedTest {
        let conditions = matcher.conditions();
        if conditions.iter().all(Condition::is_told_by_numbers) {
            return PreparedTest::All(self.parts_of(known, at, &conditions));
        }
        self.slow_test(known, SlowCondition::Other(path.clone(), matcher.clone()))
    }

    fn parts_of(
        &mut self,
        known: &mut HashMap<String, u32>,
        at: u32,
        conditions: &[Condition<'_>],
    ) -> PartRange {
        let parts: Vec<PreparedTest> =
            conditions.iter().map(|condition| self.test(known, at, condition)).collect();
        self.put_parts(parts)
    }

    fn put_parts(&mut self, parts: Vec<PreparedTest>) -> PartRange {
        let from = number(self.parts.len());
        self.parts.extend(parts);
        PartRange { from, to: number(self.parts.len()) }
    }

    fn slow_test(&mut self, known: &mut HashMap<String, u32>, condition: SlowCondition) -> PreparedTest {
        PreparedTest::Slow(self.slow_number(known, condition))
    }

    /// The number of a slow condition: equal ones have the same.
    fn slow_number(&mut self, known: &mut HashMap<String, u32>, condition: SlowCondition) -> u32 {
        let next = number(self.slow.len());
        let no = *known.entry(format!("{condition:?}")).or_insert(next);
        if no == next {
            self.slow.push(condition);
        }
        no
    }

    /// A call as these rules see it.
    pub(crate) fn read<'a>(&'a self, call: &'a Call) -> CallReading<'a> {
        let found = vec![Cell::new(None); self.paths.len()];
        let (many, slow) = (OnceCell::new(), OnceCell::new());
        CallReading { prepared: self, call, readable: readable(call), found, many, slow }
    }

    fn parts(&self, range: PartRange) -> &[PreparedTest] {
        self.parts.get(range.from as usize..range.to as usize).unwrap_or_default()
    }
}

impl Condition<'_> {
    /// Whether nothing of it takes time.
    fn is_told_by_numbers(&self) -> bool {
        match self {
            Condition::Texts(_)
            | Condition::Numbers(_)
            | Condition::Mixed(_)
            | Condition::Range(_)
            | Condition::Present(_) => true,
            Condition::Not(parts) => parts.iter().all(Condition::is_told_by_numbers),
            Condition::Any(all) => all.iter().flatten().all(Condition::is_told_by_numbers),
            Condition::Glob(_) | Condition::Command(..) => false,
        }
    }
}

impl PreparedTest {
    /// Whether it is told by comparing numbers once.
    fn is_quick(&self) -> bool {
        match self {
            PreparedTest::Text(_)
            | PreparedTest::Texts(_)
            | PreparedTest::Numbers(_)
            | PreparedTest::Mixed(_)
            | PreparedTest::Range(..)
            | PreparedTest::Present(_) => true,
            PreparedTest::Not(_) | PreparedTest::Any(_) | PreparedTest::All(_) | PreparedTest::Slow(_) => {
                false
            }
        }
    }
}

impl MixedValues {
    fn test(&self, found: FoundValue) -> Truth {
        let one_of = |is_empty: bool, has: bool| if is_empty { Truth::Unknown } else { Truth::of(has) };
        match found {
            FoundValue::Text(text) => {
                one_of(self.texts.is_empty(), text != UNNAMED && self.texts.contains(&text))
            }
            FoundValue::Number(rank) => one_of(self.ranks.is_empty(), self.ranks.contains(&rank)),
            FoundValue::Bool(truth) => one_of(self.bools.is_empty(), self.bools.contains(&truth)),
            FoundValue::Other | FoundValue::Missing | FoundValue::Unreadable => Truth::Unknown,
        }
    }
}

/// Whether a rule that the index found for a call may still be about another tool, agent, caller or session.
fn asks_names(rule: &CheckedRule) -> bool {
    let asks = &rule.rule;
    let knows_tool = match &rule.scope.tool {
        Some(tool) => rule.tools.matches(tool.as_str()),
        None => rule.tools.0.iter().all(|glob| glob.literal().is_some()),
    };
    !knows_tool
        || rule.scope.agent.is_some()
        || asks.agent.is_some()
        || asks.caller.is_some()
        || asks.session.is_some()
}

impl CallReading<'_> {
    /// What the conditions of a rule come to, all but its expression, of one that the index found for this call.
    pub(crate) fn truth(&self, no: usize, rule: &CheckedRule) -> Truth {
        let Some(prepared) = self.prepared.rules.get(no) else { return rule.static_truth(self.call) };
        let mut truth = self.readable;
        if prepared.asks_names {
            truth = truth.and(rule.names_truth(self.call));
        }
        let conditions = self.prepared.conditions.get(prepared.from as usize..prepared.to as usize);
        for condition in conditions.unwrap_or_default() {
            if truth == Truth::No {
                break;
            }
            truth = truth.and(self.test(condition));
        }
        truth
    }

    fn test(&self, condition: &PreparedCondition) -> Truth {
        // Only a path to several values has such a condition by itself.
        if let PreparedTest::All(parts) = &condition.test {
            return self.test_many(condition.path, *parts);
        }
        self.test_value(&condition.test, self.at(condition.path))
    }

    fn test_value(&self, test: &PreparedTest, found: FoundValue) -> Truth {
        match (test, found) {
            (PreparedTest::Text(wanted), FoundValue::Text(text)) => {
                Truth::of(text == *wanted && text != UNNAMED)
            }
            (PreparedTest::Texts(texts), FoundValue::Text(text)) => {
                Truth::of(text != UNNAMED && texts.binary_search(&text).is_ok())
            }
            (PreparedTest::Numbers(ranks), FoundValue::Number(rank)) => {
                Truth::of(ranks.binary_search(&rank).is_ok())
            }
            (PreparedTest::Range(from, to), FoundValue::Number(rank)) => {
                Truth::of(*from <= rank && rank <= *to)
            }
            (
                PreparedTest::Text(_)
                | PreparedTest::Texts(_)
                | PreparedTest::Numbers(_)
                | PreparedTest::Range(..),
                _,
            )
            | (PreparedTest::Present(_), FoundValue::Unreadable) => Truth::Unknown,
            (PreparedTest::Present(wanted), FoundValue::Missing) => Truth::of(!wanted),
            (PreparedTest::Present(wanted), _) => Truth::of(*wanted),
            (PreparedTest::Mixed(values), _) => values.test(found),
            (PreparedTest::Not(parts), _) => self.test_all(*parts, found).negated(),
            (PreparedTest::All(parts), _) => self.test_all(*parts, found),
            (PreparedTest::Any(parts), _) => {
                let parts = self.prepared.parts(*parts).iter();
                parts.map(|part| self.test_value(part, found)).fold(Truth::No, Truth::or)
            }
            (PreparedTest::Slow(no), _) => self.test_slowly(*no as usize),
        }
    }

    fn test_all(&self, parts: PartRange, found: FoundValue) -> Truth {
        let mut truth = Truth::Yes;
        for part in self.prepared.parts(parts) {
            truth = truth.and(self.test_value(part, found));
            if truth == Truth::No {
                break;
            }
        }
        truth
    }

    /// Of several values all must say the same; otherwise it cannot be told.
    fn test_many(&self, path: u32, parts: PartRange) -> Truth {
        let many = self.many.get_or_init(|| self.prepared.paths.iter().map(|_| OnceCell::new()).collect());
        let Some(cell) = many.get(path as usize) else { return Truth::Unknown };
        let found = cell.get_or_init(|| self.all_at(path));
        let mut said = found.iter().map(|found| self.test_all(parts, *found));
        let first = said.next().unwrap_or(Truth::Unknown);
        if said.all(|truth| truth == first) { first } else { Truth::Unknown }
    }

    /// What a path leads to that leads to several values. Equal ones say the same, so each is there once.
    fn all_at(&self, path: u32) -> Vec<FoundValue> {
        let named = self.prepared.paths.get(path as usize);
        let (Some(named), Some(arguments)) = (named, self.call.arguments.value()) else {
            return vec![FoundValue::Unreadable];
        };
        let mut found: Vec<FoundValue> =
            named.path.find(arguments).into_iter().map(|value| named.find(value)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn at(&self, path: u32) -> FoundValue {
        let Some(cell) = self.found.get(path as usize) else { return FoundValue::Unreadable };
        if let Some(found) = cell.get() {
            return found;
        }
        let named = self.prepared.paths.get(path as usize);
        let found = match (named, self.call.arguments.value()) {
            (Some(named), Some(arguments)) => named.find(named.path.find_one(arguments)),
            (_, _) => FoundValue::Unreadable,
        };
        cell.set(Some(found));
        found
    }

    fn value(&self, path: u32) -> Option<&Value> {
        let named = self.prepared.paths.get(path as usize)?;
        self.call.arguments.value().and_then(|arguments| named.path.find_one(arguments))
    }

    fn test_slowly(&self, no: usize) -> Truth {
        let slow = self.slow.get_or_init(|| SlowReading {
            said: vec![Cell::new(None); self.prepared.slow.len()],
            texts: self.prepared.paths.iter().map(|_| OnceCell::new()).collect(),
            commands: self.prepared.paths.iter().map(|_| OnceCell::new()).collect(),
        });
        let (Some(cell), Some(condition)) = (slow.said.get(no), self.prepared.slow.get(no)) else {
            return Truth::Unknown;
        };
        if let Some(said) = cell.get() {
            return said;
        }
        let said = match condition {
            SlowCondition::Glob(path, globs) => match (self.value(*path), slow.texts.get(*path as usize)) {
                (Some(Value::Text(text)), Some(cell)) => {
                    cell.get_or_init(|| TextReading::of(text)).test(text, globs)
                }
                (_, _) => Truth::Unknown,
            },
            SlowCondition::Command { path, argv, extent, programs } => {
                match (self.value(*path), slow.commands.get(*path as usize)) {
                    (Some(value), Some(cell)) => {
                        let words = cell.get_or_init(|| CommandWords::of(value));
                        words.test(value, (argv, programs.as_slice()), *extent)
                    }
                    (_, _) => Truth::Unknown,
                }
            }
            SlowCondition::Other(path, matcher) => {
                let arguments = self.call.arguments.value();
                arguments.map_or(Truth::Unknown, |arguments| all_say(path, matcher, arguments))
            }
        };
        cell.set(Some(said));
        said
    }
}
