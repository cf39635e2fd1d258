// sums[n] = sum over k of x[k] * w[n*K + k], int8 or uint8 times int8, modulo 2^32; registered twice.
module tessel_matrix_unit #(parameter K = 16, parameter N = 16) (
    input logic clk, input logic unsigned_x, input logic [K*8-1:0] x, input logic [K*N*8-1:0] w,
    output logic [N*32-1:0] sums);
  genvar n;
  generate for (n = 0; n < N; n = n + 1) begin : column
    logic signed [31:0] sum, first;
    integer k;
    always_comb begin
      sum = 0;
      for (k = 0; k < K; k = k + 1)
        sum = sum + 32'($signed({!unsigned_x && x[k*8 + 7], x[k*8 +: 8]}) * $signed({w[(n*K+k)*8 + 7], w[(n*K+k)*8 +: 8]}));
    end
    always_ff @(posedge clk) begin
      first <= sum;
      sums[n*32 +: 32] <= first;
    end
  end endgenerate
endmodule
