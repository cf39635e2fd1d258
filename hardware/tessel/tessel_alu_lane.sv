// One lane of the vector ALU. a and b arrive in stage 2; `base`, the destination's old value, and the result are in
// stage 5. Two conversions and a product or quotient lie in between, a sum after the old value is known.
module tessel_alu_lane (
    input  logic clk,
    input  logic [3:0] op2, input logic [11:0] addend2, input logic [31:0] a2, input logic [31:0] b2,
    input  logic [3:0] op3, input logic [3:0] op4, input logic [11:0] addend4,
    input  logic [3:0] op5, input logic [11:0] addend5, input logic b_is_base5, input logic clip5,
    input  logic [15:0] low5, input logic [15:0] high5,
    input  logic [31:0] base5, output logic [31:0] y5);
  function automatic logic [31:0] extended(input logic [11:0] x);
    extended = {{20{x[11]}}, x};
  endfunction

  // Stage 2: to f32, where the operation takes an integer.
  logic [31:0] integer2, float2, a3, b3, a4, b4, b5;
  assign integer2 = op2 == tessel_pkg::ALU_SCALE ? a2 : a2 + extended(addend2);
  tessel_from_int from_int (.a(integer2), .y(float2));
  always_ff @(posedge clk) begin
    a3 <= op2 == tessel_pkg::ALU_SCALE || op2 == tessel_pkg::ALU_DEQUANTIZE || op2 == tessel_pkg::ALU_DEQUANTIZE_ADD ? float2 : a2;
    b3 <= b2;
  end

  // Stage 3: product, quotient, shift.
  logic [31:0] product3, quotient3, shifted3, t3;
  logic [31:0] mask3, rest3;
  logic up3;
  tessel_multiply multiply (.a(a3), .b(b3), .y(product3));
  tessel_divide divide (.a(a3), .b(b3), .y(quotient3));
  assign mask3    = (32'd1 << b3[4:0]) - 32'd1;
  assign rest3    = a3 & mask3;
  assign shifted3 = $signed(a3) >>> b3[4:0];
  assign up3      = b3[4:0] != 0 && (rest3 > (mask3 >> 1) + 32'd1 || (rest3 == (mask3 >> 1) + 32'd1 && shifted3[0]));
  always_comb
    case (op3)
      tessel_pkg::ALU_MUL, tessel_pkg::ALU_MAC: t3 = a3 * b3;
      tessel_pkg::ALU_SHR: t3 = shifted3 + {31'b0, up3};
      tessel_pkg::ALU_SCALE, tessel_pkg::ALU_DEQUANTIZE, tessel_pkg::ALU_DEQUANTIZE_ADD, tessel_pkg::ALU_FLOAT_MUL,
      tessel_pkg::ALU_ROUND: t3 = product3;
      tessel_pkg::ALU_QUANTIZE: t3 = quotient3;
      default: t3 = a3;
    endcase
  always_ff @(posedge clk) begin
    a4 <= t3;
    b4 <= b3;
  end

  // Stage 4: to an integer.
  logic [31:0] rounded4, a5;
  logic [32:0] sum4;
  tessel_to_int to_int (.f(a4), .y(rounded4));
  assign sum4 = {rounded4[31], rounded4} + {{21{addend4[11]}}, addend4};
  always_ff @(posedge clk) begin
    a5 <= a4;
    if (op4 == tessel_pkg::ALU_SCALE || op4 == tessel_pkg::ALU_ROUND || op4 == tessel_pkg::ALU_QUANTIZE)
      a5 <= sum4[32] == sum4[31] ? sum4[31:0] : sum4[32] ? 32'h80000000 : 32'h7fffffff;
    b5 <= b4;
  end

  // Stage 5: with the old value.
  logic [31:0] second5, float_sum5, r5, low, high;
  assign second5 = b_is_base5 ? base5 : b5;
  tessel_add add (.a(a5), .b(op5 == tessel_pkg::ALU_DEQUANTIZE_ADD ? base5 : second5), .y(float_sum5));
  always_comb
    case (op5)
      tessel_pkg::ALU_ADD: r5 = a5 + second5 + extended(addend5);
      tessel_pkg::ALU_SUB: r5 = a5 - second5 + extended(addend5);
      tessel_pkg::ALU_MUL, tessel_pkg::ALU_SHR: r5 = a5 + extended(addend5);
      tessel_pkg::ALU_MAC: r5 = base5 + a5 + extended(addend5);
      tessel_pkg::ALU_MIN: r5 = ($signed(a5) < $signed(second5) ? a5 : second5) + extended(addend5);
      tessel_pkg::ALU_MAX: r5 = ($signed(a5) > $signed(second5) ? a5 : second5) + extended(addend5);
      tessel_pkg::ALU_DEQUANTIZE_ADD, tessel_pkg::ALU_FLOAT_ADD: r5 = float_sum5;
      default: r5 = a5;
    endcase
  assign low  = {{16{low5[15]}}, low5};
  assign high = {{16{high5[15]}}, high5};
  logic [31:0] raised5;
  assign raised5 = $signed(r5) < $signed(low) ? low : r5;
  assign y5      = !clip5 ? r5 : $signed(raised5) > $signed(high) ? high : raised5;
endmodule
