//! Tables and bounds, at the values where they change.

use backend_api::desc::{
    AttentionAlignment, AttentionDesc, AttentionShape, PoolOp, RepetitionPenalty, SampleDesc, Value,
    rope_tables,
};
use backend_api::support::{MAX_SECONDS, checked_add, checked_product, require_bounded, round_to_odd};
use backend_api::{
    Activation, BackendError, BackendPreference, BackendTranspose, DType, ErrorKind, ReduceOp, UnaryOp,
};

#[test]
fn products_and_sums_are_those_of_wide_integers() {
    let edges = [0, 1, 2, 3, 1 << 31, u32::MAX as usize, 1 << 32, usize::MAX / 3, usize::MAX / 2, usize::MAX];
    let overflow = BackendError::Overflow { op: "t", what: "x" };
    for (a, b) in edges.into_iter().flat_map(|a| edges.map(|b| (a, b))) {
        let wide = |value: u128| usize::try_from(value).map_err(|_| overflow.clone());
        assert_eq!(checked_add("t", "x", a, b), wide(a as u128 + b as u128));
        for c in edges {
            let exact = (a as u128 * b as u128).saturating_mul(c as u128);
            assert_eq!(checked_product("t", "x", &[a, b, c]), wide(exact), "{a} {b} {c}");
        }
    }
    assert_eq!(checked_product("t", "x", &[]), Ok(1));
}

#[test]
fn an_hour_is_the_most() {
    for seconds in [0.0, 1.0, 3599.9, 3600.0] {
        assert_eq!(require_bounded("t", seconds), Ok(()));
    }
    for (seconds, requested) in [(3600.001, 3601), (7200.0, 7200), (f64::INFINITY, usize::MAX)] {
        let limit = require_bounded("t", seconds).unwrap_err();
        let what = "estimated time in seconds";
        assert_eq!(limit, BackendError::Limit { op: "t", what, requested, max: 3600 });
    }
    assert!(require_bounded("t", f64::NAN).is_err());
    assert_eq!(MAX_SECONDS, 3600);
}

#[test]
fn a_number_between_two_of_f32_becomes_the_odd_one() {
    let mut state = 7u64;
    let random = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from_bits((state & !(0x7ff << 52)) | ((1023 - 160 + (state >> 40) % 320) << 52))
    });
    let edges = [0.0, -0.0, 1.0, 1.0 + 1e-12, -1.0 - 1e-12, 1e-60, -1e-60, 1e300, -1e300, 65504.0, 65519.999];
    for x in random.take(4000).chain(edges) {
        let got = round_to_odd(x);
        if f64::from(x as f32) == x {
            assert_eq!(got.to_bits(), (x as f32).to_bits());
            continue;
        }
        assert_eq!(got.to_bits() & 1, 1, "{x:e}");
        let (below, above) = (f64::from(got.next_down()), f64::from(got.next_up()));
        assert!(below < x && x < above, "{x:e} gives {got:e}");
    }
    assert!(round_to_odd(f64::NAN).is_nan());
    assert_eq!(round_to_odd(f64::INFINITY), f32::INFINITY);
}

#[test]
fn types_and_operations_have_names_and_kinds() {
    use DType::{F16, F32, I32, U32};
    let types =
        [(F32, "f32", 4, true), (F16, "f16", 2, true), (I32, "i32", 4, false), (U32, "u32", 4, false)];
    assert_eq!(DType::ALL, types.map(|(dtype, ..)| dtype));
    for (dtype, name, size, float) in types {
        assert_eq!((dtype.name(), dtype.size(), dtype.is_float()), (name, size, float));
        assert_eq!(format!("{dtype}"), name);
    }
    let names =
        [BackendPreference::Auto, BackendPreference::WebGpu, BackendPreference::Cpu].map(|p| p.name());
    assert_eq!(names, ["auto", "webgpu", "cpu"]);
    assert_eq!(PoolOp::ALL.map(PoolOp::name), ["max", "average", "average_with_padding"]);
    let transposed: Vec<bool> = BackendTranspose::ALL.iter().map(|of| of.is_transposed()).collect();
    assert_eq!(transposed, [false, true, true]);
    let indices: Vec<_> = ReduceOp::ALL.iter().filter(|op| op.is_index()).map(|op| op.name()).collect();
    assert_eq!(indices, ["arg_max", "arg_min"]);
    // An activation is the function of its name.
    for of in Activation::ALL {
        assert_eq!(of.unary().map_or("identity", UnaryOp::name), of.name());
    }
    assert_eq!((Value::from(2.5).scalar(), Value::from(2.5).dtype()), (Some(2.5), None));
    let tensor = backend_api::desc::TensorDesc::packed(1, I32, &[]);
    assert_eq!((Value::from(tensor).scalar(), Value::from(tensor).dtype()), (None, Some(I32)));
}

