use super::*;

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
fn halves_go_in_eights_or_fours() {
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
