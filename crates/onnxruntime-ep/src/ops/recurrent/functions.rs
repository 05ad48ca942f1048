//! The functions of gates.

use backend_api::UnaryOp;

use crate::error::Result;
use crate::model::Node;
use crate::ops::Device;
use crate::tensor::Tensor;

/// A function of a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Function {
    pub(super) op: UnaryOp,
    pub(super) parameters: [f64; 2],
}

impl Function {
    /// The function of each number.
    pub(super) fn of(self, d: Device<'_>, x: &Tensor) -> Result<Tensor> {
        d.unary_with(self.op, x, self.parameters)
    }
}

fn op(name: &str) -> Option<UnaryOp> {
    Some(match name.to_ascii_lowercase().as_str() {
        "relu" => UnaryOp::Relu,
        "tanh" => UnaryOp::Tanh,
        "sigmoid" => UnaryOp::Sigmoid,
        "leakyrelu" => UnaryOp::LeakyRelu,
        "thresholdedrelu" => UnaryOp::ThresholdedRelu,
        "hardsigmoid" => UnaryOp::HardSigmoid,
        "elu" => UnaryOp::Elu,
        "softsign" => UnaryOp::Softsign,
        "softplus" => UnaryOp::Softplus,
        _ => return None,
    })
}

/// The functions of a direction of a recurrent node, the same for both directions. Each takes the next of the
/// parameters that the attributes list, as far as it has some.
pub(super) fn functions(node: &Node) -> std::result::Result<Vec<Function>, String> {
    let usual: &[&str] = match node.operator.as_str() {
        "LSTM" => &["Sigmoid", "Tanh", "Tanh"],
        "GRU" => &["Sigmoid", "Tanh"],
        _ => &["Tanh"],
    };
    let names: Vec<&str> = match node.texts("activations") {
        Some(names) if !names.is_empty() => names.iter().map(String::as_str).collect(),
        _ => usual.to_vec(),
    };
    let mut alphas = node.floats("activation_alpha").iter();
    let mut betas = node.floats("activation_beta").iter();
    let mut function = |name: &str| {
        let op = op(name).ok_or_else(|| format!("the function {name}"))?;
        let mut parameters = op.default_parameters();
        for (parameter, given) in parameters.iter_mut().zip([&mut alphas, &mut betas]).take(op.parameters()) {
            *parameter = given.next().copied().unwrap_or(*parameter);
        }
        Ok::<_, String>(Function { op, parameters })
    };
    let all = names.into_iter().map(&mut function).collect::<std::result::Result<Vec<_>, _>>()?;
    let (first, others) = all.split_at_checked(usual.len()).ok_or("fewer functions than gates")?;
    if others.is_empty() || others == first {
        Ok(first.to_vec())
    } else {
        Err("other functions for the way back".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Attribute;

    fn node(names: &[&str], alphas: &[f64]) -> Node {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let attributes = [
            ("activations".to_owned(), Attribute::Texts(names)),
            ("activation_alpha".to_owned(), Attribute::Floats(alphas.to_vec())),
        ];
        Node { operator: "GRU".to_owned(), attributes: attributes.into(), ..Node::default() }
    }

    #[test]
    fn each_function_takes_the_parameters_that_it_has() {
        let found = functions(&node(&["HardSigmoid", "elu"], &[0.25, 2.0])).unwrap();
        let expected = [(UnaryOp::HardSigmoid, [0.25, 0.5]), (UnaryOp::Elu, [2.0, 0.0])];
        assert_eq!(found, expected.map(|(op, parameters)| Function { op, parameters }));
        assert_eq!(functions(&node(&[], &[])).unwrap()[1].op, UnaryOp::Tanh);
    }

    #[test]
    fn functions_of_both_directions_are_alike() {
        assert_eq!(functions(&node(&["Sigmoid", "Relu", "Sigmoid", "Relu"], &[])).unwrap().len(), 2);
        assert!(functions(&node(&["Sigmoid", "Relu", "Sigmoid", "Tanh"], &[])).is_err());
        assert!(functions(&node(&["Sigmoid"], &[])).is_err());
        assert!(functions(&node(&["Sigmoid", "ScaledTanh"], &[])).is_err());
    }
}
