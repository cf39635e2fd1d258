// Emits one launch of a kernel as an LLVM function. A value is a scalar where it is the same in every lane of the
// Vector loop being emitted, and otherwise a vector with one element per lane. Loads and stores under a mask touch no
// memory of lanes that are off.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <unordered_map>

#include "kernel/ir/intrinsic.h"
#include "kernel/ir/races.h"
#include "kernel/ir/tile_copy.h"
#include "llvm/compile_kernels.h"
#include "llvm/intrinsics/intrinsic_code.h"
#include "llvm/intrinsics/tile_code.h"
#include "llvm/targets/target.h"
#include "llvm/targets/target_code.h"

namespace tessera::codegen {

// How a launch whose tiles are copied ahead uses shared memory: offsets in bytes. See emit_specialized_warps.cpp.
struct RolesPlan {
    const For* ahead = nullptr;          // the loop whose tiles are copied ahead
    int64_t stages = 0;                  // tiles of each kind at once
    std::map<int, int64_t> ring;         // where the first of them is, by tile
    std::map<int, int64_t> apart;        // how far the next is, by tile
    int consumers = 2;                   // groups of threads that multiply
    std::map<int, int64_t> own;          // other buffers, by buffer: those of the first group of threads
    int64_t own_bytes = 0;               // how much further those of the next are
    int64_t barriers = 0;                // where these are
    std::map<const Call*, size_t> maps;  // of the launch's shape
    int64_t together = 1;                // blocks that share the steps of one, and add their sums up
    bool pairs = false;  // neighbours along x have what both read copied once: see emit_thread_block_clusters.cpp
    std::set<const Call*> halved = {};  // copies of that
    int64_t received = 0;               // where the first has the others' sums
};

constexpr unsigned kSharedMemory = 3;    // its address space
constexpr uint32_t kGroupThreads = 128;  // four warps
// The barriers of the ring: each place has one of the first two kinds.
enum RingBarriers : int64_t { kFull, kEmpty, kTurn };

// The same for cooperative warpgroups, which share the tiles of a block. See emit_team.cpp.
struct TeamPlan {
    struct Ring {
        int64_t offset = 0, bytes = 0, stages = 0;  // of the first tile, of each, and how many
        int64_t barriers = 0;                       // where those are that say what has come, then what is free
    };
    std::map<int, Ring> rings;           // by tile
    std::map<int, int64_t> stored;       // where tiles are from which results are copied
    std::map<const Call*, size_t> maps;  // of the launch's shape
};

// One parallel loop of a kernel, or what stands between them. On a target with blocks, also each nest of Bound loops.
struct SharedPlace {
    int64_t offset = 0, bytes = 0;
};
// A loop whose tiles are brought some iterations ahead, each into one of some places. See emit_ahead.cpp.
struct AheadPlan {
    int64_t ahead = 0, places = 0;
    std::map<int, int64_t> tiles;  // and bytes of one place
    std::set<int> written;         // other buffers that the loop writes
    bool goes_on = false;          // products of one iteration end in the next
};
struct LaunchPlan {
    Stmt stmt;
    const For* parallel = nullptr;   // stmt's loop, where it is a parallel one
    const For* bound = nullptr;      // or one over blocks or threads
    std::map<int, Expr> in_scratch;  // offsets in bytes of the buffers that live there
    Expr scratch_bytes = 0;
    LaunchShape shape = {};  // where there are blocks
    std::optional<RolesPlan> roles = {};
    std::optional<TeamPlan> team = {};
    std::map<int, SharedPlace> shared = {};  // of buffers, in the memory that comes with the launch
    std::map<const For*, AheadPlan> ahead = {};
    std::set<const Call*> wide = {};  // products by instructions of four warps that threads begin
    int blocks_at_once = 1;           // of a multiprocessor, that registers are to be kept for
    std::set<int> panels = {};        // tiles that those read: see Slot::panel
};
// Gives buffers in shared memory their places, where there is much of it.
Status plan_shared(const Kernel& kernel, const Machine& machine, LaunchPlan& plan);
Result<std::vector<LaunchPlan>> plan_launches(const Kernel& kernel, const Machine& machine);

// An access to memory that is known not to overlap with other memory.
template <typename T>
T* tag(T* access, llvm::MDNode* scope, llvm::MDNode* noalias) {
    if (scope) access->setMetadata(llvm::LLVMContext::MD_alias_scope, scope);
    if (noalias && noalias->getNumOperands()) access->setMetadata(llvm::LLVMContext::MD_noalias, noalias);
    return access;
}

// A buffer in shared memory that has a place for each thread, which it alone uses.
bool is_threads_own(const Kernel& kernel, const Alloc& a);
std::string_view matrix_type_name(DType dtype);  // as instructions have it
// Whether an atomic update is one that locks are made of.
inline bool orders_memory(const Call& call) { return call.name == "atomic_exchange" || call.name == "atomic_compare"; }
std::set<int> threads_own_buffers(const Kernel& kernel, const Stmt& s);

class Emitter {
  public:
    Emitter(const Kernel& kernel, const Target& target, const CodegenOptions& options, llvm::Module& module);
    Status emit(const LaunchPlan& plan, const std::string& symbol);

