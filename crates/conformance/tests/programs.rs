//! Random programs on the backend that is always there.

use backend_cpu::CpuBackend;
use conformance::program::{Findings, Plain, Profile, Program, generate, run, shrink};

fn attempt(program: &Program) -> Result<Findings, String> {
    run(&mut Plain(CpuBackend::new()), program, |_| {})
}

#[test]
fn the_model_agrees() {
    for profile in [Profile::plain(), Profile::threads(), Profile::faults(), Profile::soak()] {
        let mut total = Findings::default();
        for seed in 0..100 {
            let program = generate(&format!("agreement {seed}"), &profile);
            match attempt(&program) {
                Ok(findings) => total.absorb(findings),
                Err(why) => {
                    let limit = std::time::Duration::from_secs(20);
                    let small = shrink(&program, limit, |program| attempt(program).is_err());
                    panic!("{seed}, {profile:?}: {why}\n{small}{:?}", attempt(&small));
                }
            }
        }
        // A model that knows nothing, or programs that may do nothing, would agree with everything.
        assert!(2 * total.compared > total.read && total.read > 0, "{profile:?}: {total:?}");
        assert!(4 * total.refused < total.calls, "{profile:?}: {total:?}");
    }
}
