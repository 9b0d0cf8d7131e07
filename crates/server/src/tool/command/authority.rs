//! What arguments can add to a program: which programs run other programs or code, and which arguments let the others
//! do so, write somewhere, or talk to somebody (T23).
//!
//! Tables, taken from what is publicly known as "living off the land". They decide only who is asked: a program in no
//! table is judged by words that are dangerous in most programs. What runs is confined by the sandbox in any case.

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
     parted kill pkill killall reboot shutdown poweroff halt init telinit dmesg hping3 holdpoint exiftool ffmpeg \
     convert magick ghostscript gs pdflatex latex tex xelatex lualatex pandoc zip 7z 7za rar unrar cpio pax ar \
     rsync rdiff-backup restic borg svn hg bzr cvs ctags cscope indent patch logrotate update-alternatives \
     debugfs tune2fs setfacl setcap",
];

/// A program whose usual arguments are harmless, and those that are not.
struct Careful {
    /// What it is called.
    program: &'static str,
    /// The first argument must be one of these; none: it has no sub-commands.
    only: Option<&'static [&'static str]>,
    /// Long options that add authority, without dashes; their abbreviations do too.
    long: &'static [&'static str],
    /// Letters that add authority in a cluster of short options.
    short: &'static str,
    /// Whole words that add authority.
    words: &'static [&'static str],
    /// How many arguments that are no options it may have.
    operands: usize,
}

const ANY: usize = usize::MAX;

const fn plain(program: &'static str) -> Careful {
    Careful { program, only: None, long: &[], short: "", words: &[], operands: ANY }
}

