//! What the recorder keeps, submits and waits for, with batches that never finish.

use std::time::Duration;

use backend_api::ComputeBackend as _;

use super::*;
use crate::WebGpuBackend;
use crate::device::Health;
use crate::kernels::{Kernel, Pipelines, Target, Variant};

/// A recorder with a submitter of its own.
struct Rig {
    recorder: Recorder,
    submitter: Arc<Submitter>,
    has_dropped: Arc<AtomicBool>,
    fill: Arc<Kernel>,
    /// Below all that has a handle of the device, which it closes.
    backend: WebGpuBackend,
}

impl Rig {
    fn new(submits: Submits) -> Self {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let (device, queue) = (backend.guarded_device(), backend.queue().unwrap());
        let submitter = Submitter::new(device, queue, &Health::detached(), &Arc::default(), submits);
        let (submitter, has_dropped) = (Arc::new(submitter), Arc::default());
        let (recorder, fill) = {
            let call = backend.context("test").unwrap();
            let layout = call.device().pipelines.params_layout();
            let recorder = Recorder::new(device, &submitter, layout, &has_dropped, &Arc::default());
            (recorder, call.device().pipeline(&fill()).unwrap())
        };
        Self { recorder, submitter, has_dropped, fill, backend }
    }

    fn block(&self) -> Arc<Block> {
        Block::of_test(self.backend.device().unwrap(), 1024)
    }

    /// A launch that fills nothing.
    fn command(&self, block: &Arc<Block>) -> Command {
        let window = Window::of_words(block.piece(0, 1024));
        Command::new("test", Arc::clone(&self.fill), [window], &[0; 12], [1; 3]).unwrap()
    }

    fn commands(&self, count: usize) -> Vec<Command> {
        vec![self.command(&self.block()); count]
    }

    fn graph(&self, count: usize) -> Graph {
        self.graph_of(&self.commands(count))
    }

    fn graph_of(&self, commands: &[Command]) -> Graph {
        let call = self.backend.context("test").unwrap();
        let layout = call.device().pipelines.params_layout();
        Graph::new(self.backend.device().unwrap(), layout, commands)
    }

    /// Batches that never finish.
    fn fall_behind(&mut self, batches: u64) {
        self.recorder.flight.extend((1..=batches).map(|number| {
            let mut ticket = Ticket::finished();
            ticket.batch = 1_000_000 + number;
            InFlight { ticket, params: None, staging: Vec::new() }
        }));
    }

    /// The batch that a call of so many commands waits for, after the first one.
    fn admit(&mut self, count: usize) -> Option<u64> {
        self.recorder
            .admit(Count::untimed(count), Count::untimed(count))
            .unwrap()
            .map(|ticket| ticket.batch - 1_000_000)
    }

    /// Commands that are recorded, and batches in flight.
    fn state(&self) -> (usize, usize) {
        (self.recorder.commands.all, self.recorder.in_flight())
    }
}

fn fill() -> Variant {
    crate::ops::all_variants().into_iter().find(|variant| variant.kernel() == "memory/fill").unwrap()
}

#[test]
fn a_full_batch_is_submitted_before_a_call_that_does_not_fit() {
    let mut rig = Rig::new(Submits::Worker);
    rig.recorder.record(&rig.commands(100)).unwrap();
    assert_eq!((rig.admit(28), rig.state()), (None, (100, 0)));
    rig.fall_behind(2);
    assert_eq!((rig.admit(29), rig.state().0), (None, 0));
    assert_eq!(rig.recorder.number, 2);
}

#[test]
fn a_call_waits_for_a_device_that_is_too_far_behind() {
    let mut rig = Rig::new(Submits::Worker);
    rig.fall_behind(3);
    assert_eq!(rig.admit(1000), None, "an empty batch takes any call");
    rig.recorder.record(&rig.commands(100)).unwrap();
    assert_eq!([rig.admit(28), rig.admit(29)], [None, Some(1)]);
    assert_eq!(rig.state(), (100, 3));
    rig.fall_behind(28);
    assert_eq!((rig.admit(1), rig.state()), (None, (100, 31)));
    rig.fall_behind(1);
    assert_eq!((rig.admit(1), rig.state()), (Some(1), (100, 32)));
    assert_eq!(rig.recorder.newest().unwrap().batch, 1_000_001);
    rig.submitter.health().lose("test");
    assert!(
        rig.recorder.admit(Count::untimed(1), Count::untimed(1)).is_err() && rig.recorder.submit().is_err()
    );
}

