//! A Postgres for tests: Debian's, started by the first test that wants it, ended when none has for a while.
//!
//! Each test runs in a process of its own and gets a database of its own, copied from one that has the schema. All share
//! one server, found through a file beside its directory and guarded by locks on files; a shell beside it ends it
//! and deletes its directory. `STANDFAST_TEST_PG_URL` names a server to use instead. There is no way to go without.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use crate::postgres::{PostgresOptions, PostgresStore};

/// What every database of a test begins as.
const TEMPLATE: &str = "standfast_template";

/// Ends the server when nobody has used it for this long.
const IDLE_SECONDS: u32 = 15;

/// How many databases of ended tests may be left over; each is some 8 MB, and a whole run makes over a thousand.
const LEFTOVERS: usize = 64;

/// How many of them one test removes. A database is some three hundred files, and there are disks that take a millisecond and
/// more to forget one: what a test pays for those before it must be small beside what it takes itself.
const REMOVALS: usize = 8;

/// A file system in memory, and how large it and the memory must be for a server to be there.
const MEMORY: &str = "/dev/shm";
const ROOMY: u64 = 8 << 30;

/// A server, and the lock that says that this process uses it.
#[derive(Debug)]
pub struct Cluster {
    admin: String,
    /// Nothing for a server that somebody else runs.
    place: Option<ServerDirectory>,
    _used: Option<File>,
}

/// The server that all tests share.
pub fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| match std::env::var("STANDFAST_TEST_PG_URL") {
        Ok(admin) => {
            let cluster = Cluster { admin, place: None, _used: None };
            cluster.make_template();
            cluster
        }
        Err(_) => Cluster::join(),
    })
}

impl Cluster {
    /// The address of a fresh, empty database with the schema in it.
    #[must_use]
    pub fn database(&self) -> String {
        self.create(&format!("TEMPLATE {TEMPLATE}"))
    }

    /// The address of a fresh database with nothing in it.
    #[must_use]
    pub fn empty_database(&self) -> String {
        self.create("")
    }

    /// Removes a database that [`Cluster::database`] made, whoever is still connected to it.
    pub fn remove(&self, url: &str) {
        let config: Config = url.parse().unwrap();
        let name = config.get_dbname().unwrap();
        run(&self.admin, &[format!("DROP DATABASE {name} WITH (FORCE)")]);
    }

    fn create(&self, from: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        self.remove_leftovers();
        run(&self.admin, &[format!("CREATE DATABASE {name} {from}")]);
        with_database(&self.admin, &name)
    }

    /// Removes some databases of processes that have ended, several at a time: each removal waits for a checkpoint, and only
    /// the first of a row has something to write. Whoever finds another at it goes on.
    fn remove_leftovers(&self) {
        let Some(place) = &self.place else { return };
        let removing = File::create(place.file("leftovers")).unwrap();
        if removing.try_lock().is_err() {
            return;
        }
        let names = query_texts(&self.admin, "SELECT datname FROM pg_database WHERE datname LIKE 'test\\_%'");
        let leftovers: Vec<_> = names.iter().filter(|name| has_maker_ended(name)).collect();
        if leftovers.len() >= LEFTOVERS {
            let some = leftovers.iter().take(REMOVALS);
            let removals = some.map(|name| format!("DROP DATABASE {name} WITH (FORCE)"));
            run(&self.admin, &removals.collect::<Vec<_>>());
        }
    }

    fn join() -> Cluster {
        let place = ServerDirectory::of_this_build();
        let starting = File::create(place.file("start")).unwrap();
        starting.lock().unwrap();
        let used = File::create(place.file("used")).unwrap();
        used.lock_shared().unwrap();
        let admin = format!("host={} user=postgres dbname=postgres", place.directory().display());
        let is_running = UnixStream::connect(place.directory().join(".s.PGSQL.5432")).is_ok();
        if !is_running {
            place.start();
        }
        let cluster = Cluster { admin, place: Some(place), _used: Some(used) };
        if !is_running {
            cluster.make_template();
        }
        cluster
    }

