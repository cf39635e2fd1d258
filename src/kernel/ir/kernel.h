// A kernel: loop nests over buffers, how one launch computes its outputs. The same IR serves a CPU and a GPU.
//
// A buffer is a dense row-major array of elements, named by its number (slot). The first `params` buffers come from
// outside; the others live where an Alloc says, in the memory that their scope names. An expression is an Expr (scalar, no
// Reduce in it): its variables are loop variables or the kernel's symbols (sizes, given at launch), its Load has the
// buffer's slot and one index per dimension. Loop variables are unique in a kernel and run over [0, extent).
//
// Statements happen in order. Only loops of kind Parallel and Bound promise that their iterations may run in any order
// or at once; a Vector loop may be carried out in lanes (no iteration reads what another writes, except that all may
// combine into one element), an Unrolled one as copies. All mean the same as Serial, which is what the interpreter does.
// Parallel loops stand at the top (inside nothing but sequences): each is one launch over its range, with a barrier after it.
//
// Bound loops are blocks and threads. Outermost stand loops over blocks (block.x, .y, .z), directly in one another: one
// launch. Blocks run in any order and never meet: what one writes, no other touches. In a block, or alone as one block,
// stand loops over threads (thread.x, .y, .z), directly in one another. What is outside of them happens once in a block,
// before or after all of its threads. Threads of a block run at once and meet at the call `barrier`: none goes on before
// all are there, then each sees what the others wrote. So all threads come to the same barriers: one stands only in
// branches and loops whose condition or extent is the same for all threads of a block. Between two barriers, no thread
// touches what another writes. Shared memory is the block's: allocated in its loops, outside those of threads. Local
// memory and registers are one thread's, allocated inside its loops.
//
// A load is only out of bounds inside the branch not taken of a Select or If, which is not evaluated.
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

// Register buffers are only indexed by what is constant once Unrolled and Vector loops are expanded.
enum class Scope : uint8_t { Global, Shared, Local, Register };
std::string_view scope_name(Scope s);

struct Buffer {
    std::string name;            // unique in its kernel
    DType dtype = DType::f32;
    std::vector<Expr> shape;     // none: one element
    Scope scope = Scope::Global;
    std::vector<Expr> strides = {};  // in elements; empty: dense row-major
};

enum class LoopKind : uint8_t { Serial, Parallel, Vector, Unrolled, Bound };
std::string_view loop_kind_name(LoopKind k);  // "for", "parallel", ...

class StmtNode;
using Stmt = std::shared_ptr<const StmtNode>;  // null: nothing to do

// One element, or (in a Call) the first of a tile.
struct Access {
    int buffer = 0;
    std::vector<Expr> indices;
};

struct For {
    Expr var;     // Var; its bounds are known where the extent is constant
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
    int buffer;  // its contents are undefined at first
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
    std::vector<std::string> symbols;  // sizes that come from outside, in the order of the call
    std::vector<Buffer> buffers;       // by slot
    size_t params = 0;                 // how many of them, from the first, come from outside; all Global
    Stmt body;
};

// Traversal. `mutate` rebuilds bottom-up: f gets each statement with its children already rebuilt.
Stmt mutate(const Stmt& s, const std::function<Stmt(const Stmt&)>& f);
void visit(const Stmt& s, const std::function<void(const Stmt&)>& f);            // outside in
Stmt map_exprs(const Stmt& s, const std::function<Expr(const Expr&)>& f);        // every whole expression but loops' variables
void visit_exprs(const Stmt& s, const std::function<void(const Expr&)>& f);      // the same ones, outside in
// A binding of a loop's own variable to another variable renames both; to anything else, it does not reach into that loop.
Stmt substitute(const Stmt& s, const Bindings& bindings);

// Text. `parse_kernels` reads what `to_string` prints; E0301 and E0302 with line and column.
std::string to_string(const Kernel& kernel);
Result<std::vector<Kernel>> parse_kernels(std::string_view text, std::string_view source = "text");

// The invariants above, and more, listed in verify.cpp. E0601 names the first that does not hold; also where blocks,
// threads or parallel iterations may touch one element. `verify_statements` leaves those races out.
Status verify(const Kernel& kernel);
Status verify_statements(const Kernel& kernel);
// Of a tile program: whether its blocks and threads race for global memory is its own word; those of shared memory are
// looked for.
Status verify_tiles(const Kernel& kernel);

// The second oracle: runs a kernel as it is written, one element at a time, every access checked (E0406). `buffers` has a
// tensor for each parameter, of its dtype and exactly its number of elements; results are written into them. Arithmetic
// of floats is in f32 (f64 in f64), each operation rounded. Threads of a block take turns: each runs to its next barrier.
struct InterpretOptions {
    // Iterations of Parallel, Bound and Vector loops come from the last to the first: shows what depends on their order.
    bool backwards = false;
    // Refuse kernels in which blocks or threads may race, as verify does; or run them, and find the first race that
    // happens (E0601 names the element and who; iterations of Parallel loops count as blocks); or just run them.
    enum class Races : uint8_t { Refuse, Find, Ignore } races = Races::Refuse;
    Stmt* fault = nullptr;  // where it is given: set to the statement of an access that is refused
};
Status interpret(const Kernel& kernel, std::vector<Tensor>& buffers, const SymbolValues& symbols = {},
                 const InterpretOptions& options = {});

}  // namespace tessera
