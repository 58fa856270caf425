//! The lines of Rust files that have changed since the merge base with a Git revision.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use crate::record::output;

/// Ranges of changed lines, by file. The lines are numbered as in the current files.
pub type ChangedLines = BTreeMap<PathBuf, Vec<RangeInclusive<usize>>>;

/// Returns the lines of Rust files that have changed since the last common ancestor with `revision`, committed or not.
/// Files that git does not track are not included.
///
/// # Errors
///
/// Fails if git fails, for example because there is no such revision.
pub fn changed_lines(root: &Path, revision: &str) -> anyhow::Result<ChangedLines> {
    let arguments = [
        "diff",
        "--merge-base",
        "--unified=0",
        "--no-color",
        "--no-ext-diff",
        "--dst-prefix=b/",
        revision,
        "--",
        "*.rs",
    ];
    Ok(parse(&output(root, "git", &arguments)?))
}

fn parse(difference: &str) -> ChangedLines {
    let mut lines = ChangedLines::new();
    let mut file = None;
    for line in difference.lines() {
        if let Some(path) = line.strip_prefix("+++ ") {
            // A file that was removed is /dev/null.
            file = path.strip_prefix("b/").map(PathBuf::from);
        } else if let (Some(file), Some(hunk)) = (&file, line.strip_prefix("@@ -"))
            && let Some(range) = new_lines(hunk)
        {
            lines.entry(file.clone()).or_default().push(range);
        }
    }
    lines
}

/// Returns the new lines of a hunk such as `1,2 +3,4 @@`. If lines were only removed, returns the lines beside the gap.
fn new_lines(hunk: &str) -> Option<RangeInclusive<usize>> {
    let new = hunk.split_once('+')?.1.split(' ').next()?;
    let (start, count) = new.split_once(',').unwrap_or((new, "1"));
    let (start, count): (usize, usize) = (start.parse().ok()?, count.parse().ok()?);
    Some(match count {
        0 => start..=start + 1,
        count => start..=start + count - 1,
    })
}

/// Returns `true` if at least one of the lines `first` to `last` of `file`, both inclusive, has changed.
pub fn is_changed(changed: &ChangedLines, file: &Path, (first, last): (usize, usize)) -> bool {
    changed.get(file).is_some_and(|ranges| ranges.iter().any(|range| *range.start() <= last && first <= *range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_are_lines() {
        let changed = parse(
            "diff --git a/x.rs b/x.rs\n--- a/x.rs\n+++ b/x.rs\n@@ -3 +3,2 @@ fn a()\n-b\n+b\n+c\n@@ -9,2 +10,0 @@\n-d\n-e\n\
             --- a/y.rs\n+++ /dev/null\n@@ -1 +0,0 @@\n",
        );
        assert_eq!(changed, BTreeMap::from([(PathBuf::from("x.rs"), vec![3..=4, 10..=11])]));
        let is_changed = |file, lines| is_changed(&changed, Path::new(file), lines);
        assert!(is_changed("x.rs", (1, 3)) && is_changed("x.rs", (4, 9)) && is_changed("x.rs", (11, 11)));
        assert!(!is_changed("x.rs", (1, 2)) && !is_changed("x.rs", (5, 9)) && !is_changed("y.rs", (1, 3)));
    }
}