    /// Makes the database that others are copied from. Nobody may be connected to it while it is copied.
    fn make_template(&self) {
        let exists = format!("SELECT FROM pg_database WHERE datname = '{TEMPLATE}'");
        if query_count(&self.admin, &exists) > 0 {
            return;
        }
        let unfinished = format!("{TEMPLATE}_{}", std::process::id());
        run(&self.admin, &[format!("CREATE DATABASE {unfinished}")]);
        drop(PostgresStore::open(&PostgresOptions::at(with_database(&self.admin, &unfinished))).unwrap());
        let connected = format!("SELECT FROM pg_stat_activity WHERE datname = '{unfinished}'");
        while query_count(&self.admin, &connected) > 0 {
            std::thread::yield_now();
        }
        run(&self.admin, &[format!("ALTER DATABASE {unfinished} RENAME TO {TEMPLATE}")]);
    }
}

/// Whether the process that made a database, whose number is in its name, is no more.
fn has_maker_ended(name: &str) -> bool {
    let maker = name.split('_').nth(1).unwrap_or_default();
    !Path::new("/proc").join(maker).exists()
}

/// Where servers keep their files: in memory where there is room, otherwise in the temporary directory. A server that is killed
/// loses no more there than on a disk, and tests do not wait for one that is busy with what others build.
fn directory_of_servers() -> PathBuf {
    // Sizes, not what is free: all tests of a run must come to the same place.
    let size = rustix::fs::statvfs(MEMORY).map_or(0, |disk| disk.f_blocks * disk.f_frsize);
    if size.min(memory_in_all()) >= ROOMY { PathBuf::from(MEMORY) } else { std::env::temp_dir() }
}

/// Bytes of memory of this machine.
fn memory_in_all() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}

/// Where a server lives: one for each directory of compiled tests, so that two checkouts do not meet.
#[derive(Debug)]
struct ServerDirectory {
    base: PathBuf,
}

impl ServerDirectory {
    fn of_this_build() -> ServerDirectory {
        let mut hasher = DefaultHasher::new();
        std::env::current_exe().unwrap().parent().hash(&mut hasher);
        ServerDirectory {
            base: directory_of_servers().join(format!("standfast-pg-{:08x}", hasher.finish() as u32)),
        }
    }

    fn file(&self, what: &str) -> PathBuf {
        self.base.with_extension(what)
    }

    fn directory(&self) -> &Path {
        &self.base
    }

    /// Makes the server from nothing, and the shell that ends it.
    fn start(&self) {
        let directory = self.directory();
        make(directory);
        let mut options =
            format!("-c unix_socket_directories={} -c listen_addresses=''", directory.display());
        SETTINGS.iter().for_each(|setting| options.push_str(&format!(" -c {setting}")));
        start(directory, &options);
        self.end_when_idle();
    }

    /// A shell that looks every two seconds whether anybody uses the server. It takes the lock of whoever starts one, so
    /// that nobody finds a server that is about to end.
    fn end_when_idle(&self) {
        let script = r#"
            while sleep 2; do
                exec 9>>"$2"
                flock -x 9
                if flock -n -x "$3" true; then
                    idle=$(( $(date +%s) - $(stat -c %Y "$3") ))
                    if [ "$idle" -ge "$4" ] || [ ! -d "$1/data" ]; then
                        kill -QUIT "$(head -n 1 "$1/data/postmaster.pid")"
                        while [ -e "$1/data/postmaster.pid" ] && kill -0 "$(head -n 1 "$1/data/postmaster.pid")"; do
                            sleep 0.1
                        done
                        rm -rf "$1" "$3"
                        exit
                    fi
                fi
                exec 9>&-
            done"#;
        let mut shell = Command::new("setsid");
        shell.args(["--fork", "sh", "-c", script, "standfast-test-postgres"]);
        shell
            .arg(self.directory())
            .arg(self.file("start"))
            .arg(self.file("used"))
            .arg(IDLE_SECONDS.to_string());
        shell.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status =
            shell.status().expect("setsid, from util-linux, is needed to end the server of the tests");
        assert!(status.success(), "the shell that ends the server of the tests did not start");
    }
}

/// Commits are synced, as everywhere; only what tests do not need is small.
const SETTINGS: [&str; 5] = [
    "shared_buffers=64MB",
    "max_connections=300",
    "max_wal_size=1GB",
    "wal_level=minimal",
    "max_wal_senders=0",
];

/// An empty directory that belongs to whoever runs the server.
fn make_directory(directory: &Path) {
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir(directory).unwrap();
    if is_root() {
        succeed(Command::new("chown").arg(server_user()).arg(directory));
    }
}

