//! Cases that the operations of a backend can't express, by reason.

pub(crate) const UNMAPPED: &[(&str, &[&str])] = &[
    (
        "no operation is an inverse trigonometric function",
        &[
            "test_acos",
            "test_acos_example",
            "test_asin",
            "test_asin_example",
            "test_atan",
            "test_atan_example",
        ],
    ),
    ("the error function is only there as a part of gelu", &["test_erf"]),
    (
        "no operation works on bits",
        &[
            "test_bitshift_left_int32",
            "test_bitshift_left_int32_negative_shift",
            "test_bitshift_left_int32_overflow",
            "test_bitshift_left_int32_shift_ge_width",
            "test_bitshift_left_int64",
            "test_bitshift_left_uint32",
            "test_bitshift_right_int32",
            "test_bitshift_right_int32_negative_input",
            "test_bitshift_right_int32_negative_shift",
            "test_bitshift_right_int32_shift_ge_width",
            "test_bitshift_right_int64",
            "test_bitshift_right_uint32",
            "test_bitwise_and_i32_2d",
            "test_bitwise_not_2d",
            "test_bitwise_or_i32_2d",
            "test_bitwise_xor_i32_2d",
        ],
    ),
    (
        "a scatter adds or takes the larger or smaller number, but doesn't multiply",
        &["test_scatter_elements_with_reduction_mul", "test_scatternd_multiply"],
    ),
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
