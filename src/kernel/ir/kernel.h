// The kernel IR: loop nests over buffers, for CPUs and GPUs.
// A buffer is a dense row-major array with a number (slot). The first `params` buffers are parameters; the others exist
// inside an Alloc, in the memory of their scope. Expressions are scalar Exprs without Reduce: variables are loop variables
// or the kernel's symbols (sizes given at launch); a Load has the buffer's slot and one index per dimension. Loop
// variables are unique in a kernel and range over [0, extent).
//
// Statements execute in order. Iterations of Parallel and Bound loops may run in any order or concurrently. A Vector
// loop may run in SIMD lanes (no iteration reads what another writes, except that all may combine into one element),
// and an Unrolled loop as copies of its body. Every loop may be executed as a Serial one, as the interpreter does.
// Parallel loops are at the top level (inside sequences only): each is one launch over its range, followed by a
// barrier.
//
// Bound loops are thread blocks and threads. Block loops (block.x, .y, .z) are outermost and perfectly nested: together
// they are one launch. Blocks run in any order and never synchronize: no block accesses what another writes. Thread
// loops (thread.x, .y, .z) are inside a block or at the top level (one block), and perfectly nested. Statements of a
// block outside of its thread loops execute once, before or after all of its threads. The threads of a block run
// concurrently and synchronize at the call `barrier`, after which each sees the others' writes. All threads must reach
// the same barriers: a barrier may be in a branch or loop only if its condition or extent is uniform over the block.
// Between two barriers, no thread accesses what another writes. Shared memory belongs to a block and is allocated
// outside of its thread loops. Local memory and registers belong to a thread and are allocated inside of them.
//
// A load may be out of bounds only in the branch not taken of a Select or If, which is not evaluated.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "expr/expr.h"
#include "tessera/tensor.h"

namespace tessera {

// Indices of Register buffers must be constant once Unrolled and Vector loops are expanded.
enum class Scope : uint8_t { Global, Shared, Local, Register };
std::string_view scope_name(Scope s);

struct Buffer {
    std::string name;            // unique in its kernel
    DType dtype = DType::f32;
    std::vector<Expr> shape;     // empty: one element
    Scope scope = Scope::Global;
    std::vector<Expr> strides = {};  // in elements; empty: dense row-major
};

enum class LoopKind : uint8_t { Serial, Parallel, Vector, Unrolled, Bound };
std::string_view loop_kind_name(LoopKind k);  // "for", "parallel", ...

class StmtNode;
using Stmt = std::shared_ptr<const StmtNode>;  // null: an empty statement

// One element, or (in a Call) the first of a tile.
struct Access {
    int buffer = 0;
    std::vector<Expr> indices;
};

struct For {
    Expr var;     // Var; has bounds if the extent is constant
    Expr extent;
    LoopKind kind = LoopKind::Serial;
    std::string axis = {};                       // Bound: "block.x", "thread.y"
    std::map<std::string, int64_t> notes = {};   // hints: "unroll", "prefetch", "pipeline", "early", "ahead", "brings"; "line", "column": in the source
    Stmt body;
};
struct Seq {
    std::vector<Stmt> stmts;
};
struct If {
    Expr condition;
    Stmt then, otherwise;
};
struct Store {
    Access to;
    Expr value;                       // of the buffer's dtype
    std::optional<ReduceOp> combine;  // to = combine(to, value)
};
struct Alloc {
    int buffer;  // its initial contents are undefined
    Stmt body;
};
// An intrinsic by name (prefetch, barrier, dot products, matrix tiles): the elements or tiles it writes and reads.
struct Call {
    std::string name;
    std::vector<Access> writes, reads;
    std::vector<Expr> args;
};

class StmtNode {
   public:
    std::variant<For, Seq, If, Store, Alloc, Call> node;
    template <typename T>
    const T* as() const {
        return std::get_if<T>(&node);
    }
};

// Building. `seq` drops nulls and splices sequences; `for_loop` of extent 1 is still a loop.
Stmt make_stmt(std::variant<For, Seq, If, Store, Alloc, Call> node);
Stmt seq(std::vector<Stmt> stmts);
Stmt for_loop(For loop);
Stmt if_then(Expr condition, Stmt then, Stmt otherwise = nullptr);
Stmt store(int buffer, std::vector<Expr> indices, Expr value, std::optional<ReduceOp> combine = {});
Stmt alloc(int buffer, Stmt body);

struct Kernel {
    std::string name = "kernel";
    std::vector<std::string> symbols;  // sizes given at launch, in order
    std::vector<Buffer> buffers;       // by slot
    size_t params = 0;                 // number of leading buffers that are parameters; all are Global
    Stmt body;
};

// Traversal. `mutate` rebuilds bottom-up: f receives each statement with its children already rebuilt.
Stmt mutate(const Stmt& s, const std::function<Stmt(const Stmt&)>& f);
void visit(const Stmt& s, const std::function<void(const Stmt&)>& f);            // pre-order
Stmt map_exprs(const Stmt& s, const std::function<Expr(const Expr&)>& f);        // every expression but loop variables
void visit_exprs(const Stmt& s, const std::function<void(const Expr&)>& f);      // the same expressions, pre-order
// A binding of a loop's own variable to a variable renames it; other bindings of it do not apply in that loop.
Stmt substitute(const Stmt& s, const Bindings& bindings);

// Text. `parse_kernels` reads what `to_string` prints; E0301 and E0302 with line and column.
std::string to_string(const Kernel& kernel);
Result<std::vector<Kernel>> parse_kernels(std::string_view text, std::string_view source = "text");

// Checks the invariants listed in verify.cpp. E0601 names the first violation, which includes possible races between
// blocks, threads or parallel iterations. `verify_statements` does not check for races.
Status verify(const Kernel& kernel);
Status verify_statements(const Kernel& kernel);
// For tile programs: checks for races in shared memory only. Races in global memory are the responsibility of the
// program.
Status verify_tiles(const Kernel& kernel);

// Interprets a kernel element by element and checks every access (E0406). `buffers` has a tensor for each parameter,
// with its dtype and number of elements; results are written into them. Floats are computed in f32 (f64 in f64), with
// every operation rounded. The threads of a block are interleaved: each runs to its next barrier.
struct InterpretOptions {
    // Runs iterations of Parallel, Bound and Vector loops in reverse, which reveals dependences on their order.
    bool backwards = false;
    // Refuse: rejects kernels that verify rejects. Find: runs them and reports the first race that happens (E0601 names
    // the element and both threads or blocks; iterations of Parallel loops count as blocks). Ignore: only runs them.
    enum class Races : uint8_t { Refuse, Find, Ignore } races = Races::Refuse;
    Stmt* fault = nullptr;  // if not null, set to the statement of a rejected access
};
Status interpret(const Kernel& kernel, std::vector<Tensor>& buffers, const SymbolValues& symbols = {},
                 const InterpretOptions& options = {});

}  // namespace tessera
