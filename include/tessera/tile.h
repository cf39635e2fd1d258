// Tile programs: the computation of one kernel instance, as a sequence of values. A value is one element or a tile of a
// fixed shape, of numbers or of pointers. The instances of a grid run in any order; each can query its position.
//
//   tile::Builder b("add");
//   tile::Value x = b.parameter("x", {.dtype = DType::f32, .pointer = true}), ...
//   tile::Value at = TESSERA_TRY(b.binary("+", TESSERA_TRY(b.binary("*", b.program_id(0), 1024)), TESSERA_TRY(b.arange(0, 1024))));
//   ...
//   tile::Program add = TESSERA_TRY(b.finish());
//
// Types and broadcasting are those of the tile language (docs/tile.md). Invalid operands are reported as E0208, E0210
// or E0212.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/dtype.h"
#include "tessera/error.h"

namespace tessera::tile {

struct Type {
    DType dtype = DType::f32;  // of an element; for pointers, of the pointee
    bool pointer = false;
    std::vector<int64_t> shape = {};  // empty: one element
    // For pointers to pointers, whose dtype is i64: the pointee of the inner pointers.
    std::optional<DType> then = {};
    bool operator==(const Type&) const = default;
    std::string to_string() const;  // "f32[64, 32]", "ptr<f32>", "ptr<ptr<f32>>"
};

struct Value {
    int number = -1;  // in its program
    Type type;
    bool valid() const { return number >= 0; }
};
// A value, or a literal, which takes the type of the other operand.
using Operand = std::variant<Value, bool, int64_t, double>;

// The work of one instance at a source line: elements and bytes accessed, and floating-point operations.
struct LineWork {
    int file = 0, line = 0;
    double loads = 0, loaded_bytes = 0, stores = 0, stored_bytes = 0, flops = 0;
    bool unknown_trips = false;  // a loop with an unknown trip count begins here; its body counts once
};

struct ProgramData;  // src/tile/program.h
class Program {
  public:
    explicit Program(std::shared_ptr<const ProgramData> data) : data_(std::move(data)) {}
    const ProgramData& data() const { return *data_; }
    std::string to_string() const;
    // Parses the output of to_string. E0301 and E0302 for invalid text, E0601 for a program that no builder can create.
    static Result<Program> parse(std::string_view text);
    // The work of each line. `numbers`: the value of each parameter that is a known integer. Both branches of an if
    // count, and masks are assumed to be true.
    std::vector<LineWork> work(const std::vector<std::optional<int64_t>>& numbers,
                               const std::array<int64_t, 3>& grid) const;

  private:
    std::shared_ptr<const ProgramData> data_;
};

enum class Reduction : uint8_t { Sum, Min, Max, Xor };

class Builder {
  public:
    explicit Builder(std::string name);
    ~Builder();
    Builder(Builder&&) noexcept;

    void place(int line, int column, int file = 0);  // sets the source location of the following instructions

    Value parameter(std::string name, Type type);  // one element, or a pointer
    Result<Value> constant(const Operand& literal, std::optional<DType> dtype = {});
    Result<Value> full(std::vector<int64_t> shape, const Operand& value, DType dtype);
    Result<Value> arange(int64_t begin, int64_t end);  // i32
    Result<Value> program_id(int axis);
    Result<Value> program_count(int axis);

    // + - * / // % & | ^ << >> min max == != < <= > >= , atan2, pow; / converts integers to f32.
    Result<Value> binary(std::string_view op, const Operand& a, const Operand& b);
    // - ~ not, abs, exp, exp2, log, log2, sin, cos, tanh, sqrt, rsqrt, erf, floor, ceil, ...
    Result<Value> unary(std::string_view op, const Operand& a);
    Result<Value> select(const Operand& condition, const Operand& a, const Operand& b);
    Result<Value> fma(const Operand& a, const Operand& b, const Operand& c);
    Result<Value> cast(const Value& x, DType dtype);
    Result<Value> bitcast(const Value& x, DType dtype);  // to a type of the same width
    // Casts between pointers and integers. A program that uses them, or whose pointers may refer to several arrays,
    // accesses memory by raw addresses and cannot be interpreted.
    Result<Value> address(const Value& pointer);  // i64
    Result<Value> pointer_at(const Value& address, DType dtype, std::optional<DType> then = {});

    Result<Value> broadcast(const Value& x, std::vector<int64_t> shape);
    Result<Value> reshape(const Value& x, std::vector<int64_t> shape);
    Result<Value> expand(const Value& x, int64_t axis);  // inserts a dimension of size 1
    Result<Value> permute(const Value& x, std::vector<int64_t> order);
    Result<Value> join(const Operand& a, const Operand& b);     // along a new last dimension of size 2
    Result<std::pair<Value, Value>> split(const Value& x);      // the inverse of join
    Result<Value> concatenate(const Value& a, const Value& b);  // along the first dimension
    Result<Value> gather(const Value& x, const Value& indices, int64_t axis);
    Result<Value> flip(const Value& x, int64_t axis);

    Result<Value> load(const Value& pointer, const std::optional<Operand>& mask = {},
                       const std::optional<Operand>& other = {});
    Status store(const Value& pointer, const Operand& value, const std::optional<Operand>& mask = {});
    // Updates each element atomically and returns the old values. `how`: "add", "min", "max", "and", "or", "xor",
    // "exchange", or "compare", which exchanges elements that equal `expected`.
    Result<Value> atomic(std::string_view how, const Value& pointer, const Operand& value,
                         const std::optional<Operand>& mask = {}, const std::optional<Operand>& expected = {});
    // `imprecise`: for 8-bit floats, which GPUs accumulate with reduced precision: the number of products along k after
    // which a partial sum is added to an f32 accumulator. 0: no limit.
    // `precision`: for f32 on a GPU: "tf32" (10-bit mantissa), "tf32x3" (three tf32 products for each f32 product), or
    // anything else for f32.
    Result<Value> dot(const Value& a, const Value& b, const std::optional<Value>& add = {}, DType out = DType::f32,
                      int64_t imprecise = 0, std::string_view precision = {});

