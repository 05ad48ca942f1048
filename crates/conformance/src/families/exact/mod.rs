//! Inputs whose sums are exact, so that one element that a kernel leaves out or takes twice shows at every
//! length.
//!
//! The bounds of other inputs grow with the length of a sum, and past some thousand terms are wider than one
//! of them. Here every partial sum of every order is a number of f32, so all that may be off are the few
//! roundings after it. Results in f16 tell sums apart only around the midpoints of neighbouring numbers:
//! there, inputs are such that the exact result lies just beside one, or there are many results.
//!
//! Each case brings what a kernel would return that takes an element another number of times than once; a
//! unit test has the comparer refuse that, for elements at both ends and around every boundary between
//! vectors, workgroups, slices and parts.

mod backward;
mod norm;
mod reduce;
mod softmax;
mod sums;

use backend_api::DType;

use crate::case::Case;
use crate::float::round_to;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

/// The packed output of a kernel that takes element `i` of every sum of one kind `times(i)` times.
type Model = Box<dyn Fn(&dyn Fn(usize) -> f64) -> Vec<f64>>;

/// A call with exact sums.
#[cfg_attr(not(test), expect(dead_code, reason = "only the unit test asks what a wrong kernel would return"))]
struct Exact {
    trial: Trial,
    /// Elements of a sum.
    length: usize,
    /// One model for each kind of sum that the operation makes.
    models: Vec<Model>,
}

/// How a case is named and made.
struct Recipe {
    family: &'static str,
    name: String,
    build: Box<dyn Fn(&mut Rng) -> Exact + Send + Sync>,
}

impl Recipe {
    fn new(
        family: &'static str,
        name: String,
        build: impl Fn(&mut Rng) -> Exact + Send + Sync + 'static,
    ) -> Self {
        Self { family, name: format!("exact_{name}"), build: Box::new(build) }
    }
}

pub(super) fn cases() -> Vec<Case> {
    let case = |Recipe { family, name, build }| Case::new(family, name, move |rng| build(rng).trial);
    recipes().into_iter().map(case).collect()
}

fn recipes() -> Vec<Recipe> {
    [softmax::recipes(), norm::recipes(), backward::recipes(), reduce::recipes(), sums::recipes()]
        .into_iter()
        .flatten()
        .collect()
}

/// The most terms, up to `length`, for which results in `dtype` of that many and of one fewer are told apart;
/// `want` says what the result of so many terms must be.
fn told_apart(dtype: DType, length: usize, want: impl Fn(usize) -> Want) -> usize {
    let stored = |want: &Want| round_to(dtype, want.value().unwrap_or(f64::NAN));
    let refuses = |want: &Want, other: &Want| want.miss(stored(other), dtype) > 1.0;
    let mut more = want(length);
    for count in (2..=length).rev() {
        let fewer = want(count - 1);
        if refuses(&more, &fewer) && refuses(&fewer, &more) {
            return count;
        }
        more = fewer;
    }
    length
}

/// Which elements of a slice have weight: `count` of them in slices of even number, and one fewer in the
/// others. What is left out is in one place in slices 0 and 1 of each four, and in another in 2 and 3, so
/// that each element has weight in one of each pair.
fn has_weight(slice: usize, length: usize, count: usize, i: usize) -> bool {
    let ones = count.saturating_sub(slice % 2).max(1);
    let start = slice / 2 % 2 * (length / 2);
    i < start || i >= start + (length - ones)
}

/// `n` numbers ±1 of any order, of which each pair of neighbours adds up to 0.
fn balanced(rng: &mut Rng, n: usize) -> Vec<f64> {
    let pairs = (0..n.div_ceil(2)).flat_map(|_| if rng.one_in(2) { [1.0, -1.0] } else { [-1.0, 1.0] });
    pairs.take(n).collect()
}