  private:
    // What a variable stands for: value + offset, plus the lane's number.
    struct Binding {
        Value* value = nullptr;
        int64_t offset = 0;
        bool lane = false;
        int depth = 0;                     // of the loop
        std::optional<int64_t> most = {};  // value is in [0, most]
    };
    struct Slot {
        Value* base = nullptr;
        DType dtype = DType::f32;
        std::vector<Expr> strides;
        std::vector<Expr> shape;
        llvm::MDNode *scope = nullptr, *noalias = nullptr;
        int per_lane = 0;  // allocated inside a Vector loop: so many copies, one per lane, interleaved
        int64_t own = 0;   // elements, where it lies on the stack or, better, in registers
        // Above 0: a tile [rows, columns] lies in panels of so many columns, pieces of 16 bytes exchanged.
        int64_t panel = 0;
    };
    // The sum of terms and a constant, plus `lane` times the lane's number, plus a vector where it is not so regular.
    struct Linear {
        struct Term {
            Value* value;
            int64_t factor;
            int depth;
            Bounds bounds = {};    // of the value
            int64_t multiple = 1;  // the value is one of this
        };
        std::vector<Term> terms;
        // By how much it is more in the first lane, and in each lane than in the one before it.
        struct Even {
            Value *first, *step;
        };
        int64_t constant = 0, lane = 0;
        Value* irregular = nullptr;
        std::optional<Even> even = {};  // what `irregular` is, where that is known
        bool wraps = false;             // depends on run-time values
        bool uniform() const { return lane == 0 && !irregular; }
        bool is_constant() const { return terms.empty() && uniform(); }
    };
    // A store of a Vector loop that combines all lanes into one element: they are combined once, after the loop.
    struct Accumulator {
        const Store* store;
        Value* memory;  // a vector
    };
    // A load at a regular place, in all lanes. Its value holds until the buffer is written, or control flow splits or
    // meets.
    struct LoadKey {
        int slot, lanes;
        int64_t constant, lane;
        std::vector<std::pair<Value*, int64_t>> terms;
        auto operator<=>(const LoadKey&) const = default;
    };
    using Loads = std::map<LoadKey, Value*>;
    // A loop that is being emitted, and the pointers that move along with its counter: one for all accesses whose
    // places differ by constants.
    struct OpenLoop {
        struct Pointer {
            Value* start;
            llvm::PHINode* phi;
            int64_t factor;
            llvm::Type* element;
            size_t number;  // in the order they were made
        };
        llvm::BasicBlock *before, *block;
        llvm::PHINode* counter;
        int64_t step;
        std::map<std::pair<Value*, std::vector<std::pair<Value*, int64_t>>>, Pointer> pointers;
        bool innermost = true;
        llvm::BasicBlock* after = nullptr;
    };
    friend class MemoScope;
    friend class FreshMemo;
    // What an expression was emitted as. It is kept: another one could come to lie where it was.
    struct Emitted {
        Expr kept;
        Value* value;
    };
    using Memo = std::vector<std::unordered_map<const ExprNode*, Emitted>>;

    // emit_kernel.cpp
    void open_function(const std::string& symbol);
    void describe_slots();
    void bind_buffers();
    void describe_aliases();
    void fail(Error error) {
        if (status_.ok()) status_ = std::move(error);
    }

    // emit_blocks.cpp
    Status emit_blocks(const LaunchPlan& plan, const std::string& symbol);
    void open_kernel(const LaunchPlan& plan, const std::string& symbol);
    void emit_block_loop(const For& loop, const std::function<void()>& body);
    void emit_block(const Stmt& s);  // what a block does, all of its threads being here
    void emit_block_items(const std::vector<Stmt>& all);
    void emit_threads(const For& first);
    void emit_where(Value* condition, const std::function<void()>& body);
    void meet();  // the threads of a block
    Value* place_of(const std::string& axis);
    Value* is_first_thread();                           // of the block
    Value* divided(const Expr& e, Value* a, Value* b);  // in 32 bits, where both fit; null where they do not
    Value* shared_memory(int buffer);
    Value* threads_memory(int buffer);

