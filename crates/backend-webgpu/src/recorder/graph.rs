//! Captured commands: resolved once, encoded at each replay.
//!
//! WebGPU has no command buffer that can be submitted twice, so a replay encodes its commands anew. All that
//! can be known before is: pipelines, bind groups, parameters, grids, which buffers are used, and where
//! neighbouring commands share a pipeline or a bind group.

use std::ops::{Add as _, Range};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::batch::Flow;
use super::bind_groups::{BindKey, create};
use super::params::ParamsTable;
use super::{Command, Count, MAX_COMMANDS, OpenPass};
use crate::memory::{Block, Storage};
use crate::sync::bound;

/// Commands of the first segment, which starts the device while the host encodes the next: each submission costs the host
/// as much as some dozens of commands, so that later segments are longer.
pub(super) const FIRST_SEGMENT: usize = bound(16, 3);

/// Commands of the longest segment.
const MAX_SEGMENT: usize = bound(512, 4);

/// Commands that can be encoded any number of times.
#[derive(Debug)]
pub(crate) struct Graph {
    steps: Vec<Step>,
    immediates: Vec<u8>,
    slots: ParamsTable,
    pub(super) segments: Vec<Segment>,
    /// Below the bind groups, which name their buffers, as fields are dropped in their order.
    _blocks: Vec<Arc<Block>>,
}

/// A dispatch.
#[derive(Debug)]
struct Step {
    /// `None` where it is that of the step before.
    pipeline: Option<wgpu::ComputePipeline>,
    /// `None` where it is that of the step before.
    group: Option<wgpu::BindGroup>,
    params: StepParams,
    grid: [u32; 3],
}

/// Where the parameters of a step are.
#[derive(Debug)]
enum StepParams {
    /// A part of the graph's immediates.
    Immediates(Range<usize>),
    /// The number of one of the graph's uniform slots.
    Slot(usize),
}

/// Steps that are submitted together.
#[derive(Debug)]
pub(super) struct Segment {
    steps: Range<usize>,
    /// Commands whose time isn't estimated.
    untimed: usize,
    /// How long the device should take for those whose time is estimated.
    pub(super) seconds: f64,
    /// What is bound, each block once.
    pub(super) used: Vec<Arc<Block>>,
    /// What is written, each buffer once.
    pub(super) written: Vec<Arc<Storage>>,
    /// From each input of each step to each of its outputs, in order.
    pub(super) flows: Arc<[Flow]>,
    last: (wgpu::ComputePipeline, wgpu::BindGroup),
}

