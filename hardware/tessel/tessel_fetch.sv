// Reads instructions in bursts ahead of their dispatch, until one is finish.
module tessel_fetch #(parameter BEAT = 16, parameter BURST = 4, parameter BUFFER = 16) (
    input  logic clk, input logic rst, input logic [31:0] program_address,
    output logic ar_valid, input logic ar_ready, output logic [31:0] ar_addr, output logic [31:0] ar_beats,
    input  logic r_valid, input logic [BEAT*8-1:0] r_data,
    output logic valid, output logic [255:0] insn, input logic pop, input logic finished);
  localparam SIZE = BEAT < 32 ? BEAT : 32, BEATS = 32 / SIZE, A = $clog2(BUFFER);
  logic [31:0] address;
  logic [A:0] reserved;
  logic empty, full, push;
  assign ar_valid = !finished && {1'b0, reserved} + (A+2)'(BURST) <= (A+2)'(BUFFER);
  assign ar_addr  = address;
  assign ar_beats = BURST * BEATS;
  assign valid    = !empty && !finished;

  logic [255:0] assembled;
  generate if (BEATS == 1) begin : whole
    assign assembled = r_data[255:0];
    assign push      = r_valid;
  end else begin : parts
    logic [$clog2(BEATS)-1:0] beat;
    logic [256-SIZE*8-1:0] earlier;
    assign assembled = {r_data, earlier};
    assign push      = r_valid && beat == $clog2(BEATS)'(BEATS - 1);
    always_ff @(posedge clk) begin
      if (rst) beat <= 0;
      else if (r_valid) beat <= beat + 1'b1;
      if (r_valid) earlier <= assembled[255:SIZE*8];
    end
  end endgenerate

  tessel_queue #(.WIDTH(256), .DEPTH(BUFFER)) buffer (.clk(clk), .rst(rst), .push(push), .in(assembled), .full(full),
                                                      .pop(pop), .out(insn), .empty(empty));
  always_ff @(posedge clk)
    if (rst) begin
      address  <= program_address;
      reserved <= 0;
    end else begin
      if (ar_valid && ar_ready) address <= address + 32 * BURST;
      reserved <= reserved + (ar_valid && ar_ready ? (A+1)'(BURST) : (A+1)'(0)) - {{A{1'b0}}, pop};
    end
endmodule
