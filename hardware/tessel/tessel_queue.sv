// First-in first-out queue with a combinational head. DEPTH is a power of two.
module tessel_queue #(parameter WIDTH = 8, parameter DEPTH = 8) (
    input  logic clk, input logic rst,
    input  logic push, input logic [WIDTH-1:0] in, output logic full,
    input  logic pop, output logic [WIDTH-1:0] out, output logic empty);
  localparam A = $clog2(DEPTH);
  logic [WIDTH-1:0] entries [0:DEPTH-1];
  logic [A:0] head, tail;
  assign empty = head == tail;
  assign full  = head[A] != tail[A] && head[A-1:0] == tail[A-1:0];
  assign out   = entries[head[A-1:0]];
  always_ff @(posedge clk) begin
    if (push) entries[tail[A-1:0]] <= in;
    if (rst) begin
      head <= 0;
      tail <= 0;
    end else begin
      if (push) tail <= tail + 1'b1;
      if (pop) head <= head + 1'b1;
    end
  end
endmodule

// A token queue: tokens carry no data. A starting instruction reserves room for the token that it adds when it ends.
module tessel_tokens #(parameter DEPTH = 64) (
    input logic clk, input logic rst, input logic reserve, input logic push, input logic pop,
    output logic room, output logic available);
  localparam A = $clog2(DEPTH);
  logic [A:0] occupied, ready;
  assign room      = !occupied[A];
  assign available = ready != 0;
  always_ff @(posedge clk)
    if (rst) begin
      occupied <= 0;
      ready    <= 0;
    end else begin
      occupied <= occupied + {{A{1'b0}}, reserve} - {{A{1'b0}}, pop};
      ready    <= ready + {{A{1'b0}}, push} - {{A{1'b0}}, pop};
    end
endmodule

// A scratchpad: rows of CHUNKS parts, one port that writes one part or fills a whole row, one synchronous read port.
module tessel_scratchpad #(parameter WIDTH = 128, parameter ROWS = 1024, parameter CHUNKS = 1) (
    input  logic clk,
    input  logic write, input logic fill, input logic [15:0] write_row, input logic [15:0] chunk,
    input  logic [WIDTH/CHUNKS-1:0] data,
    input  logic read, input logic [15:0] read_row, output logic [WIDTH-1:0] out);
  localparam A = $clog2(ROWS), W = WIDTH / CHUNKS;
  logic [WIDTH-1:0] rows [0:ROWS-1];
  integer c;
  always_ff @(posedge clk) begin
    for (c = 0; c < CHUNKS; c = c + 1)
      if (write && (fill || chunk == c[15:0])) rows[write_row[A-1:0]][c*W +: W] <= data;
    if (read) out <= rows[read_row[A-1:0]];
  end
endmodule

// The accumulators: written by lanes from the load unit and whole from the compute unit, read by four ports.
module tessel_accumulators #(parameter N = 16, parameter ROWS = 1024) (
    input  logic clk,
    input  logic [N-1:0] load_lanes, input logic [15:0] load_row, input logic [N*32-1:0] load_data,
    input  logic write, input logic [15:0] write_row, input logic [N*32-1:0] write_data,
    input  logic read_a, input logic [15:0] a_row, output logic [N*32-1:0] a,
    input  logic read_b, input logic [15:0] b_row, output logic [N*32-1:0] b,
    input  logic [15:0] base_row, output logic [N*32-1:0] base,
    input  logic read_store, input logic [15:0] store_row, output logic [N*32-1:0] store);
  localparam A = $clog2(ROWS);
  logic [N*32-1:0] rows [0:ROWS-1];
  integer n;
  always_ff @(posedge clk) begin
    for (n = 0; n < N; n = n + 1)
      if (load_lanes[n]) rows[load_row[A-1:0]][n*32 +: 32] <= load_data[n*32 +: 32];
    if (write) rows[write_row[A-1:0]] <= write_data;
    if (read_a) a <= rows[a_row[A-1:0]];
    if (read_b) b <= rows[b_row[A-1:0]];
    base <= rows[base_row[A-1:0]];
    if (read_store) store <= rows[store_row[A-1:0]];
  end
endmodule
