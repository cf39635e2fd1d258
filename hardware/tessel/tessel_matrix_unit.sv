// sum over k of x[k] * w[k], int8 or uint8 times int8; registered twice. Sums of at most 128 products have 24 bits.
module tessel_dot #(parameter K = 16) (
    input logic clk, input logic unsigned_x, input logic [K*8-1:0] x, input logic [K*8-1:0] w,
    output logic [31:0] sum);
  logic signed [23:0] total, first;
  integer k;
  always_comb begin
    total = 0;
    for (k = 0; k < K; k = k + 1)
      total = total + 24'($signed({!unsigned_x && x[k*8 + 7], x[k*8 +: 8]}) * $signed({w[k*8 + 7], w[k*8 +: 8]}));
  end
  always_ff @(posedge clk) begin
    first <= total;
    sum   <= 32'(first);
  end
endmodule

// sums[n] = sum over k of x[k] * w[n*K + k].
module tessel_matrix_unit #(parameter K = 16, parameter N = 16) (
    input logic clk, input logic unsigned_x, input logic [K*8-1:0] x, input logic [K*N*8-1:0] w,
    output logic [N*32-1:0] sums);
  genvar n;
  generate for (n = 0; n < N; n = n + 1) begin : column
    tessel_dot #(.K(K)) dot (.clk(clk), .unsigned_x(unsigned_x), .x(x), .w(w[n*K*8 +: K*8]), .sum(sums[n*32 +: 32]));
  end endgenerate
endmodule