impl Graph {
    /// Makes bind groups and parameters. Errors of wgpu end up in the caller's error scope.
    pub(crate) fn new(
        device: &wgpu::Device,
        params_layout: &wgpu::BindGroupLayout,
        commands: &[Command],
    ) -> Self {
        let mut groups = FxHashMap::default();
        let groups: Vec<wgpu::BindGroup> = commands
            .iter()
            .map(|command| {
                let layout = &command.kernel.layout;
                let made = groups
                    .entry(BindKey::new(layout, &command.windows))
                    .or_insert_with(|| create(device, layout, &command.windows));
                made.clone()
            })
            .collect();
        let segments: Vec<Segment> = cut(commands)
            .into_iter()
            .map(|steps| Segment::new(&commands[steps.clone()], &groups[steps.clone()], steps))
            .collect();
        let (mut immediates, mut uniforms) = (Vec::new(), Vec::new());
        let mut params = |command: &'_ Command| {
            if command.kernel.layout.signature.uniform {
                uniforms.push(command.params.clone());
                return StepParams::Slot(uniforms.len() - 1);
            }
            let start = immediates.len();
            immediates.extend_from_slice(&command.params);
            StepParams::Immediates(start..immediates.len())
        };
        let mut steps: Vec<Step> = commands
            .iter()
            .zip(&groups)
            .map(|(command, group)| Step {
                pipeline: Some(command.kernel.pipeline.clone()),
                group: Some(group.clone()),
                params: params(command),
                grid: command.grid,
            })
            .collect();
        for segment in &segments {
            for i in segment.steps.clone().skip(1) {
                if commands[i].kernel.pipeline == commands[i - 1].kernel.pipeline {
                    steps[i].pipeline = None;
                }
                if groups[i] == groups[i - 1] {
                    steps[i].group = None;
                }
            }
        }
        let slots = ParamsTable::new(device, params_layout, uniforms.iter().map(|params| params.as_slice()));
        let blocks = segments.iter().flat_map(|segment| &segment.used).map(Arc::clone).collect();
        Self { steps, immediates, slots, segments, _blocks: blocks }
    }

    /// Commands of the first segments that fit into a batch together; of the first one, if it is longer.
    pub(crate) fn first_batch(&self) -> Count {
        let mut counts = self.segments.iter().map(Segment::count);
        let first = counts.next().unwrap_or_default();
        let together = counts.scan(first, |sum, count| {
            *sum = *sum + count;
            (sum.all <= MAX_COMMANDS).then_some(*sum)
        });
        together.last().unwrap_or(first)
    }

    /// Commands of all segments.
    pub(crate) fn whole(&self) -> Count {
        self.segments.iter().map(Segment::count).fold(Count::default(), Count::add)
    }

    /// Dispatches of a replay.
    #[cfg(any(test, feature = "test-hooks"))]
    pub(crate) fn launches(&self) -> usize {
        self.steps.len()
    }

    /// Encodes a segment into a pass.
    pub(super) fn encode(&self, segment: &Segment, open: &mut OpenPass) {
        let steps = &self.steps[segment.steps.clone()];
        // The pass may have the first step's pipeline and bind group already.
        if let Some(Step { pipeline: Some(pipeline), group: Some(group), .. }) = steps.first() {
            open.set(pipeline, group);
        }
        for (i, step) in segment.steps.clone().zip(steps) {
            if i > segment.steps.start {
                if let Some(pipeline) = &step.pipeline {
                    open.pass.set_pipeline(pipeline);
                }
                if let Some(group) = &step.group {
                    open.pass.set_bind_group(0, group, &[]);
                }
            }
            match &step.params {
                StepParams::Immediates(bytes) if bytes.is_empty() => {}
                StepParams::Immediates(bytes) => {
                    open.pass.set_immediates(0, &self.immediates[bytes.clone()]);
                }
                StepParams::Slot(number) => {
                    let (group, offset) = self.slots.slot(*number);
                    open.pass.set_bind_group(1, group, &[offset]);
                }
            }
            let [x, y, z] = step.grid;
            open.pass.dispatch_workgroups(x, y, z);
        }
        let (pipeline, group) = &segment.last;
        (open.pipeline, open.group) = (Some(pipeline.clone()), Some(group.clone()));
    }
}

impl Segment {
    fn new(commands: &[Command], groups: &[wgpu::BindGroup], steps: Range<usize>) -> Self {
        let (mut seen, mut used) = (FxHashSet::default(), Vec::new());
        let (mut changed, mut written) = (FxHashSet::default(), Vec::new());
        let mut flows = Vec::new();
        for command in commands {
            let blocks = command.windows.iter().map(|window| &window.block);
            used.extend(blocks.filter(|block| seen.insert(Arc::as_ptr(block))).cloned());
            let (sources, (_, writes)) = (command.sources(), command.reads_and_writes());
            for write in writes {
                let storage = write.block.storage();
                flows.extend(sources.iter().map(|read| Flow::new(read.block.storage(), storage)));
                if changed.insert(write.block.id()) {
                    written.push(Arc::clone(storage));
                }
            }
        }
        let seconds = commands.iter().map(|command| command.seconds).sum();
        let untimed = commands.iter().filter(|command| command.is_untimed()).count();
        let last = (commands[commands.len() - 1].kernel.pipeline.clone(), groups[groups.len() - 1].clone());
        Self { steps, untimed, seconds, used, written, flows: flows.into(), last }
    }

    pub(super) fn count(&self) -> Count {
        Count { all: self.steps.len(), untimed: self.untimed }
    }
}