    Result<Value> reduce(Reduction how, const Value& x, int64_t axis, bool keep = false);
    // Reduction or scan by a user function, which is built between begin_ and end_ from two elements of each value.
    Result<std::vector<Value>> begin_combine(const std::vector<Value>& xs);
    Result<std::vector<Value>> end_reduce(const std::vector<Value>& combined, int64_t axis, bool keep = false);
    Result<std::vector<Value>> end_scan(const std::vector<Value>& combined, int64_t axis, bool reverse = false);

    // Corresponding results of both branches must have the same type.
    Status begin_if(const Operand& condition);
    Status begin_else();
    Result<std::vector<Value>> end_if(const std::vector<Value>& then, const std::vector<Value>& otherwise);
    // Returns the loop variable, then the loop-carried values.
    Result<std::vector<Value>> begin_for(const Operand& begin, const Operand& end, const Operand& step,
                                         const std::vector<Value>& carried);
    Result<std::vector<Value>> end_for(const std::vector<Value>& carried);
    // Returns the loop-carried values. Build the condition before begin_do and the body after it.
    Result<std::vector<Value>> begin_while(const std::vector<Value>& carried);
    Status begin_do(const Operand& condition);
    Result<std::vector<Value>> end_while(const std::vector<Value>& carried);

    // Run-time debugging. print: one line for each element of the values, which must have the same shape. check: the
    // launch fails with E0407 if a condition is false.
    Status print(std::string text, const std::vector<Value>& values, bool hex = false);
    Status check(const Operand& condition, std::string text, const std::optional<Operand>& mask = {});

    Result<Program> finish();

  private:
    Result<Value> condition_of(const Operand& condition, std::string_view what);
    Result<std::vector<Value>> end_loop(const std::vector<Value>& carried, size_t before);

    struct State;
    std::unique_ptr<State> state_;
};

// How a parameter is passed at launch.
struct Argument {
    enum class As : uint8_t {
        Array,     // a pointer to separate memory, with the number of elements
        Shared,    // a pointer into the memory of parameter `of`, with its offset in elements
        Size,      // a nonnegative integer
        Element,   // any other number, by its address
        Anywhere,  // an Array that shares memory with one of another type: memory is accessed by raw addresses
    } as = As::Array;
    int of = -1;
    // On a GPU, for a Size: a number that divides it in every launch. Arrays must be 16-byte aligned there; pass others
    // as Anywhere.
    int64_t multiple = 1;
    bool operator==(const Argument&) const = default;
};

// An ahead-of-time compiled program for C programs that do not use Tessera.
struct AheadOfTime {
    std::string object;  // the contents of an object file
    std::string header;  // declares NAME(grid_x, grid_y, grid_z, parameters...) and NAME_part for a part of the grid
};

// The target of a compilation.
struct Target {
    std::string name = "host";  // or "cuda", "cuda:1"; or an architecture ("sm_90a"), for emitting code only
    int warps = 4;              // on a GPU: warps for each instance
    int stages = 3;             // on a GPU: pipeline stages of loops with products; the prefetch distance is one less
};

// A program compiled for this CPU or for a GPU. The machine code is stored in the user's cache. Concurrent calls are
// serialized.
class Function {
  public:
    // `grid_rank`: the number of grid axes; further axes have extent 1. E0604 for an unsupported program.
    static Result<Function> compile(const Program& program, const std::vector<Argument>& arguments, int grid_rank,
                                    int threads = 0, const Target& target = {});
    // `memory` has the address of each Array and Element, `numbers` the value for each Array, Shared and Size, in the
    // order of the parameters. On a GPU, Arrays are in GPU memory, and the program is enqueued on the driver's stream
    // `stream`.
    Status launch(const std::array<int64_t, 3>& grid, std::span<void* const> memory, std::span<const int64_t> numbers,
                  void* stream = nullptr) const;
    Status launch(const std::array<int64_t, 3>& grid, const std::vector<void*>& memory,
                  const std::vector<int64_t>& numbers, void* stream = nullptr) const {
        return launch(grid, std::span(memory), std::span(numbers), stream);
    }
    // Interprets the program element by element and checks every access: E0406 for out-of-bounds accesses, E0601 for
    // races between instances, with the source location ("file 0, line 7, column 5"). With `threads`, interprets the
    // GPU form: blocks of threads.
    Status interpret(const std::array<int64_t, 3>& grid, const std::vector<void*>& memory,
                     const std::vector<int64_t>& numbers, bool threads = false) const;
    Result<std::string> emit(std::string_view what) const;  // "tile", "kernel", "llvm", "asm", "blocks", "ptx",
                                                            // or "layouts": an SVG picture of how tiles are
                                                            // distributed over the threads of a GPU block
    // For any of list_targets(). E0604 if the program prints or asserts, or its arrays share memory.
    Result<AheadOfTime> ahead_of_time(std::string_view target = "host") const;

    struct State;
    explicit Function(std::shared_ptr<State> state) : state_(std::move(state)) {}

  private:
    std::shared_ptr<State> state_;
};

}  // namespace tessera::tile
