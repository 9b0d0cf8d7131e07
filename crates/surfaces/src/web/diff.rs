//! A unified diff of two texts, line by line, with what stands around each change.
//!
//! Works on any size within a bound: where the changed middle is too large to be compared line by line, all of it is shown
//! as removed and added, which is true as well. Lines are numbered as in the files.

use serde::Serialize;

/// Lines shown around a change.
const CONTEXT: usize = 3;
/// Pairs of lines that are compared at most.
const COMPARED_MAX: usize = 4_000_000;

/// A diff.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Diff {
    pub(super) added: usize,
    pub(super) removed: usize,
    pub(super) lines: Vec<DiffLine>,
    /// Lines that are not shown, of a long one.
    pub(super) left_out: usize,
}

/// A line of a diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct DiffLine {
    /// `+`, `-`, a space, or `@` for the head of a hunk.
    pub(super) sign: char,
    pub(super) text: String,
}

/// What changes from one text to the other; at most so many lines of it.
pub(super) fn unified(before: &str, after: &str, most: usize) -> Diff {
    let (old, new) = (split(before), split(after));
    let edits = edits(&old, &new);
    let (added, removed) = (count(&edits, Edit::Add), count(&edits, Edit::Remove));
    let mut lines = Vec::new();
    let (mut at_old, mut at_new) = (0, 0);
    let near = near_changes(&edits);
    let mut head: Option<HunkHead> = None;
    for (index, edit) in edits.iter().enumerate() {
        let is_shown = near[index];
        match (head.is_some(), is_shown) {
            (false, true) => {
                head = Some(HunkHead { line: lines.len(), old: at_old, new: at_new });
                lines.push(DiffLine { sign: '@', text: String::new() });
            }
            (true, false) => HunkHead::close(&mut head, &mut lines, (at_old, at_new)),
            (false, false) | (true, true) => {}
        }
        let (sign, text) = match edit {
            Edit::Keep => (' ', old[at_old]),
            Edit::Remove => ('-', old[at_old]),
            Edit::Add => ('+', new[at_new]),
        };
        if is_shown {
            lines.push(DiffLine { sign, text: text.to_owned() });
        }
        at_old += usize::from(*edit != Edit::Add);
        at_new += usize::from(*edit != Edit::Remove);
    }
    HunkHead::close(&mut head, &mut lines, (at_old, at_new));
    if before.ends_with('\n') != after.ends_with('\n') && !before.is_empty() && !after.is_empty() {
        let which = if after.ends_with('\n') { "had no" } else { "has no" };
        lines.push(DiffLine { sign: '@', text: format!("\\ The file {which} line break at its end") });
    }
    let left_out = lines.len().saturating_sub(most);
    lines.truncate(most);
    Diff { added, removed, lines, left_out }
}

/// Where a hunk begins: its line in the diff, and how many lines of each file stand before it.
struct HunkHead {
    line: usize,
    old: usize,
    new: usize,
}

impl HunkHead {
    /// Says where a hunk begins in each file and how many lines of it there are; it ends behind so many lines.
    fn close(head: &mut Option<HunkHead>, lines: &mut [DiffLine], (end_old, end_new): (usize, usize)) {
        if let Some(HunkHead { line, old, new }) = head.take() {
            lines[line].text = format!("@@ -{} +{} @@", range(old, end_old), range(new, end_new));
        }
    }
}

