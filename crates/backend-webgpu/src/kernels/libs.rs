//! The helper files that kernels append.

use super::source::{Lib, shader};

macro_rules! libs {
    ($($(#[$doc:meta])* $name:ident = $file:literal),+ $(,)?) => {
        $($(#[$doc])*
        pub(crate) const $name: Lib =
            Lib { name: concat!("lib/", $file), text: shader!(concat!("lib/", $file)) };)+
    };
}

libs! {
    /// Workgroup indices of folded grids.
    GRID = "grid",
    /// Numbers that WGSL has no literals for.
    SPECIAL = "special",
    /// The functions of one number that are needed most; needs [`SPECIAL`].
    UNARY = "unary",
    /// The functions of one number for storage as f16; needs [`UNARY`].
    HALF = "half",
    /// Logarithms; needs [`UNARY`].
    LOG = "log",
    /// The upper half of a product of words.
    MULTIPLY_HIGH = "multiply_high",
    /// Sine, cosine and tangent; needs [`UNARY`] and [`MULTIPLY_HIGH`].
    TRIG = "trig",
    /// The inverse functions of these; needs [`UNARY`].
    INVERSE_TRIG = "inverse_trig",
    /// Hyperbolic functions, eˣ − 1 and ln(1 + x); needs [`LOG`].
    HYPERBOLIC = "hyperbolic",
    /// The error function and activations; needs [`HYPERBOLIC`].
    ACTIVATIONS = "activations",
    /// Remainders of floating-point numbers; needs [`UNARY`].
    REMAINDER = "remainder",
    /// The functions of two numbers; needs [`LOG`].
    BINARY = "binary",
    /// Places in strided tensors that are iterated together.
    STRIDED = "strided",
    /// Tiles of transposing copies.
    TRANSPOSE = "transpose",
    /// Squares of 32 and 16 bits for them.
    BLOCK_4 = "block_4",
    BLOCK_8 = "block_8",
    /// The generator of random numbers; needs [`MULTIPLY_HIGH`].
    PHILOX = "philox",
    /// Comparisons of floating-point numbers; needs [`SPECIAL`].
    ORDER = "order",
    /// The functions of integers.
    INTEGER = "integer",
    /// Fused activations; needs [`UNARY`].
    ACTIVATE = "activate",
    /// Activations of f16 results; needs [`HALF`].
    ACTIVATE_HALF = "activate_half",
    /// Conversions between 4-byte types; needs [`SPECIAL`].
    CONVERT = "convert",
    /// Conversions from and to f16; needs [`CONVERT`].
    CONVERT_F16 = "convert_f16",
    /// The parameters and results of matrix products; needs [`ACTIVATE`] or [`ACTIVATE_HALF`].
    MATMUL = "matmul",
    /// Blocks of the operands of matrix products; needs [`MATMUL`].
    OPERAND_BLOCKS = "operand_blocks",
    /// Eight numbers as 16 bytes of f16.
    PACKED_EIGHT = "packed_eight",
    /// Quotients by numbers whose inverse is known.
    QUOTIENT = "quotient",
    /// The parameters and results of convolutions; needs [`ACTIVATE`].
    CONV = "conv",
    /// Where a window starts in the input; needs [`CONV`] and [`QUOTIENT`].
    INPUT_ORIGIN = "input_origin",
    /// What convolutions multiply the filters by. All need [`CONV`] and [`QUOTIENT`].
    SOURCE_ANY = "source_any",
    SOURCE_WINDOW = "source_window",
    SOURCE_VECTORS = "source_vectors",
    SOURCE_LINES = "source_lines",
    /// How convolutions write their results.
    RESULTS_APART = "results_apart",
    RESULTS_ADJACENT = "results_adjacent",
    RESULTS_PLANES = "results_planes",
    /// The parameters and windows of poolings; needs [`QUOTIENT`].
    POOL = "pool",
    /// The elements of a pooling's window and their maximum; needs [`POOL`] and [`SPECIAL`].
    POOL_INPUT = "pool_input",
    /// The operand of few rows of gemm/skinny.
    FEW_ROWS = "few_rows",
    /// Integers with the order of numbers.
    SORT_KEY = "sort_key",
    /// Entries of sorts.
    SORT_ENTRIES = "sort_entries",
    /// What is sorted; those of numbers need [`SORT_KEY`].
    SORT_FROM_ENTRIES = "sort_from_entries",
    SORT_FROM_F16 = "sort_from_f16",
    SORT_FROM_F32 = "sort_from_f32",
    SORT_FROM_I32 = "sort_from_i32",
    SORT_FROM_U32 = "sort_from_u32",
    /// What kernels on cooperative matrices share.
    FRAGMENTS = "fragments",
    /// The elements of cooperative matrices, for devices that take SPIR-V.
    FRAGMENT_ELEMENTS = "fragment_elements",
    /// How products on them write their results: by way of workgroup memory, or from registers. Both need
    /// [`MATMUL`] and [`FRAGMENTS`], the latter [`FRAGMENT_ELEMENTS`] and [`SHIFTED_VECTOR`] too.
    RESULTS_STAGED = "results_staged",
    RESULTS_IN_REGISTERS = "results_in_registers",
    /// Elements across two vectors.
    SHIFTED_VECTOR = "shifted_vector",
    /// The core of matrix products.
    TILE_PRODUCT = "tile_product",
    /// The reductions; needs [`SPECIAL`].
    REDUCE = "reduce",
    /// Reductions across a workgroup; needs [`REDUCE`].
    WORKGROUP = "workgroup",
    /// Reductions within subgroups, with the functions of [`WORKGROUP`]; needs [`REDUCE`].
    ROW_SHUFFLES = "row_shuffles",
    /// Elements one by one, words of f16, four elements at a time, and 16 bytes of f16.
    VEC_1 = "vec_1",
    VEC_2 = "vec_2",
    VEC_4 = "vec_4",
    VEC_8 = "vec_8",
    /// Rows of vectors: of whole ones, or of words of f16 that two rows may share. Both need a vector width.
    ROWS_WHOLE = "rows_whole",
    ROWS_HALVES = "rows_halves",
    /// The states of a reduction that reads elements; needs a vector width and a rule.
    STATES_1 = "states_1",
    STATES_2 = "states_2",
    STATES_4 = "states_4",
    STATES_8 = "states_8",
    /// What [`STATES_1`] and [`STATE_PAIRS`] need.
    STATE_ALONE = "state_alone",
    /// The states of a reduction that reads states.
    STATE_PAIRS = "state_pairs",
    /// The rules of reductions. All need [`SPECIAL`] and [`REDUCE`].
    MAPS = "maps",
    RULE_FLOAT = "rule_float",
    RULE_INTEGER = "rule_integer",
    RULE_ARG = "rule_arg",
    /// Needs [`EXPONENTIALS`] and [`LOG`].
    RULE_LOG_SUM_EXP = "rule_log_sum_exp",
    /// Exponentials of differences to a maximum; needs [`SPECIAL`].
    EXP_BELOW = "exp_below",
    /// Sums of exponentials; needs [`EXP_BELOW`].
    EXPONENTIALS = "exponentials",
    /// The parameters and scores of attention; needs [`SPECIAL`].
    ATTENTION = "attention",
    /// Its operands 16 bytes at a time, and number by number.
    ATTENTION_WIDE = "attention_wide",
    ATTENTION_NARROW = "attention_narrow",
    /// How they come into the workgroup memory of attention/flash; needs one of the former.
    ATTENTION_STAGING = "attention_staging",
    /// Outputs of values that aren't finite; needs one of the former, or what reads four elements.
    ATTENTION_SEEN = "attention_seen",
    /// The rows that share keys, and pieces of these; needs [`ATTENTION`].
    ATTENTION_PIECES = "attention_pieces",
    /// Vectors of the rows that share keys; needs one of the former and of the readers.
    ATTENTION_ROWS = "attention_rows",
    /// What becomes of the sums of rows, over a piece of their keys or all of them; both need [`ATTENTION_PIECES`],
    /// and the latter [`ATTENTION_SEEN`].
    ATTENTION_PARTS = "attention_parts",
    ATTENTION_OUTPUTS = "attention_outputs",
    ROWS_1 = "rows_1",
    ROWS_2 = "rows_2",
    ROWS_4 = "rows_4",
    /// Eight quants and their weights.
    QUANT_NIBBLES = "quant_nibbles",
    /// The parameters and results of products with a quantised matrix; needs [`ACTIVATE`] or
    /// [`ACTIVATE_HALF`].
    QUANT_PRODUCT = "quant_product",
    /// What is added to them; needs [`QUANT_PRODUCT`].
    QUANT_RESIDUAL = "quant_residual",
    /// Their rows of A; need [`QUANT_PRODUCT`].
    QUANT_ROWS = "quant_rows",
    QUANT_ROWS_NORMED = "quant_rows_normed",
    QUANT_INPUT_1 = "quant_input_1",
    QUANT_INPUT_4 = "quant_input_4",
    /// Sums of products of few rows; needs [`QUANT_PRODUCT`].
    QUANT_SUMS = "quant_sums",
    /// Words of weights as numbers; need [`QUANT_NIBBLES`].
    QUANT_OUTPUT_1 = "quant_output_1",
    QUANT_OUTPUT_4 = "quant_output_4",
    /// The quants of formats of four bits, and the scales that formats share. All need [`QUANT_NIBBLES`].
    QUANT_LOW = "quant_low",
    QUANT_BLOCK_SCALES = "quant_block_scales",
    QUANT_SUPER_SCALES = "quant_super_scales",
    QUANT_GROUP_SCALES = "quant_group_scales",
    /// The rest of each format; Q4_K has none.
    QUANT_Q8_0 = "quant_q8_0",
    QUANT_Q4_0 = "quant_q4_0",
    QUANT_Q5_K = "quant_q5_k",
    QUANT_Q6_K = "quant_q6_k",
    QUANT_U4 = "quant_u4",
    QUANT_U4_ZEROS = "quant_u4_zeros",
    /// Integers as f16, and quants as elements of fragments; each needs its format.
    QUANT_HALVES = "quant_halves",
    QUANT_FRAGMENTS_LOW = "quant_fragments_low",
    QUANT_FRAGMENTS_Q5_K = "quant_fragments_q5_k",
    QUANT_FRAGMENTS_Q6_K = "quant_fragments_q6_k",
    QUANT_FRAGMENTS_Q8_0 = "quant_fragments_q8_0",
    /// From a sum of exponentials to a softmax; needs [`LOG`].
    SOFTMAX_SCALE = "softmax_scale",
    /// The row of a normalisation.
    NORM_ROW = "norm_row",
    /// Its result; needs [`NORM_ROW`] and weights.
    NORM_RESULT = "norm_result",
    /// Where it writes its input's sum with the residual, or doesn't.
    NORM_SUM = "norm_sum",
    NORM_NO_SUM = "norm_no_sum",
    /// The numbers of its rows that share a word with another row, or that none does; need [`NORM_ROW`] and rows
    /// of vectors.
    NORM_EDGES = "norm_edges",
    NORM_NO_EDGES = "norm_no_edges",
    /// The weights of a normalisation.
    WEIGHTS_COLUMN = "weights_column",
    WEIGHTS_COLUMN_F32 = "weights_column_f32",
    WEIGHTS_COLUMN_HALVES = "weights_column_halves",
    WEIGHTS_COLUMN_HALVES_F32 = "weights_column_halves_f32",
    WEIGHTS_CHANNEL = "weights_channel",
}
