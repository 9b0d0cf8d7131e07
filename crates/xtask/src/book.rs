//! `cargo xtask book`: makes the guide from `docs/` with mdBook and follows every link in it.
//!
//! mdBook says nothing of a link that leads nowhere, nor of a page that its table of contents has forgotten. So what it
//! made is read again here: pages, pictures and headings that are linked must be there. Addresses are not asked.

mod html;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{needs, process};
use html::Page;

/// Where the pages stand, and mdBook's settings.
const SOURCE: &str = "docs";

/// The table of contents, which becomes no page.
const CONTENTS: &str = "SUMMARY.md";

/// Makes the guide in `target/book`; a dead link or a forgotten page is an error.
pub(crate) fn build_and_check(root: &Path) -> Result<()> {
    let Some(mdbook) = process::installed(needs::MDBOOK) else {
        bail!("the guide is made with mdbook, which is not installed; `cargo xtask test` installs it")
    };
    let made = process::target_folder(root).join("book");
    // A page of an earlier build must not be what a link leads to.
    if made.exists() {
        fs::remove_dir_all(&made).with_context(|| format!("{} cannot be removed", made.display()))?;
    }
    let mut command = Command::new(mdbook);
    command.args(["build", SOURCE, "--dest-dir"]).arg(&made);
    process::run(root, command)?;

    let files = files_below(&made)?;
    let mut problems = forgotten(&files_below(&root.join(SOURCE))?, &files);
    let pages = read_pages(&made, &files)?;
    problems.extend(dead_links(&pages, &files));
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => {
            let links: usize = pages.values().map(|page| page.links.len()).sum();
            println!(
                "book: {} pages, {links} links, all lead somewhere: {}",
                pages.len(),
                made.join("index.html").display()
            );
            Ok(())
        }
        count => bail!("the guide has {count} problems, listed above"),
    }
}

/// The paths of all files below a folder, relative to it, with `/`.
fn files_below(folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut open = vec![(folder.to_path_buf(), String::new())];
    while let Some((path, prefix)) = open.pop() {
        let entries = fs::read_dir(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                open.push((entry.path(), format!("{name}/")))
            } else {
                found.insert(name);
            }
        }
    }
    Ok(found)
}

fn read_pages(made: &Path, files: &BTreeSet<String>) -> Result<BTreeMap<String, Page>> {
    let pages = files.iter().filter(|name| name.ends_with(".html"));
    pages
        .map(|name| {
            let path: PathBuf = made.join(name);
            let text =
                fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            Ok((name.clone(), Page::read(&text)))
        })
        .collect()
}

/// Pages in `docs/` that became none, because the table of contents does not name them.
fn forgotten(sources: &BTreeSet<String>, made: &BTreeSet<String>) -> Vec<String> {
    let pages = sources.iter().filter(|name| name.ends_with(".md") && *name != CONTENTS);
    let missing = pages.filter(|name| !made.contains(&page_of(name)));
    missing
        .map(|name| format!("{SOURCE}/{name}: not a page of the guide; add it to {SOURCE}/{CONTENTS}, where its readers would look for it"))
        .collect()
}

/// The page that mdBook makes of a file.
fn page_of(name: &str) -> String {
    let stem = name.strip_suffix(".md").unwrap_or(name);
    match stem.strip_suffix("README") {
        Some(folder) if folder.is_empty() || folder.ends_with('/') => format!("{folder}index.html"),
        Some(_) | None => format!("{stem}.html"),
    }
}

fn dead_links(pages: &BTreeMap<String, Page>, files: &BTreeSet<String>) -> Vec<String> {
    let links = pages.iter().flat_map(|(name, page)| page.links.iter().map(move |link| (name, link)));
    links
        .filter_map(|(name, link)| {
            let why = why_dead(name, link, pages, files)?;
            Some(format!("{SOURCE}/, page {name}: the link to `{link}` {why}"))
        })
        .collect()
}

fn why_dead(
    page: &str,
    link: &str,
    pages: &BTreeMap<String, Page>,
    files: &BTreeSet<String>,
) -> Option<&'static str> {
    const OUTSIDE: &str = "leads nowhere; a page of the guide can link only to what is below docs/";
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let path = path.split('?').next().unwrap_or_default();
    if path.starts_with("//") || path.split('/').next().is_some_and(|first| first.contains(':')) {
        return None;
    }
    let Some(target) = resolved(page, path) else { return Some(OUTSIDE) };
    let index = if target.is_empty() { "index.html".to_owned() } else { format!("{target}/index.html") };
    let Some(file) = [target, index].into_iter().find(|name| files.contains(name)) else {
        return Some(OUTSIDE);
    };
    let page = pages.get(&file)?;
    let is_missing = !heading.is_empty() && !page.ids.contains(&html::decoded(heading));
    is_missing.then_some("leads to no heading of that page")
}

/// The file that a path on a page leads to; nothing above the guide.
fn resolved(page: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(page.to_owned());
    }
    let mut segments: Vec<&str> = page.split('/').collect();
    segments.pop();
    let path = html::decoded(path);
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop()?;
            }
            other => segments.push(other),
        }
    }
    Some(segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn dead(page: &str) -> Vec<String> {
        let pages = BTreeMap::from([
            ("adr/index.html".to_owned(), Page::read(page)),
            ("start.html".to_owned(), Page::read("<h2 id=\"go-on\">Go on</h2>")),
        ]);
        dead_links(&pages, &names(&["adr/index.html", "start.html", "images/a b.png"]))
    }

    #[test]
    fn links_that_lead_somewhere() {
        let page = "<h1 id='here'>x</h1><a href=\"../start.html#go-on\">a</a> <a href='#here'>b</a> \
            <img src=\"../images/a%20b.png?v=1\"> <a href=\"https://a.b/c\">c</a> <a href=\"../adr/\">d</a> \
            <a href=\"mailto:a@b.c\">e</a>";
        assert_eq!(dead(page), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere() {
        let nowhere = "leads nowhere; a page of the guide can link only to what is below docs/";
        let page = "<a href=\"../stop.html\">a</a><img src='no.png'><a href=\"../../README.md\">b</a>\
            <a href=\"../start.html#stop\">c</a><a href=\"#gone\">d</a>";
        let expected = [
            format!("docs/, page adr/index.html: the link to `../stop.html` {nowhere}"),
            format!("docs/, page adr/index.html: the link to `no.png` {nowhere}"),
            format!("docs/, page adr/index.html: the link to `../../README.md` {nowhere}"),
            "docs/, page adr/index.html: the link to `../start.html#stop` leads to no heading of that page"
                .into(),
            "docs/, page adr/index.html: the link to `#gone` leads to no heading of that page".into(),
        ];
        assert_eq!(dead(page), expected);
    }

    #[test]
    fn a_page_that_the_contents_forget_is_named() {
        let sources = names(&["SUMMARY.md", "README.md", "adr/README.md", "a.md", "lost.md", "images/a.png"]);
        let found = forgotten(&sources, &names(&["index.html", "adr/index.html", "a.html", "images/a.png"]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("docs/lost.md: not a page of the guide; add it to docs/SUMMARY.md"),
            "{found:?}"
        );
    }
}
