//! Which commands are known to be harmless, word by word: programs, the options of each, and what these take (T23).
//!
//! The table is `programs.json`. It lists what runs without a person, and each row has examples of both kinds, which a test
//! compares with what is decided and with the programs' own lists of options. An option that is not listed asks, also as
//! an abbreviation, and so does a program that is in no row: nobody knows what its arguments do. Whether the files that a
//! command names may be changed is `rules.rs`; what runs is confined by the sandbox in any case.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// Programs that start programs, evaluate code, change who or what the machine is, or reach other machines. A person
/// is asked about every call, listed or not: what they do stands in their arguments or in files. Names with spaces
/// between them, one text for each kind.
const RUNS_ANYTHING: &[&str] = &[
    // Shells and what pretends to be one.
    "sh bash dash zsh ksh mksh fish csh tcsh ash rbash busybox toybox pwsh elvish nu xonsh yash rc es",
    // Programs that start what follows them.
    "env sudo doas su runuser setpriv nice ionice nohup timeout time stdbuf setsid setarch linux32 linux64 i386 \
     x86_64 taskset chrt numactl prlimit unshare nsenter chroot fakeroot fakechroot proot bwrap firejail \
     systemd-run systemd-nspawn xargs parallel rlwrap script scriptreplay expect unbuffer watch entr flock run-parts \
     start-stop-daemon daemonize dbus-run-session dbus-launch ssh-agent xvfb-run cpulimit choom pkexec capsh sg \
     newgrp exec eval command builtin source . xdg-open open faketime softlimit setlock chpst envdir envuidgid \
     tini dumb-init gosu su-exec strace ltrace gdb lldb valgrind perf catchsegv ld.so ld-linux.so.2 \
     ld-linux-x86-64.so.2 ld-linux-aarch64.so.1 ld-musl-x86_64.so.1 ldd logsave hexedit torsocks torify proxychains \
     proxychains4 aa-exec multitime hyperfine bpftrace uncover dvtm abduco dtach screen tmux byobu ttyrec",
    // Interpreters and compilers.
    "python python2 python3 pypy pypy3 ipython perl perl5 ruby irb node nodejs deno bun php lua luajit tclsh wish \
     guile racket sbcl clisp ghc ghci runghc runhaskell ocaml erl escript elixir iex julia R Rscript octave java \
     jshell jrunscript jjs groovy scala kotlin kotlinc swift osascript awk gawk mawk nawk original-awk bc dc m4 \
     gcc g++ cc c++ clang clang++ tcc rustc as ld go zig dotnet mono jq yq xsltproc saxon gnuplot maxima gimp \
     blender qjs duktape vala nasm cobc ts-node tsx coffee make gmake bmake cmake ctest ninja meson scons rake \
     ant mvn mvnw gradle gradlew bazel just task invoke fab tox nox pytest jest vitest mocha",
    // Package managers: they run what they fetch.
    "npx pnpm pnpx yarn yarnpkg corepack pip pip3 pipx uv uvx poetry conda mamba easy_install gem bundle bundler \
     composer cpan cpanm luarocks apt apt-get aptitude dpkg dnf yum rpm zypper pacman apk snap flatpak brew nix \
     nix-shell nix-env guix emerge opam stack cabal mix rebar3 cargo rustup nvm volta sdk asdf mise",
    // Editors and pagers: each has a way to a shell.
    "vi vim nvim view vimdiff rvim ex ed red emacs nano pico joe jed micro kak hx less more most pg man info mc \
     ranger nnn lynx w3m elinks links",
    // Other machines, and the services of this one.
    "ssh slogin sshpass autossh mosh scp sftp rsh rlogin telnet ftp tftp lftp nc ncat netcat nc.openbsd \
     nc.traditional socat nmap tcpdump tshark curl wget wget2 aria2c http https xh rclone aws gcloud az gh glab \
     heroku vercel terraform tofu ansible ansible-playbook puppet salt-call chef-client docker docker-compose \
     podman buildah skopeo nerdctl ctr crictl kubectl k9s helm oc vagrant virsh qemu-system-x86_64 lxc multipass \
     systemctl service loginctl journalctl crontab at batch mount umount losetup dmsetup insmod modprobe sysctl \
     iptables nft ip ifconfig useradd usermod passwd chpasswd visudo openvpn mysql mariadb psql sqlite3 mongo \
     mongosh redis-cli sqlplus mail mailx sendmail mutt msmtp exim openssl gpg gpg2 pinentry dd shred mkfs fdisk \
     parted kill pkill killall reboot shutdown poweroff halt init telinit dmesg hping3 standfast exiftool ffmpeg \
     convert magick ghostscript gs pdflatex latex tex xelatex lualatex pandoc zip 7z 7za rar unrar cpio pax ar \
     rsync rdiff-backup restic borg svn hg bzr cvs ctags cscope indent patch logrotate update-alternatives \
     debugfs tune2fs setfacl setcap",
];