    // emit_specialized_warps.cpp
    struct Roles {
        Value* base;                                                           // of shared memory
        Value *warp, *group;                                                   // of the thread
        llvm::AllocaInst *stage = nullptr, *phase = nullptr, *turn = nullptr;  // where in the ring it is
        llvm::AllocaInst* fetched = nullptr;                                   // whether its first block is
        llvm::BasicBlock* left = nullptr;                                      // where a block is left to another
        int stored = -1;                                                       // the tile that was stored last
        struct Ring {
            llvm::AllocaInst *stage = nullptr, *phase = nullptr;
        };
        std::map<int, Ring> rings = {};  // of a team, by tile: where in it the thread is
        std::vector<int> begun = {};     // sums of products that go on, those begun first before others
    };
    void find_group();
    Value* warp_in_group() const;
    void meet_in_group();
    Value* shared_in_group(int buffer);
    void emit_roles(const BoundNest& nest);
    void open_barriers();
    void emit_tiles(const BoundNest& nest, Value* first, Value* every, uint32_t strip,
                    const std::function<void()>& body);
    void emit_producer(const BoundNest& nest);
    void emit_consumer(const BoundNest& nest);
    void emit_fetched(const Stmt& s);
    void emit_fetched_loop(const For& loop);
    void emit_fetch(const Call& call, Value* stage);
    // Whether the roles wait for launches before this one, each where it needs them.
    bool waits_in_roles(const LaunchPlan& plan) const;
    void wait_for_launches();
    void emit_consumed(const For& loop);
    void emit_tile_call(const Call& call);
    void leave_stored(const Stmt& s);
    Value* ring_slot(int64_t kind, Value* stage);
    void advance(Value* by);
    void wait_for(Value* barrier, Value* phase);
    void arrive_at(Value* barrier, Value* condition);
    // emit_thread_block_clusters.cpp
    Value* own_half(const TileCopy& copy);            // the first of the rows that the block copies
    void free_stage(Value* stage, Value* condition);  // of the ring, for all who copy to it
    void leave_pair();
    Value* rank();  // of the block, among those that run together
    void meet_together();
    std::pair<Value*, Value*> own_steps(const For& loop);  // the first, and how many
    void gather_sums(int buffer);
    std::vector<Value*> tile_coordinates(const TileCopy& copy, const Access& first, int64_t panel);
    // emit_wgmma.cpp
    Value* assembly(const std::string& text, const std::string& constraints, const std::vector<Value*>& arguments,
                    llvm::Type* result = nullptr);
    void emit_wgmma(const Call& call, Value* stage);
    void settle_sums(int buffer, int others = 0);  // waits for all matrix instructions but those of so many groups
    struct WideProduct {
        int sums = -1;  // from element `first` on
        int64_t first = 0, columns = 0;
        DType dtype = DType::f16, by = DType::f16;  // of the operands
        bool fresh = false;                         // the sums are not read
        bool a_across = false, b_across = false;    // operands that do not lie along what is added up
    };
    const char* sum_constraint(int buffer) const;  // of the registers that hold them
    void add_wide_product(const WideProduct& product, const std::vector<Value*>& operands);
    Value* tile_descriptor(const Access& tile, bool along_k);

    // emit_team.cpp
    void emit_team(const BoundNest& nest);
    void emit_team_tiles(const BoundNest& nest, const std::function<void()>& body);
    void emit_team_copies(const Stmt& s);
    void emit_team_copy(const Call& call);
    void emit_team_call(const Call& call);
    void emit_team_product(const Call& call, const Intrinsic& known);
    void emit_quad(const Call& call);
    void emit_team_store(const Call& call);
    void wait_for_stored(const Stmt& s);
    Value* shared_in_team(int buffer);
    Value* team_slot(int tile, bool empty, Value* stage);
    Value* team_stage(int tile);
    Value* team_descriptor(int tile, int64_t next_panel);
    void wait_in_team(int tile, bool empty);
    void advance_in_team(int tile);