#[test]
fn batches_grow_with_those_that_wait() {
    let growing = |behind| {
        let mut rig = Rig::new(Submits::Worker);
        rig.recorder.suit_discrete_gpu();
        rig.fall_behind(behind);
        rig
    };
    // The longest batch of replays of 16 commands, of which so many have a time that isn't estimated.
    let longest = |behind, untimed: usize| {
        let mut rig = growing(behind);
        let mut commands = rig.commands(16);
        commands.iter_mut().skip(untimed).for_each(|command| command.seconds = 1e-6);
        let graph = rig.graph_of(&commands);
        let mut replays = 0;
        while rig.recorder.number == 1
            && rig.recorder.admit(graph.first_batch(), graph.whole()).unwrap().is_none()
        {
            rig.recorder.replay(&graph, &mut |_| false).unwrap();
            replays += 1;
        }
        // The last one began the next batch, or was refused.
        16 * (replays - u64::from(rig.recorder.number > 1))
    };
    assert_eq!([0, 1, 2, 3, 31].map(|behind| longest(behind, 0)), [128, 128, 256, 512, 512]);
    assert_eq!([4, 8, 16].map(|untimed| longest(3, untimed)), [512, 256, 128]);
    // Of those that are recorded one by one, nothing tells how long they take.
    let mut rig = growing(3);
    rig.recorder.record(&rig.commands(128)).unwrap();
    assert_eq!((rig.state(), rig.admit(1)), ((128, 3), Some(1)));
    // Batches that are over don't wait, also where they weren't retired.
    let rig = growing(3);
    let has_room = |rig: &Rig| rig.recorder.has_room(Count { all: 129, untimed: 0 });
    assert!(has_room(&rig));
    rig.submitter.progress().finish(1_000_002);
    assert!(!has_room(&rig));
    // A device that has caught up gets what there is.
    let mut rig = growing(3);
    rig.recorder.record(&rig.commands(128)).unwrap();
    rig.submitter.progress().finish(1_000_003);
    assert_eq!((rig.admit(1), rig.state().0, rig.recorder.number), (None, 0, 2));
}

#[test]
fn a_device_that_has_nothing_to_do_begins_with_a_few_commands() {
    // Commands that stay in the open batch, and its number, after one more than the device begins with.
    let recorded = |prepare: &dyn Fn(&mut Rig)| {
        let mut rig = Rig::new(Submits::Worker);
        rig.recorder.suit_discrete_gpu();
        prepare(&mut rig);
        rig.recorder.record(&rig.commands(17)).unwrap();
        (rig.state().0, rig.recorder.number)
    };
    assert_eq!(recorded(&|_| {}), (1, 2));
    assert_eq!(recorded(&|rig| rig.fall_behind(1)), (17, 1));
    let finished = |rig: &mut Rig| {
        rig.fall_behind(1);
        rig.submitter.progress().finish(1_000_001);
    };
    assert_eq!(recorded(&finished), (1, 2));
    // Two timestamps and what is between them.
    assert_eq!(recorded(&|rig| rig.recorder.encode(|_| {})), (17, 1));
}

/// A graph that doesn't fit into a batch may be several, and the next replay waits for a device that has enough.
#[test]
fn replays_wait_for_a_device_that_is_too_far_behind() {
    for count in [100, 125, 250, 316, 390, 508, 800, 1100] {
        for (grows, seconds) in [(false, 0.0), (false, 1e-6), (true, 0.0), (true, 1e-6)] {
            let mut rig = Rig::new(Submits::Worker);
            if grows {
                rig.recorder.suit_discrete_gpu();
            }
            rig.fall_behind(3);
            let mut commands = rig.commands(count);
            commands.iter_mut().for_each(|command| command.seconds = seconds);
            let graph = rig.graph_of(&commands);
            let (first, whole) = (graph.first_batch(), graph.whole());
            assert_eq!(whole.all, count);
            while rig.recorder.admit(first, whole).unwrap().is_none() {
                rig.recorder.replay(&graph, &mut |_| false).unwrap();
                assert!(rig.recorder.number < 40, "{count} commands, growing: {grows}");
            }
            let submitted = rig.recorder.number - 1;
            assert!(submitted <= 12, "{submitted} batches of {count} commands, growing: {grows}");
        }
    }
}