/// A range of lines as unified diffs write it: an empty one stands behind the line before it.
fn range(before: usize, end: usize) -> String {
    match end - before {
        0 => format!("{before},0"),
        1 => format!("{}", before + 1),
        count => format!("{},{count}", before + 1),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edit {
    Keep,
    Remove,
    Add,
}

/// Lines without their ends; a carriage return stays, so that it is seen.
fn split(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    if text.ends_with('\n') || text.is_empty() {
        lines.pop();
    }
    lines
}

fn count(edits: &[Edit], wanted: Edit) -> usize {
    edits.iter().filter(|edit| **edit == wanted).count()
}

/// Which of them stand near a change.
fn near_changes(edits: &[Edit]) -> Vec<bool> {
    let mut near = vec![false; edits.len()];
    for (at, _) in edits.iter().enumerate().filter(|(_, edit)| **edit != Edit::Keep) {
        let end = (at + CONTEXT + 1).min(edits.len());
        near[at.saturating_sub(CONTEXT)..end].fill(true);
    }
    near
}

fn edits(old: &[&str], new: &[&str]) -> Vec<Edit> {
    let before = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - before;
    let behind = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (middle_old, middle_new) = (&old[before..old.len() - behind], &new[before..new.len() - behind]);
    let mut edits = vec![Edit::Keep; before];
    if middle_old.len().saturating_mul(middle_new.len()) <= COMPARED_MAX {
        edits.extend(compared(middle_old, middle_new));
    } else {
        edits.extend(vec![Edit::Remove; middle_old.len()]);
        edits.extend(vec![Edit::Add; middle_new.len()]);
    }
    edits.extend(vec![Edit::Keep; behind]);
    edits
}

/// The longest common subsequence, by a table of what follows.
fn compared(old: &[&str], new: &[&str]) -> Vec<Edit> {
    let width = new.len() + 1;
    let mut longest = vec![0_u32; (old.len() + 1) * width];
    for a in (0..old.len()).rev() {
        for b in (0..new.len()).rev() {
            longest[a * width + b] = if old[a] == new[b] {
                longest[(a + 1) * width + b + 1] + 1
            } else {
                longest[(a + 1) * width + b].max(longest[a * width + b + 1])
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    let mut edits = Vec::new();
    while a < old.len() || b < new.len() {
        let is_same = a < old.len() && b < new.len() && old[a] == new[b];
        let is_removed =
            b >= new.len() || (a < old.len() && longest[(a + 1) * width + b] >= longest[a * width + b + 1]);
        let edit = if is_same {
            Edit::Keep
        } else if is_removed {
            Edit::Remove
        } else {
            Edit::Add
        };
        a += usize::from(edit != Edit::Add);
        b += usize::from(edit != Edit::Remove);
        edits.push(edit);
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, after: &str) -> Vec<String> {
        let diff = unified(before, after, 1000);
        diff.lines.iter().map(|line| format!("{}{}", line.sign, line.text)).collect()
    }

    #[test]
    fn a_change_is_shown_with_what_stands_around_it() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let after = "1\n2\n3\n4\nfive\n6\n7\n8\n9\n";
        assert_eq!(
            shown(before, after),
            ["@@@ -2,7 +2,7 @@", " 2", " 3", " 4", "-5", "+five", " 6", " 7", " 8"]
        );
        assert_eq!(shown("", "a\nb\n"), ["@@@ -0,0 +1,2 @@", "+a", "+b"]);
        assert_eq!(shown("a\n", ""), ["@@@ -1 +0,0 @@", "-a"]);
        assert_eq!(shown("a\n", "a\n"), Vec::<String>::new());
    }

    #[test]
    fn far_changes_have_hunks_of_their_own_and_ends_are_told() {
        let before: String = (0..40).map(|n| format!("{n}\n")).collect();
        let after = before.replace("\n5\n", "\nfive\n").replace("\n30\n", "\nthirty\n");
        assert_eq!(shown(&before, &after).iter().filter(|line| line.starts_with('@')).count(), 2);
        assert!(shown("a\nb", "a\nb\n").iter().any(|line| line.contains("had no line break")));
    }

    #[test]
    fn a_long_diff_says_what_is_left_out() {
        let after: String = (0..100).map(|n| format!("{n}\n")).collect();
        let diff = unified("", &after, 10);
        assert_eq!((diff.added, diff.lines.len(), diff.left_out), (100, 10, 91));
        let (large, other) = ("a\n".repeat(5_000), "b\n".repeat(5_000));
        assert_eq!(unified(&large, &other, 10).added, 5_000);
    }
}
