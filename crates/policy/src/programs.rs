//! What is known of programs: which run others, which run nothing but themselves, and what a shell reads before a command.
//!
//! Data, and questions to it. What follows for a rule is `argv.rs`; what the arguments of each program do is known to the
//! command tool.

/// Programs that run what their arguments, their input or a file say.
const WRAPPERS: &str = ". ash at awk bash batch builtin bunx busybox bwrap catchsegv chroot chrt cmd cmd.exe command coproc \
    csh dash dbus-run-session doas entr env eval exec expect faketime fakeroot find firejail fish flock \
    gawk gdb ionice ksh ld.so ltrace mawk nice nohup npx nsenter numactl parallel perf pkexec powershell \
    prlimit proot pwsh rbash rlwrap runcon runuser script sed setarch setpriv setsid sg sh source ssh \
    start-stop-daemon stdbuf strace su sudo systemd-run taskset tcsh time timeout toybox trap unbuffer \
    unshare uvx valgrind watch wsl xargs xvfb-run zsh";

/// Programs that run a file, a text in a language of their own, or others by a word: an allow needs more than their name.
const INTERPRETERS: &str = "bun deno docker java julia kubectl lua make node nodejs osascript perl php podman python r rscript \
    ruby tclsh";

/// Words after them that run what comes next.
const RUNS_MORE: &str = "debug eval exec repl run x";

/// Programs that are known not to run their arguments: only their own name is looked at in a simple command.
const PLAIN: &str = "[ basename cat cd chmod chown cmp cp curl cut date df diff dirname du echo egrep false fgrep file \
    grep head hostname id jq kill ln ls mkdir mv printf ps pwd rm rmdir sleep stat tail tee test touch \
    tr true type uname uniq wc whereis which whoami";

/// Subcommands of git that run nothing but git, without the options below.
const PLAIN_GIT: &str = "add blame branch checkout commit diff log mv push restore rm show status switch tag";

/// Options with which they do.
const GIT_RUNS: &str = "--exec --receive-pack --upload-pack --ext-diff --open-files-in-pager";

/// Words of a shell's grammar, which stand before a command.
const RESERVED: &str = "! [[ case do done elif else esac fi for function if in select then until while";

/// Signs in a word that another program could read as a command.
const SIGNS: [char; 10] = ['!', ';', '|', '&', '$', '`', '(', '<', '>', '\n'];

fn has(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}

/// Whether a word belongs to a shell's grammar.
pub(crate) fn is_reserved(word: &str) -> bool {
    has(RESERVED, word)
}

/// Whether a word after an interpreter runs what comes next.
pub(crate) fn runs_more(word: &str) -> bool {
    has(RUNS_MORE, word)
}

/// A program's name without its folder, in small letters.
pub(crate) fn name_of(program: &str) -> String {
    program.trim_end_matches('/').rsplit(['/', '\\']).next().unwrap_or(program).to_lowercase()
}

/// `python3.12` is `python`.
fn without_version(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

/// Whether a program can run other programs.
pub(crate) fn is_wrapper(program: &str) -> bool {
    let name = name_of(program);
    has(WRAPPERS, &name) || has(WRAPPERS, without_version(&name))
}

/// Whether a program runs a language of its own.
pub(crate) fn is_interpreter(program: &str) -> bool {
    has(INTERPRETERS, without_version(&name_of(program)))
}

/// Whether a command certainly runs its program and no other one.
pub(crate) fn runs_itself_only(words: &[&str]) -> bool {
    let Some((program, rest)) = words.split_first() else { return false };
    let is_plain = if *program == "git" {
        let is_known = rest.first().is_some_and(|next| has(PLAIN_GIT, next));
        let runs_more = |word: &&str| GIT_RUNS.split(' ').any(|option| word.starts_with(option));
        is_known && !rest.iter().any(runs_more)
    } else {
        has(PLAIN, program)
    };
    is_plain && !rest.iter().any(|word| word.contains(SIGNS))
}
