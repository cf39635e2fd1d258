// Tile programs: what one instance of a kernel does, as a sequence of values. A value is one element or a tile of a
// fixed shape, of numbers or of pointers. Many instances run, in any order; each knows its place in a grid.
//
//   tile::Builder b("add");
//   tile::Value x = b.parameter("x", {.dtype = DType::f32, .pointer = true}), ...
//   tile::Value at = TRY(b.binary("+", TRY(b.binary("*", b.program_id(0), 1024)), TRY(b.arange(0, 1024))));
//   ...
//   tile::Program add = TRY(b.finish());
//
// Types and broadcasting are those of the tile language (docs/tile.md). What is wrong comes back as E0208, E0210 or
// E0212.
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
    DType dtype = DType::f32;  // of an element; of what a pointer points to
    bool pointer = false;
    std::vector<int64_t> shape = {};  // none: one element
    // Of a pointer to pointers, which is one to i64: what those point to.
    std::optional<DType> then = {};
    bool operator==(const Type&) const = default;
    std::string to_string() const;  // "f32[64, 32]", "ptr<f32>", "ptr<ptr<f32>>"
};

struct Value {
    int number = -1;  // in its program
    Type type;
    bool valid() const { return number >= 0; }
};
// A value, or a number of the source, which takes the type of what it meets.
using Operand = std::variant<Value, bool, int64_t, double>;

// What one instance does at a line of the source: elements, bytes, and arithmetic of floats.
struct LineWork {
    int file = 0, line = 0;
    double loads = 0, loaded_bytes = 0, stores = 0, stored_bytes = 0, flops = 0;
    bool unknown_trips = false;  // of a loop that begins here: what is in it counts once
};

struct ProgramData;  // src/tile/program.h
class Program {
  public:
    explicit Program(std::shared_ptr<const ProgramData> data) : data_(std::move(data)) {}
    const ProgramData& data() const { return *data_; }
    std::string to_string() const;
    // What to_string gives, read back. E0301, E0302: no such text. E0601: no program that a builder could have made.
    static Result<Program> parse(std::string_view text);
    // By lines. `numbers`: of each parameter, where it is a whole number that is known. Both branches of an if count,
    // and masks are taken to hold.
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

    void place(int line, int column, int file = 0);  // of what follows, in the user's sources

    Value parameter(std::string name, Type type);  // one element, or a pointer
    Result<Value> constant(const Operand& literal, std::optional<DType> dtype = {});
    Result<Value> full(std::vector<int64_t> shape, const Operand& value, DType dtype);
    Result<Value> arange(int64_t begin, int64_t end);  // i32
    Result<Value> program_id(int axis);
    Result<Value> program_count(int axis);

    // + - * / // % & | ^ << >> min max == != < <= > >= , atan2, pow; / of integers is that of f32.
    Result<Value> binary(std::string_view op, const Operand& a, const Operand& b);
    // - ~ not, abs, exp, exp2, log, log2, sin, cos, tanh, sqrt, rsqrt, erf, floor, ceil, ...
    Result<Value> unary(std::string_view op, const Operand& a);
    Result<Value> select(const Operand& condition, const Operand& a, const Operand& b);
    Result<Value> fma(const Operand& a, const Operand& b, const Operand& c);
    Result<Value> cast(const Value& x, DType dtype);
    Result<Value> bitcast(const Value& x, DType dtype);  // the same bits, of a type of as many
    // A pointer as a number, and back. A program with them, or with pointers that may point into one array or another,
    // reaches all memory by addresses: it is not interpreted.
    Result<Value> address(const Value& pointer);  // i64
    Result<Value> pointer_at(const Value& address, DType dtype, std::optional<DType> then = {});

    Result<Value> broadcast(const Value& x, std::vector<int64_t> shape);
    Result<Value> reshape(const Value& x, std::vector<int64_t> shape);
    Result<Value> expand(const Value& x, int64_t axis);  // a dimension of one element
    Result<Value> permute(const Value& x, std::vector<int64_t> order);
    Result<Value> join(const Operand& a, const Operand& b);     // along a new last dimension of two
    Result<std::pair<Value, Value>> split(const Value& x);      // and back
    Result<Value> concatenate(const Value& a, const Value& b);  // along the first dimension
    Result<Value> gather(const Value& x, const Value& indices, int64_t axis);
    Result<Value> flip(const Value& x, int64_t axis);

    Result<Value> load(const Value& pointer, const std::optional<Operand>& mask = {},
                       const std::optional<Operand>& other = {});
    Status store(const Value& pointer, const Operand& value, const std::optional<Operand>& mask = {});
    // Changes elements one at a time, whoever else does; gives what they were. "add", "min", "max", "and", "or", "xor",
    // "exchange"; or "compare", which exchanges where an element is `expected`.
    Result<Value> atomic(std::string_view how, const Value& pointer, const Operand& value,
                         const std::optional<Operand>& mask = {}, const std::optional<Operand>& expected = {});
    // `imprecise`: of floats of 8 bits, whose products a GPU adds up with few digits: so many of them along k at most,
    // before they are added up in f32. 0: as many as there are.
    // `precision`: of f32, what a GPU makes of it: "tf32" multiplies numbers of 19 bits, "tf32x3" three of those for each
    // pair, anything else f32.
    Result<Value> dot(const Value& a, const Value& b, const std::optional<Value>& add = {}, DType out = DType::f32,
                      int64_t imprecise = 0, std::string_view precision = {});

