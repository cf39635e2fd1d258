// The compute unit: executes gemm and alu, a row a cycle.
//   stage 0  issue: loop counters, read of the micro-op       stage 3, 4  sums of products; product, conversion
//   stage 1  row numbers, reads of inp and wgt, or a and b    stage 4     read of the row that is accumulated into
//   stage 2  operands arrive                                  stage 5     accumulation, write
// Accumulation into the row of the iteration before is forwarded. An alu row whose a or b is still in the pipeline waits
// in stage 1.
module tessel_compute #(parameter K = 16, parameter N = 16, parameter ALU = 1) (
    input  logic clk, input logic rst,
    input  logic insn_valid, input logic [255:0] insn, output logic insn_pop,
    input  logic from_previous, output logic pop_previous, input logic from_next, output logic pop_next,
    input  logic room_previous, output logic reserve_previous, output logic push_previous,
    input  logic room_next, output logic reserve_next, output logic push_next,
    output logic read_uop, output logic [15:0] uop_row, input logic [63:0] uop,
    output logic read_operands, output logic [15:0] inp_row, input logic [K*8-1:0] inp,
    output logic [15:0] wgt_row, input logic [K*N*8-1:0] wgt,
    output logic read_a, output logic [15:0] a_row, input logic [N*32-1:0] a,
    output logic read_b, output logic [15:0] b_row, input logic [N*32-1:0] b,
    output logic [15:0] base_row, input logic [N*32-1:0] base,
    output logic write, output logic [15:0] write_row, output logic [N*32-1:0] write_data,
    output logic gemm_row, output logic alu_row, output logic idle);

  // ---- Stage 0
  logic running, issue, stall, last_uop, last_inner, last;
  logic [15:0] u, j, i;
  logic [47:0] outer, inner;  // offsets of the three operands: i * outer stride, and j * inner stride added
  logic is_gemm0;
  logic [47:0] outer_stride, inner_stride;
  assign is_gemm0 = insn[2:0] == tessel_pkg::OP_GEMM;
  assign issue = insn_valid && !stall &&
                 (running || ((!insn[3] || from_previous) && (!insn[4] || from_next) &&
                              (!insn[5] || room_previous) && (!insn[6] || room_next)));
  assign pop_previous     = issue && !running && insn[3];
  assign pop_next         = issue && !running && insn[4];
  assign reserve_previous = issue && !running && insn[5];
  assign reserve_next     = issue && !running && insn[6];
  assign last_uop   = u + 16'd1 == insn[63:48];
  assign last_inner = last_uop && j + 16'd1 == insn[95:80];
  assign last       = last_inner && i + 16'd1 == insn[79:64];
  assign insn_pop   = issue && last;
  assign read_uop   = issue;
  assign uop_row    = insn[47:32] + u;
  assign outer_stride = {is_gemm0 ? insn[223:208] : 16'd0, insn[175:160], insn[127:112]};
  assign inner_stride = {is_gemm0 ? insn[239:224] : 16'd0, insn[191:176], insn[143:128]};
  function automatic logic [47:0] sum3(input logic [47:0] p, input logic [47:0] q);
    sum3 = {p[47:32] + q[47:32], p[31:16] + q[31:16], p[15:0] + q[15:0]};
  endfunction
  always_ff @(posedge clk)
    if (rst || insn_pop) begin
      running <= 0;
      {u, j, i} <= 0;
      {outer, inner} <= 0;
    end else if (issue) begin
      running <= 1;
      u <= last_uop ? 16'd0 : u + 16'd1;
      if (last_uop) j <= last_inner ? 16'd0 : j + 16'd1;
      if (last_inner) i <= i + 16'd1;
      if (last_inner) begin
        outer <= sum3(outer, outer_stride);
        inner <= sum3(outer, outer_stride);
      end else if (last_uop) inner <= sum3(inner, inner_stride);
    end

  // ---- Stage 1
  logic v1, v2, v3, v4, v5, last1, last2, last3, last4, last5, starts1, starts2, starts3, starts4, starts5;
  logic [255:0] insn1, insn2, insn3, insn4, insn5;
  logic [47:0] rows1;
  logic [15:0] dst1, dst2, dst3, dst4, dst5, second1;
  logic alu1, busy_a, busy_b;
  always_ff @(posedge clk) begin
    if (rst) v1 <= 0;
    else if (!stall) v1 <= issue;
    if (issue) begin
      insn1   <= insn;
      last1   <= last;
      rows1   <= sum3(inner, {insn[207:192], insn[159:144], insn[111:96]});
      starts1 <= insn[8:7] == tessel_pkg::INIT_ALWAYS || (insn[8:7] == tessel_pkg::INIT_FIRST_UOP && u == 0) ||
                 (insn[8:7] == tessel_pkg::INIT_FIRST_OUTER && i == 0);
    end
  end
  assign alu1    = insn1[2:0] == tessel_pkg::OP_ALU;
  assign dst1    = rows1[15:0] + uop[15:0];
  assign second1 = rows1[31:16] + uop[31:16];
  assign inp_row = second1;
  assign a_row   = second1;
  assign wgt_row = rows1[47:32] + uop[47:32];
  assign b_row   = wgt_row;
  assign busy_a  = (v2 && dst2 == a_row) || (v3 && dst3 == a_row) || (v4 && dst4 == a_row) || (v5 && dst5 == a_row);
  assign busy_b  = (v2 && dst2 == b_row) || (v3 && dst3 == b_row) || (v4 && dst4 == b_row) || (v5 && dst5 == b_row);
  assign stall   = v1 && alu1 && (busy_a || (insn1[8:7] == tessel_pkg::B_ROW && busy_b));
  assign read_operands = v1 && !alu1;
  assign read_a  = v1 && alu1;
  assign read_b  = v1 && alu1;

  // ---- Stages 2 to 5
  always_ff @(posedge clk) begin
    insn2 <= insn1;
    insn3 <= insn2;
    insn4 <= insn3;
    insn5 <= insn4;
    {dst2, dst3, dst4, dst5} <= {dst1, dst2, dst3, dst4};
    {last2, last3, last4, last5} <= {last1, last2, last3, last4};
    {starts2, starts3, starts4, starts5} <= {starts1, starts2, starts3, starts4};
    if (rst) {v2, v3, v4, v5} <= 0;
    else {v2, v3, v4, v5} <= {v1 && !stall, v2, v3, v4};
  end

  // The matrix unit: operands in stage 2, sums in stage 4, held for stage 5.
  logic [N*32-1:0] sums4, sums5, alu5;
  tessel_matrix_unit #(.K(K), .N(N)) matrix_unit (.clk(clk), .unsigned_x(insn2[10]), .x(inp), .w(wgt), .sums(sums4));

  // What is accumulated into: the old row, or the bias, unless the iteration before writes it just now.
  logic from_bias4, forward5, alu5_valid;
  logic [N*32-1:0] base5, last_result, result5;
  assign from_bias4 = insn4[2:0] == tessel_pkg::OP_GEMM && starts4 && insn4[9];
  assign base_row   = from_bias4 ? insn4[31:16] : dst4;
  assign base5      = forward5 ? last_result : base;
  assign alu5_valid = insn5[2:0] == tessel_pkg::OP_ALU;
  always_ff @(posedge clk) begin
    sums5       <= sums4;
    forward5    <= v5 && dst5 == base_row;
    last_result <= result5;
  end

  genvar n;
  generate for (n = 0; n < N; n = n + 1) begin : lane
    if (ALU != 0) begin : with_alu
      tessel_alu_lane alu (
          .clk(clk), .op2(insn2[19:16]), .addend2(insn2[31:20]), .a2(a[n*32 +: 32]),
          .b2(insn2[8:7] == tessel_pkg::B_IMMEDIATE ? insn2[223:192] : b[n*32 +: 32]),
          .op3(insn3[19:16]), .op4(insn4[19:16]), .addend4(insn4[31:20]),
          .op5(insn5[19:16]), .addend5(insn5[31:20]), .b_is_base5(insn5[8:7] == tessel_pkg::B_DESTINATION),
          .clip5(insn5[9]), .low5(insn5[239:224]), .high5(insn5[255:240]),
          .base5(base5[n*32 +: 32]), .y5(alu5[n*32 +: 32]));
    end else begin : without_alu
      assign alu5[n*32 +: 32] = 0;
    end
    assign result5[n*32 +: 32] = alu5_valid ? alu5[n*32 +: 32]
        : sums5[n*32 +: 32] + (starts5 && !insn5[9] ? 32'd0 : base5[n*32 +: 32]);
  end endgenerate
  assign write         = v5;
  assign write_row     = dst5;
  assign write_data    = result5;
  assign gemm_row      = v5 && !alu5_valid;
  assign alu_row       = v5 && alu5_valid;
  assign push_previous = v5 && last5 && insn5[5];
  assign push_next     = v5 && last5 && insn5[6];
  assign idle          = !(v1 || v2 || v3 || v4 || v5);
endmodule