/// Where commands are cut into segments: before one that begins a batch, and where a segment is long enough, or has as many
/// commands whose time isn't estimated as a batch may have.
fn cut(commands: &[Command]) -> Vec<Range<usize>> {
    let (mut segments, mut start, mut most) = (Vec::new(), 0, FIRST_SEGMENT);
    let mut untimed = 0;
    for (i, command) in commands.iter().enumerate() {
        let is_full = i - start >= most;
        if i > 0 && (is_full || command.begins_batch || untimed >= MAX_COMMANDS && command.is_untimed()) {
            segments.push(start..i);
            (start, untimed) = (i, 0);
            most = if is_full { (2 * most).min(MAX_SEGMENT) } else { most };
        }
        untimed += usize::from(command.is_untimed());
    }
    if !commands.is_empty() {
        segments.push(start..commands.len());
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;
    use crate::recorder::Window;

    /// `count` launches of one kernel, over one of two buffers in turn, with the numbers of those that begin a batch.
    fn commands(backend: &WebGpuBackend, count: usize, begins: &[usize]) -> Vec<Command> {
        let call = backend.context("test").unwrap();
        let all = crate::ops::all_variants();
        let variant = all.iter().find(|variant| variant.kernel() == "memory/fill").unwrap();
        let kernel = call.context.device.pipeline(variant).unwrap();
        let blocks = [(); 2].map(|()| Block::of_test(backend.device().unwrap(), 16));
        let command = |i: usize| {
            let window = Window::of_words(blocks[i % 2].piece(0, 16));
            let mut command = Command::new("test", Arc::clone(&kernel), [window], &[0; 12], [1; 3]).unwrap();
            (command.begins_batch, command.seconds) = (begins.contains(&i), 0.5);
            command
        };
        (0..count).map(command).collect()
    }

    #[test]
    fn segments_have_no_more_commands_of_unknown_time_than_a_batch() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let mut commands = commands(&backend, 600, &[]);
        commands.iter_mut().for_each(|command| command.seconds = 0.0);
        let lengths: Vec<usize> = cut(&commands).iter().map(Range::len).collect();
        assert_eq!(lengths, [16, 32, 64, 128, 128, 128, 104]);
    }

    #[test]
    fn segments_grow_from_the_first_to_the_longest() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let lengths = |count: usize, begins: &[usize]| {
            let segments = cut(&commands(&backend, count, begins));
            let ends = segments.iter().map(|steps| steps.end);
            assert!(
                segments.iter().map(|steps| steps.start).eq([0].into_iter().chain(ends).take(segments.len()))
            );
            segments.iter().map(Range::len).collect::<Vec<_>>()
        };
        assert_eq!([0, 1, 16].map(|count| lengths(count, &[])), [vec![], vec![1], vec![16]]);
        assert_eq!(lengths(17, &[]), [16, 1]);
        let all = 16 + 32 + 64 + 128 + 256 + 512 + 512 + 7;
        assert_eq!(lengths(all, &[]), [16, 32, 64, 128, 256, 512, 512, 7]);
        // One that begins a batch makes none longer.
        assert_eq!(lengths(62, &[0, 10]), [10, 16, 32, 4]);
        assert_eq!(lengths(4, &[1, 2, 3]), [1, 1, 1, 1]);
        assert_eq!(lengths(28, &[16]), [16, 12]);
    }

    #[test]
    fn a_graph_knows_what_each_segment_uses() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let commands = commands(&backend, 19, &[3]);
        let call = backend.context("test").unwrap();
        let graph =
            Graph::new(backend.device().unwrap(), call.context.device.pipelines.params_layout(), &commands);
        let lengths: Vec<usize> = graph.segments.iter().map(|segment| segment.count().all).collect();
        assert_eq!((graph.first_batch().all, lengths), (19, vec![3, 16]));
        let [first, second] = &graph.segments[..] else { panic!("two segments") };
        assert_eq!((first.seconds, second.seconds), (1.5, 8.0));
        // Both buffers, each once, though every command writes one.
        assert_eq!([&first.used, &second.used].map(Vec::len), [2, 2]);
        assert_eq!([&first.written, &second.written].map(Vec::len), [2, 2]);
        let first_batch = |count: usize| {
            let commands = self::commands(&backend, count, &[]);
            let layout = call.context.device.pipelines.params_layout();
            Graph::new(backend.device().unwrap(), layout, &commands).first_batch().all
        };
        assert_eq!([0, 10, 100, 128, 300].map(first_batch), [0, 10, 100, 16 + 32 + 64 + 16, 16 + 32 + 64]);
        // Within a segment, what the step before has set isn't set again.
        let set = |i: usize| (graph.steps[i].pipeline.is_some(), graph.steps[i].group.is_some());
        assert_eq!(
            [0, 1, 2, 3, 4].map(set),
            [(true, true), (false, true), (false, true), (true, true), (false, true)]
        );
    }
}
