use super::*;
use crate::ops::plans::Shapes;

const F32: &[DType] = &[DType::F32];

#[test]
fn packed_aligned_tensors_go_in_vectors() {
    let strided = StridedLoops::plan(vec![(64, [1, 1])], [8, 4], F32);
    assert_eq!(strided.len(), 1);
    assert_eq!(
        (strided[0].shape.vec_width, strided[0].starts, &strided[0].loops),
        (4, [2, 1], &vec![(16, [1, 1])])
    );
    for (length, starts) in [(63, [8, 4]), (64, [9, 4]), (64, [8, 5])] {
        assert_eq!(StridedLoops::plan(vec![(length, [1, 1])], starts, F32)[0].shape.vec_width, 1);
    }
}

#[test]
fn halves_go_in_vec8s_or_vec4s() {
    let vec_width =
        |n, start, dtypes| StridedLoops::plan(vec![(n, [1, 1])], [start; 2], dtypes)[0].shape.vec_width;
    let halves = &[DType::F16; 2];
    assert_eq!(
        [
            vec_width(64, 8, halves),
            vec_width(60, 8, halves),
            vec_width(64, 4, halves),
            vec_width(62, 8, halves)
        ],
        [8, 4, 4, 1]
    );
    assert_eq!(vec_width(64, 8, &[DType::F16, DType::F32]), 4);
}

#[test]
fn a_broadcast_column_is_repeated_and_a_row_is_not() {
    let column = &StridedLoops::plan(vec![(6, [1, 8]), (8, [0, 1])], [3, 0], F32)[0];
    assert_eq!((column.shape.vec_width, column.origin(0, false)), (4, Origin::Repeated as u32));
    assert_eq!(column.loops, [(6, [1, 2]), (2, [0, 1])]);
    assert_eq!(column.starts, [3, 0]);
    let row = &StridedLoops::plan(vec![(6, [0, 8]), (8, [1, 1])], [4, 0], F32)[0];
    assert_eq!((row.origin(0, false), &row.loops), (Origin::Memory as u32, &vec![(6, [0, 2]), (2, [1, 1])]));
}

#[test]
fn loops_follow_the_output() {
    let strided = &StridedLoops::plan(vec![(4, [1, 1]), (8, [4, 4])], [0, 0], F32)[0];
    assert_eq!(strided.loops, [(8, [1, 1])]);
}

#[test]
fn a_row_beside_odd_rows_is_gathered() {
    let (rows, columns) = (1400, 777);
    let loops = vec![(rows, [columns, 0, columns]), (columns, [1, 1, 1])];
    let strided = StridedLoops::plan_gathering(loops.clone(), [3, 9, 7], F32);
    let pieces: Vec<_> = strided.iter().map(|w| (w.shape.vec_width, w.starts, w.loops[0])).collect();
    let vectors = rows * columns / 4 - 1;
    assert_eq!(
        pieces,
        [
            (1, [3, 9, 7], (1, [1, 1, 1])),
            (4, [1, 1, 2], (vectors, [1, 4, 1])),
            (1, [3 + 1 + 4 * vectors as u32, 9 + 774, 7 + 1 + 4 * vectors as u32], (3, [1, 1, 1]))
        ]
    );
    assert_eq!(strided[1].origin(1, false), Origin::Gathered as u32);
    let packed = strided[1].packed("t").unwrap();
    assert_eq!(packed[..4], [[vectors as u32, 1, 4, 1], [777, 0, 1, 0], [0; 4], [0, 0, 9, 0]]);
    assert_eq!(StridedLoops::plan(loops.clone(), [3, 9, 7], F32).len(), 1);
    let few = vec![(300, [columns, 0, columns]), (columns, [1, 1, 1])];
    assert_eq!(StridedLoops::plan_gathering(few, [3, 9, 7], F32).len(), 1);
    // Where the others are never aligned together, all go one by one.
    assert_eq!(StridedLoops::plan_gathering(loops, [2, 9, 7], F32).len(), 1);
}

#[test]
fn long_walks_are_split_at_their_ends() {
    let n = WORTH_SPLITTING[0] + 6;
    let strided = StridedLoops::plan(vec![(n, [1, 0, 1])], [5, 7, 1], F32);
    let pieces: Vec<_> = strided.iter().map(|w| (w.shape.vec_width, w.starts, w.loops[0].0)).collect();
    assert_eq!(
        pieces,
        [
            (1, [5, 7, 1], 3),
            (4, [2, 7, 1], WORTH_SPLITTING[0] / 4),
            (1, [5 + 3 + (n - 6) as u32, 7, 4 + (n - 6) as u32], 3)
        ]
    );
    assert_eq!(StridedLoops::plan(vec![(n, [1, 1])], [5, 2], F32).len(), 1, "never aligned together");
}

/// Every place that nested loops name, from these starts on.
fn places<const N: usize>(loops: &[Loop<N>], starts: [usize; N], visit: &mut impl FnMut([usize; N])) {
    let Some((&(extent, strides), inner)) = loops.split_first() else { return visit(starts) };
    for i in 0..extent {
        places(inner, std::array::from_fn(|t| starts[t] + i * strides[t]), visit);
    }
}

/// How often a set of places is visited, by a sum that doesn't depend on the order: FNV-1a of each place's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Visited {
    count: usize,
    sum: u64,
}

impl Visited {
    fn add<const N: usize>(&mut self, place: [usize; N]) {
        let mix =
            |hash: u64, number: usize| (hash ^ number as u64).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        self.count += 1;
        self.sum = self.sum.wrapping_add(place.into_iter().fold(0xcbf2_9ce4_8422_2325, mix));
    }
}

