//! Who a notice is for, and the text that stands for it in a store.
//!
//! A backend compares and keeps texts only. Ids of subscriptions begin otherwise than the text of remote tasks, so that no
//! subscription is taken for them.

use crate::query::DueNotice;

/// The stored text of [`Recipient::RemoteTasks`].
const REMOTE_TASKS: &str = "tools: nobody waits";

/// The stored text of [`Recipient::FileCopies`].
const FILE_COPIES: &str = "files: copies";

/// Who a notice is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Recipient {
    /// The receiver of a subscription, by its id.
    Subscription(String),
    /// The remote tasks of calls that were given up: they are canceled.
    RemoteTasks,
    /// The readable copies of calls and sessions in files: they are rewritten.
    FileCopies,
}

impl Recipient {
    /// The text that stands for it in a store.
    #[must_use]
    pub fn stored(&self) -> &str {
        match self {
            Recipient::Subscription(id) => id,
            Recipient::RemoteTasks => REMOTE_TASKS,
            Recipient::FileCopies => FILE_COPIES,
        }
    }

    /// Whom a stored text stands for.
    #[must_use]
    pub fn of_stored(text: &str) -> Recipient {
        match text {
            REMOTE_TASKS => Recipient::RemoteTasks,
            FILE_COPIES => Recipient::FileCopies,
            id => Recipient::Subscription(id.to_owned()),
        }
    }
}

impl DueNotice {
    /// Who it is for.
    #[must_use]
    pub fn recipient(&self) -> Recipient {
        Recipient::of_stored(&self.subscription)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_names_the_same_recipient() {
        let subscription = Recipient::Subscription("sub_1".into());
        for recipient in [Recipient::RemoteTasks, Recipient::FileCopies, subscription] {
            assert_eq!(Recipient::of_stored(recipient.stored()), recipient);
        }
    }
}
