// The store unit: reads a row of acc, then writes its beats, the next row behind it without a gap.
module tessel_store #(parameter N = 16, parameter BEAT = 16) (
    input  logic clk, input logic rst,
    input  logic insn_valid, input logic [255:0] insn, output logic insn_pop,
    input  logic from_previous, output logic pop_previous, input logic room_previous, output logic reserve_previous,
    output logic push_previous,
    output logic read, output logic [15:0] row, input logic [N*32-1:0] acc,
    output logic w_valid, input logic w_ready, output logic [31:0] w_addr, output logic [15:0] w_size,
    output logic [BEAT*8-1:0] w_data,
    output logic idle);
  localparam WIDE_SIZE = 4 * N < BEAT ? 4 * N : BEAT, BYTE_SIZE = N < BEAT ? N : BEAT;
  localparam WIDE_BEATS = 4 * N / WIDE_SIZE, BYTE_BEATS = N / BYTE_SIZE;

  // ---- Rows to read
  logic running, ready, issue, line_end, plane_end, last_row, data_valid, data_end;
  logic [15:0] x, y, z, row_y, row_z;
  logic [31:0] at_x, at_y, at_z;
  assign ready = running || ((!insn[3] || from_previous) && (!insn[5] || room_previous));
  assign issue = insn_valid && ready && (!data_valid || data_end);
  assign pop_previous     = issue && !running && insn[3];
  assign reserve_previous = issue && !running && insn[5];
  assign line_end  = x + 16'd1 == insn[95:80];
  assign plane_end = line_end && y + 16'd1 == insn[111:96];
  assign last_row  = plane_end && z + 16'd1 == insn[127:112];
  assign insn_pop  = issue && last_row;
  assign read      = issue;
  assign row       = insn[79:64] + row_z + row_y + x;
  always_ff @(posedge clk)
    if (rst || insn_pop) begin
      running <= 0;
      {x, y, z, row_y, row_z} <= 0;
      {at_x, at_y, at_z} <= 0;
    end else if (issue) begin
      running <= 1;
      x <= line_end ? 16'd0 : x + 16'd1;
      if (line_end) y <= plane_end ? 16'd0 : y + 16'd1;
      if (plane_end) z <= z + 16'd1;
      if (plane_end) begin
        row_z <= row_z + insn[255:240];
        row_y <= 0;
        at_z <= at_z + insn[223:192];
        {at_x, at_y} <= 0;
      end else if (line_end) begin
        row_y <= row_y + insn[239:224];
        at_y <= at_y + insn[191:160];
        at_x <= 0;
      end else at_x <= at_x + insn[159:128];
    end

  // ---- Beats to write
  logic [1:0] element;
  logic pushes;
  logic [15:0] beat;
  logic [N*8-1:0] narrow;
  logic wide;
  assign wide     = element == tessel_pkg::WIDE;
  assign data_end = w_ready && beat + 16'd1 == (wide ? 16'(WIDE_BEATS) : 16'(BYTE_BEATS));
  assign w_valid  = data_valid;
  assign w_size   = wide ? 16'(WIDE_SIZE) : 16'(BYTE_SIZE);
  assign push_previous = data_valid && data_end && pushes;
  assign idle     = !data_valid;
  always_ff @(posedge clk) begin
    if (issue) begin
      w_addr  <= insn[63:32] + at_z + at_y + at_x;
      element <= insn[10:9];
      pushes  <= insn[5] && last_row;
      beat    <= 0;
    end else if (data_valid && w_ready) begin
      w_addr <= w_addr + {16'b0, w_size};
      beat   <= beat + 16'd1;
    end
    if (rst) data_valid <= 0;
    else if (issue) data_valid <= 1;
    else if (data_end) data_valid <= 0;
  end
  genvar n;
  generate for (n = 0; n < N; n = n + 1) begin : lane
    logic signed [31:0] v;
    assign v = acc[n*32 +: 32];
    assign narrow[n*8 +: 8] = element == tessel_pkg::INT8 ? (v < -128 ? 8'h80 : v > 127 ? 8'h7f : v[7:0])
                                                          : (v < 0 ? 8'h00 : v > 255 ? 8'hff : v[7:0]);
  end endgenerate
  logic [BEAT*8-1:0] wide_data, byte_data;
  generate
    if (WIDE_BEATS > 1) assign wide_data = acc[beat[$clog2(WIDE_BEATS)-1:0]*BEAT*8 +: BEAT*8];
    else assign wide_data = (BEAT*8)'(acc);
    if (BYTE_BEATS > 1) assign byte_data = narrow[beat[$clog2(BYTE_BEATS)-1:0]*BEAT*8 +: BEAT*8];
    else assign byte_data = (BEAT*8)'(narrow);
  endgenerate
  assign w_data = wide ? wide_data : byte_data;
endmodule
