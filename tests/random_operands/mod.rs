//! Random calls of every family, with operands of some times what can be bound, beside the CPU: numbers within the
//! bounds of the conformance suite, everything else bit by bit, and nothing changed by what is refused.
//!
//! `RANDOM_CASES=100000 CASE=matmul cargo test -p suites --test small_bindings random_operands` runs more cases, of one
//! family; `RANDOM_SEED=7` runs others; `RANDOM_CASE=12` runs one of each family.

mod draw;
mod elements;
mod images;
mod products;
mod quantised;
mod rows;
mod tables;
mod undivided;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use backend_api::support::Access;
use backend_api::{BackendResult, Command, ComputeBackend, ErrorKind};
use backend_webgpu::WebGpuBackend;
use conformance::reference::{Bytes, compare};

use super::within_blocks::LISTED;
use super::{BINDING, text};
use draw::{Buffer, Draw};
use suites::number;

/// Cases of each family, unless `RANDOM_CASES` says otherwise.
const CASES: usize = 2;

/// What a call may take, its kernels compiled.
const SLOW: Duration = Duration::from_secs(120);

/// Makes a call on the buffers that were drawn.
type Run<'a> = &'a mut dyn FnMut(&Draw, &'static str, Command<'_>);

type Family = fn(&mut Draw, Run<'_>);

/// Functions of modules, each beside its name.
macro_rules! families {
    ($($module:ident: $($family:ident),+;)+) => {
        &[$($((stringify!($family), $module::$family)),+),+]
    };
}

const FAMILIES: &[(&str, Family)] = families! {
    elements: unary, binary, where_cond, copy, slice, pad, repeat, concat, bytes, random;
    rows: reduce, softmax, cumsum, layer_norm, rms_norm, group_norm, batch_norm, norm_backward,
        norm_backward_weight, softmax_backward;
    tables: gather, scatter, rope, rope_append, top_k, sample;
    products: matmul, attention;
    quantised: quant_matmul, quant_rows, expert_matmul, quantize_rows;
    images: conv2d, conv_transpose2d, conv_backward, pool2d, pool2d_backward;
};

/// The families that `CASE` may name.
pub(super) fn families() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|&(family, _)| family)
}

pub(super) fn random_operands(backend: &WebGpuBackend) -> Result<(), String> {
    let cpu = suites::registry().create("cpu").map_err(text)?;
    let filter = suites::Filter::from_environment();
    let (cases, seed) = (number("RANDOM_CASES")?.unwrap_or(CASES), number("RANDOM_SEED")?.unwrap_or(0));
    let cases = number("RANDOM_CASE")?.map_or(0..cases, |case| case..case + 1);
    let (mut tally, mut failures) = (BTreeMap::<(&str, Outcome), usize>::new(), Vec::new());
    for case in cases {
        for (family, make) in FAMILIES.iter().filter(|(family, _)| filter.has(family)) {
            let mut draw = Draw::new(&format!("{family} {seed} {case}"), BINDING);
            make(&mut draw, &mut |draw, op, command| {
                let began = Instant::now();
                let result = check(backend, &*cpu, draw, op, command);
                let result = if began.elapsed() > SLOW {
                    Err(format!("it took {:?}", began.elapsed()))
                } else {
                    result
                };
                match result {
                    Ok(outcome) => *tally.entry((family, outcome)).or_default() += 1,
                    Err(why) => failures.push(format!("{family} {seed} {case}: {why}\n    {command:?}")),
                }
            });
        }
    }
    println!("{tally:?}");
    failures.truncate(LISTED);
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// What a call came to that was no failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Right,
    /// Both refused the arguments.
    Wrong,
    /// The device has no such type.
    Unsupported,
    /// It passes a limit.
    Limit,
}

/// The buffers of a case on a backend.
struct Placed<'a> {
    backend: &'a dyn ComputeBackend,
    blocks: Vec<(u64, Vec<u8>)>,
    /// The view of each buffer, by its block and its first byte there.
    views: Vec<(u64, usize, usize)>,
}

impl<'a> Placed<'a> {
    /// With `before` bytes before each buffer and `after` bytes behind it, in blocks of their own or in one.
    fn new(
        backend: &'a dyn ComputeBackend,
        buffers: &[Buffer],
        spaces: &[[usize; 2]],
        in_one: bool,
    ) -> BackendResult<Self> {
        let mut contents: Vec<Vec<u8>> = Vec::new();
        let mut places = Vec::new();
        for (buffer, [before, after]) in buffers.iter().zip(spaces) {
            if contents.is_empty() || !in_one {
                contents.push(Vec::new());
            }
            let block = contents.len() - 1;
            let content = &mut contents[block];
            let start = (content.len() + before).next_multiple_of(buffer.item);
            content.resize(start, 0xa5);
            content.extend(&buffer.bytes);
            content.resize((content.len() + after).next_multiple_of(4).max(4), 0xa5);
            places.push((block, start));
        }
        let mut placed = Self { backend, blocks: Vec::new(), views: Vec::new() };
        for content in contents {
            let ptr = backend.alloc(content.len())?;
            placed.blocks.push((ptr, content));
            let (ptr, content) = &placed.blocks[placed.blocks.len() - 1];
            backend.copy_htod(*ptr, content)?;
        }
        for ((block, start), buffer) in places.into_iter().zip(buffers) {
            let view = backend.view(placed.blocks[block].0, start, buffer.bytes.len())?;
            placed.views.push((view, block, start));
        }
        Ok(placed)
    }