/// A packed tensor of the results for each slice along the middle extent of `[outer, length, inner]`.
fn along<T: Clone>(
    [outer, length, inner]: [usize; 3],
    slice: impl Fn(usize) -> Vec<T>,
    default: T,
) -> Vec<T> {
    let mut all = vec![default; outer * length * inner];
    for s in 0..outer * inner {
        for (i, value) in slice(s).into_iter().enumerate() {
            all[(s / inner * length + i) * inner + s % inner] = value;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::encode;
    use crate::hash_of_name;
    use crate::run::check_elements;

    /// Both ends, both sides of the middle and of each boundary that kernels cut sums at: vectors,
    /// workgroups, blocks of registers, and parts of up to a sixteenth.
    fn worst(length: usize) -> Vec<usize> {
        let steps = [4, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];
        let last = steps.iter().map(|step| (length.saturating_sub(1)) / step * step);
        let parts = (2..=16).map(|parts| length.div_ceil(parts));
        let boundaries = steps.iter().copied().chain(last).chain(parts).chain([length]);
        let beside = boundaries.flat_map(|at| [at.saturating_sub(1), at]);
        let mut all: Vec<usize> = beside.chain([0, 1]).filter(|&at| at < length).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Both ends, and of the places between one in so many as makes a recipe's time grow no faster than its length: other ones
    /// for each recipe.
    fn some_of(places: Vec<usize>, path: &str) -> Vec<usize> {
        let last = places.len().saturating_sub(1);
        let one_in = 1 + places.last().map_or(0, |&length| length / 8192);
        let first = hash_of_name(path) as usize % one_in;
        let is_chosen = |&(i, _): &(usize, usize)| i == 0 || i == last || i % one_in == first;
        places.into_iter().enumerate().filter(is_chosen).map(|(_, at)| at).collect()
    }

    /// Why the comparer accepts what it must not, or refuses what it must accept.
    fn check(exact: &Exact, path: &str) -> Result<(), String> {
        let output = exact.trial.operands.iter().find(|operand| !operand.after.is_empty());
        let output = output.ok_or("no output")?;
        for (kind, model) in exact.models.iter().enumerate() {
            let verdict = |times: &dyn Fn(usize) -> f64| {
                let got: Vec<f64> = model(times).into_iter().map(|x| round_to(output.dtype, x)).collect();
                check_elements(output, &encode(output.dtype, &got))
            };
            verdict(&|_| 1.0).map_err(|detail| format!("the right result of sum {kind}: {detail}"))?;
            for at in some_of(worst(exact.length), path) {
                for often in [0.0, 2.0] {
                    if verdict(&|i| if i == at { often } else { 1.0 }).is_ok() {
                        return Err(format!("element {at} taken {often} times in sum {kind} goes unnoticed"));
                    }
                }
            }
        }
        Ok(())
    }

    /// The recipes are shared among threads, since there are many.
    #[test]
    fn one_element_left_out_or_taken_twice_is_refused_at_every_length() {
        let recipes = recipes();
        let threads = 4;
        let failures: Vec<String> = std::thread::scope(|scope| {
            let share = |first: usize| {
                let recipes = &recipes;
                scope.spawn(move || {
                    let own = recipes.iter().skip(first).step_by(threads);
                    let checked = own.map(|recipe| {
                        let path = format!("{}/{}", recipe.family, recipe.name);
                        let exact = (recipe.build)(&mut Rng::from_name(&path));
                        check(&exact, &path).map_err(|why| format!("{path}: {why}"))
                    });
                    checked.filter_map(Result::err).collect::<Vec<String>>()
                })
            };
            let shares: Vec<_> = (0..threads).map(share).collect();
            shares
                .into_iter()
                .flat_map(|share| share.join().unwrap_or_else(|_| vec!["a panic".into()]))
                .collect()
        });
        assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), recipes.len(), failures.join("\n"));
    }

    #[test]
    fn each_element_has_weight_in_a_slice_of_either_count() {
        for (length, count) in [(1, 1), (2, 2), (9, 8), (100, 90)] {
            for i in 0..length {
                let any = |slices: [usize; 2]| slices.iter().any(|&s| has_weight(s, length, count, i));
                assert!(any([0, 2]) && any([1, 3]), "{i} of {length}");
            }
        }
    }
}
