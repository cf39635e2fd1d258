// The accelerator: fetch and dispatch, three units, four token queues, scratchpads, and the arbiter of the read channel.
//
// Memory: a read request asks for ar_beats beats from ar_addr on, each of ar_size bytes in the low end of r_data; data come
// in the order of requests. A write is one beat of w_size bytes.
module tessel_core #(
    parameter K = 16, parameter N = 16, parameter ALU = 1,
    parameter INP_ROWS = 4096, parameter WGT_TILES = 512, parameter ACC_ROWS = 2048, parameter UOPS = 2048,
    parameter BEAT = 16, parameter OUTSTANDING = 64,
    parameter LOAD_QUEUE = 16, parameter COMPUTE_QUEUE = 16, parameter STORE_QUEUE = 16, parameter TOKENS = 64,
    parameter FETCH_BURST = 4, parameter FETCH_BUFFER = 16) (
    input  logic clk, input logic rst, input logic [31:0] program_address,
    output logic ar_valid, input logic ar_ready, output logic [31:0] ar_addr, output logic [31:0] ar_beats,
    output logic [15:0] ar_size,
    input  logic r_valid, output logic r_ready, input logic [BEAT*8-1:0] r_data, input logic r_last,
    output logic w_valid, input logic w_ready, output logic [31:0] w_addr, output logic [15:0] w_size,
    output logic [BEAT*8-1:0] w_data,
    output logic gemm_row, output logic alu_row,  // a row leaves the pipeline: for statistics
    output logic done);

  // ---- Fetch and dispatch
  logic fetch_ar, load_ar, fetch_valid, finished, dispatch, is_load, is_compute, is_finish;
  logic [31:0] fetch_addr, load_addr, fetch_beats, load_beats;
  logic [15:0] load_size;
  logic [255:0] head, load_insn, compute_insn, store_insn;
  logic load_full, compute_full, store_full, load_empty, compute_empty, store_empty, load_pop, compute_pop, store_pop;
  logic fetch_r, load_r_ready, owner_full, owner_empty, owner;  // 1: the load unit's request
  tessel_fetch #(.BEAT(BEAT), .BURST(FETCH_BURST), .BUFFER(FETCH_BUFFER)) fetch (
      .clk(clk), .rst(rst), .program_address(program_address), .ar_valid(fetch_ar), .ar_ready(ar_ready && !owner_full),
      .ar_addr(fetch_addr), .ar_beats(fetch_beats), .r_valid(fetch_r), .r_data(r_data), .valid(fetch_valid), .insn(head),
      .pop(dispatch), .finished(finished));
  assign is_load    = head[2:0] == tessel_pkg::OP_LOAD;
  assign is_compute = head[2:0] == tessel_pkg::OP_GEMM || head[2:0] == tessel_pkg::OP_ALU;
  assign is_finish  = head[2:0] == tessel_pkg::OP_FINISH;
  assign dispatch   = fetch_valid && !is_finish && (is_load ? !load_full : is_compute ? !compute_full : !store_full);
  always_ff @(posedge clk)
    if (rst) finished <= 0;
    else if (fetch_valid && is_finish) finished <= 1;
  tessel_queue #(.WIDTH(256), .DEPTH(LOAD_QUEUE)) load_queue (
      .clk(clk), .rst(rst), .push(dispatch && is_load), .in(head), .full(load_full), .pop(load_pop), .out(load_insn),
      .empty(load_empty));
  tessel_queue #(.WIDTH(256), .DEPTH(COMPUTE_QUEUE)) compute_queue (
      .clk(clk), .rst(rst), .push(dispatch && is_compute), .in(head), .full(compute_full), .pop(compute_pop),
      .out(compute_insn), .empty(compute_empty));
  tessel_queue #(.WIDTH(256), .DEPTH(STORE_QUEUE)) store_queue (
      .clk(clk), .rst(rst), .push(dispatch && !is_load && !is_compute), .in(head), .full(store_full), .pop(store_pop),
      .out(store_insn), .empty(store_empty));

  // ---- Read channel: fetch first; data belong to who asked for them
  assign ar_valid = (fetch_ar || load_ar) && !owner_full;
  assign ar_addr  = fetch_ar ? fetch_addr : load_addr;
  assign ar_beats = fetch_ar ? fetch_beats : load_beats;
  assign ar_size  = fetch_ar ? (BEAT < 32 ? 16'(BEAT) : 16'd32) : load_size;
  tessel_queue #(.WIDTH(1), .DEPTH(OUTSTANDING)) owners (
      .clk(clk), .rst(rst), .push(ar_valid && ar_ready), .in(!fetch_ar), .full(owner_full),
      .pop(r_valid && r_ready && r_last), .out(owner), .empty(owner_empty));
  assign r_ready = !owner_empty && (!owner || load_r_ready);
  assign fetch_r = r_valid && !owner_empty && !owner;

  // ---- Tokens
  logic lc_reserve, lc_push, lc_pop, lc_room, lc_available, cl_reserve, cl_push, cl_pop, cl_room, cl_available;
  logic cs_reserve, cs_push, cs_pop, cs_room, cs_available, sc_reserve, sc_push, sc_pop, sc_room, sc_available;
  tessel_tokens #(.DEPTH(TOKENS)) load_to_compute (.clk(clk), .rst(rst), .reserve(lc_reserve), .push(lc_push), .pop(lc_pop),
                                                   .room(lc_room), .available(lc_available));
  tessel_tokens #(.DEPTH(TOKENS)) compute_to_load (.clk(clk), .rst(rst), .reserve(cl_reserve), .push(cl_push), .pop(cl_pop),
                                                   .room(cl_room), .available(cl_available));
  tessel_tokens #(.DEPTH(TOKENS)) compute_to_store (.clk(clk), .rst(rst), .reserve(cs_reserve), .push(cs_push), .pop(cs_pop),
                                                    .room(cs_room), .available(cs_available));
  tessel_tokens #(.DEPTH(TOKENS)) store_to_compute (.clk(clk), .rst(rst), .reserve(sc_reserve), .push(sc_push), .pop(sc_pop),
                                                    .room(sc_room), .available(sc_available));

  // ---- Scratchpads
  localparam INP_CHUNKS = K > BEAT ? K / BEAT : 1, WGT_CHUNKS = K * N > BEAT ? K * N / BEAT : 1;
  localparam UOP_CHUNKS = 8 > BEAT ? 8 / BEAT : 1;
  localparam INP_PART = K * 8 / INP_CHUNKS, WGT_PART = K * N * 8 / WGT_CHUNKS, UOP_PART = 64 / UOP_CHUNKS;
  logic write_inp, write_wgt, write_uop, fill, read_uop, read_operands, read_a, read_b, read_store, write;
  logic [N-1:0] write_acc;
  logic [15:0] load_row, chunk, uop_row, inp_row, wgt_row, a_row, b_row, base_row, store_row, write_row;
  logic [BEAT*8-1:0] data;
  logic [N*32-1:0] acc_data, a, b, base, store_acc, write_data;
  logic [K*8-1:0] inp;
  logic [K*N*8-1:0] wgt;
  logic [63:0] uop;
  tessel_scratchpad #(.WIDTH(K * 8), .ROWS(INP_ROWS), .CHUNKS(INP_CHUNKS)) inp_scratchpad (
      .clk(clk), .write(write_inp), .fill(fill), .write_row(load_row), .chunk(chunk), .data(data[INP_PART-1:0]),
      .read(read_operands), .read_row(inp_row), .out(inp));
  tessel_scratchpad #(.WIDTH(K * N * 8), .ROWS(WGT_TILES), .CHUNKS(WGT_CHUNKS)) wgt_scratchpad (
      .clk(clk), .write(write_wgt), .fill(fill), .write_row(load_row), .chunk(chunk), .data(data[WGT_PART-1:0]),
      .read(read_operands), .read_row(wgt_row), .out(wgt));
  tessel_scratchpad #(.WIDTH(64), .ROWS(UOPS), .CHUNKS(UOP_CHUNKS)) uop_scratchpad (
      .clk(clk), .write(write_uop), .fill(fill), .write_row(load_row), .chunk(chunk), .data(data[UOP_PART-1:0]),
      .read(read_uop), .read_row(uop_row), .out(uop));
  tessel_accumulators #(.N(N), .ROWS(ACC_ROWS)) acc_scratchpad (
      .clk(clk), .load_lanes(write_acc), .load_row(load_row), .load_data(acc_data), .write(write), .write_row(write_row),
      .write_data(write_data), .read_a(read_a), .a_row(a_row), .a(a), .read_b(read_b), .b_row(b_row), .b(b),
      .base_row(base_row), .base(base), .read_store(read_store), .store_row(store_row), .store(store_acc));

  // ---- Units
  logic load_idle, compute_idle, store_idle;
  tessel_load #(.K(K), .N(N), .BEAT(BEAT)) load (
      .clk(clk), .rst(rst), .insn_valid(!load_empty), .insn(load_insn), .insn_pop(load_pop),
      .from_next(cl_available), .pop_next(cl_pop), .room_next(lc_room), .reserve_next(lc_reserve), .push_next(lc_push),
      .ar_valid(load_ar), .ar_ready(ar_ready && !owner_full && !fetch_ar), .ar_addr(load_addr), .ar_beats(load_beats),
      .ar_size(load_size), .r_valid(r_valid && !owner_empty && owner), .r_ready(load_r_ready), .r_data(r_data),
      .write_inp(write_inp), .write_wgt(write_wgt), .write_uop(write_uop), .write_acc(write_acc), .fill(fill),
      .row(load_row), .chunk(chunk), .data(data), .acc_data(acc_data), .idle(load_idle));
  tessel_compute #(.K(K), .N(N), .ALU(ALU)) compute (
      .clk(clk), .rst(rst), .insn_valid(!compute_empty), .insn(compute_insn), .insn_pop(compute_pop),
      .from_previous(lc_available), .pop_previous(lc_pop), .from_next(sc_available), .pop_next(sc_pop),
      .room_previous(cl_room), .reserve_previous(cl_reserve), .push_previous(cl_push),
      .room_next(cs_room), .reserve_next(cs_reserve), .push_next(cs_push),
      .read_uop(read_uop), .uop_row(uop_row), .uop(uop), .read_operands(read_operands), .inp_row(inp_row), .inp(inp),
      .wgt_row(wgt_row), .wgt(wgt), .read_a(read_a), .a_row(a_row), .a(a), .read_b(read_b), .b_row(b_row), .b(b),
      .base_row(base_row), .base(base), .write(write), .write_row(write_row), .write_data(write_data),
      .gemm_row(gemm_row), .alu_row(alu_row), .idle(compute_idle));
  tessel_store #(.N(N), .BEAT(BEAT)) store (
      .clk(clk), .rst(rst), .insn_valid(!store_empty), .insn(store_insn), .insn_pop(store_pop),
      .from_previous(cs_available), .pop_previous(cs_pop), .room_previous(sc_room), .reserve_previous(sc_reserve),
      .push_previous(sc_push), .read(read_store), .row(store_row), .acc(store_acc),
      .w_valid(w_valid), .w_ready(w_ready), .w_addr(w_addr), .w_size(w_size), .w_data(w_data), .idle(store_idle));
  assign done = finished && load_empty && compute_empty && store_empty && load_idle && compute_idle && store_idle;
endmodule