#[test]
fn what_has_finished_is_given_back() {
    let mut rig = Rig::new(Submits::Worker);
    rig.fall_behind(3);
    rig.submitter.progress().finish(1_000_002);
    rig.recorder.retire();
    assert_eq!((rig.state(), rig.recorder.oldest().unwrap().batch), ((0, 1), 1_000_003));
    rig.recorder.record(&rig.commands(1)).unwrap();
    assert_eq!(rig.recorder.cache_sizes().0, 1);
    rig.recorder.retire();
    assert_eq!(rig.recorder.cache_sizes().0, 1);
    // Bind groups keep buffers that were dropped.
    rig.has_dropped.store(true, Ordering::Relaxed);
    rig.recorder.retire();
    assert!(rig.recorder.cache_sizes().0 == 0 && !rig.has_dropped.load(Ordering::Relaxed));
}

#[test]
fn a_long_call_is_recorded_as_several_batches() {
    let mut rig = Rig::new(Submits::Worker);
    rig.fall_behind(1);
    rig.recorder.record(&rig.commands(128)).unwrap();
    assert_eq!(rig.state(), (128, 1));
    rig.recorder.record(&rig.commands(130)).unwrap();
    assert_eq!((rig.state().0, rig.recorder.number), (2, 3));
    let mut commands = rig.commands(3);
    commands[1].begins_batch = true;
    rig.recorder.record(&commands).unwrap();
    assert_eq!((rig.state().0, rig.recorder.number), (2, 4));
}

#[test]
fn segments_of_a_graph_are_recorded_where_they_fit() {
    let mut rig = Rig::new(Submits::Worker);
    let graph = rig.graph(12);
    let mut asked = Vec::new();
    rig.recorder.record(&rig.commands(116)).unwrap();
    rig.recorder
        .replay(&graph, &mut |seconds| {
            asked.push(seconds);
            false
        })
        .unwrap();
    assert_eq!((rig.recorder.commands.all, rig.recorder.number, asked), (128, 1, vec![0.0]));
    rig.recorder.replay(&graph, &mut |_| false).unwrap();
    assert_eq!((rig.recorder.commands.all, rig.recorder.number), (12, 2));
    rig.recorder.replay(&graph, &mut |_| false).unwrap();
    assert_eq!((rig.recorder.commands.all, rig.recorder.number), (24, 2));
    rig.recorder.replay(&graph, &mut |_| true).unwrap();
    assert_eq!((rig.recorder.commands.all, rig.recorder.number), (12, 3), "what was recorded before is long");
    // The second segment is a batch of its own, though it would fit: the device works on the first meanwhile.
    let mut rig = Rig::new(Submits::Worker);
    let graph = rig.graph(16 + 20);
    rig.recorder.replay(&graph, &mut |_| false).unwrap();
    assert_eq!((rig.recorder.commands.all, rig.recorder.number), (20, 2));
    // So it is behind a copy of the graph's inputs, but not behind a timestamp.
    for (is_timed, expected) in [(false, (20, 2)), (true, (1 + 16 + 20, 1))] {
        let mut rig = Rig::new(Submits::Worker);
        let graph = rig.graph(16 + 20);
        if is_timed {
            rig.recorder.encode(|_| ());
        }
        rig.recorder.record(&rig.commands(1)).unwrap();
        rig.recorder.replay(&graph, &mut |_| false).unwrap();
        assert_eq!((rig.recorder.commands.all, rig.recorder.number), expected, "timed: {is_timed}");
    }
}