    // emit_steps.cpp
    struct Touched {
        std::set<int> reads, writes;  // buffers
        void add(const Touched& more) {
            reads.insert(more.reads.begin(), more.reads.end());
            writes.insert(more.writes.begin(), more.writes.end());
        }
    };
    Touched touched_by(const Stmt& s) const;
    void add_reads(const Expr& e, Touched& to) const;
    bool may_meet_in_memory(int a, int b) const;
    void meet_before(const Touched& now, bool wide = false);
    void emit_swap(const Call& call);
    Value* launched_memory();
    Touched open_;               // since threads last met
    std::set<int> own_buffers_;  // of which each thread has its own

    // emit_ahead.cpp
    struct Ring {
        const AheadPlan* plan = nullptr;
        std::map<int, Value*> bases = {};  // where this iteration's tiles are
        std::function<void()> bring = {};  // what begins copies, as soon as products have begun
    };
    struct Begun {
        int sums = -1,
            operand = -1;  // what must not be touched until it has ended; the operand where it is threads' own
    };
    void emit_ahead(const For& loop, const AheadPlan& plan);
    void emit_ahead(const For& loop, const AheadPlan& plan, Value* count);
    Ring ring_at(const AheadPlan& plan, Value* place);
    void bring_tiles(const For& loop, const AheadPlan& plan, Value* iteration, Value* place);
    bool copy_vector(const Store& s);  // false: it is no plain copy
    void emit_wide(const Call& call);
    Value* panel_descriptor(int buffer, bool along_k, Value* further);
    struct Part {
        Value* base = nullptr;  // of all sums
        int64_t own = 0;
    };
    Part begin_part(int sums, int64_t count);
    void add_part(const Part& whole, int sums, int64_t first);
    void settle_touched(const Stmt& s);  // products whose sums a statement uses
    void settle_all();
    void without_bringing(const std::function<void()>& body);
    std::vector<Ring> rings_;   // of the loops around
    std::vector<Begun> begun_;  // products that go on, in order
    bool bringing_ = false;

    // emit_mma.cpp
    void emit_mma(const Call& call);
    void emit_mma_of_words(const Call& call, const Intrinsic& known);
    std::vector<Value*> cut_number(Value* number, bool twice);
    std::vector<Value*> load_matrices(Value* address, bool transposed);
    std::vector<Value*> multiply_matrices(const Intrinsic& known, const std::vector<Value*>& a, Value* b0, Value* b1,
                                          const std::vector<Value*>& sums);

    // emit_stmt.cpp
    void emit(const Stmt& s);
    void emit_for(const For& loop);
    void emit_if(const If& branch);
    void emit_alloc(const Alloc& a, const std::function<void()>& body);
    void emit_call(const Call& call);
    void emit_intrinsic(const Call& call, const Intrinsic& known);
    Tile tile_of(const Access& first, std::vector<int64_t> extents, std::vector<Value*> strides);
    // The largest value of a variable that runs in steps of `step` below an extent.
    static std::optional<int64_t> last_of(const Expr& extent, int64_t step = 1);
    Value* emit_alone(const Expr& e);  // outside any statement
    void emit_copies(const For& loop, int64_t count);
    // for (i = begin; i < end; i += step) body(i), the binding's offset left to the caller.
    void emit_loop(Value* begin, Value* end, int64_t step, bool runs, const std::function<void(Value*)>& body);
    void with_binding(const Expr& var, Binding binding, const std::function<void()>& body);
    void with_mask(Value* mask, const std::function<void()>& body);

    // emit_vector.cpp
    void emit_vector(const For& loop);
    void emit_chunk(const For& loop, Value* at, int64_t offset, int lanes);
    int lanes_for(const For& loop) const;
    int registers_at_once(const For& loop) const;
    bool fits_lanes(const For& loop) const;
    bool touches_registers(const For& loop) const;
    void open_accumulators(const For& loop, int lanes);
    void close_accumulators();
    Value* reduce_lanes(ReduceOp op, DType dtype, Value* v, Value* start);

    // emit_merged.cpp
    bool emit_merged(const For& loop);  // false: nothing of the kind

    // emit_transposed.cpp
    bool emit_transposed(const For& loop);  // false: nothing of the kind
    bool is_transposed(const Stmt& body, const Expr& along, int64_t side) const;
    void emit_squares(const Stmt& body, const For& along, Value* at, int side);
    void turn(std::vector<Value*>& rows);

