// Products without a norm of heads, of which a workgroup has nothing left to do behind its tile; beside lib/quant_results_qk_norm.

alias HeadAhead = u32;

fn read_head_ahead(column: u32, i: u32) -> HeadAhead {
  return 0u;
}

fn finish_workgroup(column: u32, columns: u32, index: u32, threads: u32, ahead: HeadAhead) {
}