    Result<Value> reduce(Reduction how, const Value& x, int64_t axis, bool keep = false);
    // By a function of the user: of two elements of each, written between begin_ and end_.
    Result<std::vector<Value>> begin_combine(const std::vector<Value>& xs);
    Result<std::vector<Value>> end_reduce(const std::vector<Value>& combined, int64_t axis, bool keep = false);
    Result<std::vector<Value>> end_scan(const std::vector<Value>& combined, int64_t axis, bool reverse = false);

    // Results of both branches have one type each.
    Status begin_if(const Operand& condition);
    Status begin_else();
    Result<std::vector<Value>> end_if(const std::vector<Value>& then, const std::vector<Value>& otherwise);
    // The variable first, then what is carried from one iteration to the next.
    Result<std::vector<Value>> begin_for(const Operand& begin, const Operand& end, const Operand& step,
                                         const std::vector<Value>& carried);
    Result<std::vector<Value>> end_for(const std::vector<Value>& carried);
    // What is carried; the condition is written first, then what is done as long as it holds.
    Result<std::vector<Value>> begin_while(const std::vector<Value>& carried);
    Status begin_do(const Operand& condition);
    Result<std::vector<Value>> end_while(const std::vector<Value>& carried);

    // While the program runs: a line for each element of the values, which have one shape; and an error of the launch
    // (E0407) where a condition does not hold.
    Status print(std::string text, const std::vector<Value>& values, bool hex = false);
    Status check(const Operand& condition, std::string text, const std::optional<Operand>& mask = {});

    Result<Program> finish();

  private:
    Result<Value> condition_of(const Operand& condition, std::string_view what);
    Result<std::vector<Value>> end_loop(const std::vector<Value>& carried, size_t before);

    struct State;
    std::unique_ptr<State> state_;
};

// How a parameter is given at launch.
struct Argument {
    enum class As : uint8_t {
        Array,     // a pointer to memory of its own; with it comes how many elements are there
        Shared,    // a pointer into the memory of parameter `of`; with it comes how many elements in
        Size,      // an integer that is not negative
        Element,   // any other number, by its address
        Anywhere,  // an Array that shares memory with one of another type: the program reaches memory by addresses
    } as = As::Array;
    int of = -1;
    // On a GPU: of a Size, a number that divides it whenever the program is launched. Arrays begin at multiples of 16
    // bytes there; others are given as Anywhere.
    int64_t multiple = 1;
    bool operator==(const Argument&) const = default;
};

// For programs of C that do without Tessera.
struct AheadOfTime {
    std::string object;  // an object file
    std::string header;  // how it is launched: NAME(grid_x, grid_y, grid_z, parameters...), or in parts
};

// Where a program runs.
struct Target {
    std::string name = "host";  // or "cuda", "cuda:1", or a GPU by its architecture ("sm_90a"), for code to read
    int warps = 4;              // of 32 threads, for each instance on a GPU
    int stages = 3;             // of loops with products there: tiles are brought one iteration less before
};

// A program as machine code for this processor, or for a GPU, kept in the user's cache. Calls from many threads wait
// for each other.
class Function {
  public:
    // `grid_rank`: of axes from there on there is one instance. E0604: what no kernel can do.
    static Result<Function> compile(const Program& program, const std::vector<Argument>& arguments, int grid_rank,
                                    int threads = 0, const Target& target = {});
    // `memory`: of each Array and Element; `numbers`: of each Array, Shared and Size; in the order of the parameters.
    // On a GPU, memory of Arrays is the GPU's, and `stream` one of its driver's, on which the program runs some time
    // later.
    Status launch(const std::array<int64_t, 3>& grid, std::span<void* const> memory, std::span<const int64_t> numbers,
                  void* stream = nullptr) const;
    Status launch(const std::array<int64_t, 3>& grid, const std::vector<void*>& memory,
                  const std::vector<int64_t>& numbers, void* stream = nullptr) const {
        return launch(grid, std::span(memory), std::span(numbers), stream);
    }
    // The same, element by element, every access checked: E0406 outside of an array, E0601 where instances race; the
    // error says at which place of the source ("file 0, line 7, column 5"). With `threads`, as blocks of threads of a
    // GPU, each for itself.
    Status interpret(const std::array<int64_t, 3>& grid, const std::vector<void*>& memory,
                     const std::vector<int64_t>& numbers, bool threads = false) const;
    Result<std::string> emit(std::string_view what) const;  // "tile", "kernel", "llvm", "asm", "blocks", "ptx",
                                                            // or "layouts": a picture (SVG) of which thread of a GPU
                                                            // has which elements of the tiles
    // For a target that list_targets gives. E0604: it prints, asserts, or its arrays share memory.
    Result<AheadOfTime> ahead_of_time(std::string_view target = "host") const;

    struct State;
    explicit Function(std::shared_ptr<State> state) : state_(std::move(state)) {}

  private:
    std::shared_ptr<State> state_;
};

}  // namespace tessera::tile