#[test]
fn full_batches_are_deferred() {
    let mut rig = Rig::new(Submits::Deferred);
    let submitter = Arc::clone(&rig.submitter);
    let held = submitter.hold_deferred();
    let state = |rig: &Rig| (rig.recorder.number, rig.submitter.has_deferred());
    // A batch of few commands that another begins is submitted by the call.
    rig.recorder.record(&rig.commands(63)).unwrap();
    let mut long = rig.commands(1);
    long[0].begins_batch = true;
    rig.recorder.record(&long).unwrap();
    assert_eq!(state(&rig), (2, false));
    // So is what somebody waits for.
    rig.recorder.record(&rig.commands(64)).unwrap();
    rig.recorder.submit().unwrap();
    assert_eq!(state(&rig), (3, false));
    assert!(rig.recorder.flows.is_empty());
    submitter.wait(&rig.recorder.newest().unwrap(), &Deadline::new("test", Duration::from_secs(60))).unwrap();
    // Of a graph, the call submits what an idle device begins with.
    let graph = rig.graph(16 + 32 + 64);
    rig.recorder.replay(&graph, &mut |_| false).unwrap();
    assert_eq!((state(&rig), rig.recorder.commands.all), ((4, false), 96));
    rig.recorder.replay(&graph, &mut |_| false).unwrap();
    assert_eq!((state(&rig), rig.recorder.commands.all), ((5, true), 96));
    assert_eq!(rig.recorder.flows.len(), 2, "a batch before may be refused");
    rig.recorder.record(&rig.commands(33)).unwrap();
    assert_eq!((state(&rig), rig.recorder.commands.all), ((6, true), 1));
    // What follows is in order.
    rig.recorder.submit().unwrap();
    let newest = rig.recorder.newest().unwrap();
    assert_eq!((newest.batch, submitter.progress().submitted()), (6, 3));
    drop(held);
    submitter.wait(&newest, &Deadline::new("test", Duration::from_secs(60))).unwrap();
    assert!(!submitter.has_deferred());
}

#[test]
fn only_something_is_submitted() {
    let mut rig = Rig::new(Submits::Worker);
    rig.recorder.submit().unwrap();
    assert_eq!(rig.recorder.number, 1);
    let done = Signal::default();
    rig.recorder.submit_then(vec![Then::Tell(done.clone())]).unwrap();
    assert_eq!(rig.recorder.number, 2);
    done.settle(&rig.submitter, &Deadline::new("test", Duration::from_secs(60))).unwrap();
    rig.recorder.upload("test", &rig.block(), 0, &[1; 4]).unwrap();
    rig.recorder.submit().unwrap();
    assert_eq!((rig.recorder.number, rig.recorder.commands.all), (3, 0), "an early copy");
    let mut is_called = false;
    rig.recorder.encode(|_| is_called = true);
    rig.recorder.submit().unwrap();
    assert!(is_called && rig.recorder.number == 4);
}

#[test]
fn a_copy_comes_before_a_batch_that_does_not_use_its_buffer() {
    let mut rig = Rig::new(Submits::Worker);
    let [used, other] = [rig.block(), rig.block()];
    rig.recorder.record(&[rig.command(&used)]).unwrap();
    let is_open = |rig: &Rig| (rig.recorder.early.is_some(), rig.recorder.pass.is_some());
    rig.recorder.upload("test", &other, 0, &[1; 4]).unwrap();
    assert_eq!((is_open(&rig), rig.recorder.commands.all), ((true, true), 2));
    rig.recorder.upload("test", &used, 0, &[1; 4]).unwrap();
    assert_eq!((is_open(&rig), rig.recorder.commands.all), ((true, false), 3), "after what is recorded");
    assert_eq!([&used, &other].map(|block| block.storage().last_use()), [1; 2]);
    assert_eq!(rig.recorder.written.len(), 2, "each once");
}

#[test]
fn the_queue_copies_behind_commands_that_use_the_buffer() {
    let mut rig = Rig::new(Submits::Caller);
    rig.recorder.upload_by_queue();
    let [used, other] = [rig.block(), rig.block()];
    rig.recorder.record(&[rig.command(&used)]).unwrap();
    rig.recorder.upload("test", &other, 0, &[1; 4]).unwrap();
    assert_eq!((rig.recorder.number, rig.recorder.commands.all), (1, 1), "the batch stays open");
    rig.recorder.upload("test", &used, 4, &[2; 4]).unwrap();
    assert_eq!((rig.recorder.number, rig.recorder.commands.all), (2, 0), "after what is recorded");
    rig.recorder.record(&[rig.command(&other)]).unwrap();
    assert_eq!(rig.recorder.cache_sizes().1, 0, "no staging buffer");
}

