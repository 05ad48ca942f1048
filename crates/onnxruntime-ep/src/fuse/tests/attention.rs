//! Attention as exporters write it.

use super::*;

#[test]
fn attention_of_a_scaled_product_with_a_mask() {
    let mut layer = graph(
        &[
            ("Transpose", &["k"], "t"),
            ("MatMul", &["q", "t"], "s"),
            ("Div", &["s", "8"], "d"),
            ("Add", &["d", "m"], "e"),
            ("Softmax", &["e"], "p"),
            ("MatMul", &["p", "v"], "y"),
        ],
        "y",
    );
    let perm = crate::model::Attribute::Ints(vec![0, 1, 3, 2]);
    layer.nodes[0].attributes.insert("perm".to_owned(), perm);
    for name in ["q", "k", "v"] {
        let shape = Some(vec![None, Some(2), None, Some(64)]);
        layer.types.insert(name.to_owned(), ValueType { kind: Some(Kind::F32), shape });
    }
    let shape = Some(vec![None, Some(1), None, None]);
    layer.types.insert("m".to_owned(), ValueType { kind: Some(Kind::F32), shape });
    fuse(&mut layer);
    assert_eq!(operators(&layer), ["Attention"]);
    assert_eq!(layer.nodes[0].inputs, ["q", "k", "v", "m"]);
    assert!((layer.nodes[0].float("scale", 0.0) - 0.125).abs() < 1e-9);
}

#[test]
fn attention_of_einstein_sums() {
    let sums: &[(&str, &[&str], &str)] =
        &[("Einsum", &["q", "k"], "s"), ("Softmax", &["s"], "p"), ("Einsum", &["p", "v"], "y")];
    let mut layer = graph(sums, "y");
    for (node, equation) in [(0, "bhqd,bhkd->bhqk"), (2, "bhqk,bhkd->bhqd")] {
        layer.nodes[node].attributes.insert("equation".to_owned(), Attribute::Text(equation.to_owned()));
    }
    types(&mut layer, &[("q", &[1, 2, 5, 64]), ("k", &[1, 2, 7, 64]), ("v", &[1, 2, 7, 64])]);
    types(&mut layer, &[("s", &[1, 2, 5, 7]), ("p", &[1, 2, 5, 7])]);
    let mut unknown = layer.clone();
    fuse(&mut layer);
    assert_eq!(operators(&layer), ["Attention"]);
    assert_eq!(layer.nodes[0].inputs, ["q", "k", "v"]);
    // A sum over names of which one may have a single element is no product.
    unknown.types.get_mut("p").unwrap().shape = Some(vec![Some(1), Some(2), Some(5), None]);
    fuse(&mut unknown);
    assert_eq!(operators(&unknown), ["MatMul", "Softmax", "Einsum"]);
}

#[test]
fn attention_scaled_on_either_side_with_rows_that_see_nothing() {
    let mut layer = graph(
        &[
            ("Transpose", &["keys"], "t"),
            ("Mul", &["t", "0.5"], "k"),
            ("Mul", &["queries", "0.25"], "q"),
            ("MatMul", &["q", "k"], "s"),
            ("Add", &["s", "m"], "e"),
            ("Softmax", &["e"], "p"),
            ("IsNaN", &["p"], "n"),
            ("Where", &["n", "0", "p"], "w"),
            ("MatMul", &["w", "v"], "y"),
        ],
        "y",
    );
    // Keys of [batch, tokens, heads, width], which are read as [batch, heads, width, tokens].
    perm(&mut layer, 0, &[0, 2, 3, 1]);
    types(&mut layer, &[("queries", &[1, 2, 5, 64]), ("q", &[1, 2, 5, 64]), ("keys", &[1, 7, 2, 64])]);
    types(&mut layer, &[("v", &[1, 2, 7, 64]), ("m", &[1, 1, 5, 7])]);
    fuse(&mut layer);
    assert_eq!(operators(&layer), ["Transpose", "Attention"]);
    assert_eq!(layer.nodes[0].ints("perm"), Some(&[0, 2, 1, 3][..]));
    assert_eq!(layer.nodes[1].float("scale", 0.0), 0.125);
    assert_eq!(layer.nodes[1].inputs[0], "queries");
}

#[test]
fn a_factor_before_the_heads_are_split_is_attentions() {
    let mut layer = graph(
        &[
            ("Mul", &["x", "0.5"], "a"),
            ("Reshape", &["a", "shape"], "b"),
            ("Transpose", &["b"], "q"),
            ("Transpose", &["k"], "t"),
            ("MatMul", &["q", "t"], "s"),
            ("Softmax", &["s"], "p"),
            ("MatMul", &["p", "v"], "y"),
        ],
        "y",
    );
    list(&mut layer, "shape", &[1, 5, 2, 64]);
    perm(&mut layer, 2, &[0, 2, 1, 3]);
    perm(&mut layer, 3, &[0, 1, 3, 2]);
    types(&mut layer, &[("q", &[1, 2, 5, 64]), ("t", &[1, 2, 64, 5]), ("v", &[1, 2, 5, 64])]);
    fuse(&mut layer);
    assert_eq!(operators(&layer), ["Reshape", "Transpose", "Attention"]);
    assert_eq!(layer.nodes[2].float("scale", 0.0), 0.5);
}

#[test]
fn heads_of_other_counts_are_no_attention() {
    let mut layer = graph(
        &[
            ("Transpose", &["k"], "t"),
            ("MatMul", &["q", "t"], "s"),
            ("Softmax", &["s"], "p"),
            ("MatMul", &["p", "v"], "y"),
        ],
        "y",
    );
    perm(&mut layer, 0, &[0, 1, 3, 2]);
    types(&mut layer, &[("q", &[1, 4, 5, 64]), ("t", &[1, 1, 64, 5]), ("v", &[1, 1, 5, 64])]);
    fuse(&mut layer);
    assert_eq!(operators(&layer), ["Transpose", "MatMul", "Softmax", "MatMul"]);
}

/// As transformers makes one where nothing is padded.
#[test]
fn a_constant_mask_of_zeros_is_none() {
    let masked = |shape: &[usize], number: f64| {
        let nodes: &[(&str, &[&str], &str)] = &[
            ("Transpose", &["k"], "t"),
            ("MatMul", &["q", "t"], "s"),
            ("Add", &["s", "m"], "e"),
            ("Softmax", &["e"], "p"),
            ("MatMul", &["p", "v"], "y"),
        ];
        let mut layer = graph(nodes, "y");
        perm(&mut layer, 0, &[0, 1, 3, 2]);
        let heads: &[usize] = &[2, 3, 5, 64];
        types(&mut layer, &[("q", heads), ("k", heads), ("t", &[2, 3, 64, 5]), ("v", heads)]);
        let mut numbers = vec![0.0; shape.iter().product()];
        *numbers.last_mut().unwrap() = number;
        let mask = Tensor::host(Kind::F32, shape.to_vec(), Numbers::Float(numbers)).unwrap();
        layer.constants.insert("m".to_owned(), mask);
        types(&mut layer, &[("m", shape)]);
        fuse(&mut layer);
        assert_eq!(operators(&layer), ["Attention"]);
        layer.nodes[0].inputs.len()
    };
    for shape in [&[2, 1, 5, 5][..], &[2, 3, 5, 5], &[5, 5], &[1, 1, 1, 5], &[1, 1]] {
        assert_eq!((masked(shape, 0.0), masked(shape, -1.0)), (3, 4), "{shape:?}");
    }
}