/// Makes the files of a server from nothing.
fn make(directory: &Path) {
    make_directory(directory);
    let text = ["--encoding=UTF8", "--locale=C", "--auth=trust", "--username=postgres", "--no-sync"];
    succeed(as_server_user(&programs().join("initdb")).args(text).arg("-D").arg(directory.join("data")));
}

/// Starts a server on its files and waits until it takes connections.
fn start(directory: &Path, options: &str) {
    let mut start = as_server_user(&programs().join("pg_ctl"));
    start.args(["-w", "-t", "60", "-o", options, "start", "-D"]).arg(directory.join("data"));
    succeed(start.arg("-l").arg(directory.join("log")));
}

/// What a server needs that has a standby. Later settings win over [`SETTINGS`].
const REPLICATED: [&str; 2] = ["wal_level=replica", "max_wal_senders=10"];

/// When a commit is acknowledged by a server that has a standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// When the standby has it too.
    Synchronous,
    /// When this server has it; the standby follows.
    Asynchronous,
}

/// A server of one test alone, which may stop and start it. It listens on a port, so that somebody can stand between.
/// It ends with the process of the test, however that ends.
#[derive(Debug)]
pub struct OwnServer {
    directory: PathBuf,
    port: u16,
    replication: Option<Replication>,
}

impl OwnServer {
    /// A fresh one, running.
    #[must_use]
    pub fn new() -> OwnServer {
        OwnServer::fresh(None)
    }

    /// A fresh one that can have a standby. While there is none, one that replicates synchronously acknowledges nothing.
    #[must_use]
    pub fn replicating(replication: Replication) -> OwnServer {
        OwnServer::fresh(Some(replication))
    }

    fn fresh(replication: Option<Replication>) -> OwnServer {
        let server = OwnServer::placed(replication);
        make(&server.directory);
        server.end_with_this_process();
        server.start();
        server
    }

    fn placed(replication: Option<Replication>) -> OwnServer {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let no = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = directory_of_servers().join(format!("standfast-own-pg-{}-{no}", std::process::id()));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        OwnServer { directory, port, replication }
    }

    /// A standby of this server: a copy of it that follows it, running.
    #[must_use]
    pub fn standby(&self) -> OwnServer {
        let standby = OwnServer::placed(self.replication);
        make_directory(&standby.directory);
        let mut copy = as_server_user(&programs().join("pg_basebackup"));
        copy.args(["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync", "-D"]);
        copy.arg(standby.directory.join("data")).arg("-d").arg(self.url());
        succeed(&mut copy);
        standby.end_with_this_process();
        standby.start();
        let follows = "SELECT FROM pg_stat_replication WHERE state = 'streaming'";
        while query_count(&self.url(), follows) == 0 {
            std::thread::yield_now();
        }
        standby
    }

    /// From now on the log of this server is archived to a folder of its own; that folder. What a copy of its files starts with
    /// is in them, as an operator's would be.
    #[must_use]
    pub fn archive(&self) -> PathBuf {
        let folder = self.directory.join("archive");
        succeed(as_server_user(Path::new("mkdir")).arg(&folder));
        let command = format!("test ! -f {0}/%f && cp %p {0}/%f", folder.display());
        let mut settings = format!("archive_mode = on\narchive_command = '{command}'\n");
        settings.push_str("unix_socket_directories = ''\nlisten_addresses = '127.0.0.1'\n");
        SETTINGS.iter().chain(&REPLICATED).for_each(|setting| settings.push_str(&format!("{setting}\n")));
        std::fs::write(self.directory.join("data").join("postgresql.auto.conf"), settings).unwrap();
        self.crash();
        self.start();
        folder
    }

    /// A place for a server whose files somebody else makes, in its folder `data`.
    #[must_use]
    pub fn to_be_made() -> OwnServer {
        let server = OwnServer::placed(None);
        make_directory(&server.directory);
        server.end_with_this_process();
        server
    }

