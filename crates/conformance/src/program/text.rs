//! Programs as text: a call in JSON on each line, after the number of its thread.

use std::fmt;
use std::str::FromStr;

use super::{Call, Program, Slot};

/// How the operations of `backend-api` are written: by their names.
macro_rules! by_name {
    ($($module:ident: $type:ty),+ $(,)?) => {$(
        pub(super) mod $module {
            use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

            pub(in super::super) fn serialize<S: Serializer>(value: &$type, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(value.name())
            }

            pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                let name = String::deserialize(from)?;
                let all = <$type>::ALL.iter().copied();
                all.into_iter().find(|known| known.name() == name).ok_or_else(|| D::Error::custom(format!("{name:?} is unknown")))
            }
        }
    )+};
}

by_name!(
    dtype: backend_api::DType,
    unary_op: backend_api::UnaryOp,
    binary_op: backend_api::BinaryOp,
    compare_op: backend_api::CompareOp,
    reduce_op: backend_api::ReduceOp,
    scatter_op: backend_api::ScatterOp,
);

impl From<Slot> for String {
    fn from(slot: Slot) -> Self {
        format!("s{}", slot.0)
    }
}

impl TryFrom<String> for Slot {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = text.strip_prefix('s').and_then(|number| number.parse().ok());
        number.map(Self).ok_or_else(|| format!("{text:?} is no variable"))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (thread, calls) in self.threads.iter().enumerate() {
            for call in calls {
                writeln!(f, "{thread} {}", serde_json::to_string(call).map_err(|_| fmt::Error)?)?;
            }
        }
        Ok(())
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut program = Self::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |why: &dyn fmt::Display| format!("line {}: {why}", number + 1);
            let (thread, call) = line.trim().split_once(' ').ok_or_else(|| wrong(&"no thread"))?;
            let thread: usize = thread
                .parse()
                .map_err(|error| wrong(&format!("the thread's number is {thread:?}: {error}")))?;
            let call: Call = serde_json::from_str(call).map_err(|error| wrong(&error))?;
            if thread >= program.threads.len() {
                // A program of a person's has few threads; one with a slip of the pen must not take all
                // memory.
                if thread > 1000 {
                    return Err(wrong(&"too many threads"));
                }
                program.threads.resize(thread + 1, Vec::new());
            }
            program.threads[thread].push(call);
        }
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Profile, generate};
    use super::*;

    #[test]
    fn programs_are_read_as_they_were_written() {
        for seed in 0..50 {
            let program = generate(&format!("text {seed}"), &Profile::faults());
            assert_eq!(program.to_string().parse(), Ok(program));
        }
    }

    #[test]
    fn other_texts_are_refused_by_line() {
        for wrong in ["x", "0 {}", "0 {\"call\":\"free\",\"slot\":\"t1\"}", "99999 {\"call\":\"trim\"}"] {
            assert!(wrong.parse::<Program>().is_err_and(|why| why.starts_with("line 1")), "{wrong}");
        }
    }
}
