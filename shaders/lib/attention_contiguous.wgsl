// Keys and values that attention finds by its operands' strides alone: for kernels that read no block tables.

const PAGED: u32 = 0u;