const fn careful(program: &'static str, long: &'static [&'static str], short: &'static str) -> Careful {
    Careful { program, only: None, long, short, words: &[], operands: ANY }
}

/// Sub-commands of git that only look, as long as none of the options below comes with them.
const GIT_LOOKS: &[&str] = &[
    "status",
    "log",
    "diff",
    "show",
    "rev-parse",
    "rev-list",
    "ls-files",
    "ls-tree",
    "cat-file",
    "blame",
    "describe",
    "shortlog",
    "merge-base",
    "name-rev",
    "show-ref",
    "count-objects",
    "diff-tree",
    "check-ignore",
    "version",
];

const CAREFUL: &[Careful] = &[
    plain("ls"),
    plain("pwd"),
    plain("echo"),
    plain("cat"),
    plain("wc"),
    plain("head"),
    plain("tail"),
    plain("nl"),
    plain("cut"),
    plain("tr"),
    plain("fold"),
    plain("paste"),
    plain("join"),
    plain("comm"),
    plain("rev"),
    plain("tac"),
    plain("expand"),
    plain("unexpand"),
    plain("fmt"),
    plain("od"),
    plain("hexdump"),
    plain("strings"),
    plain("true"),
    plain("false"),
    plain("sleep"),
    plain("seq"),
    plain("printf"),
    plain("test"),
    plain("basename"),
    plain("dirname"),
    plain("realpath"),
    plain("readlink"),
    plain("stat"),
    plain("du"),
    plain("df"),
    plain("id"),
    plain("whoami"),
    plain("uname"),
    plain("nproc"),
    plain("uptime"),
    plain("cmp"),
    plain("mkdir"),
    plain("touch"),
    plain("rmdir"),
    careful("md5sum", &[], ""),
    careful("sha1sum", &[], ""),
    careful("sha256sum", &[], ""),
    careful("sha512sum", &[], ""),
    careful("grep", &["devices"], "D"),
    careful("egrep", &["devices"], "D"),
    careful("fgrep", &["devices"], "D"),
    careful("rg", &["pre", "pre-glob", "hostname-bin", "search-zip"], "z"),
    careful("fd", &["exec", "exec-batch"], "xX"),
    careful("diff", &["to-file", "from-file", "paginate"], "l"),
    careful("sort", &["compress-program", "output", "temporary-directory", "files0-from"], "oT"),
    Careful { program: "date", only: None, long: &["set", "file"], short: "sf", words: &[], operands: 0 },
    careful("file", &["compile", "magic-file", "uncompress"], "CmzZ"),
    careful("tree", &[], "oR"),
    careful("shuf", &["output", "random-source"], "o"),
    careful("split", &["filter"], ""),
    careful("cp", &["target-directory", "suffix"], "tS"),
    careful("mv", &["target-directory", "suffix"], "tS"),
    careful("rm", &["no-preserve-root", "recursive"], "rR"),
    careful("ln", &["symbolic", "target-directory"], "st"),
    careful("install", &["strip-program", "strip", "target-directory", "mode", "owner"], "smo"),
    careful("chmod", &["reference", "recursive"], "R"),
    careful("chown", &["reference", "recursive", "from"], "R"),
    careful("tee", &["append", "output-error"], "a"),
    careful("column", &[], ""),
    Careful {
        program: "hostname",
        only: None,
        long: &["file", "boot"],
        short: "Fb",
        words: &[],
        operands: 0,
    },
    careful("ps", &[], ""),
    careful("which", &[], ""),
    Careful { program: "uniq", only: None, long: &[], short: "", words: &[], operands: 1 },
    Careful { program: "xxd", only: None, long: &[], short: "r", words: &[], operands: 1 },
    Careful { program: "base64", only: None, long: &[], short: "", words: &[], operands: 1 },
    Careful {
        program: "sed",
        only: None,
        long: &["in-place", "file", "expression"],
        short: "ief",
        words: &[],
        operands: ANY,
    },
    Careful {
        program: "find",
        only: None,
        long: &[],
        short: "",
        words: &[
            "-exec",
            "-execdir",
            "-ok",
            "-okdir",
            "-delete",
            "-fprint",
            "-fprint0",
            "-fprintf",
            "-fls",
            "-files0-from",
        ],
        operands: ANY,
    },
    careful(
        "tar",
        &[
            "checkpoint-action",
            "to-command",
            "use-compress-program",
            "rsh-command",
            "rmt-command",
            "info-script",
            "new-volume-script",
            "absolute-names",
            "files-from",
            "directory",
            "transform",
            "xform",
            "overwrite",
            "unlink-first",
            "recursive-unlink",
            "one-top-level",
            "owner",
            "keep-directory-symlink",
            "exclude-from",
        ],
        "IFPTCU",
    ),
    careful("gzip", &["suffix"], "S"),
    careful("gunzip", &["suffix"], "S"),
    careful("zcat", &[], ""),
    careful("bzip2", &[], ""),
    careful("xz", &["suffix", "files"], "S"),
    careful("zstd", &["output-dir-flat"], "o"),
    careful("unzip", &[], "dop"),
    Careful {
        program: "git",
        only: Some(GIT_LOOKS),
        long: &[
            "ext-diff",
            "textconv",
            "output",
            "no-index",
            "upload-pack",
            "receive-pack",
            "exec",
            "exec-path",
            "git-dir",
            "work-tree",
            "config-env",
            "open-files-in-pager",
            "paginate",
            "filters",
            "parseopt",
            "sq-quote",
            "namespace",
            "super-prefix",
            "attr-source",
            "show-signature",
            "contents",
            "batch-command",
            "help",
        ],
        short: "",
        words: &[],
        operands: ANY,
    },
    Careful {
        program: "npm",
        only: Some(&["ls", "list", "--version", "-v", "version"]),
        long: &[
            "prefix",
            "userconfig",
            "globalconfig",
            "script-shell",
            "node-options",
            "scripts-prepend-node-path",
            "registry",
            "shell",
            "editor",
            "viewer",
            "browser",
            "git",
            "ignore-scripts",
            "cache",
            "location",
            "global",
            "workspace",
            "call",
            "package",
        ],
        short: "Cgcw",
        words: &["major", "minor", "patch", "premajor", "preminor", "prepatch", "prerelease", "from-git"],
        operands: 2,
    },
];

/// Parts of an option's name that add authority in most programs that have it.
const DANGEROUS_PARTS: &[&str] = &[
    "exec",
    "command",
    "cmd",
    "eval",
    "script",
    "shell",
    "hook",
    "editor",
    "pager",
    "browser",
    "viewer",
    "plugin",
    "preload",
    "require",
    "import",
    "module",
    "load",
    "library",
    "rsh",
    "ssh",
    "proxy",
    "config",
    "rcfile",
    "init",
    "output",
    "outfile",
    "upload",
    "post",
    "listen",
    "daemon",
    "filter",
    "program",
    "wrapper",
    "runner",
    "interpreter",
    "engine",
    "checkpoint",
    "root",
    "user",
    "owner",
    "chdir",
    "directory",
    "env",
    "define",
    "option",
    "format-exec",
    "write",
    "inplace",
    "in-place",
    "delete",
    "remove",
    "force",
    "password",
    "key",
    "token",
    "credential",
    "host",
    "remote",
    "url",
    "server",
    "socket",
    "connect",
    "debug",
    "allow",
    "unsafe",
    "insecure",
    "disable",
    "no-verify",
    "no-check",
    "trust",
    "setuid",
];

/// Short options that mean code or a file to obey in many programs.
const DANGEROUS_SHORT: &str = "cCeEfFoOxXrRiIuDMmSKT";

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

/// The first argument that adds authority to this program; none when they are the usual ones.
pub(super) fn added<'a>(program: &str, arguments: &'a [String]) -> Option<&'a str> {
    let name = program.rsplit('/').next().unwrap_or(program);
    match CAREFUL.iter().find(|known| known.program == name) {
        Some(known) => known.added(arguments),
        None => arguments.iter().map(String::as_str).find(|word| is_dangerous_anywhere(word)),
    }
}

