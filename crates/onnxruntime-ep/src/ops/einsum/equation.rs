//! The equations of Einstein sums.

use std::collections::{BTreeMap, BTreeSet};

/// What a dimension is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    /// One of those that an ellipsis stands for, counted from the last one.
    Ellipsis(usize),
    /// A letter.
    Letter(char),
}

/// Letters before and behind an ellipsis; all are before where there is none.
#[derive(Clone, Debug, PartialEq)]
struct Term {
    before: Vec<char>,
    after: Option<Vec<char>>,
}

/// An equation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Equation {
    inputs: Vec<Term>,
    output: Option<Term>,
}

/// What each dimension of the inputs and of the output is called.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Labels {
    pub(super) inputs: Vec<Vec<Label>>,
    pub(super) output: Vec<Label>,
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        let letters = |text: &str| {
            if text.chars().all(|letter| letter.is_ascii_alphabetic()) {
                Ok(text.chars().collect())
            } else {
                Err(format!("the term {text:?}"))
            }
        };
        Ok(match text.split_once("...") {
            Some((before, after)) => Self { before: letters(before)?, after: Some(letters(after)?) },
            None => Self { before: letters(text)?, after: None },
        })
    }

    fn letters(&self) -> impl Iterator<Item = char> {
        self.before.iter().chain(self.after.iter().flatten()).copied()
    }

    /// The labels where an ellipsis stands for so many dimensions.
    fn labels(&self, hidden: usize) -> Vec<Label> {
        let letter = |&letter: &char| Label::Letter(letter);
        let mut labels: Vec<Label> = self.before.iter().map(letter).collect();
        if let Some(after) = &self.after {
            labels.extend((0..hidden).rev().map(Label::Ellipsis));
            labels.extend(after.iter().map(letter));
        }
        labels
    }
}

impl Equation {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let inputs = left.split(',').map(Term::parse).collect::<Result<_, _>>()?;
        Ok(Self { inputs, output: right.map(Term::parse).transpose()? })
    }

    /// The labels of inputs with these numbers of dimensions. An equation without an output has as such the
    /// letters that occur once, in alphabetical order, behind what the ellipses stand for.
    pub(super) fn labels(&self, ranks: &[usize]) -> Result<Labels, String> {
        if ranks.len() != self.inputs.len() {
            return Err(format!("{} terms for {} inputs", self.inputs.len(), ranks.len()));
        }
        let mut inputs = Vec::with_capacity(ranks.len());
        let mut most = None;
        for (term, &rank) in self.inputs.iter().zip(ranks) {
            let hidden = rank.checked_sub(term.letters().count());
            let hidden = hidden.filter(|&hidden| term.after.is_some() || hidden == 0);
            let hidden = hidden.ok_or_else(|| format!("{rank} dimensions for {term:?}"))?;
            if term.after.is_some() {
                most = most.max(Some(hidden));
            }
            inputs.push(term.labels(hidden));
        }
        let known: BTreeSet<Label> = inputs.iter().flatten().copied().collect();
        let output = match &self.output {
            Some(term) => term.labels(most.unwrap_or(0)),
            None => {
                let mut counts: BTreeMap<char, usize> = BTreeMap::new();
                self.inputs.iter().flat_map(Term::letters).for_each(|x| *counts.entry(x).or_default() += 1);
                let once = counts.into_iter().filter(|&(_, count)| count == 1).map(|(letter, _)| letter);
                Term { before: Vec::new(), after: Some(once.collect()) }.labels(most.unwrap_or(0))
            }
        };
        let distinct: BTreeSet<Label> = output.iter().copied().collect();
        let hides = output.iter().any(|label| matches!(label, Label::Ellipsis(_)));
        if distinct.len() < output.len() || !distinct.is_subset(&known) {
            return Err("an output with dimensions that no input has, or twice".to_owned());
        }
        if most.is_some_and(|most| most > 0) && !hides {
            return Err("sums over an ellipsis".to_owned());
        }
        Ok(Labels { inputs, output })
    }
}

impl Labels {
    /// How many labels there are.
    pub(super) fn count(&self) -> usize {
        self.inputs.iter().flatten().collect::<BTreeSet<_>>().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str, ranks: &[usize]) -> Result<Labels, String> {
        Equation::parse(text)?.labels(ranks)
    }

    fn letters(text: &str) -> Vec<Label> {
        text.chars().map(Label::Letter).collect()
    }

    #[test]
    fn letters_that_occur_once_are_the_output() {
        assert_eq!(labels("ij, jk", &[2, 2]).unwrap().output, letters("ik"));
        assert_eq!(labels("ba", &[2]).unwrap().output, letters("ab"));
        assert_eq!(labels("ii", &[2]).unwrap().output, []);
        assert_eq!(labels("ij,jk->", &[2, 2]).unwrap().output, []);
    }

    #[test]
    fn ellipses_are_counted_from_the_end() {
        let found = labels("...ij,j...->i...", &[3, 3]).unwrap();
        assert_eq!(found.inputs[0], [Label::Ellipsis(0), Label::Letter('i'), Label::Letter('j')]);
        assert_eq!(found.inputs[1], [Label::Letter('j'), Label::Ellipsis(1), Label::Ellipsis(0)]);
        assert_eq!(found.output, [Label::Letter('i'), Label::Ellipsis(1), Label::Ellipsis(0)]);
        assert_eq!(found.count(), 4);
    }

    #[test]
    fn what_is_no_equation() {
        for (text, ranks) in [
            ("ij->ik", &[2][..]),
            ("ij->ii", &[2]),
            ("ij", &[3]),
            ("ij,jk", &[2]),
            ("i1", &[2]),
            ("i..j", &[3]),
            ("...i->i", &[2]),
        ] {
            assert!(labels(text, ranks).is_err(), "{text}");
        }
    }
}
