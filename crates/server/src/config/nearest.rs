//! The known word that somebody most likely meant.
//!
//! For keys, names and words of a choice alike; whoever asks says what is known.

/// The nearest of the known words, if one is near enough to be meant.
#[must_use]
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let far = word.chars().count().div_ceil(3).max(1);
    let rated = known.into_iter().map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate));
    rated.filter(|(distance, _)| *distance <= far).min().map(|(_, candidate)| candidate)
}

/// What to say about an unknown word: the one that was meant, or all there are.
#[must_use]
pub fn advice<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(meant) = nearest(word, known.clone()) {
        return Some(format!("did you mean `{meant}`?"));
    }
    let all: Vec<String> = known.into_iter().map(|word| format!("`{word}`")).collect();
    (!all.is_empty()).then(|| format!("use one of {}", all.join(", ")))
}

/// How many letters differ; two that changed places count once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + differs);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_was_meant() {
        let known = ["tools", "task", "llm", "session_store", "requires_approval"];
        assert_eq!(nearest("tool", known), Some("tools"));
        assert_eq!(nearest("taks", known), Some("task"));
        assert_eq!(nearest("sesion_stores", known), Some("session_store"));
        assert_eq!(nearest("LLM", known), Some("llm"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(advice("colour", ["a", "b"]).as_deref(), Some("use one of `a`, `b`"));
        assert_eq!(advice("colour", []), None);
    }
}