    // emit_store.cpp
    void emit_store(const Store& s);
    void emit_combine(const Store& s);
    Value* combined(ReduceOp op, DType dtype, Value* old, const Expr& value);
    Value* identity(ReduceOp op, DType dtype);
    void forget_loads(int slot);  // of a buffer that is written
    bool store_by_vectors(const Slot& slot, const Linear& at, Value* v);
    void store_lanes(const Slot& slot, const Linear& at, Value* memory_value);
    Value* load_from(const Slot& slot, const Linear& at, bool in_bounds);
    bool is_own_vector(const Slot& slot,
                       const Linear& at) const;           // it can be read and written whole, whatever the mask
    std::optional<std::pair<int, int>> lanes_on() const;  // the first and one past the last, where that is known
    Value* emit_load(const Expr& e);
    llvm::Align align_of(const Slot& slot, const Linear& at) const;  // of an access in all lanes
    Value* chosen_address(Value* condition, Value* address);         // or the dummy
    bool gathers(size_t bytes) const;  // elements of so many bytes, from anywhere, with one instruction
    Value* lane_steps(int64_t step);   // 0, step, 2 * step, ... by lane
    llvm::Instruction* gather(llvm::Type* vector, Value* places, llvm::Align align, bool masked);

    // emit_streamed.cpp
    void find_streams(const LaunchPlan& plan);
    void end_streams();
    Value* streams_to(int buffer) const;  // null: it never does
    // False: nothing was stored. `otherwise` stores as usual, where it is not that much.
    bool stream_lanes(const Slot& slot, const Linear& at, Value* v, Value* large,
                      const std::function<void()>& otherwise);
    void emit_either(Value* condition, const std::function<void()>& then, const std::function<void()>& otherwise);

    // emit_atomic.cpp
    void emit_atomic(const Call& call);
    Value* exchange_until(Value* at, DType dtype, const std::function<Value*(Value*)>& made);

    // emit_tile_calls.cpp
    void emit_tile_language_call(const Call& call);
    void emit_bits(const Call& call);
    void emit_report(const Call& call);
    void emit_printed(const Call& call);

    // emit_index.cpp
    Linear linear(const Expr& e);
    void add_linear(Linear& to, const Linear& from, int64_t factor);
    Linear linear_quotient(const Expr& e);
    std::optional<Linear::Even> even_product(const Expr& e);
    Linear offset_of(const Slot& slot, const std::vector<Expr>& indices);
    bool in_bounds(const Slot& slot, const std::vector<Expr>& indices) const;
    bool is_where_stored(const Slot& slot, const std::vector<Expr>& indices) const;
    int depth_of(const Expr& e) const;
    Value* sum_of(const Linear& l);                             // without its lane part
    Value* address(const Slot& slot, const Linear& at);         // of lane 0
    Value* moving_pointer(const Slot& slot, const Linear& at);  // null: it does not move with the innermost loop
    void close_loop(const OpenLoop& loop, Value* begin, llvm::BasicBlock* end);
    Value* lane_offsets(const Linear& at);                                   // a vector, or a scalar where uniform
    std::vector<Value*> lane_addresses(const Slot& slot, const Linear& at);  // one by one
    bool depends_on_lane(const Expr& e) const;

    // emit_expr.cpp
    Value* emit(const Expr& e);
    Value* emit_new(const Expr& e);
    Value* emit_sum(const Expr& e);
    Value* emit_binary(const Expr& e);
    static std::optional<Expr> sigmoid_argument(const Expr& e);
    Value* emit_compare(const Expr& e);
    Value* emit_select(const Expr& e);
    Value* extreme_of_numbers(const Expr& e);
    // emit_dot.cpp
    struct WordPlace {
        const Slot* slot;
        Linear first;  // of its bytes
        bool in_bounds;
    };
    std::optional<WordPlace> place_of_word(const Expr& e);
    Value* emit_word(const Expr& e);
    Value* guarded_word(Value* condition, const Expr& e, const Expr& otherwise);
    Value* dot(Fn fn, Value* sum, Value* a, Value* b);
    Value* dot_of_vectors(Fn fn, Value* sum, Value* a, Value* b, unsigned lanes);  // null: there is no instruction

    Value* guarded_load(Value* condition, const Expr& e, const Expr& otherwise);
    Value* emit_call(const Expr& e);
    Value* binary(ExprKind kind, DType dtype, Value* a, Value* b);
    Value* multiply_add(Value* a, Value* b, Value* c);
    std::optional<Value*> fused(DType dtype, const Expr& product, Value* addend, bool negate_product);
    std::optional<bool> decided(const Linear& gap) const;  // whether it is above 0 in all lanes, or in none
    Value* lane_mask(const Linear& gap);
    bool speculatable(const Expr& e, const std::vector<Expr>& done = {}) const;

