//! Graphs of calls that no launch takes the place of.

use std::fmt::Debug;

use libtest_mimic::Failed;

/// Requires that a graph of calls has at least `least` launches, and leaves the same bits as the calls without a graph.
pub(crate) fn require_apart(
    calls: &str,
    launches: usize,
    least: usize,
    [found, expected]: [&dyn Debug; 2],
) -> Result<(), Failed> {
    if launches < least {
        return Err(format!("{calls}: {launches} launches").into());
    }
    // As texts: what nothing writes stays the NaN that it was.
    let [found, expected] = [found, expected].map(|results| format!("{results:?}"));
    if found == expected { Ok(()) } else { Err(format!("{calls}: {found}, not {expected}").into()) }
}
