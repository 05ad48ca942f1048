//! What each descriptor says that its operation touches, compared with an enumeration of the elements that
//! docs/operations.md names.
//!
//! A family makes random arguments, states what is wrong with them and which elements its operands name, and
//! gives the descriptor's answer to the judge. Half of the arguments are small, and enumerated; the others
//! have edge values among them, of which the judge knows the sizes in u128.

mod conv;
mod elementwise;
mod judge;
mod matmul;
mod movement;
mod pool;
mod random;
mod reduce;
mod rows;
mod walk;

/// Runs a family on random arguments. It returns whether a call was accepted.
fn run(name: &str, family: fn(&mut random::Gen) -> bool) {
    const CASES: u64 = 2000;
    // So that families see different arguments.
    let seed = name.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(257).wrapping_add(u64::from(byte)));
    for big in [false, true] {
        let mut accepted = 0;
        for case in 0..CASES {
            let mut g = random::Gen::new((seed << 16) + case, big);
            let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| family(&mut g)));
            match judged {
                Ok(good) => accepted += u64::from(good),
                Err(cause) => {
                    eprintln!("{name}: case {case}, big {big}");
                    std::panic::resume_unwind(cause);
                }
            }
        }
        // A judge that sees nothing but refusals says little.
        assert!(accepted >= CASES / 40, "{name}: {accepted} of {CASES} accepted");
    }
}

/// Each family is a test.
macro_rules! families {
    ($($module:ident: $($family:ident),+;)+) => {
        $($(
            #[test]
            fn $family() {
                run(stringify!($family), $module::$family);
            }
        )+)+
    };
}

families! {
    elementwise: unary, clamp, affine, copy, binary, compare, where_cond;
    movement: slice, permute, repeat, pad, concat;
    reduce: reduce;
    rows: softmax, softmax_along, softmax_backward, cumsum, cumsum_along, layer_norm, rms_norm, group_norm, batch_norm,
        norm_backward, norm_backward_weight, gather, scatter, top_k, sample, random;
    conv: conv2d, conv_transpose2d, conv2d_backward_data, conv2d_backward_filter, conv2d_forward, conv_gather;
    pool: pool2d, pool2d_backward;
    matmul: matmul, attention, rope, rope_append;
}
