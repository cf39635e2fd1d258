// f32 arithmetic, combinational: round to nearest even, subnormal operands and results are 0, one NaN.

// Rounds 24 bits of mantissa with guard and sticky bits, and packs them. `exponent` is biased.
module tessel_pack (
    input logic sign, input logic signed [10:0] exponent, input logic [23:0] mantissa, input logic guard,
    input logic sticky, output logic [31:0] y);
  logic [24:0] rounded;
  logic signed [10:0] e;
  assign rounded = {1'b0, mantissa} + {24'b0, guard && (sticky || mantissa[0])};
  assign e       = exponent + (rounded[24] ? 11'sd1 : 11'sd0);
  always_comb
    if (e >= 11'sd255) y = {sign, 8'hff, 23'b0};
    else if (e <= 11'sd0) y = {sign, 31'b0};
    else y = {sign, e[7:0], rounded[24] ? 23'b0 : rounded[22:0]};
endmodule

module tessel_from_int (input logic [31:0] a, output logic [31:0] y);
  logic [31:0] magnitude, shifted, packed_y;
  logic [4:0] top;
  integer i;
  assign magnitude = a[31] ? -a : a;
  always_comb begin
    top = 0;
    for (i = 0; i < 32; i = i + 1) if (magnitude[i]) top = i[4:0];
  end
  assign shifted = magnitude << (5'd31 - top);
  tessel_pack pack (.sign(a[31]), .exponent(11'sd127 + $signed({6'b0, top})), .mantissa(shifted[31:8]),
                    .guard(shifted[7]), .sticky(|shifted[6:0]), .y(packed_y));
  assign y = a == 0 ? 32'b0 : packed_y;
endmodule

// Half to even, saturating; NaN gives 0.
module tessel_to_int (input logic [31:0] f, output logic [31:0] y);
  logic [63:0] fixed;
  logic [7:0] right;
  logic [31:0] magnitude;
  assign right     = 8'd158 - f[30:23];
  assign fixed     = {1'b1, f[22:0], 40'b0} >> right[5:0];
  assign magnitude = fixed[63:32] + {31'b0, fixed[31] && (fixed[32] || |fixed[30:0])};
  always_comb
    if (f[30:23] == 8'hff && f[22:0] != 0) y = 0;
    else if (f[30:23] >= 8'd158) y = f[31] ? 32'h80000000 : 32'h7fffffff;
    else if (f[30:23] < 8'd126) y = 0;
    else y = f[31] ? -magnitude : magnitude;
endmodule

module tessel_multiply (input logic [31:0] a, input logic [31:0] b, output logic [31:0] y);
  logic sign, a_zero, b_zero, a_big, b_big;  // big: infinity or NaN
  logic [47:0] p;
  logic [31:0] packed_y;
  assign sign   = a[31] ^ b[31];
  assign a_zero = a[30:23] == 0;
  assign b_zero = b[30:23] == 0;
  assign a_big  = a[30:23] == 8'hff;
  assign b_big  = b[30:23] == 8'hff;
  assign p      = {24'b0, 1'b1, a[22:0]} * {24'b0, 1'b1, b[22:0]};
  tessel_pack pack (.sign(sign),
                    .exponent($signed({3'b0, a[30:23]}) + $signed({3'b0, b[30:23]}) - (p[47] ? 11'sd126 : 11'sd127)),
                    .mantissa(p[47] ? p[47:24] : p[46:23]), .guard(p[47] ? p[23] : p[22]),
                    .sticky(p[47] ? |p[22:0] : |p[21:0]), .y(packed_y));
  always_comb
    if ((a_big && (a[22:0] != 0 || b_zero)) || (b_big && (b[22:0] != 0 || a_zero))) y = tessel_pkg::NAN;
    else if (a_big || b_big) y = {sign, 8'hff, 23'b0};
    else if (a_zero || b_zero) y = {sign, 31'b0};
    else y = packed_y;
endmodule

module tessel_divide (input logic [31:0] a, input logic [31:0] b, output logic [31:0] y);
  logic sign, a_zero, b_zero, a_big, b_big;
  logic [26:0] q;
  logic [24:0] rest;  // what is left of the dividend, doubled with each bit of the quotient
  integer i;
  logic [31:0] packed_y;
  assign sign     = a[31] ^ b[31];
  assign a_zero   = a[30:23] == 0;
  assign b_zero   = b[30:23] == 0;
  assign a_big    = a[30:23] == 8'hff;
  assign b_big    = b[30:23] == 8'hff;
  always_comb begin
    rest = {2'b01, a[22:0]};
    for (i = 26; i >= 0; i = i - 1) begin
      q[i] = rest >= {2'b01, b[22:0]};
      rest = (q[i] ? rest - {2'b01, b[22:0]} : rest) << 1;
    end
  end
  tessel_pack pack (.sign(sign),
                    .exponent($signed({3'b0, a[30:23]}) - $signed({3'b0, b[30:23]}) + (q[26] ? 11'sd127 : 11'sd126)),
                    .mantissa(q[26] ? q[26:3] : q[25:2]), .guard(q[26] ? q[2] : q[1]),
                    .sticky((q[26] ? |q[1:0] : q[0]) || rest != 0), .y(packed_y));
  always_comb
    if ((a_big && a[22:0] != 0) || (b_big && b[22:0] != 0) || (a_big && b_big) || (a_zero && b_zero)) y = tessel_pkg::NAN;
    else if (a_big || b_zero) y = {sign, 8'hff, 23'b0};
    else if (a_zero || b_big) y = {sign, 31'b0};
    else y = packed_y;
endmodule

module tessel_add (input logic [31:0] a, input logic [31:0] b, output logic [31:0] y);
  logic swap, a_big, b_big, a_zero, b_zero;
  logic [31:0] major, minor, packed_y;
  logic [7:0] distance;
  logic [26:0] m_minor, aligned;
  logic [27:0] sum, normal;
  logic lost;
  logic [4:0] top;
  integer i;
  assign a_big    = a[30:23] == 8'hff;
  assign b_big    = b[30:23] == 8'hff;
  assign a_zero   = a[30:23] == 0;
  assign b_zero   = b[30:23] == 0;
  assign swap     = b[30:0] > a[30:0];
  assign major    = swap ? b : a;
  assign minor    = swap ? a : b;
  assign distance = major[30:23] - minor[30:23];
  assign m_minor  = {1'b1, minor[22:0], 3'b0};
  assign aligned  = distance > 8'd26 ? 27'b0 : m_minor >> distance[4:0];
  assign lost     = distance > 8'd26 || (aligned << distance[4:0]) != m_minor;
  // What is lost to the right is below the lowest of three bits: it counts as that bit.
  assign sum = a[31] == b[31] ? {1'b0, 1'b1, major[22:0], 3'b0} + {1'b0, aligned[26:1], aligned[0] | lost}
                              : {1'b0, 1'b1, major[22:0], 3'b0} - {1'b0, aligned[26:1], aligned[0] | lost};
  always_comb begin
    top = 0;
    for (i = 0; i < 28; i = i + 1) if (sum[i]) top = i[4:0];
  end
  assign normal = sum << (5'd27 - top);
  tessel_pack pack (.sign(major[31]), .exponent($signed({3'b0, major[30:23]}) + $signed({6'b0, top}) - 11'sd26),
                    .mantissa(normal[27:4]), .guard(normal[3]), .sticky(|normal[2:0]), .y(packed_y));
  always_comb
    if ((a_big && a[22:0] != 0) || (b_big && b[22:0] != 0) || (a_big && b_big && a[31] != b[31])) y = tessel_pkg::NAN;
    else if (a_big || b_big) y = {a_big ? a[31] : b[31], 8'hff, 23'b0};
    else if (a_zero && b_zero) y = {a[31] && b[31], 31'b0};
    else if (a_zero) y = b;
    else if (b_zero) y = a;
    else if (sum == 0) y = 0;
    else y = packed_y;
endmodule
