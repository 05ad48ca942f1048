//! Captured commands: resolved once, encoded at each replay.
//!
//! WebGPU has no command buffer that can be submitted twice, so a replay encodes its commands anew. All that
//! can be known before is: pipelines, bind groups, parameters, grids, which buffers are used, and where
//! neighbouring commands share a pipeline or a bind group.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::batch::Flow;
use super::bind_groups::{BindKey, create};
use super::params::ParamsTable;
use super::{Command, MAX_COMMANDS, OpenPass};
use crate::kernels::Target;
use crate::memory::{Block, Storage};
use crate::sync::bound;

/// Commands of the longest segment. Later segments are longer than the first, which starts the device: each
/// submission costs the host as much as some dozens of commands.
const MAX_SEGMENT: usize = bound(512, 4);

/// Commands that can be encoded any number of times.
#[derive(Debug)]
pub(crate) struct Graph {
    steps: Vec<Step>,
    params: StepParams,
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
    grid: [u32; 3],
}

/// The parameters of each step.
#[derive(Debug)]
enum StepParams {
    /// Immediates, and where those of each step begin.
    Immediates(Vec<u8>, Vec<usize>),
    Table(ParamsTable),
}

/// Steps that are submitted together.
#[derive(Debug)]
pub(super) struct Segment {
    steps: Range<usize>,
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
        target: Target,
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
        let mut steps: Vec<Step> = commands
            .iter()
            .zip(&groups)
            .map(|(command, group)| Step {
                pipeline: Some(command.kernel.pipeline.clone()),
                group: Some(group.clone()),
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
        let params = || commands.iter().map(|command| command.params.as_slice());
        let params = if target.immediates {
            let starts = params().scan(0, |end, bytes| Some(std::mem::replace(end, *end + bytes.len())));
            StepParams::Immediates(params().collect::<Vec<_>>().concat(), starts.collect())
        } else {
            StepParams::Table(ParamsTable::new(device, params_layout, params()))
        };
        let blocks = segments.iter().flat_map(|segment| &segment.used).map(Arc::clone).collect();
        Self { steps, params, segments, _blocks: blocks }
    }

    /// Commands of the first batch.
    pub(crate) fn first_batch(&self) -> usize {
        self.segments.first().map_or(0, Segment::len)
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
            match &self.params {
                StepParams::Immediates(bytes, starts) => {
                    let end = starts.get(i + 1).copied().unwrap_or(bytes.len());
                    open.pass.set_immediates(0, &bytes[starts[i]..end]);
                }
                StepParams::Table(table) => {
                    let (group, offset) = table.slot(i);
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
            let (reads, writes) = command.reads_and_writes();
            for write in writes {
                let storage = write.block.storage();
                flows.extend(reads.iter().map(|read| Flow::new(read.block.storage(), storage)));
                if changed.insert(write.block.id()) {
                    written.push(Arc::clone(storage));
                }
            }
        }
        let seconds = commands.iter().map(|command| command.seconds).sum();
        let last = (commands[commands.len() - 1].kernel.pipeline.clone(), groups[groups.len() - 1].clone());
        Self { steps, seconds, used, written, flows: flows.into(), last }
    }

    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }
}

/// Where commands are cut into segments: before one that begins a batch, and where a segment is long enough.
fn cut(commands: &[Command]) -> Vec<Range<usize>> {
    let (mut segments, mut start, mut most) = (Vec::new(), 0, MAX_COMMANDS);
    for (i, command) in commands.iter().enumerate().skip(1) {
        let is_full = i - start >= most;
        if is_full || command.begins_batch {
            segments.push(start..i);
            start = i;
            most = if is_full { (2 * most).min(MAX_SEGMENT) } else { most };
        }
    }
    if !commands.is_empty() {
        segments.push(start..commands.len());
    }
    segments
}
