//! Which cases a person asks for.

/// The environment variable that restricts suites to the cases whose names contain it, or one of several parts separated by
/// commas.
const VARIABLE: &str = "CASE";

/// Parts of names of cases.
#[derive(Clone, Debug, Default)]
pub struct Filter(Vec<String>);

impl Filter {
    /// The parts that the environment variable has, none without it.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::parse(&std::env::var(VARIABLE).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        Self(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }

    /// Whether no part is asked for, and so every case.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a case of this name is asked for.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|part| name.contains(part))
    }

    /// That each part is in the name of some case, so that a slip of the pen doesn't pass for a success.
    ///
    /// # Errors
    /// The part that is in none.
    pub fn check(&self, names: impl IntoIterator<Item: AsRef<str>>) -> Result<(), String> {
        let mut missing: Vec<&String> = self.0.iter().collect();
        for name in names {
            missing.retain(|part| !name.as_ref().contains(*part));
        }
        match missing.first() {
            Some(part) => Err(format!("{VARIABLE} has {part:?}, which is in no case's name")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_in_some_name() {
        let names = ["gemm/m3", "softmax/f32"];
        let filter = Filter::parse("gemm/, f32");
        assert!(filter.has(names[0]) && filter.has(names[1]) && !filter.has("conv2d/f16"));
        assert_eq!(filter.check(names), Ok(()));
        let missing = Filter::parse("gemm/m3,typo").check(names).unwrap_err();
        assert!(missing.contains("\"typo\""), "{missing}");
        for nothing in ["", " ,"] {
            let filter = Filter::parse(nothing);
            assert!(filter.is_empty() && filter.has("anything"));
            assert_eq!(filter.check(names), Ok(()));
        }
    }
}
