//! Products of rows in other orders, and of heads.

use super::*;

/// The projections of torchvision's attention, with tokens first.
#[test]
fn the_order_of_rows_moves_behind_a_product_whose_readers_take_views() {
    let nodes: &[(&str, &[&str], &str)] = &[
        ("LayerNormalization", &["x", "w"], "n"),
        ("Transpose", &["n"], "t"),
        ("MatMul", &["t", "m", "b"], "p"),
        ("Reshape", &["p", "apart"], "y"),
    ];
    let mut layer = graph(nodes, "y");
    perm(&mut layer, 1, &[1, 0, 2]);
    for (name, shape) in [("w", &[8][..]), ("m", &[8, 6]), ("b", &[6])] {
        constant(&mut layer, name, shape);
    }
    list(&mut layer, "apart", &[5, 2, 3, 2]);
    let (mut of_columns, mut is_output) = (layer.clone(), layer.clone());
    fuse(&mut layer);
    assert_eq!(operators(&layer), ["LayerNormalization", "MatMul", "Transpose", "Reshape"]);
    assert_eq!(layer.nodes[1].inputs, ["n", "m", "b"]);
    assert_eq!(layer.nodes[2].ints("perm"), Some(&[1, 0, 2][..]));
    // Columns aren't rows.
    perm(&mut of_columns, 1, &[0, 2, 1]);
    fuse(&mut of_columns);
    assert_eq!(operators(&of_columns), ["LayerNormalization", "Transpose", "MatMul", "Reshape"]);
    // An output would be packed, and is larger than what is packed without it.
    is_output.outputs.push("p".to_owned());
    fuse(&mut is_output);
    assert_eq!(operators(&is_output), ["LayerNormalization", "Transpose", "MatMul", "Reshape"]);
}

#[test]
fn the_order_of_a_products_rows_undoes_that_of_attention() {
    let mut layer = graph(
        &[
            ("Transpose", &["heads"], "t"),
            ("Reshape", &["t", "flat"], "f"),
            ("Gemm", &["f", "m", "b"], "g"),
            ("Reshape", &["g", "apart"], "p"),
            ("Transpose", &["p"], "o"),
            ("Add", &["o", "x"], "y"),
        ],
        "y",
    );
    perm(&mut layer, 0, &[2, 0, 1, 3]);
    perm(&mut layer, 4, &[1, 0, 2]);
    constant(&mut layer, "m", &[8, 8]);
    constant(&mut layer, "b", &[8]);
    list(&mut layer, "flat", &[10, 8]);
    list(&mut layer, "apart", &[5, 2, 8]);
    types(&mut layer, &[("t", &[5, 2, 4, 2]), ("p", &[5, 2, 8])]);
    fuse(&mut layer);
    assert_eq!(operators(&layer), ["Transpose", "Reshape", "Transpose", "MatMul", "Add"]);
    assert_eq!(layer.nodes[1].ints("shape"), Some(&[5, 2, 8][..]));
    assert_eq!(layer.nodes[2].ints("perm"), Some(&[1, 0, 2][..]));
    assert_eq!(layer.nodes[3].inputs[1..], ["m", "b"]);
}

/// ONNX Runtime makes one reshape of that after a product and that into heads.
#[test]
fn a_linear_layer_of_heads_is_a_product() {
    let mut layer = graph(
        &[
            ("Reshape", &["x", "flat"], "a"),
            ("Gemm", &["a", "m", "b"], "g"),
            ("Reshape", &["g", "heads"], "y"),
        ],
        "y",
    );
    types(&mut layer, &[("x", &[2, 5, 8])]);
    constant(&mut layer, "m", &[8, 6]);
    constant(&mut layer, "b", &[6]);
    list(&mut layer, "flat", &[10, 8]);
    list(&mut layer, "heads", &[2, 5, 3, 2]);
    let mut other = layer.clone();
    fuse(&mut layer);
    assert_eq!(operators(&layer), ["MatMul", "Reshape"]);
    assert_eq!((layer.nodes[0].inputs[0].as_str(), layer.nodes[0].inputs.len()), ("x", 3));
    assert_eq!(layer.nodes[1].ints("shape"), Some(&[2, 5, 3, 2][..]));
    // A part of the rows beside a part of the columns.
    list(&mut other, "heads", &[2, 15, 2]);
    fuse(&mut other);
    assert_eq!(operators(&other), ["Reshape", "Gemm", "Reshape"]);
}
