// The load unit: one part sends read requests, up to four instructions ahead of the other part, which writes rows in order
// as their data arrive. Padding takes a cycle for each row.
module tessel_load #(parameter K = 16, parameter N = 16, parameter BEAT = 16) (
    input  logic clk, input logic rst,
    input  logic insn_valid, input logic [255:0] insn, output logic insn_pop,
    input  logic from_next, output logic pop_next, input logic room_next, output logic reserve_next, output logic push_next,
    output logic ar_valid, input logic ar_ready, output logic [31:0] ar_addr, output logic [31:0] ar_beats,
    output logic [15:0] ar_size,
    input  logic r_valid, output logic r_ready, input logic [BEAT*8-1:0] r_data,
    output logic write_inp, output logic write_wgt, output logic write_uop, output logic [N-1:0] write_acc,
    output logic fill, output logic [15:0] row, output logic [15:0] chunk, output logic [BEAT*8-1:0] data,
    output logic [N*32-1:0] acc_data,
    output logic idle);
  localparam WGT = K * N, ACC = 4 * N, UOP = 8;

  function automatic logic [15:0] beats_of(input logic [1:0] to, input logic [1:0] element);
    case (to)
      tessel_pkg::TO_INP: beats_of = 16'(K < BEAT ? 1 : K / BEAT);
      tessel_pkg::TO_WGT: beats_of = 16'(WGT < BEAT ? 1 : WGT / BEAT);
      tessel_pkg::TO_UOP: beats_of = 16'(UOP < BEAT ? 1 : UOP / BEAT);
      default: beats_of = element == tessel_pkg::WIDE ? 16'(ACC < BEAT ? 1 : ACC / BEAT) : 16'(N < BEAT ? 1 : N / BEAT);
    endcase
  endfunction
  function automatic logic [31:0] bytes_of(input logic [1:0] to, input logic [1:0] element);
    case (to)
      tessel_pkg::TO_INP: bytes_of = K;
      tessel_pkg::TO_WGT: bytes_of = WGT;
      tessel_pkg::TO_UOP: bytes_of = UOP;
      default: bytes_of = element == tessel_pkg::WIDE ? ACC : N;
    endcase
  endfunction

  // ---- Requests
  logic active, pending_full, pending_empty, start, line_end, plane_end, last_request, contiguous;
  logic [255:0] rq;
  logic [15:0] rx, ry, rz;
  logic [31:0] at_x, at_y, at_z, row_bytes;
  assign start = !active && insn_valid && !pending_full && (!insn[4] || from_next) && (!insn[6] || room_next);
  assign insn_pop     = start;
  assign pop_next     = start && insn[4];
  assign reserve_next = start && insn[6];
  assign row_bytes    = bytes_of(rq[8:7], rq[10:9]);
  assign contiguous   = rq[159:128] == row_bytes;
  assign line_end     = contiguous || rx + 16'd1 == rq[95:80];
  assign plane_end    = line_end && ry + 16'd1 == rq[111:96];
  assign last_request = plane_end && rz + 16'd1 == rq[127:112];
  assign ar_valid     = active;
  assign ar_addr      = at_x;
  assign ar_beats     = {16'b0, beats_of(rq[8:7], rq[10:9])} * (contiguous ? {16'b0, rq[95:80]} : 32'd1);
  assign ar_size      = row_bytes < BEAT ? row_bytes[15:0] : 16'(BEAT);
  always_ff @(posedge clk) begin
    if (start) begin
      rq <= insn;
      {rx, ry, rz} <= 0;
      at_x <= insn[63:32];
      at_y <= insn[63:32];
      at_z <= insn[63:32];
    end else if (ar_valid && ar_ready) begin
      rx <= line_end ? 16'd0 : rx + 16'd1;
      if (line_end) ry <= plane_end ? 16'd0 : ry + 16'd1;
      if (plane_end) rz <= rz + 16'd1;
      if (plane_end) begin
        at_z <= at_z + rq[223:192];
        at_y <= at_z + rq[223:192];
        at_x <= at_z + rq[223:192];
      end else if (line_end) begin
        at_y <= at_y + rq[191:160];
        at_x <= at_y + rq[191:160];
      end else at_x <= at_x + rq[159:128];
    end
    if (rst) active <= 0;
    else if (start) active <= insn[95:80] != 0 && insn[111:96] != 0;
    else if (ar_valid && ar_ready && last_request) active <= 0;
  end

  // ---- Rows
  logic [255:0] w;
  logic has_data, step, row_end, width_end, height_end, last_row;
  logic [15:0] wx, wy, wz, rows, beat, beats, right_of, below;
  tessel_queue #(.WIDTH(256), .DEPTH(4)) pending (.clk(clk), .rst(rst), .push(start), .in(insn), .full(pending_full),
                                                  .pop(step && last_row), .out(w), .empty(pending_empty));
  assign right_of   = {8'b0, w[247:240]} + w[95:80];
  assign below      = {8'b0, w[231:224]} + w[111:96];
  assign has_data     = wx >= {8'b0, w[247:240]} && wx < right_of && wy >= {8'b0, w[231:224]} && wy < below;
  assign r_ready    = !pending_empty && has_data;
  assign step       = !pending_empty && (!has_data || r_valid);
  assign beats      = beats_of(w[8:7], w[10:9]);
  assign row_end    = !has_data || beat + 16'd1 == beats;
  assign width_end  = row_end && wx + 16'd1 == right_of + {8'b0, w[255:248]};
  assign height_end = width_end && wy + 16'd1 == below + {8'b0, w[239:232]};
  assign last_row   = height_end && wz + 16'd1 == w[127:112];
  assign push_next  = step && last_row && w[6];
  assign idle       = !active && pending_empty;
  always_ff @(posedge clk)
    if (rst || (step && last_row)) {wx, wy, wz, rows, beat} <= 0;
    else if (step) begin
      beat <= row_end ? 16'd0 : beat + 16'd1;
      if (row_end) rows <= rows + 16'd1;
      if (row_end) wx <= width_end ? 16'd0 : wx + 16'd1;
      if (width_end) wy <= height_end ? 16'd0 : wy + 16'd1;
      if (height_end) wz <= wz + 16'd1;
    end

  assign write_inp = step && w[8:7] == tessel_pkg::TO_INP;
  assign write_wgt = step && w[8:7] == tessel_pkg::TO_WGT;
  assign write_uop = step && w[8:7] == tessel_pkg::TO_UOP;
  assign row       = w[79:64] + rows;
  assign chunk     = beat;
  assign fill      = !has_data;
  assign data      = has_data ? r_data : w[8:7] == tessel_pkg::TO_UOP ? 0 : {BEAT{w[23:16]}};

  // Lane n of acc: from an int32, or from a byte that is extended.
  localparam WIDE_LANES = ACC < BEAT ? N : BEAT / 4, BYTE_LANES = N < BEAT ? N : BEAT;
  logic to_acc, wide;
  logic [31:0] pad;
  assign to_acc = step && w[8:7] == tessel_pkg::TO_ACC;
  assign wide   = w[10:9] == tessel_pkg::WIDE;
  assign pad    = {{24{w[10:9] != tessel_pkg::UINT8 && w[23]}}, w[23:16]};
  genvar n;
  generate for (n = 0; n < N; n = n + 1) begin : lane
    logic [7:0] value;
    assign value = r_data[(n % BYTE_LANES)*8 +: 8];
    assign write_acc[n] = to_acc && (!has_data || beat == (wide ? 16'(n / WIDE_LANES) : 16'(n / BYTE_LANES)));
    assign acc_data[n*32 +: 32] = !has_data ? pad
                                : wide ? r_data[(n % WIDE_LANES)*32 +: 32]
                                : {{24{w[10:9] == tessel_pkg::INT8 && value[7]}}, value};
  end endgenerate
endmodule
