//! Cases that the operations of a backend can't express, by reason.

pub(crate) const UNMAPPED: &[(&str, &[&str])] = &[
    (
        "windows are of two dimensions",
        &[
            "test_averagepool_3d_default",
            "test_averagepool_3d_dilations_large_count_include_pad_is_0_ceil_mode_is_False",
            "test_averagepool_3d_dilations_large_count_include_pad_is_0_ceil_mode_is_True",
            "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_False",
            "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True",
            "test_averagepool_3d_dilations_small",
            "test_convtranspose_3d",
            "test_maxpool_3d_default",
            "test_maxpool_3d_dilations",
            "test_maxpool_3d_dilations_use_ref_impl",
            "test_maxpool_3d_dilations_use_ref_impl_large",
        ],
    ),
    (
        "a pooling is a maximum or an average",
        &[
            "test_lppool_1d_default",
            "test_lppool_2d_default",
            "test_lppool_2d_dilations",
            "test_lppool_2d_pads",
            "test_lppool_2d_same_lower",
            "test_lppool_2d_same_upper",
            "test_lppool_2d_strides",
            "test_lppool_3d_default",
        ],
    ),
    (
        "a pooling doesn't give the places of its maxima",
        &["test_maxpool_with_argmax_2d_precomputed_pads", "test_maxpool_with_argmax_2d_precomputed_strides"],
    ),
];
