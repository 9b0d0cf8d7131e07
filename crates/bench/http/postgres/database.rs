//! A Postgres of the bench's own, and databases on it.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use standfast_store::conformance::cluster::{self, OwnServer};
use standfast_store::postgres::{PostgresOptions, PostgresStore};

use crate::usage;

/// A server; it ends with its handle.
pub(super) struct Postgres {
    server: OwnServer,
    count: AtomicU32,
}

/// A database with the schema in it; it is dropped with its handle.
pub(super) struct Database {
    /// As the store reads it.
    pub(super) address: String,
    name: String,
    admin: String,
    port: u16,
}

impl Postgres {
    pub(super) fn start() -> Postgres {
        Postgres { server: OwnServer::new(), count: AtomicU32::new(0) }
    }

    pub(super) fn database(&self) -> Database {
        let name = format!("bench_{}", self.count.fetch_add(1, Ordering::Relaxed));
        let admin = self.server.url();
        cluster::run(&admin, &[format!("CREATE DATABASE {name}")]);
        let address = admin.replace("dbname=postgres", &format!("dbname={name}"));
        drop(PostgresStore::open(&PostgresOptions::at(address.as_str())).unwrap());
        Database { address, name, admin, port: self.server.port() }
    }

    /// What the server logs.
    pub(super) fn log(&self) -> Vec<u8> {
        std::fs::read(self.data().with_file_name("log")).unwrap()
    }

    /// Processor time of the server and its backends, in microseconds.
    pub(super) fn processor_us(&self) -> f64 {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        usage::database_us(file.lines().next().and_then(|line| line.trim().parse().ok()).unwrap())
    }

    fn data(&self) -> PathBuf {
        cluster::query_text(&self.server.url(), "SHOW data_directory").unwrap().into()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        cluster::run(&self.admin, &[format!("DROP DATABASE {} WITH (FORCE)", self.name)]);
    }
}

impl Database {
    /// Every statement of whoever connects from now on goes to the log of the server.
    pub(super) fn log_statements(&self) {
        cluster::run(&self.admin, &[format!("ALTER DATABASE {} SET log_statement = 'all'", self.name)]);
    }

    pub(super) fn bytes(&self) -> f64 {
        let question = format!("SELECT pg_database_size('{}')", self.name);
        cluster::query_text(&self.admin, &question).unwrap().parse().unwrap()
    }

    /// How many rows a table has.
    pub(super) fn count(&self, table: &str) -> usize {
        cluster::query_text(&self.address, &format!("SELECT count(*) FROM {table}")).unwrap().parse().unwrap()
    }

    /// A program of Postgres, told to use this database.
    pub(super) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(cluster::programs().join(name));
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &self.port.to_string()]);
        command.env("PGDATABASE", &self.name);
        command
    }

    /// Somebody who has looked at the runs and keeps that picture, until told to close.
    pub(super) fn open_snapshot(&self) -> OpenSnapshot {
        let mut command = self.program("psql");
        let mut child = command.arg("-qAt").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let question = "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*) FROM runs;\n";
        child.stdin.as_mut().unwrap().write_all(question.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.trim().parse::<u64>().is_ok(), "psql said {line:?}");
        OpenSnapshot { child }
    }
}

/// Somebody who keeps an old picture of the database.
pub(super) struct OpenSnapshot {
    child: Child,
}

impl OpenSnapshot {
    pub(super) fn close(mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "the snapshot ended before its time");
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}