#[test]
fn the_batch_knows_what_its_commands_use() {
    for submits in [Submits::Caller, Submits::Deferred, Submits::Worker] {
        let mut rig = Rig::new(submits);
        let [own, shared] = [rig.block(), rig.block()];
        shared.share();
        for block in [&own, &shared] {
            rig.recorder.record(&[rig.command(block)]).unwrap();
        }
        assert_eq!(rig.recorder.shared.len(), 1);
        rig.recorder.record(&[rig.command(&shared)]).unwrap();
        assert!([&own, &shared].iter().all(|block| block.is_touched_by(1)));
        let Recorder { written, shared: of_caller, .. } = &rig.recorder;
        assert_eq!((written.len(), of_caller.len()), (2, 1), "each once");
        assert!(Arc::ptr_eq(&of_caller[0], shared.storage()));
        // One that the caller gets afterwards, and one that the batch doesn't use.
        rig.recorder.note_shared(&own);
        rig.recorder.note_shared(&rig.block());
        assert_eq!(rig.recorder.shared.len(), 2);
    }
}

#[test]
fn calls_that_poll_make_callbacks() {
    let rig = Rig::new(Submits::Worker);
    let (device, queue) = (rig.backend.device().unwrap(), rig.backend.queue().unwrap());
    let deadline = || Deadline::new("test", Duration::from_secs(60));
    let polls: [&dyn Fn(); 2] = [&|| rig.submitter.poll(), &|| rig.submitter.confirm(&deadline()).unwrap()];
    for poll in polls {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        queue.on_submitted_work_done(move || done.store(true, Ordering::Release));
        let end = deadline();
        while !is_done.load(Ordering::Acquire) {
            poll();
            std::thread::sleep(Duration::from_millis(1));
            end.remaining().expect("the callback is made");
        }
    }
}

/// A way to record some launches.
type Way<'a> = &'a dyn Fn(&mut Recorder) -> BackendResult<()>;

/// Parameters in immediates, and in slots of uniform buffers: each launch gets its own.
#[test]
fn each_step_of_a_graph_has_its_own_parameters() {
    let backend = WebGpuBackend::open().expect("a WebGPU adapter");
    let device = backend.guarded_device();
    for immediates in [false, true] {
        if immediates && !device.features().contains(wgpu::Features::IMMEDIATES) {
            continue;
        }
        let pipelines = Pipelines::new(device, Target { immediates, unroll: true }, false);
        let kernel = pipelines.get(&fill()).unwrap();
        assert_eq!(kernel.layout.signature.uniform, !immediates);
        let submitter = Arc::new(Submitter::new(
            device,
            backend.queue().unwrap(),
            &Health::detached(),
            &Arc::default(),
            Submits::Worker,
        ));
        let mut recorder =
            Recorder::new(device, &submitter, pipelines.params_layout(), &Arc::default(), &Arc::default());
        let ptr = backend.alloc(1024).unwrap();
        let block =
            backend.context("test").unwrap().device().memory.lookup("test", "ptr", ptr).unwrap().block;
        // Four bytes each, of a value of their own.
        let commands: Vec<Command> = (0..8_u32)
            .map(|i| {
                let params = [0x0101_0101 * (i + 1), 4 * i, 4];
                let window = Window::of_words(block.piece(0, 1024));
                Command::new("test", Arc::clone(&kernel), [window], bytemuck::bytes_of(&params), [1; 3])
                    .unwrap()
            })
            .collect();
        let graph = Graph::new(device, pipelines.params_layout(), &commands);
        let ways: [Way<'_>; 2] =
            [&|recorder| recorder.record(&commands), &|recorder| recorder.replay(&graph, &mut |_| false)];
        for way in ways {
            backend.copy_htod(ptr, &[0; 32]).unwrap();
            backend.synchronize().unwrap();
            way(&mut recorder).unwrap();
            recorder.submit().unwrap();
            let newest = recorder.newest().unwrap();
            submitter.wait(&newest, &Deadline::new("test", Duration::from_secs(60))).unwrap();
            let mut read = [255; 32];
            backend.copy_dtoh(&mut read, ptr).unwrap();
            let expected: Vec<u8> = (1..=8).flat_map(|value| [value; 4]).collect();
            assert_eq!(read[..], expected, "immediates {immediates}");
        }
    }
}
