//! What each message of the A2A conformance kits makes the agent do.
//!
//! The kits choose by how the id of a message begins (TCK) or its first words do (ACTS). `model.rs` does it in an ordinary
//! run, and `interceptor.rs` adds what no run can express.

use standfast_core::time::Millis;

/// What the agent does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// It works for a while, says something and completes.
    Says {
        /// How long it works.
        after: Millis,
        /// Its words; more than one piece is heard piece by piece.
        pieces: &'static [&'static str],
    },
    /// It makes something and completes.
    Makes(Made),
    /// It asks, and the next turn completes it.
    AsksOnce,
    /// It asks until somebody says `done`.
    AsksUntilDone,
    /// It waits for a login.
    AsksForLogin,
    /// It works until it is cancelled.
    WaitsForCancel,
    /// It fails.
    Fails,
    /// It will not do it.
    Rejects,
    /// It answers with a message, and there is no task.
    AnswersDirectly,
    /// It hands a payload to its own A2A client, and completes with what that made of it.
    ParsesAsClient,
}

/// What the agent makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// A file, with its bytes.
    File,
    /// A file elsewhere.
    FileAtUrl,
    /// Structured content.
    Data,
}

const fn says(pieces: &'static [&'static str]) -> Behaviour {
    Behaviour::Says { after: Millis(0), pieces }
}

const fn works(ms: i64, pieces: &'static [&'static str]) -> Behaviour {
    Behaviour::Says { after: Millis(ms), pieces }
}

/// What the beginning of a message's id, or of its words, means. The longest that fits counts.
pub(crate) const TABLE: [(&str, Behaviour); 25] = [
    ("tck-complete-task", says(&["Hello from TCK"])),
    ("tck-input-required", Behaviour::AsksOnce),
    ("tck-auth-required", Behaviour::AsksForLogin),
    ("tck-delayed-complete", works(2_000, &["Done after delay"])),
    ("tck-reject-task", Behaviour::Rejects),
    ("tck-task-failure", Behaviour::Fails),
    ("tck-message-response", Behaviour::AnswersDirectly),
    ("tck-client-parse", Behaviour::ParsesAsClient),
    ("tck-multi-turn", Behaviour::AsksUntilDone),
    ("tck-cancel", Behaviour::WaitsForCancel),
    ("tck-long-running", works(2_500, &["Done after a long run"])),
    ("tck-artifact-text", says(&["Generated text content"])),
    ("tck-artifact-file", Behaviour::Makes(Made::File)),
    ("tck-artifact-file-url", Behaviour::Makes(Made::FileAtUrl)),
    ("tck-artifact-data", Behaviour::Makes(Made::Data)),
    ("tck-stream-001", says(&["Stream hello from TCK"])),
    ("tck-stream-002", says(&[])),
    ("tck-stream-003", says(&["Stream task lifecycle"])),
    ("tck-stream-ordering-001", says(&["Ordered output"])),
    ("tck-stream-artifact-text", says(&["Streamed text content"])),
    ("tck-stream-artifact-file", Behaviour::Makes(Made::File)),
    ("tck-stream-artifact-chunked", says(&["chunk-1 ", "chunk-2"])),
    ("tck-stream-basic", says(&["Streamed content"])),
    ("tck-stream-chunked", says(&["chunk one ", "chunk two ", "chunk three"])),
    // Longer than twice what the kit waits for an event.
    ("test-resubscribe-message-id", works(4_500, &["Done after a resubscription"])),
];

/// Whatever the table has no beginning for: a task that can be continued and cancelled for a moment, then completes.
pub(crate) const ANYTHING_ELSE: Behaviour = works(1_000, &["Unhandled message, completed"]);

/// What a message chooses, by its id or by its first words; none when it chooses nothing.
#[must_use]
pub(crate) fn chosen(message_id: &str, first_words: &str) -> Option<Behaviour> {
    let fits = |text: &str| {
        let fitting = TABLE.iter().filter(|(prefix, _)| text.starts_with(prefix));
        fitting.max_by_key(|(prefix, _)| prefix.len()).map(|(_, behaviour)| *behaviour)
    };
    fits(message_id).or_else(|| fits(first_words.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beginning_counts_and_ids_come_before_words() {
        for (prefix, behaviour) in TABLE {
            assert_eq!(chosen(&format!("{prefix}-1a2b"), "hello"), Some(behaviour), "TCK: {prefix}");
            assert_eq!(chosen("m-1", &format!("  {prefix} please")), Some(behaviour), "ACTS: {prefix}");
        }
        let both = chosen("tck-task-failure-1", "tck-complete-task");
        assert_eq!(both, Some(Behaviour::Fails));
        assert_eq!(chosen("m-1", "say tck-complete-task"), None);
        assert_eq!(chosen("", ""), None);
    }

    /// The list that ACTS is given says what there is, and all that it asks for.
    #[test]
    fn the_list_for_acts_is_right() {
        let list = include_str!("../../../examples/conformance/acts/sut-behaviors.yaml");
        let prefix = |line: &'static str| line.trim().strip_prefix("- prefix: \"")?.strip_suffix('"');
        let listed: Vec<&str> = list.lines().filter_map(prefix).collect();
        let known = |prefix: &&str| TABLE.iter().any(|(known, _)| known == prefix);
        assert!(listed.iter().all(known), "{listed:?}");
        // Those of the table that only the TCK has.
        let only_tck = |prefix: &str| {
            prefix.starts_with("tck-stream-0")
                || prefix.starts_with("tck-stream-artifact")
                || ["tck-delayed-complete", "tck-stream-ordering-001", "test-resubscribe-message-id"]
                    .contains(&prefix)
        };
        let wanted = TABLE.iter().filter(|(prefix, _)| !only_tck(prefix)).count();
        assert_eq!(listed.len(), wanted);
    }
}