    /// Its folder.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Lines of a shell, typed by the user of this server: its programs are in the path, its port is known to them. They have
    /// to end well; what they printed.
    pub fn types(&self, lines: &str, variables: &[(&str, &str)]) -> String {
        let mut shell = as_server_user(Path::new("sh"));
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::env::join_paths(std::iter::once(programs()).chain(std::env::split_paths(&paths)));
        shell.args(["-eu", "-c", lines]).current_dir(&self.directory).env("PATH", paths.unwrap());
        shell.env("PGPORT", self.port.to_string()).env("PGHOST", "127.0.0.1").env("PGUSER", "postgres");
        let done = shell.envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{lines}: {errors}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// From now on this standby is a server of its own, which takes writes.
    pub fn promote(&self) {
        let mut promote = as_server_user(&programs().join("pg_ctl"));
        succeed(promote.args(["-w", "-t", "60", "promote", "-D"]).arg(self.directory.join("data")));
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of its database through this port: its own, or that of somebody who stands between.
    #[must_use]
    pub fn url_through(&self, port: u16) -> String {
        format!("host=127.0.0.1 port={port} user=postgres dbname=postgres")
    }

    /// The address of its database.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_through(self.port)
    }

    /// From now on only this user comes in, with this password.
    pub fn ask_for_passwords(&self, user: &str, password: &str) {
        run(&self.url(), &[format!("CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{password}'")]);
        let rules = self.directory.join("data").join("pg_hba.conf");
        std::fs::write(rules, "host all all 127.0.0.1/32 scram-sha-256\n").unwrap();
        self.crash();
        self.start();
    }

    /// From now on only encrypted connections come in. The certificate is signed by the authority whose file is returned,
    /// for the name `localhost`.
    #[must_use]
    pub fn encrypt(&self) -> PathBuf {
        let at = |name: &str| self.directory.join("data").join(name);
        let openssl = |line: &str| {
            let mut openssl = as_server_user(Path::new("openssl"));
            succeed(openssl.args(line.split(' ')).current_dir(self.directory.join("data")));
        };
        std::fs::write(at("names.txt"), "subjectAltName=DNS:localhost").unwrap();
        openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 30 -subj /CN=authority");
        openssl("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost");
        openssl(
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 30 \
             -extfile names.txt",
        );
        std::fs::write(at("pg_hba.conf"), "hostssl all all 127.0.0.1/32 trust\n").unwrap();
        let settings = at("postgresql.auto.conf");
        std::fs::write(settings, "ssl = on\n").unwrap();
        self.crash();
        self.start();
        at("ca.crt")
    }

    /// Ends it at once, as a crash would.
    pub fn crash(&self) {
        let mut stop = as_server_user(&programs().join("pg_ctl"));
        succeed(
            stop.args(["-w", "-t", "60", "-m", "immediate", "stop", "-D"]).arg(self.directory.join("data")),
        );
    }

    /// Starts it again.
    pub fn start(&self) {
        let mut options =
            format!("-c unix_socket_directories= -c listen_addresses=127.0.0.1 -c port={}", self.port);
        SETTINGS.iter().for_each(|setting| options.push_str(&format!(" -c {setting}")));
        if let Some(replication) = self.replication {
            REPLICATED.iter().for_each(|setting| options.push_str(&format!(" -c {setting}")));
            let standbys = if replication == Replication::Synchronous { "*" } else { "" };
            options.push_str(&format!(" -c synchronous_standby_names='{standbys}'"));
        }
        start(&self.directory, &options);
    }

    /// A shell that waits for the end of this process, ends the server and deletes its files.
    fn end_with_this_process(&self) {
        let script = r#"
            while kill -0 "$2" 2>/dev/null && [ -d "$1" ]; do sleep 1; done
            [ -e "$1/data/postmaster.pid" ] && kill -QUIT "$(head -n 1 "$1/data/postmaster.pid")"
            rm -rf "$1""#;
        let mut shell = Command::new("setsid");
        shell.args(["--fork", "sh", "-c", script, "standfast-own-postgres"]);
        shell.arg(&self.directory).arg(std::process::id().to_string());
        shell.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(shell.status().unwrap().success(), "the shell that ends the server did not start");
    }
}

impl Default for OwnServer {
    fn default() -> OwnServer {
        OwnServer::new()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let mut stop = as_server_user(&programs().join("pg_ctl"));
        stop.args(["-w", "-t", "60", "-m", "immediate", "stop", "-D"]).arg(self.directory.join("data"));
        let _ = stop.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Where the newest Postgres on this machine has its programs.
#[must_use]
pub fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let numbered = versions.filter_map(|version| {
        let number: u32 = version.file_name().to_str()?.parse().ok()?;
        let bin = version.path().join("bin");
        bin.join("initdb").exists().then_some((number, bin))
    });
    let newest = numbered.max_by_key(|(number, _)| *number);
    newest.map(|(_, bin)| bin).expect(
        "these tests need Postgres: install it (on Debian: `apt-get install postgresql`), \
         or name a server in STANDFAST_TEST_PG_URL",
    )
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

fn server_user() -> &'static str {
    let has_user = Command::new("id").args(["-u", "postgres"]).output().unwrap().status.success();
    if has_user { "postgres" } else { "nobody" }
}

/// Postgres refuses to run as root.
fn as_server_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let user = server_user();
    let group = Command::new("id").args(["-g", user]).output().unwrap();
    let group = String::from_utf8(group.stdout).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", group.trim(), "--clear-groups"]).arg(program).current_dir("/");
    command
}

#[track_caller]
fn succeed(command: &mut Command) {
    // A server that is started keeps what it inherits: its messages go to its log.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "this failed: {command:?}");
}

/// The same server, another database.
fn with_database(url: &str, name: &str) -> String {
    if url.contains("://") {
        let (before, query) = url.split_once('?').map_or((url, String::new()), |(a, b)| (a, format!("?{b}")));
        let server = before.rsplit_once('/').map_or(before, |(server, _)| server);
        format!("{server}/{name}{query}")
    } else {
        url.replace("dbname=postgres", &format!("dbname={name}"))
    }
}

/// Runs statements as the administrator, each on its own.
pub fn run(url: &str, statements: &[String]) {
    ask(url, statements);
}

/// Writes a database to a file while others use it, as `pg_dump` does for operators.
pub fn dump(url: &str, file: &Path) {
    let mut dump = Command::new(programs().join("pg_dump"));
    succeed(dump.args(["--format=custom", "--file"]).arg(file).arg("--dbname").arg(url));
}

/// Fills an empty database from such a file.
pub fn restore(url: &str, file: &Path) {
    let mut restore = Command::new(programs().join("pg_restore"));
    succeed(restore.args(["--exit-on-error", "--dbname"]).arg(url).arg(file));
}

/// Ends every connection of a node.
pub const END_NODES: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                             WHERE application_name = 'standfast' AND pid <> pg_backend_pid()";

/// Takes every connection that a server has, so that nodes get none for this long.
pub fn use_up_connections(url: &str, span: Duration) {
    let config: Config = url.parse().unwrap();
    in_a_runtime(async move {
        let end = tokio::time::Instant::now() + span;
        let (mut taken, mut first) = (Vec::new(), None);
        while tokio::time::Instant::now() < end {
            match config.connect(NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    if first.is_none() {
                        first = Some(client);
                    } else {
                        taken.push(client);
                    }
                }
                // There is none left: those of the nodes are ended, and the next round takes their places.
                Err(_) => {
                    if let Some(client) = &first {
                        let _ = client.simple_query(END_NODES).await;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    });
}

/// How many rows a question has.
pub fn query_count(url: &str, question: &str) -> usize {
    ask(url, &[question.to_owned()])
}

/// The first column of the first row of an answer, as text.
#[must_use]
pub fn query_text(url: &str, question: &str) -> Option<String> {
    query_texts(url, question).into_iter().next()
}

/// The first column of every row of an answer, as text.
fn query_texts(url: &str, question: &str) -> Vec<String> {
    let (config, question): (Config, String) = (url.parse().unwrap(), question.to_owned());
    in_a_runtime(async move {
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        let rows = client.simple_query(&question).await.unwrap();
        let first = |message: &_| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        rows.iter().filter_map(first).collect()
    })
}

fn ask(url: &str, statements: &[String]) -> usize {
    let (config, statements): (Config, Vec<String>) = (url.parse().unwrap(), statements.to_vec());
    in_a_runtime(async move {
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        let mut count = 0;
        for statement in &statements {
            let rows = client.simple_query(statement).await;
            let rows = rows.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
            let is_row = |message: &&_| matches!(message, SimpleQueryMessage::Row(_));
            count += rows.iter().filter(is_row).count();
        }
        count
    })
}

/// On a thread of its own: whoever asks may be inside another runtime.
fn in_a_runtime<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || runtime.block_on(work)).join().unwrap()
}