    fn execute(&self, op: &'static str, command: Command<'_>, captured: bool) -> BackendResult<()> {
        let handle =
            |id: u64| (id as usize).checked_sub(1).and_then(|at| self.views.get(at)).map_or(0, |view| view.0);
        command.with_handles(&mut { handle }, |command| {
            if !captured {
                return self.backend.execute(op, command);
            }
            let graph = self.backend.capture(&mut |backend| backend.execute(op, command))?;
            self.backend.replay(graph)?;
            self.backend.free_graph(graph)
        })
    }

    /// The bytes of all blocks.
    fn read(&self) -> BackendResult<Vec<Vec<u8>>> {
        let read = |(ptr, content): &(u64, Vec<u8>)| {
            let mut bytes = vec![0; content.len()];
            self.backend.copy_dtoh(&mut bytes, *ptr).map(|()| bytes)
        };
        self.blocks.iter().map(read).collect()
    }

    /// The content of each buffer in the bytes of all blocks.
    fn buffers(&self, blocks: &[Vec<u8>], buffers: &[Buffer]) -> Bytes {
        let mut all = Bytes::default();
        for (id, (&(_, block, start), buffer)) in (1..).zip(self.views.iter().zip(buffers)) {
            all.insert(id, blocks[block][start..start + buffer.bytes.len()].to_vec());
        }
        all
    }

    fn free(&self) -> BackendResult<()> {
        let views = self.views.iter().map(|view| view.0);
        views.chain(self.blocks.iter().map(|block| block.0)).try_for_each(|ptr| self.backend.free(ptr))
    }
}

fn check(
    backend: &dyn ComputeBackend,
    cpu: &dyn ComputeBackend,
    draw: &Draw,
    op: &'static str,
    command: Command<'_>,
) -> Result<Outcome, String> {
    let buffers = &draw.buffers;
    let mut places = draw.fork();
    let space = |draw: &mut Draw| match draw.below(4) {
        0 => 0,
        1 | 2 => draw.below(300),
        _ => draw.below(2 * BINDING),
    };
    let spaces: Vec<_> = buffers.iter().map(|_| [space(&mut places), space(&mut places)]).collect();
    let (in_one, captured) = (places.one_in(4), places.one_in(4));
    let device = Placed::new(backend, buffers, &spaces, in_one).map_err(text)?;
    let host = Placed::new(cpu, buffers, &vec![[0; 2]; buffers.len()], false).map_err(text)?;
    let before = device.blocks.iter().map(|block| block.1.clone()).collect::<Vec<_>>();

    let got = device.execute(op, command, captured);
    let after = device.read().map_err(text)?;
    let outcome = match got {
        Ok(()) => {
            host.execute(op, command, false).map_err(|error| format!("on the CPU {error:?}"))?;
            judge(op, command, buffers, [&device, &host], [&before, &after])?;
            Outcome::Right
        }
        Err(_) if before != after => return Err(format!("{got:?}, and it has written")),
        Err(error) => match error.kind() {
            ErrorKind::Unsupported => Outcome::Unsupported,
            ErrorKind::Limit if undivided::may_be_refused(&command, buffers) => Outcome::Limit,
            kind => match host.execute(op, command, false) {
                Err(other) if other.kind() == kind => Outcome::Wrong,
                other => return Err(format!("{error:?}, on the CPU {other:?}")),
            },
        },
    };
    device.free().and_then(|()| host.free()).map_err(text)?;
    Ok(outcome)
}

/// Compares what is written with the CPU's, and all else with what it was.
fn judge(
    op: &'static str,
    command: Command<'_>,
    buffers: &[Buffer],
    [device, host]: [&Placed<'_>; 2],
    [before, after]: [&[Vec<u8>]; 2],
) -> Result<(), String> {
    let was = device.buffers(before, buffers);
    let results = [device.buffers(after, buffers), host.buffers(&host.read().map_err(text)?, buffers)];
    if let Some(difference) = compare(op, &command, &was, results.each_ref()).map_err(text)? {
        return Err(format!("{difference:?}"));
    }
    // With what is written taken from before, nothing differs.
    let mut rest = after.to_vec();
    for output in command.operands(op).map_err(text)?.iter().filter(|operand| operand.access == Access::Write)
    {
        let Some(&(_, block, start)) =
            (output.ptr as usize).checked_sub(1).and_then(|at| device.views.get(at))
        else {
            continue;
        };
        let range = start + output.offset..start + output.offset + output.bytes;
        rest[block][range.clone()].copy_from_slice(&before[block][range]);
    }
    if rest == before { Ok(()) } else { Err("it has written beside its outputs".to_owned()) }
}
