//! The helper files that kernels append, each with those that it calls itself. Of what several files define in
//! different ways, such as the vectors of `vec_1` and `vec_4`, the kernel's variant names one.

use super::source::{Lib, shader};

/// Whether a file is marked `barriers`: whether it has barriers of the device's scope.
macro_rules! has_barriers {
    () => {
        false
    };
    (native) => {
        false
    };
    (barriers) => {
        true
    };
}

/// A file's text; in a browser, none of one that only kernels for other devices append, which is marked `native` or
/// `barriers`.
macro_rules! text {
    ($file:literal) => {
        shader!(concat!("lib/", $file))
    };
    ($file:literal $only:ident) => {
        if cfg!(target_family = "wasm") { "" } else { text!($file) }
    };
}

macro_rules! libs {
    ($($(#[$doc:meta])* $name:ident = $($only:ident)? $file:literal $(needs [$($need:ident),+])?),+ $(,)?) => {
        $($(#[$doc])*
        pub(crate) const $name: Lib = Lib {
            name: concat!("lib/", $file),
            text: text!($file $($only)?),
            needs: &[$($($need),+)?],
            device_scope_barriers: has_barriers!($($only)?),
        };)+
    };
}

libs! {
    /// Workgroup indices of folded grids.
    GRID = "grid",
    /// Entry points: of kernels whose workgroups make a tile each, and of those whose invocations make an output each, of all
    /// or of a range.
    WORKGROUP_TILES = "workgroup_tiles" needs [GRID],
    SUBGROUP_TILES = "subgroup_tiles" needs [GRID],
    INVOCATION_OUTPUTS = "invocation_outputs" needs [GRID],
    INVOCATION_RANGE = "invocation_range" needs [GRID],
    /// Numbers that WGSL has no literals for.
    SPECIAL = "special",
    /// The functions of one number that are needed most.
    UNARY = "unary" needs [SPECIAL],
    /// The functions of one number for storage as f16.
    HALF = "half" needs [SPECIAL, UNARY],
    /// Four numbers of f16 from their bits.
    HALVES = "halves",
    /// Logarithms.
    LOG = "log" needs [SPECIAL, UNARY],
    /// The upper half of a product of words.
    MULTIPLY_HIGH = "multiply_high",
    /// Sine, cosine and tangent.
    TRIG = "trig" needs [SPECIAL, UNARY, MULTIPLY_HIGH],
    /// Inverse trigonometric functions.
    INVERSE_TRIG = "inverse_trig" needs [SPECIAL, UNARY],
    /// Hyperbolic functions, eˣ − 1 and ln(1 + x).
    HYPERBOLIC = "hyperbolic" needs [SPECIAL, UNARY, LOG],
    /// The error function and activations.
    ACTIVATIONS = "activations" needs [SPECIAL, UNARY, HYPERBOLIC],
    /// Remainders of floating-point numbers.
    REMAINDER = "remainder" needs [SPECIAL, UNARY],
    /// The functions of two numbers.
    BINARY = "binary" needs [SPECIAL, UNARY, LOG, SWIGLU_OAI],
    /// The clamped gated linear unit of gpt-oss.
    SWIGLU_OAI = "swiglu_oai" needs [SPECIAL, UNARY],
    /// Places in strided tensors that are iterated together.
    STRIDED = "strided",
    /// Tiles of transposing copies.
    TRANSPOSE = "transpose",
    /// Squares of 32 and 16 bits for them.
    BLOCK_4 = "block_4",
    BLOCK_8 = "block_8",
    /// The generator of random numbers.
    PHILOX = "philox" needs [MULTIPLY_HIGH],
    /// Comparisons of floating-point numbers.
    ORDER = "order" needs [SPECIAL],
    /// The functions of integers.
    INTEGER = "integer",
    /// Fused activations.
    ACTIVATE = "activate" needs [UNARY],
    /// Activations of f16 results.
    ACTIVATE_HALF = "activate_half" needs [UNARY, HALF],
    /// Gated linear units.
    GATE = "gate" needs [SWIGLU_OAI],
    /// Conversions between 4-byte types.
    CONVERT = "convert" needs [SPECIAL],
    /// Conversions from and to f16.
    CONVERT_F16 = "convert_f16" needs [CONVERT],
    /// The parameters and results of matrix products.
    MATMUL = "matmul",
    C_ELEMENTS = "c_elements",
    C_VECTORS = "c_vectors",
    /// Blocks of the operands of matrix products.
    OPERAND_BLOCKS = "operand_blocks" needs [MATMUL],
    /// Eight numbers as 16 bytes of f16.
    PACKED_EIGHT = "packed_eight",
    /// Copies of images and filters to adjacent channels.
    EIGHT_COPIES = "eight_copies" needs [GRID, PACKED_EIGHT],
    /// Quotients by numbers whose inverse is known.
    QUOTIENT = "quotient",
    /// The parameters and results of convolutions.
    CONV = "conv",
    /// Where a window starts in the input.
    INPUT_ORIGIN = "input_origin" needs [QUOTIENT, CONV],
    /// What convolutions multiply the filters by.
    SOURCE_ANY = "source_any" needs [CONV],
    SOURCE_WINDOW = "source_window" needs [QUOTIENT, CONV, INPUT_ORIGIN, SOURCE_VEC4S],
    SOURCE_VECTORS = "source_vectors" needs [QUOTIENT, CONV, INPUT_ORIGIN],
    SOURCE_LINES = "source_lines" needs [QUOTIENT, CONV],
    /// Four rows of a source that are held from step to step.
    SOURCE_VEC4S = "source_vec4s",
    /// How convolutions write their results.
    RESULTS_APART = "results_apart",
    RESULTS_ADJACENT = "results_adjacent",
    RESULTS_PLANES = "results_planes",
    /// The parameters and windows of poolings.
    POOL = "pool" needs [QUOTIENT],
    /// The elements of a pooling's window and their maximum.
    POOL_INPUT = "pool_input" needs [SPECIAL, POOL],
    /// The row of a cache that an index on the device names.
    INDEXED_ROW = "indexed_row",
    /// Rotary position embedding of queries and keys that go to a cache.
    ROTARY_PAIRS = "rotary_pairs",
    /// The operand of few rows of gemm/skinny.
    FEW_ROWS = "few_rows",
    /// Integers with the order of numbers.
    SORT_KEY = "sort_key",
    /// Entries of sorts.
    SORT_ENTRIES = "sort_entries",
    /// The largest or smallest numbers of a row.
    ROW_TOP_K = "row_top_k" needs [SPECIAL, EXP_BELOW],
    /// What is sorted.
    SORT_FROM_ENTRIES = "sort_from_entries",
    SORT_FROM_F16 = "sort_from_f16" needs [SORT_KEY],
    SORT_FROM_F32 = "sort_from_f32" needs [SORT_KEY],
    SORT_FROM_F32_BITS = "sort_from_f32_bits" needs [SORT_KEY],
    SORT_FROM_I32 = "sort_from_i32" needs [SORT_KEY],
    SORT_FROM_U32 = "sort_from_u32" needs [SORT_KEY],
    /// What kernels on cooperative matrices share.
    FRAGMENTS = "fragments" needs [HALVES],
    /// A tile of C with its operands, of kernels on cooperative matrices.
    OPERAND_TILE = "operand_tile" needs [FRAGMENTS],
    /// The elements of cooperative matrices, for devices that take SPIR-V.
    FRAGMENT_ELEMENTS = "fragment_elements" needs [HALVES],
    /// How products on cooperative matrices write their results: by way of workgroup memory, or from registers.
    RESULTS_STAGED = "results_staged" needs [MATMUL, FRAGMENTS],
    RESULTS_IN_REGISTERS = "results_in_registers" needs [FRAGMENTS, FRAGMENT_ELEMENTS, SHIFTED_VECTOR],
    /// f32 numbers as two parts of f16.
    F16_PARTS = "f16_parts" needs [SPECIAL],
    /// The largest magnitudes of a matrix's lines.
    LINE_LARGEST = "line_largest",
    /// Sums of products of operands whose lines were scaled, or weren't.
    LINE_EXPONENTS = "line_exponents",
    NO_LINE_EXPONENTS = "no_line_exponents",
    /// Elements across two vectors.
    SHIFTED_VECTOR = "shifted_vector",
    /// The core of matrix products.
    TILE_PRODUCT = "tile_product",
    /// The reductions.
    REDUCE = "reduce" needs [SPECIAL],
    /// Reductions across a workgroup.
    WORKGROUP = "workgroup" needs [REDUCE],
    /// Which of the workgroups that share a result is the last one.
    LAST_WORKGROUP = barriers "last_workgroup",
    /// Reductions within subgroups, with the functions of [`WORKGROUP`].
    ROW_SHUFFLES = "row_shuffles" needs [REDUCE],
    /// Elements one by one, words of f16, four elements at a time, and 16 bytes of f16.
    VEC_1 = "vec_1",
    VEC_2 = "vec_2",
    VEC_4 = "vec_4",
    VEC_8 = "vec_8",
    /// Vectors that are fetched ahead; for any of the vector widths.
    VECTORS_AHEAD = "vectors_ahead",
    /// Rows of vectors: of whole ones, or of words of f16 that two rows may share; for any of the vector widths.
    ROWS_WHOLE = "rows_whole",
    ROWS_HALVES = "rows_halves",
    /// The states of a reduction that reads elements, by vector width; for any of the rules.
    STATES_1 = "states_1" needs [STATE_ALONE],
    STATES_2 = "states_2",
    STATES_4 = "states_4",
    STATES_8 = "states_8",
    /// The states of a reduction whose vectors have one element.
    STATE_ALONE = "state_alone",
    /// The states of a reduction that reads states.
    STATE_PAIRS = "state_pairs" needs [STATE_ALONE],
    /// The rules of reductions.
    MAPS = "maps",
    RULE_FLOAT = "rule_float" needs [SPECIAL, REDUCE, MAPS],
    RULE_INTEGER = "rule_integer" needs [REDUCE, MAPS],
    RULE_ARG = "rule_arg",
    RULE_LOG_SUM_EXP = "rule_log_sum_exp" needs [SPECIAL, LOG, EXPONENTIALS],
    /// Reductions without a fix-up of slices, and with one, of states of one word or of two.
    REDUCE_WHOLE = "reduce_whole",
    REDUCE_FIXUP = native "reduce_fixup" needs [LAST_WORKGROUP],
    REDUCE_FIXUP_PAIRS = native "reduce_fixup_pairs" needs [LAST_WORKGROUP],
    /// Exponentials of differences to a maximum.
    EXP_BELOW = "exp_below",
    /// Sums of exponentials.
    EXPONENTIALS = "exponentials" needs [SPECIAL, EXP_BELOW],
    /// The parameters and scores of attention.
    ATTENTION = "attention" needs [SPECIAL],
    /// Readers of attention's operands: 16 bytes at a time, number by number, and keys and values of Q8_0.
    ATTENTION_WIDE = "attention_wide" needs [ATTENTION],
    ATTENTION_NARROW = "attention_narrow" needs [ATTENTION, ATTENTION_NARROW_Q],
    ATTENTION_NARROW_Q = "attention_narrow_q" needs [ATTENTION],
    ATTENTION_Q8_0 = "attention_q8_0" needs [ATTENTION, ATTENTION_NARROW_Q],
    /// How keys and values come into the workgroup memory of attention/flash; for either of the readers.
    ATTENTION_STAGING = "attention_staging" needs [ATTENTION],
    /// Places of keys and values, a stride apart or in blocks of a pool; the former alone with [`ATTENTION_CONTIGUOUS`].
    ATTENTION_PLACES = "attention_places" needs [ATTENTION],
    ATTENTION_CONTIGUOUS = "attention_contiguous",
    /// Keys and values at those places; for any of the readers.
    ATTENTION_LOADS = "attention_loads" needs [ATTENTION_PLACES],
    /// Elements of outputs.
    ATTENTION_OUTPUT = "attention_output",
    /// Outputs of values that aren't finite; for any of the readers, or a kernel that reads four elements.
    ATTENTION_SEEN = "attention_seen" needs [ATTENTION, ATTENTION_PLACES],
    /// The rows that share keys, and pieces of these.
    ATTENTION_PIECES = "attention_pieces" needs [ATTENTION, ATTENTION_PLACES],
    /// Vectors of the rows that share keys; for any of the readers and any number of rows.
    ATTENTION_ROWS = "attention_rows" needs [SPECIAL, ATTENTION, ATTENTION_PIECES],
    /// The sinks of heads.
    ATTENTION_SINKS = "attention_sinks" needs [ATTENTION],
    /// What becomes of the sums of rows, over a piece of their keys or all of them.
    ATTENTION_PARTS = "attention_parts" needs [ATTENTION, ATTENTION_PIECES, ATTENTION_SINKS],
    ATTENTION_PARTS_VEC4S = "attention_parts_vec4s" needs [ATTENTION, ATTENTION_PIECES, ATTENTION_SINKS],
    ATTENTION_OUTPUTS = "attention_outputs" needs [ATTENTION, ATTENTION_SEEN, ATTENTION_PIECES, ATTENTION_SINKS],
    /// Parts that the last workgroup puts together.
    ATTENTION_FIXUP = native "attention_fixup" needs [LAST_WORKGROUP, ATTENTION_OUTPUT, ATTENTION_SEEN, ATTENTION_PIECES, ATTENTION_SINKS],
    ATTENTION_FIXUP_ROWS = native "attention_fixup_rows" needs [ATTENTION_FIXUP],
    /// Elements of f16 that aren't read in a hurry.
    ATTENTION_VEC4S = "attention_vec4s",
    /// Numbers of rows that share keys.
    ROWS_1 = "rows_1",
    ROWS_2 = "rows_2" needs [ROWS_VECTOR],
    ROWS_4 = "rows_4" needs [ROWS_VECTOR],
    /// Numbers of several such rows in a vector.
    ROWS_VECTOR = "rows_vector",
    /// The planes of a quantised matrix.
    QUANT_PLANES = "quant_planes",
    /// Eight quants and their weights.
    QUANT_NIBBLES = "quant_nibbles",
    /// The parameters and results of products with a quantised matrix; for [`ACTIVATE`] or [`ACTIVATE_HALF`].
    QUANT_PRODUCT = "quant_product",
    /// Where elements of such a product go: to C, or also to a cache, with or without QK-norm before.
    QUANT_NO_QK_NORM = "quant_no_qk_norm",
    QUANT_RESULTS = "quant_results" needs [QUANT_PRODUCT, QUANT_NO_QK_NORM],
    QUANT_QKV = native "quant_qkv",
    QUANT_RESULTS_APPENDED = native "quant_results_appended" needs [QUANT_PRODUCT, QUANT_QKV, QUANT_NO_QK_NORM],
    QUANT_RESULTS_QK_NORM = native "quant_results_qk_norm" needs [QUANT_PRODUCT, QUANT_QKV, LAST_WORKGROUP],
    /// What is added to products with a quantised matrix.
    QUANT_RESIDUAL = "quant_residual",
    QUANT_NO_RESIDUAL = "quant_no_residual",
    /// The rows of A of products with a quantised matrix, as they are or normalised.
    QUANT_ROWS = "quant_rows",
    QUANT_NORMED_F16 = "quant_normed_f16",
    QUANT_NORMED_F32 = "quant_normed_f32",
    QUANT_ROWS_NORMED = "quant_rows_normed",
    /// What the columns of fragments are in products of few rows with a quantised matrix.
    QUANT_ROWS_IN_COLUMNS = native "quant_rows_in_columns" needs [FRAGMENT_ELEMENTS],
    QUANT_BLOCKS_IN_COLUMNS = native "quant_blocks_in_columns" needs [FRAGMENT_ELEMENTS],
    QUANT_INPUT_1 = "quant_input_1",
    QUANT_INPUT_4 = "quant_input_4",
    /// Tiles of products of many rows.
    QUANT_TILE = "quant_tile" needs [QUANT_NIBBLES],
    /// Rows of B that lanes share, and sums of the lanes' parts in workgroup memory.
    QUANT_LINES = "quant_lines",
    QUANT_LANES = "quant_lanes" needs [QUANT_LINES],
    /// Sums of products of few rows.
    QUANT_SUMS = "quant_sums" needs [QUANT_NIBBLES, QUANT_LINES],
    /// The results of products with experts, and those that indices choose, one by one or in tiles.
    QUANT_EXPERTS = "quant_experts",
    QUANT_EXPERT_INDICES = "quant_expert_indices" needs [QUANT_EXPERTS],
    QUANT_EXPERT_TILES = "quant_expert_tiles" needs [QUANT_EXPERTS],
    /// What weighted sums of products with experts have of biases.
    QUANT_EXPERT_BIASES = native "quant_expert_biases" needs [QUANT_EXPERT_INDICES],
    QUANT_EXPERT_NO_BIASES = native "quant_expert_no_biases",
    /// What those on tensor cores share.
    QUANT_EXPERT_FRAGMENTS = native "quant_expert_fragments",
    /// Sums of products of few rows with experts.
    QUANT_EXPERT_SUMS = "quant_expert_sums" needs [QUANT_EXPERT_INDICES, QUANT_SUMS],
    /// Sums of products of few rows that are rounded to 8 bits, and quants as bytes, by format.
    QUANT_SUMS_INT8 = "quant_sums_int8" needs [QUANT_NIBBLES, QUANT_LINES],
    QUANT_BYTES_THREE = "quant_bytes_three",
    QUANT_BYTES_FOUR = "quant_bytes_four",
    QUANT_BYTES_FIVE = "quant_bytes_five",
    QUANT_BYTES_SIX = "quant_bytes_six",
    QUANT_BYTES_EIGHT = "quant_bytes_eight",
    QUANT_BYTES_MXFP4 = "quant_bytes_mxfp4",
    QUANT_BYTES_IQ4 = "quant_bytes_iq4" needs [QUANT_IQ4],
    /// Words of weights as numbers.
    QUANT_OUTPUT_1 = "quant_output_1" needs [QUANT_NIBBLES],
    QUANT_OUTPUT_4 = "quant_output_4" needs [QUANT_NIBBLES],
    /// The quants of a format, by what they are.
    QUANT_PAIRS = "quant_pairs",
    QUANT_TWO = "quant_two" needs [QUANT_NIBBLES, QUANT_PAIRS],
    QUANT_THREE = "quant_three" needs [QUANT_NIBBLES, QUANT_PAIRS],
    QUANT_NIBBLE_WORDS = "quant_nibble_words",
    QUANT_FOUR = "quant_four" needs [QUANT_NIBBLES, QUANT_NIBBLE_WORDS],
    QUANT_FIVE = "quant_five" needs [QUANT_NIBBLES],
    QUANT_SIX = "quant_six" needs [QUANT_NIBBLES],
    QUANT_EIGHT = "quant_eight" needs [QUANT_NIBBLES],
    QUANT_IQ4 = "quant_iq4" needs [QUANT_NIBBLES, QUANT_NIBBLE_WORDS],
    /// Its scales, by what they are, and its zero point.
    QUANT_BLOCK_SCALES = "quant_block_scales" needs [QUANT_NIBBLES],
    QUANT_BLOCK_MINIMA = "quant_block_minima" needs [QUANT_NIBBLES],
    QUANT_SUPER_SCALES = "quant_super_scales" needs [QUANT_NIBBLES],
    QUANT_SIGNED_SUPER_SCALES = "quant_signed_super_scales" needs [QUANT_NIBBLES],
    QUANT_HALF_SCALES = "quant_half_scales" needs [QUANT_NIBBLES],
    QUANT_HALF_MINIMA = "quant_half_minima" needs [QUANT_NIBBLES],
    QUANT_GROUP_SCALES = "quant_group_scales",
    QUANT_ZERO_0 = "quant_zero_0",
    QUANT_ZERO_4 = "quant_zero_4",
    QUANT_ZERO_8 = "quant_zero_8",
    QUANT_ZERO_16 = "quant_zero_16",
    QUANT_ZERO_32 = "quant_zero_32",
    /// Both of Mxfp4, and which scale and zero point a group of U4 has.
    QUANT_MXFP4 = "quant_mxfp4" needs [QUANT_NIBBLES, QUANT_NIBBLE_WORDS],
    QUANT_U4 = "quant_u4" needs [QUANT_NIBBLES],
    QUANT_U4_ZEROS = "quant_u4_zeros" needs [QUANT_NIBBLES],
    /// Integers as f16, and quants as elements of fragments, by format.
    QUANT_HALVES = "quant_halves",
    QUANT_WEIGHTS = "quant_weights" needs [QUANT_NIBBLES],
    /// Quants in their own order for fragments.
    QUANT_IN_ORDER = native "quant_in_order",
    QUANT_FRAGMENTS_TWO = "quant_fragments_two" needs [QUANT_HALVES],
    QUANT_FRAGMENTS_THREE = "quant_fragments_three" needs [QUANT_HALVES],
    QUANT_FRAGMENTS_FOUR = "quant_fragments_four" needs [QUANT_HALVES],
    QUANT_FRAGMENTS_FIVE = "quant_fragments_five" needs [QUANT_HALVES],
    QUANT_FRAGMENTS_SIX = "quant_fragments_six" needs [QUANT_HALVES],
    QUANT_FRAGMENTS_EIGHT = "quant_fragments_eight" needs [QUANT_HALVES],
    QUANT_FRAGMENTS_MXFP4 = "quant_fragments_mxfp4",
    QUANT_FRAGMENTS_IQ4 = "quant_fragments_iq4" needs [QUANT_HALVES],
    QUANT_VALUES_IQ4 = "quant_values_iq4" needs [QUANT_IQ4],
    /// From a sum of exponentials to a softmax.
    SOFTMAX_SCALE = "softmax_scale" needs [SPECIAL, LOG],
    /// The row of a normalisation.
    NORM_ROW = "norm_row",
    /// The result of a normalisation; for any of its weights.
    NORM_RESULT = "norm_result" needs [NORM_ROW],
    /// Where a normalisation writes its input's sum with the residual, or doesn't.
    NORM_SUM = "norm_sum",
    NORM_NO_SUM = "norm_no_sum",
    /// Rows that results of a normalisation are added to.
    NORM_ADDED = native "norm_added",
    NORM_OUTPUT = "norm_output",
    NORM_OUTPUT_HALF_1 = "norm_output_half_1",
    NORM_OUTPUT_HALF_4 = "norm_output_half_4",
    /// The elements of normalised rows that share a word with another row, or that none does.
    NORM_EDGES = "norm_edges" needs [NORM_ROW],
    NORM_NO_EDGES = "norm_no_edges" needs [NORM_ROW],
    /// Rows of f16 in words.
    ROW_WORDS = "row_words",
    /// The weights of a normalisation.
    WEIGHTS_COLUMN = "weights_column",
    WEIGHTS_COLUMN_F32 = "weights_column_f32",
    WEIGHTS_COLUMN_HALVES = "weights_column_halves" needs [ROW_WORDS],
    WEIGHTS_COLUMN_HALVES_F32 = "weights_column_halves_f32" needs [ROW_WORDS],
    WEIGHTS_CHANNEL = "weights_channel",
}
