//! The real program as people and operators use it: commands, configuration files, kills, several nodes, what is kept.
//!
//! Nothing here uses a crate of the server, so an edit there rebuilds none of it. Every start of the program: `crates/testkit`.

mod absences;
mod approval_links;
mod asked_people;
mod audit;
mod backup;
mod budgets;
mod canaries;
mod cli;
mod config;
mod effects;
mod encryption;
mod first_steps;
mod form_pages;
mod grants;
mod held_commands;
mod hold_life;
mod https;
mod kept_secrets;
mod many_nodes;
mod monitoring;
mod moving;
mod operator_log;
mod operators;
mod overload;
mod packaging;
mod paused_states;
mod policy;
mod quick_start;
mod rates;
mod reconcile;
mod retention;
mod scenarios;
mod serve;
mod serve_config;
mod states;
mod tenants;
mod terminal;
mod tools_of_a_file;
mod unreadable_policy;
mod verify;
mod watch;