#[test]
fn a_query_sees_the_keys_of_its_definition() {
    let windows = [None, Some(0), Some(1), Some(3)];
    let hidden = [false, true].into_iter().flat_map(|causal| windows.map(|window| (causal, window)));
    let options = hidden.flat_map(|hidden| AttentionAlignment::ALL.map(|alignment| (hidden, alignment)));
    let options: Vec<_> = options.collect();
    for (seq_q, seq_kv) in (0..5).flat_map(|q| (0..6).map(move |kv| (q, kv))) {
        for &((causal, window), alignment) in &options {
            let shape = AttentionShape { batch: 1, heads: 1, seq_q, seq_kv, head_dim: 1 };
            let mut desc = AttentionDesc::new(DType::F32, 1, 1, 1, 1, shape).with_alignment(alignment);
            (desc.causal, desc.window) = (causal, window);
            for (query, keys) in (0..seq_q).flat_map(|query| (0..=seq_kv).map(move |keys| (query, keys))) {
                let position = match alignment {
                    AttentionAlignment::TopLeft => query as i64,
                    AttentionAlignment::KeyLengths => query as i64 + keys as i64 - seq_q as i64,
                    _ => query as i64 + seq_kv as i64 - seq_q as i64,
                };
                let is_seen = |&key: &usize| {
                    let back = position - key as i64;
                    (!causal || back >= 0) && window.is_none_or(|window| back < window as i64)
                };
                let expected: Vec<usize> = (0..keys).filter(is_seen).collect();
                let seen: Vec<usize> = desc.visible(query, keys).collect();
                assert_eq!(seen, expected, "{query} of {seq_q}, {keys}: {desc:?}");
            }
        }
    }
}

#[test]
fn arithmetic_of_attention_and_its_softcap() {
    let mut desc = AttentionDesc::new(
        DType::F32,
        1,
        1,
        1,
        1,
        AttentionShape { batch: 2, heads: 3, seq_q: 4, seq_kv: 10, head_dim: 8 },
    );
    assert_eq!(desc.flops(), 4.0 * 2.0 * 3.0 * 4.0 * 8.0 * 10.0);
    desc.causal = true;
    assert_eq!(desc.flops(), 4.0 * 2.0 * 3.0 * 4.0 * 8.0 * 8.0);
    desc.alignment = AttentionAlignment::TopLeft;
    assert_eq!(desc.flops(), 4.0 * 2.0 * 3.0 * 4.0 * 8.0 * 2.0);
    desc.v_head_dim = 24;
    assert_eq!(desc.flops(), 8.0 * 2.0 * 3.0 * 4.0 * 8.0 * 2.0);
    let caps = [0.0, -0.0, 30.0, -30.0, 1e-60, 1e39, f64::INFINITY, f64::NAN].map(|softcap| {
        desc.softcap = softcap;
        desc.cap()
    });
    assert_eq!(caps, [None, None, Some(30.0), Some(30.0), None, None, None, None]);
}