/// Whether a program does what its arguments or files say, so that no argument list of it is harmless.
pub(super) fn runs_anything(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let versionless = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let is_listed = |name: &str| {
        let mut names = RUNS_ANYTHING.iter().flat_map(|kind| kind.split(' '));
        names.any(|known| known.eq_ignore_ascii_case(name))
    };
    is_listed(name) || (!versionless.is_empty() && is_listed(versionless))
}

/// A program, or a program with its sub-command, whose usual arguments are harmless.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its first words.
    pub command: String,
    /// Whether any arguments are harmless.
    #[serde(default)]
    anything: bool,
    /// Its short options as `getopt` has them: a letter, `:` behind it for a value, `::` for a value in the same word.
    #[serde(default)]
    short: String,
    /// Whether `-5` is an option.
    #[serde(default)]
    digits: bool,
    /// Its long options: `name`, `name=` with a value, `name[=]` with a value in the same word or none.
    #[serde(default)]
    long: Vec<String>,
    /// Whole words that begin with a dash, and how many words each takes; then there are no other options.
    #[serde(default)]
    words: Option<BTreeMap<String, usize>>,
    /// Whether its first word may be short options without a dash, whose values follow in their order.
    #[serde(default)]
    bundle: bool,
    /// What its operands may be.
    #[serde(default)]
    operands: Operands,
    /// Characters that no operand and no value may have.
    #[serde(default)]
    never: String,
    /// Whether it changes the files that it is given.
    #[serde(default)]
    pub changes: bool,
    /// Whether it does what the settings of a repository say.
    #[serde(default)]
    pub repository: bool,
    /// Examples that run without a person where the program is listed.
    pub runs: Vec<String>,
    /// Examples that do not.
    pub asks: Vec<String>,
}

/// What the operands of a program may be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "OperandsInTable")]
enum Operands {
    /// Anything.
    #[default]
    Any,
    /// At most so many.
    AtMost(usize),
    /// Only those that begin with a plus sign.
    Plus,
    /// The first one is a script for `sed`.
    Sed,
    /// The first one is a mode for `chmod`.
    Mode,
    /// Something that this version does not know: none at all.
    Unknown,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OperandsInTable {
    Count(usize),
    Kind(String),
}

impl From<OperandsInTable> for Operands {
    fn from(table: OperandsInTable) -> Operands {
        match table {
            OperandsInTable::Count(most) => Operands::AtMost(most),
            OperandsInTable::Kind(kind) => match kind.as_str() {
                "plus" => Operands::Plus,
                "sed" => Operands::Sed,
                "mode" => Operands::Mode,
                _ => Operands::Unknown,
            },
        }
    }
}

static PROGRAMS: LazyLock<Vec<Program>> = LazyLock::new(|| {
    let Ok(programs) = serde_json::from_str(include_str!("programs.json")) else {
        unreachable!("the table is a constant that the tests read")
    };
    programs
});

/// Every row of the table.
#[must_use]
pub fn programs() -> &'static [Program] {
    &PROGRAMS
}

