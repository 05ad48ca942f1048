//! One backend used by many threads.
//!
//! Operations are on small integers, whose sums and products f32 holds exactly, so every result is known to
//! the bit whatever the device's order of summation. The one operation that isn't exact, softmax, must give
//! the bits that it gave before the threads started.

mod jobs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use backend_api::{BackendResult, BackendTranspose, ComputeBackend};

use crate::rng::Rng;
use jobs::{BYTES, ELEMENTS, Job, N, Shared};

/// Outputs of each thread, and so the most results that wait to be checked.
const OUTPUTS: usize = 4;

/// Runs `ops` random operations on each of `threads` threads, over inputs that all share and outputs of their
/// own, with allocations, views, uploads and reads between them. Returns how many results were checked.
///
/// # Errors
/// The first wrong result or failed call of each thread that had one.
pub fn run(backend: &dyn ComputeBackend, threads: usize, ops: usize) -> Result<usize, String> {
    let handles = backend.memory_stats().handles;
    let shared = Shared::new(backend).map_err(|error| format!("no shared inputs: {error}"))?;
    let shared = &shared;
    let results: Vec<Result<usize, String>> = thread::scope(|scope| {
        let spawn = |index| {
            scope.spawn(move || {
                let mut worker = Worker::new(shared, index).map_err(|error| error.to_string())?;
                worker.run(ops).map_err(|why| format!("thread {index}: {why}"))
            })
        };
        let workers: Vec<_> = (0..threads).map(spawn).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
            .collect()
    });
    shared.free().map_err(|error| format!("freeing the inputs: {error}"))?;
    let checked = results.iter().map(|result| result.as_ref().copied().unwrap_or(0)).sum();
    let failures: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    match backend.memory_stats().handles {
        after if after == handles => Ok(checked),
        after => Err(format!("{handles} handles before, {after} after")),
    }
}

/// One thread's outputs and what they must hold.
struct Worker<'a> {
    shared: &'a Shared<'a>,
    rng: Rng,
    outputs: [u64; OUTPUTS],
    pending: Vec<(u64, &'a Job)>,
    checked: usize,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>, index: usize) -> BackendResult<Self> {
        let mut outputs = [0; OUTPUTS];
        for output in &mut outputs {
            *output = shared.backend.alloc(BYTES)?;
        }
        Ok(Self {
            shared,
            rng: Rng::from_name(&format!("thread {index}")),
            outputs,
            pending: Vec::new(),
            checked: 0,
        })
    }

    fn run(&mut self, ops: usize) -> Result<usize, String> {
        for _ in 0..ops {
            match self.rng.below(8) {
                0 => self.churn().map_err(|error| format!("alloc and free: {error:?}"))?,
                1 => self.check_upload_through_a_view()?,
                _ => self.start_a_job()?,
            }
        }
        self.check_pending()?;
        for output in self.outputs {
            self.shared.backend.free(output).map_err(|error| format!("free: {error:?}"))?;
        }
        Ok(self.checked)
    }

    fn start_a_job(&mut self) -> Result<(), String> {
        let shared = self.shared;
        let job = &shared.jobs[self.rng.below(shared.jobs.len())];
        let output = self.outputs[self.pending.len()];
        (job.call)(shared.backend, output).map_err(|error| format!("{}: {error:?}", job.name))?;
        self.pending.push((output, job));
        if self.pending.len() == OUTPUTS || self.rng.one_in(3) {
            self.check_pending()?;
        }
        Ok(())
    }

    fn check_pending(&mut self) -> Result<(), String> {
        for (output, job) in self.pending.drain(..) {
            let got = read(self.shared.backend, output, job.expected.len())
                .map_err(|error| format!("reading {}: {error:?}", job.name))?;
            compare(&job.name, &got, &job.expected)?;
            self.checked += 1;
        }
        Ok(())
    }

    fn churn(&mut self) -> BackendResult<()> {
        let backend = self.shared.backend;
        let ptrs = [0, 1, 2].map(|_| backend.alloc(1 << self.rng.below(16)));
        for ptr in ptrs {
            backend.free(ptr?)?;
        }
        Ok(())
    }

    /// Ones in a part of a buffer of zeros, written through a view, read through the whole.
    fn check_upload_through_a_view(&mut self) -> Result<(), String> {
        let backend = self.shared.backend;
        let start = self.rng.below(ELEMENTS);
        let len = self.rng.below(ELEMENTS - start);
        let mut expected = vec![0.0; ELEMENTS];
        expected[start..start + len].fill(1.0);
        let upload = || -> BackendResult<Vec<f32>> {
            let buffer = backend.alloc(BYTES)?;
            backend.copy_htod(buffer, bytemuck::cast_slice(&[0f32; ELEMENTS]))?;
            let view = backend.view(buffer, 4 * start, 4 * len)?;
            backend.copy_htod(view, bytemuck::cast_slice(&vec![1f32; len]))?;
            backend.free(view)?;
            let got = read(backend, buffer, ELEMENTS)?;
            backend.free(buffer)?;
            Ok(got)
        };
        let got = upload().map_err(|error| format!("an upload through a view: {error:?}"))?;
        self.checked += 1;
        compare("an upload through a view", &got, &expected)
    }
}