#[test]
fn hidden_keys_are_no_arithmetic() {
    use AttentionAlignment::{BottomRight, TopLeft};
    for (seq_q, seq_kv, alignment) in [
        (40, 100, TopLeft),
        (100, 40, TopLeft),
        (64, 64, TopLeft),
        (40, 100, BottomRight),
        (64, 64, BottomRight),
    ] {
        let shape = AttentionShape { batch: 2, heads: 3, seq_q, seq_kv, head_dim: 8 };
        let desc =
            AttentionDesc::new(DType::F32, 1, 1, 1, 1, shape).with_causal(true).with_alignment(alignment);
        let seen: usize = (0..seq_q).map(|query| desc.visible(query, seq_kv).count()).sum();
        let flops_of_a_pair = 4.0 * 8.0 * 2.0 * 3.0;
        // The area under the diagonal, which is half a key from the count in each query.
        let error = (desc.flops() / flops_of_a_pair - seen as f64).abs();
        assert!(
            error <= seq_q as f64 / 2.0,
            "{seq_q} × {seq_kv}, {alignment:?}: {error} pairs too many or few"
        );
    }
}

#[test]
fn numbers_of_a_draw_are_in_their_ranges() {
    let (least, most) = (2f32.powi(-126), 2f32.powi(126));
    let (not_positive, nan) = ([0.0, -0.0, -1.0, f64::NEG_INFINITY, f64::NAN], f64::NAN);
    let desc = SampleDesc::new(DType::F32, 1, 2, 3, 50, 7);
    assert_eq!((desc.kept(), desc.numbers()), (50, [1.0, 1.0, 0.0, 1.0]));
    let kept = [0, 1, 49, 50, 51, usize::MAX].map(|top_k| desc.with_top_k(top_k).kept());
    assert_eq!(kept, [50, 1, 49, 50, 50, 50]);

    let temperature = |x| desc.with_temperature(x).numbers()[0];
    assert_eq!([1e-60, 0.7, 1e60, f64::INFINITY].map(temperature), [least, 0.7, most, most]);
    for x in not_positive {
        let greedy = desc.with_temperature(x).with_top_k(5);
        assert_eq!((greedy.numbers()[0], greedy.kept()), (0.0, 1), "a temperature of {x}");
    }
    let [top_p, min_p] = [
        [-1.0, 0.25, nan].map(|x| desc.with_top_p(x).numbers()[1]),
        [-1.0, 0.25, nan].map(|x| desc.with_min_p(x).numbers()[2]),
    ];
    assert_eq!((top_p, min_p), ([0.0, 0.25, 1.0], [0.0, 0.25, 0.0]));
    assert!(desc.with_top_p(7.0).numbers()[1] >= 1.0, "all of the weights");
    assert_eq!(desc.with_min_p(7.0).numbers()[2], 1.0, "the first token's weight");
    let penalty =
        |penalty| desc.with_repetition(RepetitionPenalty { window: 3, len: 4, penalty }).numbers()[3];
    assert_eq!([1e-60, 1.3, f64::INFINITY].map(penalty), [least, 1.3, most]);
    assert_eq!(not_positive.map(penalty), [1.0; 5], "a penalty that isn't positive has no effect");
    let kind = |rows, columns| {
        let desc = SampleDesc::new(DType::F32, 1, 2, rows, columns, 7);
        desc.operands("t").map(|operands| operands.map(|operand| operand.bytes)).map_err(|error| error.kind())
    };
    assert_eq!((kind(0, 0), kind(1, 0)), (Ok([0; 4]), Err(ErrorKind::Shape)), "a row has a token");
}

#[test]
fn attention_without_heads_touches_nothing() {
    let shape = AttentionShape { batch: 2, heads: 0, seq_q: 3, seq_kv: 4, head_dim: 8 };
    let operands = AttentionDesc::new(DType::F32, 1, 2, 3, 4, shape).operands("t").unwrap();
    assert!(operands.iter().all(|operand| operand.bytes == 0), "{operands:?}");
}

#[test]
fn angles_of_rotary_tables() {
    let (base, dim, positions) = (10_000f64, 6, 5);
    let (cos, sin) = rope_tables(base, dim, positions);
    assert_eq!((cos.len(), sin.len()), (15, 15));
    for (p, i) in (0..positions).flat_map(|p| (0..3).map(move |i| (p, i))) {
        let angle = p as f64 / base.powf(2.0 * i as f64 / dim as f64);
        let got = [cos[p * 3 + i], sin[p * 3 + i]].map(f64::from);
        assert!((got[0] - angle.cos()).abs() < 1e-7 && (got[1] - angle.sin()).abs() < 1e-7, "{p} {i}");
    }
}