impl Careful {
    fn added<'a>(&self, arguments: &'a [String]) -> Option<&'a str> {
        if let (Some(only), Some(first)) = (self.only, arguments.first())
            && !only.contains(&first.as_str())
        {
            return Some(first);
        }
        let odd = arguments.iter().find(|word| self.is_odd(word));
        let mut operands = arguments.iter().filter(|word| !word.starts_with(['-', '+']) || word.len() == 1);
        let beyond = match self.program {
            "sed" => operands.next().filter(|script| !is_harmless_sed(script)),
            _ if self.operands == ANY => None,
            _ => operands.nth(self.operands),
        };
        odd.or(beyond).map(String::as_str)
    }

    fn is_odd(&self, word: &str) -> bool {
        if self.words.contains(&word) {
            return true;
        }
        if let Some(long) = word.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or(long);
            return !name.is_empty() && self.long.iter().any(|odd| odd.starts_with(name));
        }
        // The old style of tar has its letters in a first word without a dash; `find` has long words with one.
        let letters = match word.strip_prefix('-') {
            Some(letters) => letters,
            None if self.program == "tar" && !word.contains(['/', '.']) => word,
            None => return false,
        };
        letters.chars().any(|letter| self.short.contains(letter))
    }
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

fn is_dangerous_anywhere(word: &str) -> bool {
    if word.contains([';', '|', '&', '`', '<', '>', '!']) || word.contains("$(") || word.contains("${") {
        return true;
    }
    if let Some(long) = word.strip_prefix("--") {
        let name = long.split('=').next().unwrap_or(long).to_ascii_lowercase();
        return DANGEROUS_PARTS
            .iter()
            .any(|part| name.contains(part) || (!name.is_empty() && part.starts_with(&name)));
    }
    let starts_option = word.starts_with(['-', '+', '@']) && word.len() > 1;
    starts_option && word.chars().skip(1).any(|letter| DANGEROUS_SHORT.contains(letter))
}