/// Two threads multiply the same matrices with different factors, `rounds` times: each into a matrix of its
/// own, and both adding to a common one.
///
/// # Errors
/// The first wrong product, or failed call.
pub fn factor_race(backend: &dyn ComputeBackend, rounds: usize) -> Result<(), String> {
    let shared = Shared::new(backend).map_err(|error| format!("no shared inputs: {error}"))?;
    let sum = backend.alloc(BYTES).map_err(|error| format!("no common output: {error}"))?;
    let (shared, barrier) = (&shared, &Barrier::new(2));
    let results = thread::scope(|scope| {
        let spawn = |index| scope.spawn(move || race(shared, index, sum, barrier, rounds));
        [0, 1].map(spawn).map(|racer| racer.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
    });
    let freed = backend.free(sum).and_then(|()| shared.free());
    results.into_iter().collect::<Result<(), String>>()?;
    freed.map_err(|error| format!("freeing the matrices: {error}"))
}

/// Both racers meet at every barrier, also after a failure, so that none waits for ever.
fn race(shared: &Shared<'_>, index: usize, sum: u64, barrier: &Barrier, rounds: usize) -> Result<(), String> {
    let backend = shared.backend;
    let mut first_error = Ok(());
    let own = backend.alloc(BYTES);
    for round in 0..rounds {
        let factors = [1 + round % 7, 8 + round % 5];
        let factor = factors[index] as f64;
        let total = (factors[0] + factors[1]) as f32;
        let note = |result: Result<(), String>, first_error: &mut Result<(), String>| {
            if first_error.is_ok() {
                *first_error = result.map_err(|why| format!("round {round}: {why}"));
            }
        };
        if index == 0 {
            let zeros = bytemuck::cast_slice(&[0f32; ELEMENTS]);
            note(told(backend.copy_htod(sum, zeros)), &mut first_error);
        }
        barrier.wait();
        let calls = || -> Result<(), String> {
            let own = own.clone().map_err(|error| format!("{error:?}"))?;
            told(multiply(shared, factor, 0.0, own))?;
            told(multiply(shared, factor, 1.0, sum))?;
            let got = read(backend, own, ELEMENTS).map_err(|error| format!("{error:?}"))?;
            compare("an own product", &got, &shared.product(factor as f32))
        };
        let outcome = catch_unwind(AssertUnwindSafe(calls));
        note(outcome.unwrap_or_else(|_| Err("a panic".to_owned())), &mut first_error);
        barrier.wait();
        if index == 0 {
            let got = read(backend, sum, ELEMENTS).map_err(|error| format!("{error:?}"));
            let outcome = got.and_then(|got| compare("the common sum", &got, &shared.product(total)));
            note(outcome, &mut first_error);
        }
    }
    if let Ok(own) = own {
        _ = backend.free(own);
    }
    first_error
}

fn multiply(shared: &Shared<'_>, alpha: f64, beta: f64, c: u64) -> BackendResult<()> {
    let no = BackendTranspose::NoTrans;
    let (a, b) = (shared.a, shared.b);
    shared.backend.gemm(no, no, N, N, N, alpha, a, N, b, N, beta, c, N)
}

fn told<T>(result: BackendResult<T>) -> Result<T, String> {
    result.map_err(|error| format!("{error:?}"))
}

fn read(backend: &dyn ComputeBackend, ptr: u64, elements: usize) -> BackendResult<Vec<f32>> {
    let mut numbers = vec![0f32; elements];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut numbers), ptr)?;
    Ok(numbers)
}

fn compare(name: &str, got: &[f32], expected: &[f32]) -> Result<(), String> {
    match got.iter().zip(expected).position(|(got, want)| got != want) {
        Some(at) => Err(format!("{name}: element {at} is {}, expected {}", got[at], expected[at])),
        None => Ok(()),
    }
}
