// Encodings of the instruction set (docs/accelerator.md).
package tessel_pkg;
  localparam logic [2:0] OP_LOAD = 1, OP_STORE = 2, OP_GEMM = 3, OP_ALU = 4, OP_FINISH = 5;
  localparam logic [1:0] TO_INP = 0, TO_WGT = 1, TO_ACC = 2, TO_UOP = 3;
  localparam logic [1:0] WIDE = 0, INT8 = 1, UINT8 = 2;
  localparam logic [1:0] INIT_ALWAYS = 1, INIT_FIRST_UOP = 2, INIT_FIRST_OUTER = 3;
  localparam logic [1:0] B_ROW = 0, B_IMMEDIATE = 1, B_DESTINATION = 2;
  localparam logic [3:0] ALU_ADD = 0, ALU_SUB = 1, ALU_MUL = 2, ALU_MAC = 3, ALU_MIN = 4, ALU_MAX = 5, ALU_SHR = 6,
                         ALU_SCALE = 7, ALU_DEQUANTIZE = 8, ALU_DEQUANTIZE_ADD = 9, ALU_FLOAT_ADD = 10,
                         ALU_FLOAT_MUL = 11, ALU_ROUND = 12, ALU_QUANTIZE = 13;
  localparam logic [31:0] NAN = 32'h7fc00000;
endpackage
