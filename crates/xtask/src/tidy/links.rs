//! Rule: what a page links to is there: the file, and the heading on it. So is a file that it names as code.
//!
//! Looks at the Markdown as it is read in the repository. The guide as readers get it, with what mdBook makes of these
//! links, is checked in `book.rs`.

use super::markdown::{PageLine, Place, heading_ids, page_lines, without_code_spans};
use super::repository::{Repository, SourceFile};
use super::violation::Violation;

/// Where files are that pages name by their whole path.
const NAMED_FOLDERS: [&str; 3] = ["crates/", "docs/", "examples/"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let pages = repository.files().iter().filter(|file| is_page(&file.path));
    pages
        .flat_map(|file| {
            page_lines(&file.text)
                .iter()
                .flat_map(|line| {
                    let mut found = dead_links(repository, file, line);
                    found.extend(missing_files(repository, file, line));
                    found
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The pages at the root, and the guide.
fn is_page(path: &str) -> bool {
    path.ends_with(".md") && (!path.contains('/') || path.starts_with("docs/"))
}

fn dead_links(repository: &Repository, file: &SourceFile, line: &PageLine<'_>) -> Vec<Violation> {
    if line.place != Place::Prose {
        return Vec::new();
    }
    let prose = without_code_spans(line.text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    targets.filter_map(|target| dead_link(repository, file, line.number, target)).collect()
}

/// Files of the repository that are named as code, by their whole path, and are not there.
fn missing_files(repository: &Repository, file: &SourceFile, line: &PageLine<'_>) -> Vec<Violation> {
    if line.place != Place::Prose {
        return Vec::new();
    }
    let is_path = |span: &&str| {
        let is_ours = NAMED_FOLDERS.iter().any(|folder| span.starts_with(folder));
        is_ours && span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
    };
    let missing = |path: &&str| !repository.has_file_or_folder(path.trim_end_matches('/'));
    let spans = line.text.split('`').skip(1).step_by(2);
    spans
        .filter(is_path)
        .filter(missing)
        .map(|path| {
            let problem = format!("there is no `{path}`");
            Violation::new(&file.path, line.number, problem, "name it as it is called now, or remove it")
        })
        .collect()
}

fn dead_link(repository: &Repository, file: &SourceFile, line: usize, target: &str) -> Option<Violation> {
    let (path, heading) = linked_place(&file.path, target)?;
    if !repository.has_file_or_folder(&path) {
        return Some(Violation::new(
            &file.path,
            line,
            format!("the link to `{target}` leads nowhere"),
            "links are relative to the page they stand on; correct or remove it",
        ));
    }
    let page = repository.file(&path).filter(|page| page.path.ends_with(".md"))?;
    let is_missing = heading.is_some_and(|heading| !heading_ids(&page.text).contains(heading));
    is_missing.then(|| {
        Violation::new(
            &file.path,
            line,
            format!("the link to `{target}` leads to no heading of {path}"),
            "a heading is linked by its words in lower case with hyphens between them; correct or remove it",
        )
    })
}

/// The path in the repository that a link on `page` leads to, and the heading there; nothing for addresses.
fn linked_place<'a>(page: &str, target: &'a str) -> Option<(String, Option<&'a str>)> {
    let target = target.trim_matches(['<', '>']);
    let (path, heading) = match target.split_once('#') {
        Some((path, heading)) => (path, Some(heading).filter(|heading| !heading.is_empty())),
        None => (target, None),
    };
    let is_address = path.split('/').next().is_some_and(|first| first.contains(':'));
    match path {
        _ if is_address => None,
        "" => Some((page.to_owned(), heading)),
        path => Some((resolved(page, path), heading)),
    }
}

fn resolved(page: &str, path: &str) -> String {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut segments: Vec<&str> =
        if path.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            // Above the root there is nothing of ours; the dots stay and no file matches.
            ".." if segments.iter().any(|one| !one.is_empty()) => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    segments.retain(|segment| !segment.is_empty());
    segments.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let files = [(path, text), ("CHANGELOG.md", "# What is new"), ("docs/guide/start.md", "## Go on\n")];
        let show = |violation: &Violation| format!("{}: {}", violation.line, violation.problem);
        check(&Repository::of(&files)).iter().map(show).collect()
    }

    #[test]
    fn relative_links_lead_somewhere() {
        let page = "[a](guide/start.md#) [b](../CHANGELOG.md \"t\") [c](guide) [f](https://a.b/c#d)\n\
            ![h](no.png) `[i](nothing.md)` [j](../../k)\n```\n[l](m)\n```";
        let expected = ["2: the link to `no.png` leads nowhere", "2: the link to `../../k` leads nowhere"];
        assert_eq!(found("docs/a.md", page), expected);
        assert!(found("README.md", "[a](CHANGELOG.md) [b](/docs/guide) [c](.)").is_empty());
    }

    #[test]
    fn files_that_are_named_are_there() {
        let page =
            "`docs/guide/start.md` `docs/guide/` `crates/{name}/src` `docs/gone.md`\n```\n`docs/no.md`\n```";
        assert_eq!(found("docs/a.md", page), ["1: there is no `docs/gone.md`"]);
    }

    #[test]
    fn headings_are_there() {
        let page = "# Here I am\n[a](#here-i-am) [b](guide/start.md#go-on) [c](../CHANGELOG.md#what-is-new)\n\
            [d](#there) [e](guide/start.md#stop)";
        let expected = [
            "3: the link to `#there` leads to no heading of docs/a.md",
            "3: the link to `guide/start.md#stop` leads to no heading of docs/guide/start.md",
        ];
        assert_eq!(found("docs/a.md", page), expected);
    }
}