/// What is known of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lookup<'a> {
    /// Its arguments are the usual ones of this row; these are its operands and the values of its options.
    Usual { program: &'static Program, given: Vec<&'a str> },
    /// This word is not among them.
    Odd(&'a str),
    /// Its program is in no row.
    Unknown,
}

/// Looks a command up.
pub(super) fn known(words: &[String]) -> Lookup<'_> {
    let Some((program, rest)) = words.split_first() else { return Lookup::Unknown };
    let name = program.rsplit('/').next().unwrap_or(program);
    let mut rows = PROGRAMS.iter().filter(|row| row.command.split(' ').next() == Some(name)).peekable();
    if rows.peek().is_none() {
        return Lookup::Unknown;
    }
    let begins = |row: &&Program| {
        let mut first = row.command.split(' ').skip(1);
        let mut rest = rest.iter();
        first.all(|word| rest.next().is_some_and(|given| given == word))
    };
    let length = |row: &&Program| row.command.split(' ').count();
    match rows.filter(begins).max_by_key(length) {
        Some(row) => row.read(rest.get(length(&row) - 1..).unwrap_or_default()),
        None => rest.first().map_or(Lookup::Odd(program), |word| Lookup::Odd(word)),
    }
}

/// How a word of options is read.
enum OptionValue {
    Nothing,
    /// The rest of the word, or the next word.
    Value,
    /// The rest of the word, if there is one.
    Attached,
}

