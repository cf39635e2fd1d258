// Kernels written out as loops, for ops that are no map or reduction over a rectangle: scatters, running sums,
// selections by rank. One function for each op, all through one writer; what it gives is a kernel like any other:
// verified, interpreted, compiled. A node with such a kernel is a step of its own: its inputs and outputs lie whole, in
// ONNX's order.
#pragma once

#include <bit>

#include "base/decision.h"
#include "graph/graph.h"
#include "kernel/ir/kernel.h"

namespace tessera {

struct WrittenKernel {
    enum class Role : uint8_t { Input, Output, Scratch };
    struct Param {
        Role role;
        size_t index = 0;  // of the node's inputs or outputs
    };
    // A tensor of the kernel's own that results are read from.
    struct Kept {
        DType dtype;
        std::vector<Expr> shape;  // over the graph's symbols
    };
    // Output `output`, by elements of the node's inputs and, numbered after them, of what is kept.
    struct Result {
        size_t output;
        std::function<Expr(const Indices&)> body;
    };
    Kernel kernel;
    std::vector<Param> params;  // what each parameter of the kernel is
    std::vector<Expr> symbols;  // what each of its symbols is, over the graph's
    // Where the data decide how large a result is: the kernel keeps what it finds, in the first of these how much that
    // is, as one i64, and in the others what; results are made of that when their size is known.
    std::vector<Kept> kept = {};
    std::vector<Result> results = {};
};

// A buffer as a writer reads and writes it. Floats narrower than f32 are read as f32; what is written is cast.
struct Elements {
    int slot = 0;
    DType dtype = DType::f32;  // what they are; see narrow_floats.h for how they are stored

    Expr at(std::vector<Expr> indices) const;
    DType read_as() const;
    Stmt set(std::vector<Expr> indices, const Expr& value) const;
    Stmt combine(ReduceOp op, std::vector<Expr> indices, const Expr& value) const;  // in the buffer's own type
    Stmt add(std::vector<Expr> indices, const Expr& value) const { return combine(ReduceOp::Sum, indices, value); }
    // The same, atomically.
    Stmt update(ReduceOp op, std::vector<Expr> indices, const Expr& value) const;
};

// What a kernel is written for.
struct WrittenFor {
    bool blocks = false;  // a machine that runs blocks of threads
    bool strict = false;  // results are added up in the order of the op's definition
    int64_t busy = 2112;  // so many blocks keep the machine so
};

class KernelWriter {
  public:
    explicit KernelWriter(const Node& node, WrittenFor how = {});

    const OpView& op() const { return view_; }
    const WrittenFor& how() const { return how_; }
    // Inputs and outputs as buffers; under another shape of as many elements where one is given, or as another type of
    // as many bytes.
    Elements in(size_t i);
    Elements in(size_t i, std::vector<Expr> shape);
    Elements in(size_t i, DType as, std::vector<Expr> shape);
    Elements out(size_t i);
    Elements out(size_t i, std::vector<Expr> shape);
    Elements out(size_t i, DType as, std::vector<Expr> shape);
    Elements scratch(DType dtype, std::vector<Expr> shape);  // for the whole kernel
    bool wants(size_t i) const;                              // whether this output is used
    // What the kernel finds: kept(DType::i64, {1}) first, for how much. A body of a result loads by these numbers.
    Elements kept(DType dtype, std::vector<Expr> shape);
    int kept_number(size_t i) const { return int(node_.inputs().size() + i); }
    void result(size_t output, std::function<Expr(const Indices&)> body);  // if the output is used
    // Memory of one iteration: `body` with the buffer around it. No shape: one element.
    Stmt local(DType dtype, std::vector<Expr> shape, const std::function<Stmt(const Elements&)>& body);

    using Body = std::function<Stmt(const Expr& i)>;
    Stmt loop(const Expr& extent, const Body& body, LoopKind kind = LoopKind::Serial);
    Stmt parallel(const Expr& extent, const Body& body) { return loop(extent, body, LoopKind::Parallel); }
    // Rounds that write different elements, in any order: lanes at a time. Inside a parallel loop, or as one.
    Stmt lanes(const Expr& extent, const Body& body);
    Stmt everywhere(const Expr& extent, const Body& body);
    // Where how().blocks: one launch, whose blocks are numbered by (x, y), and in a block a round for each of its
    // threads. Threads meet after it. What `shared` makes is the block's.
    using BlockBody = std::function<Stmt(const Expr& x, const Expr& y)>;
    Stmt blocks(const Expr& along_x, const Expr& along_y, const BlockBody& body);
    Stmt threads(int64_t count, const Body& body);
    Stmt shared(DType dtype, std::vector<Expr> shape, const std::function<Stmt(const Elements&)>& body);

    Stmt refuse(std::string reason);  // this use of the op has no kernel
    const Decision& can_write() const { return can_write_; }
    WrittenKernel finish(Stmt body);

  private:
    Elements param(WrittenKernel::Role role, size_t index, DType dtype, std::vector<Expr> shape);
    Stmt owned(Scope scope, DType dtype, std::vector<Expr> shape, const std::function<Stmt(const Elements&)>& body);
    const Node& node_;
    OpView view_;
    WrittenFor how_;
    WrittenKernel made_;
    std::vector<Buffer> locals_;
    int next_ = 0;
    Decision can_write_ = yes();
};

inline int64_t ceil_pow2(int64_t x) { return int64_t(std::bit_ceil(uint64_t(x))); }

// The product of sizes [from, to) of a shape.
Expr elements_between(const Shape& shape, int64_t from, int64_t to);

struct KernelWriting {
    std::string_view op;
    Stmt (*write)(KernelWriter&);
    std::vector<size_t> checked = {};  // inputs whose contents the op's check looks at
    // The dimension of each output, -1 for none, that is as large as what the kernel finds: see WrittenKernel::kept.
    std::vector<int64_t> (*found)(const OpView&) = nullptr;
};

// How the op is written out; null: it is not.
const KernelWriting* kernel_writing(const OpDef& op);

// One list for each file.
std::vector<KernelWriting> scatter_kernels();
std::vector<KernelWriting> running_kernels();
std::vector<KernelWriting> selection_kernels();
std::vector<KernelWriting> region_kernels();
std::vector<KernelWriting> matrix_kernels();
std::vector<KernelWriting> bit_kernels();
std::vector<KernelWriting> found_kernels();
std::vector<KernelWriting> suppression_kernels();
std::vector<KernelWriting> tree_kernels();

}  // namespace tessera