/// What the kernel of a plan visits: each number of a vector at its place in every tensor.
fn visited<const N: usize>(plan: &[StridedLoops<N>]) -> Visited {
    let mut visited = Visited::default();
    for piece in plan {
        let width = piece.shape.vec_width as usize;
        assert_eq!(piece.shape.one_loop, piece.loops.len() < 2);
        places(&piece.loops, piece.starts.map(|start| start as usize), &mut |element| {
            for lane in 0..width {
                let place: [usize; N] = std::array::from_fn(|t| match piece.gathered {
                    Some(Gathered { tensor, columns: (columns, [stride]), row_stride, start })
                        if tensor == t =>
                    {
                        let number = element[t] + lane;
                        start as usize + number / columns * row_stride + number % columns * stride
                    }
                    _ if piece.repeated[t] => element[t],
                    _ => element[t] * width + lane,
                });
                visited.add(place);
            }
        });
    }
    visited
}

fn expected<const N: usize>(loops: &[Loop<N>], starts: [u32; N]) -> Visited {
    let mut expected = Visited::default();
    places(loops, starts.map(|start| start as usize), &mut |place| expected.add(place));
    expected
}

#[test]
fn every_element_is_visited_once_at_its_places() {
    let mut shapes = Shapes(1);
    let mut below = |n: usize| shapes.below(n);
    let mut widths = [0; 3];
    for _ in 0..3000 {
        let extents: Vec<usize> = (0..=below(3)).map(|_| [1, 2, 3, 4, 8, 16, 24][below(7)]).collect();
        // The output has its elements apart; an input may be permuted, have gaps, or stand still.
        let mut order: Vec<usize> = (0..extents.len()).collect();
        let mut strides = vec![[0; 3]; extents.len()];
        for t in (0..3).rev() {
            if below(4) == 0 {
                order.rotate_left(1);
            }
            let mut stride = [1, 1, 1, 2][below(4)];
            for &axis in order.iter().rev() {
                strides[axis][t] = if t < 2 && below(5) == 0 { 0 } else { stride };
                stride = stride * extents[axis] + [0, 0, 0, 0, 4, 8, 3][below(7)];
            }
        }
        let loops: Vec<Loop<3>> = extents.into_iter().zip(strides).collect();
        let starts = [(); 3].map(|()| [0, 8, 16, 4, 3][below(5)]);
        let dtypes =
            [&[DType::F32; 3][..], &[DType::F16; 3], &[DType::F16, DType::F32, DType::F32]][below(3)];
        let of = expected(&loops, starts);
        for plan in [StridedLoops::plan, StridedLoops::plan_gathering] {
            let plan = plan(loops.clone(), starts, dtypes);
            assert_eq!(visited(&plan), of, "{loops:?} {starts:?} {plan:?}");
            widths
                [plan[0].shape.vec_width.ilog2() as usize / 2 + usize::from(plan[0].shape.vec_width == 8)] +=
                1;
        }
    }
    assert!(widths.iter().all(|&plans| plans > 50), "{widths:?}");
}

#[test]
fn ends_and_gathered_rows_are_visited_once() {
    for (rows, columns, dtypes) in
        [(1400, 777, F32), (1025, 1024, F32), (1030, 1030, &[DType::F16; 3]), (1 << 18, 4, F32)]
    {
        let loops = vec![(rows, [columns, 0, columns]), (columns, [1, 1, 1])];
        let starts = [[3, 9, 7], [1, 2, 1], [0, 5, 0], [4, 0, 8]];
        for &starts in starts.iter().take(if rows == 1400 { 4 } else { 1 }) {
            let plan = StridedLoops::plan_gathering(loops.clone(), starts, dtypes);
            assert_eq!(visited(&plan), expected(&loops, starts), "{loops:?} {starts:?}");
        }
        // A row's own elements may lie apart, and rows may be taken several times.
        let loops = vec![(rows, [columns, 3, columns]), (columns, [1, 2, 1])];
        let plan = StridedLoops::plan_gathering(loops.clone(), [9, 9, 1], dtypes);
        assert!(plan.iter().any(|piece| piece.gathered.is_some()));
        assert_eq!(visited(&plan), expected(&loops, [9, 9, 1]), "{loops:?}");
    }
    let [words, halves] = WORTH_SPLITTING;
    for (length, dtypes, width) in [
        (words, F32, 4),
        (words - 1, F32, 1),
        (halves, &[DType::F16; 2], 8),
        (halves - 1, &[DType::F16; 2], 1),
        (halves, &[DType::F16, DType::F32], 4),
    ] {
        let loops = vec![(length, [1, 1])];
        let plan = StridedLoops::plan(loops.clone(), [5, 5], dtypes);
        assert_eq!(plan.iter().map(|piece| piece.shape.vec_width).max(), Some(width), "{length}");
        assert_eq!(visited(&plan), expected(&loops, [5, 5]), "{length}");
    }
    // Nothing is gained where the whole is aligned, or where no element of the output is beside another.
    for strides in [[1, 2], [2, 1]] {
        assert_eq!(StridedLoops::plan(vec![(words, strides)], [4, 5], F32).len(), 1, "{strides:?}");
    }
    assert_eq!(ends(&[(64, [1, 1])], [4, 8], 4, 1), None);
    assert_eq!(ends(&[(64, [1, 1])], [3, 7], 4, 64), Some([1, 60, 3]));
    assert_eq!(ends(&[(64, [1, 1])], [3, 7], 4, 65), None);
    assert_eq!(ends(&[(2, [1, 1])], [1, 1], 4, 1), None);
}