    // emit_int.cpp
    Value* int_divide(DType dtype, Value* a, Value* b);
    Value* int_remainder(DType dtype, Value* a, Value* b);
    Value* floor_divide(Value* a, Value* b, bool positive);
    Value* floor_remainder(DType dtype, Value* a, Value* b, bool positive);
    Value* shift(ExprKind kind, DType dtype, Value* a, Value* b);
    Value* int_power(DType dtype, Value* a, Value* b);
    Value* int_extreme(bool largest, DType dtype, Value* a, Value* b);

    // emit_cast.cpp
    Value* cast(Value* v, DType from, DType to);
    Value* cast_saturate(Value* v, DType from, DType to);
    Value* to_int_range(Value* v, bool is_signed, unsigned bits);
    Value* round_to(Value* v, DType to);  // to what the type can hold, still in its computing type
    Value* from_memory(Value* v, DType dtype);
    Value* to_memory(Value* v, DType dtype);
    Value* narrow_to_float(Value* v);  // f64 to f32, toward an odd last bit

    // emit_math.cpp
    Value* math(Fn fn, DType dtype, Value* a, Value* b);
    Value* library_call(const char* name, DType dtype, Value* a, Value* b);
    Value* without_library(const std::string& name, DType dtype, Value* a, Value* b);
    Value* angle(Fn fn, DType dtype, Value* a);
    Value* quick_exp(Value* x);                    // null where the target has nothing quicker
    Value* quick_narrow(const Expr& e);            // the same
    bool may_divide_quickly(const Expr& e) const;  // in what is cast so
    Value* emit_for_cast(const Expr& e);
    bool rounds_to_16_bits_ = false;       // what is emitted now
    Value* remainder(Value* a, Value* b);  // of a division that truncates
    Value* power(DType dtype, Value* a, Value* b);

    // Types.
    llvm::Type* scalar_type(DType dtype) const;  // to compute with
    llvm::Type* memory_type(DType dtype) const;
    llvm::Type* like(Value* v, llvm::Type* scalar) const;  // with as many lanes as v
    Value* splat(Value* v);                                // to the current number of lanes
    void match(Value*& a, Value*& b);                      // both scalars, or both vectors
    Value* of(Value* like_this, double value);             // constants
    Value* of_int(llvm::Type* type, int64_t value);
    template <typename F>
    Value* per_lane(Value* v, F f);  // f of each lane's scalar, as a vector again
    bool has_blocks() const { return target_.machine.blocks; }
    bool begins_early() const { return target_.code->begins_early(target_.cpu); }
    Value* dummy();               // memory that lanes which are off read and write
    Value* zeros(int64_t bytes);  // memory that holds zeros
    llvm::Type* i64() const { return builder_.getInt64Ty(); }

    const Kernel& kernel_;
    const Target& target_;
    const CodegenOptions& options_;
    llvm::Module& module_;
    mutable llvm::IRBuilder<> builder_;
    llvm::Function* function_ = nullptr;
    llvm::BasicBlock* entry_ = nullptr;
    Value *scratch_ = nullptr, *dummy_ = nullptr;
    std::shared_ptr<Roles> roles_;  // in a launch that has them
    const LaunchPlan* plan_ = nullptr;
    Status status_;

    std::unordered_map<std::string, Binding> bindings_;
    std::vector<Slot> slots_;
    std::vector<Accumulator> accumulators_;
    Memo memo_{1};
    Loads loads_;
    int lanes_ = 1;
    std::string lane_var_;
    Value* mask_ = nullptr;            // null: all lanes
    const Access* storing_ = nullptr;  // of the store in progress
    std::map<int, Value*> streams_;    // by buffer: whether stores into it pass the caches by
    int depth_ = 0;
    std::vector<OpenLoop> open_loops_;
};

// What is emitted in here is not used outside: it may be in a branch.
class MemoScope {
  public:
    explicit MemoScope(Emitter& emitter) : emitter_(emitter) { emitter_.memo_.emplace_back(); }
    ~MemoScope() { emitter_.memo_.pop_back(); }

  private:
    Emitter& emitter_;
};

// Nothing that was emitted before is used in here: memory may have changed.
class FreshMemo {
  public:
    explicit FreshMemo(Emitter& emitter) : emitter_(emitter) { memo_.swap(emitter_.memo_); }
    ~FreshMemo() { memo_.swap(emitter_.memo_); }

  private:
    Emitter& emitter_;
    Emitter::Memo memo_{1};
};

}  // namespace tessera::codegen
