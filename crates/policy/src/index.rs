//! Which rules can be about a call at all: by its tool, and by one text among its arguments.
//!
//! Leaves out only rules that certainly do not match, so it changes the time that an answer takes and nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::argv::program_names;
use crate::call::Call;
use crate::matching::CheckedRule;
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

/// Rules about the same tools.
#[derive(Debug, Default)]
struct Bucket {
    plain: Vec<usize>,
    /// Those that want one text at a path.
    by_text: BTreeMap<ArgumentPath, HashMap<String, Vec<usize>>>,
    /// Those that want a command at a path, by the names of its programs.
    by_program: BTreeMap<ArgumentPath, HashMap<String, Vec<usize>>>,
}

impl Bucket {
    fn add(&mut self, no: usize, rule: &CheckedRule) {
        let singular = || rule.rule.conditions.iter().filter(|(path, _)| !path.is_plural());
        let text = singular().find_map(|(path, matcher)| Some((path, matcher.text()?)));
        let command = singular().find_map(|(path, matcher)| Some((path, matcher.command()?)));
        if let Some((path, text)) = text {
            self.by_text.entry(path.clone()).or_default().entry(text.to_owned()).or_default().push(no);
        } else if let Some((path, argv)) = command {
            let programs = self.by_program.entry(path.clone()).or_default();
            argv.programs().into_iter().for_each(|name| programs.entry(name).or_default().push(no));
        } else {
            self.plain.push(no);
        }
    }

    fn collect(&self, call: &Call, found: &mut Vec<usize>) {
        found.extend(&self.plain);
        for (path, texts) in &self.by_text {
            match call.arguments.value().and_then(|arguments| path.find_one(arguments)) {
                Some(Value::Text(text)) => found.extend(texts.get(text).into_iter().flatten()),
                // Missing or of another type: a hold or deny matches, whatever text it wants.
                Some(_) | None => found.extend(texts.values().flatten()),
            }
        }
        for (path, programs) in &self.by_program {
            let value = call.arguments.value().and_then(|arguments| path.find_one(arguments));
            match value.and_then(program_names) {
                Some(names) => found.extend(names.iter().filter_map(|name| programs.get(name)).flatten()),
                None => found.extend(programs.values().flatten()),
            }
        }
    }
}

impl Index {
    pub(crate) fn of(rules: &[CheckedRule]) -> Index {
        let mut index = Index::default();
        for (no, rule) in rules.iter().enumerate() {
            if let Some(tool) = &rule.scope.tool {
                index.exact.entry(tool.to_string()).or_default().add(no, rule);
                continue;
            }
            for glob in &rule.tools.0 {
                match glob.literal() {
                    Some(name) => index.exact.entry(name.to_owned()).or_default().add(no, rule),
                    None => {
                        let prefix = glob.prefix();
                        index.lengths.insert(prefix.len());
                        index.prefix.entry(prefix).or_default().add(no, rule);
                    }
                }
            }
        }
        index
    }

    /// The rules that can be about a call, in their order.
    pub(crate) fn candidates(&self, call: &Call) -> Vec<usize> {
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
        found.sort_unstable();
        found.dedup();
        found
    }
}
