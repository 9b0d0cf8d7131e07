//! Older and foreign names of keys (C17): taken as what they mean, with a notice.
//!
//! `requires_approval` is the name. Hector's later versions said `enable_approval` and `require_approval`, Teal says
//! `governance.requires_hitl`.

use super::path::Path;
use super::problem::{Notice, Problem};
use super::tree::{Entry, Node, Value};

const NAME: &str = "requires_approval";
const ALIASES: [&str; 2] = ["enable_approval", "require_approval"];

/// Renames them all.
pub(super) fn rename(tree: &mut Node, problems: &mut Vec<Problem>, notices: &mut Vec<Notice>) {
    let Some(tools) = entries(tree).and_then(|top| top.iter_mut().find(|entry| entry.key == "tools")) else {
        return;
    };
    for tool in entries(&mut tools.node).into_iter().flatten() {
        let path = Path::of(&["tools", &tool.key]);
        if let Some(keys) = entries(&mut tool.node) {
            rename_in(keys, &path, problems, notices);
        }
    }
}

fn rename_in(keys: &mut Vec<Entry>, path: &Path, problems: &mut Vec<Problem>, notices: &mut Vec<Notice>) {
    take_out_of_governance(keys);
    let mut first: Option<String> = None;
    keys.retain_mut(|entry| {
        let is_alias = ALIASES.contains(&entry.key.as_str()) || entry.key == "governance.requires_hitl";
        if !is_alias && entry.key != NAME {
            return true;
        }
        if let Some(first) = &first {
            let what = format!("`{}` and `{first}` of `{path}` mean the same", entry.key);
            let help = format!("keep one of them, under the name `{NAME}`");
            problems.push(Problem { at: entry.key_at, path: path.key(&entry.key), what, help });
            return false;
        }
        first = Some(entry.key.clone());
        if is_alias {
            let what = format!("`{}` of `{path}` is read as `{NAME}`; write `{NAME}`", entry.key);
            notices.push(Notice { at: entry.key_at, path: path.key(&entry.key), what });
            entry.key = NAME.to_owned();
        }
        true
    });
}

/// Puts `governance.requires_hitl` where the others are. Anything else below `governance` stays there.
fn take_out_of_governance(keys: &mut Vec<Entry>) {
    let Some(at) = keys.iter().position(|entry| entry.key == "governance") else { return };
    let Some(below) = entries(&mut keys[at].node) else { return };
    let Some(found) = below.iter().position(|entry| entry.key == "requires_hitl") else { return };
    let mut taken = below.remove(found);
    let is_empty = below.is_empty();
    taken.key = "governance.requires_hitl".to_owned();
    if is_empty {
        keys[at] = taken;
    } else {
        keys.push(taken);
    }
}

fn entries(node: &mut Node) -> Option<&mut Vec<Entry>> {
    match &mut node.value {
        Value::Map(entries) => Some(entries),
        Value::Nothing | Value::Scalar(_) | Value::List(_) => None,
    }
}
