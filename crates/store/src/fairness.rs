//! Fairness among agents: who is claimed when many wait.
//!
//! Shared by the backends, so that all of them claim in the same order.

use standfast_core::time::Timestamp;

/// Takes one from each queue in turn, in each round the longest due first, until `limit` are taken. Each queue is one
/// agent's due runs, the longest due first, and already cut to the room that the agent has.
pub(crate) fn take_turns(queues: Vec<Vec<(Timestamp, i64)>>, limit: usize) -> Vec<i64> {
    let rounds = queues.iter().map(Vec::len).max().unwrap_or(0);
    let mut taken = Vec::new();
    for round in 0..rounds {
        let mut heads: Vec<(Timestamp, i64)> =
            queues.iter().filter_map(|queue| queue.get(round).copied()).collect();
        heads.sort_unstable();
        taken.extend(heads.into_iter().map(|(_, no)| no));
        if taken.len() >= limit {
            break;
        }
    }
    taken.truncate(limit);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_of_one_agent_does_not_starve_another() {
        let backlog = (1..=100).map(|no| (Timestamp(no), no)).collect();
        let other = vec![(Timestamp(500), 501)];
        assert_eq!(take_turns(vec![backlog, other], 4), [1, 501, 2, 3]);
    }
}
