//! Documents cut into passages.

/// The most words in a passage. About what the model reads of a text before it cuts off.
pub const MAX_WORDS: usize = 200;

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The line on which it starts, counted from 1.
    pub line: usize,
    /// Its words, with single spaces between them.
    pub text: String,
}

/// Cuts plain text or Markdown at empty lines, before headings, and before the line that would bring a
/// passage above [`MAX_WORDS`]; a line that is longer by itself is cut between words. A heading stays with
/// what is below it.
#[must_use]
pub fn split(document: &str) -> Vec<Passage> {
    let mut splitter = Splitter::default();
    for (index, line) in document.lines().enumerate() {
        splitter.line(index + 1, line.trim());
    }
    splitter.finish();
    splitter.passages
}

#[derive(Default)]
struct Splitter<'a> {
    passages: Vec<Passage>,
    /// Words of the open passage, and the line of the first.
    words: Vec<&'a str>,
    start: usize,
    /// Whether the open passage holds nothing but headings.
    only_headings: bool,
}

impl<'a> Splitter<'a> {
    fn line(&mut self, number: usize, line: &'a str) {
        let heading = is_heading(line);
        let words: Vec<&str> = line.split_whitespace().collect();
        let full = self.words.len() + words.len() > MAX_WORDS;
        if full || (heading || words.is_empty()) && !self.only_headings {
            self.finish();
        }
        for word in words {
            if self.words.len() == MAX_WORDS {
                self.finish();
            }
            if self.words.is_empty() {
                self.start = number;
                self.only_headings = heading;
            }
            self.words.push(word);
        }
        self.only_headings &= heading || line.is_empty();
    }

    fn finish(&mut self) {
        if !self.words.is_empty() {
            self.passages.push(Passage { line: self.start, text: self.words.join(" ") });
            self.words.clear();
        }
        self.only_headings = false;
    }
}

/// Whether a line is a Markdown heading: one to six `#` and a space.
fn is_heading(line: &str) -> bool {
    let text = line.trim_start_matches('#');
    (1..=6).contains(&(line.len() - text.len())) && text.starts_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_passages(document: &str, expected: &[(usize, &str)]) {
        let found = split(document);
        let found: Vec<_> = found.iter().map(|passage| (passage.line, passage.text.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn paragraphs_are_passages_and_keep_their_line() {
        assert_passages("one\ntwo\n\n\n  three  four\n", &[(1, "one two"), (5, "three four")]);
    }

    #[test]
    fn nothing_gives_nothing() {
        assert!(split("").is_empty());
        assert!(split(" \n\t\n\r\n").is_empty());
    }

    #[test]
    fn headings_stay_with_what_follows() {
        assert_passages(
            "# Title\n\n## Part\n\nbody\nmore\n## Next\nend",
            &[(1, "# Title ## Part body more"), (7, "## Next end")],
        );
    }

    #[test]
    fn a_number_sign_alone_is_no_heading() {
        assert_passages("a\n#tag\n####### seven\n# yes\nb", &[(1, "a #tag ####### seven"), (4, "# yes b")]);
    }

    fn sizes(document: &str) -> Vec<(usize, usize)> {
        split(document).iter().map(|passage| (passage.line, passage.text.split(' ').count())).collect()
    }

    #[test]
    fn long_paragraphs_are_cut_between_lines() {
        let line = "word ".repeat(90);
        assert_eq!(sizes(&format!("{line}\n{line}\n{line}")), [(1, 180), (3, 90)]);
    }

    #[test]
    fn long_lines_are_cut_between_words() {
        let line = "word ".repeat(450);
        assert_eq!(sizes(&format!("a\n{line}\nb")), [(1, 1), (2, 200), (2, 200), (2, 51)]);
    }

    #[test]
    fn windows_line_ends_are_line_ends() {
        assert_passages("a\r\n\r\nb\r\n", &[(1, "a"), (3, "b")]);
    }
}