impl Program {
    fn read<'a>(&'static self, arguments: &'a [String]) -> Lookup<'a> {
        let mut given = Vec::new();
        if self.anything {
            return Lookup::Usual { program: self, given };
        }
        let mut operands = Vec::new();
        let mut words = arguments.iter().map(String::as_str).enumerate();
        while let Some((place, word)) = words.next() {
            let mut next = |word: &'a str| words.next().map(|(_, value)| value).ok_or(word);
            let read = match &self.words {
                Some(known) if word.starts_with('-') && word.len() > 1 => match known.get(word) {
                    Some(values) => (0..*values).try_for_each(|_| next(word).map(|value| given.push(value))),
                    None => Err(word),
                },
                Some(_) => {
                    operands.push(word);
                    Ok(())
                }
                None if word == "--" => {
                    operands.extend(words.by_ref().map(|(_, word)| word));
                    break;
                }
                None => match word.strip_prefix("--") {
                    Some(long) => self.read_long(long).ok_or(word).and_then(|(takes, value)| {
                        given.extend(value);
                        if takes { next(word).map(|value| given.push(value)) } else { Ok(()) }
                    }),
                    None => match word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                        Some(letters) => self.read_short(letters, word, &mut given, &mut next),
                        None if self.bundle && place == 0 => self.read_bundle(word, &mut given, &mut next),
                        None => {
                            operands.push(word);
                            Ok(())
                        }
                    },
                },
            };
            if let Err(odd) = read {
                return Lookup::Odd(odd);
            }
        }
        if let Some(odd) = self.odd_operand(&operands) {
            return Lookup::Odd(odd);
        }
        given.extend(operands);
        match given.iter().find(|word| word.contains(|c| self.never.contains(c))) {
            Some(odd) => Lookup::Odd(odd),
            None => Lookup::Usual { program: self, given },
        }
    }

    fn odd_operand<'a>(&self, operands: &[&'a str]) -> Option<&'a str> {
        let first = operands.first().copied();
        match self.operands {
            Operands::Any => None,
            Operands::AtMost(most) => operands.get(most).copied(),
            Operands::Plus => operands.iter().copied().find(|word| !word.starts_with('+')),
            Operands::Sed => first.filter(|script| !is_harmless_sed(script)),
            Operands::Mode => first.filter(|mode| !is_harmless_mode(mode)),
            Operands::Unknown => first,
        }
    }

    /// Whether a long option takes the next word, and the value that it has already.
    fn read_long<'a>(&self, long: &'a str) -> Option<(bool, Option<&'a str>)> {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let is_listed = |as_written: String| self.long.contains(&as_written);
        match value {
            Some(_) if is_listed(format!("{name}=")) || is_listed(format!("{name}[=]")) => {
                Some((false, value))
            }
            None if is_listed(format!("{name}=")) => Some((true, None)),
            None if is_listed(name.to_owned()) || is_listed(format!("{name}[=]")) => Some((false, None)),
            Some(_) | None => None,
        }
    }

    fn takes(&self, letter: char) -> Option<OptionValue> {
        if self.digits && letter.is_ascii_digit() {
            return Some(OptionValue::Nothing);
        }
        let (_, after) = self.short.split_once(letter).filter(|_| letter != ':')?;
        Some(match (after.starts_with("::"), after.starts_with(':')) {
            (true, _) => OptionValue::Attached,
            (false, true) => OptionValue::Value,
            (false, false) => OptionValue::Nothing,
        })
    }

    fn read_short<'a>(
        &self,
        letters: &'a str,
        word: &'a str,
        given: &mut Vec<&'a str>,
        next: &mut impl FnMut(&'a str) -> Result<&'a str, &'a str>,
    ) -> Result<(), &'a str> {
        for (place, letter) in letters.char_indices() {
            let rest = letters.get(place + letter.len_utf8()..).unwrap_or_default();
            match self.takes(letter).ok_or(word)? {
                OptionValue::Nothing => {}
                OptionValue::Attached => {
                    given.push(rest);
                    return Ok(());
                }
                OptionValue::Value => {
                    given.push(if rest.is_empty() { next(word)? } else { rest });
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The old style of `tar`: all letters first, then their values in the same order.
    fn read_bundle<'a>(
        &self,
        word: &'a str,
        given: &mut Vec<&'a str>,
        next: &mut impl FnMut(&'a str) -> Result<&'a str, &'a str>,
    ) -> Result<(), &'a str> {
        for letter in word.chars() {
            match self.takes(letter).ok_or(word)? {
                OptionValue::Nothing | OptionValue::Attached => {}
                OptionValue::Value => given.push(next(word)?),
            }
        }
        Ok(())
    }

    /// The options of the table and whether each takes a value, or may have one: for comparing with what the program says
    /// itself.
    #[must_use]
    pub fn options(&self) -> Vec<(String, Option<bool>)> {
        let long = self.long.iter().map(|entry| match (entry.strip_suffix("[=]"), entry.strip_suffix('=')) {
            (Some(name), _) => (format!("--{name}"), None),
            (None, Some(name)) => (format!("--{name}"), Some(true)),
            (None, None) => (format!("--{entry}"), Some(false)),
        });
        let letters = self.short.chars().filter(|letter| *letter != ':');
        let short = letters.filter_map(|letter| {
            let takes = match self.takes(letter)? {
                OptionValue::Nothing => Some(false),
                OptionValue::Value => Some(true),
                OptionValue::Attached => None,
            };
            Some((format!("-{letter}"), takes))
        });
        long.chain(short).collect()
    }
}

/// Read, write and run for whoever: nothing that makes a program run as somebody else.
fn is_harmless_mode(mode: &str) -> bool {
    let is_octal = mode.len() <= 3 && mode.chars().all(|c| ('0'..='7').contains(&c));
    let is_symbolic = mode.chars().all(|c| "ugoa+-=,rwxX".contains(c));
    is_octal || is_symbolic
}

/// `sed` runs shell commands (`e`), reads (`r`) and writes (`w`) files: only printing and plain substitution pass.
fn is_harmless_sed(script: &str) -> bool {
    let print = script.strip_suffix(['p', 'd', 'q']).unwrap_or("x");
    if print.chars().all(|c| c.is_ascii_digit() || ",$".contains(c)) {
        return true;
    }
    let Some(rest) = script.strip_prefix("s/") else { return false };
    let parts: Vec<&str> = rest.split('/').collect();
    let flags = parts.get(2).copied().unwrap_or("w");
    parts.len() == 3
        && !rest.contains(['\\', '\n'])
        && flags.chars().all(|flag| "gpiI0123456789".contains(flag))
}
