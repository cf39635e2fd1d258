// The state of one program's way down to loops.
#pragma once

#include "kernel/from_tile/from_tile.h"
#include "kernel/from_tile/layout.h"
#include "kernel/from_tile/narrow.h"
#include "kernel/from_tile/tiles.h"

namespace tessera::from_tile_detail {

// How a product of two tiles in memory is carried out.
struct TileProduct {
    int a, b, out;  // slots
    DType dtype;
    int64_t depth;  // along k
    int64_t lane = 1, wide = 1,
            deep = 1;  // columns of a vector, vectors of a register tile, steps that `a` is taken by
    int64_t rows = 1, columns = 1, high = 1;  // `high`: rows of a register tile
    bool panels = false;                      // `b` lies column block by column block, each as wide as a register tile
    bool row_panels = false;                  // `a` lies row block by row block, each as high as one, rows side by side
    bool adds = true;                         // to what is there
    std::optional<Expr> batch = {};
};

// By which instructions of a GPU threads multiply: by none of the kind, by those of one warp, or of four.
enum class Matrices { None, OfWarp, OfFour };

class TileLowering {
  public:
    TileLowering(const tile::ProgramData& program, const std::vector<tile::Argument>& arguments, int grid_rank,
                 const Machine& machine, const TileOptions& options, Matrices matrices = Matrices::OfFour,
                 bool bytes = true);
    Result<Kernel> run();
    bool needs_addresses() const { return needs_addresses_; }
    const std::map<std::vector<int64_t>, TileLayout>& layouts() const { return layouts_; }
    bool needs_other_products() const { return needs_other_products_; }  // not those of these instructions
    bool multiplies_bytes() const { return !of_bytes_.empty(); }         // some of those take bytes as they are

  private:
    // Instructions.
    Status lower(const tile::Instruction& i);
    Status lower_view(const tile::Instruction& i);
    Status lower_split(const tile::Instruction& i);
    Status lower_map(const tile::Instruction& i);
    Status lower_bits(const tile::Instruction& i);
    Status lower_load(const tile::Instruction& i);
    Status lower_store(const tile::Instruction& i);
    Status lower_atomic(const tile::Instruction& i);
    Status lower_dot(const tile::Instruction& i);
    Status lower_reduce(const tile::Instruction& i);
    Status lower_combine(const tile::Instruction& i);  // a reduction or scan by a function
    Status lower_if(const tile::Instruction& i);
    Status lower_for(const tile::Instruction& i);
    Status lower_while(const tile::Instruction& i);
    Status lower_report(const tile::Instruction& i);
    Status lower_pointer(const tile::Instruction& i, LoweredTile& made);
    // A region's statements, with its memory around them; `end` adds what follows its instructions.
    Result<Stmt> lower_region(const tile::Region& region, const std::function<Status()>& end,
                              const std::function<void()>& begin = {});

    // Values.
    LoweredTile& tile(int value) { return tiles_[static_cast<size_t>(value)]; }
    const tile::Type& type(int value) const { return program_.types[static_cast<size_t>(value)]; }
    void define(int value, LoweredTile made);  // and computes it now if that is better
    Expr element(int value, const TileIndices& indices);
    std::set<int> reads_of(int value) const;
    std::vector<int> sources_in_memory(int value) const;  // that its elements are computed from
    bool is_costly(int value) const;
    void materialise(int value, bool in_place = true);
    int64_t known_multiple(int value);
    void define_buffer(int value, int slot);
    int place_for(int value, bool in_place);
    // Who still has to read a buffer does so before it is written.
    void before_write(int slot, int except = -1);
    // What a value reads of a buffer, or of any; of a pointer, what it is computed from.
    void settle(int value, std::optional<int> slot);
    void settle_pointers(std::optional<int> slot);
    bool is_read_later(int value) const {
        return remaining_[static_cast<size_t>(value)] > 0 || uses_.inside[static_cast<size_t>(value)];
    }
    bool reads_only_at(int value, int slot, const TileIndices& at, const TileIndices& index);

    // Statements.
    int local(DType dtype, std::vector<int64_t> shape, Scope scope = Scope::Local);
    void emit(Stmt s);  // with the place of the instruction
    Expr variable(int64_t extent);
    Stmt over(const std::vector<int64_t>& shape, const std::function<Stmt(const TileIndices&)>& body);
    Stmt lanes(int64_t extent, const std::function<Stmt(const Expr&)>& body);
    Stmt unrolled(int64_t extent, const std::function<Stmt(const Expr&)>& body, LoopKind kind = LoopKind::Unrolled);
    void copy_into(int slot, int value);  // a whole tile
    Stmt take_copy(int value, int64_t width);
    Expr at_buffer(int slot, const TileIndices& indices) const;

    // Of a bounded program. A number that is read from memory: nothing is taken for known of what is computed with it,
    // as that it does not overflow. And whether a place lies in the array.
    Expr unknown(const Expr& number);
    void hide_numbers();
    Expr inside(int base, const Expr& place, int mask, const TileIndices& at);

    // On a GPU (threads.cpp): `warps_` is above 0.
    Result<Kernel> finish_blocks(Stmt body, const std::array<Expr, 3>& blocks, const std::array<Expr, 3>& extents);
    Status look_at_memory();
    Status choose_layouts();
    const TileLayout& layout_of(const std::vector<int64_t>& shape);
    // Of a load for a product, where its neighbours in memory are not those of the usual layout.
    std::optional<TileLayout> layout_of_load(int value);
    std::optional<TileLayout> layout_of_store(const tile::Instruction& i);
    TilePlace new_place(const std::vector<int64_t>& shape);
    Stmt over_threads(const std::vector<int64_t>& shape, const std::function<Stmt(const TileIndices&)>& body,
                      bool vector);
    int of_each_thread(DType dtype, int64_t elements);
    Result<Stmt> combined(const tile::Instruction& i, const std::vector<Access>& to, const std::vector<Expr>& a,
                          const std::vector<Expr>& b);
    std::optional<tile::Instruction> passing_over_nan(const tile::Instruction& i) const;
    Status reduce_in_threads(const tile::Instruction& given);
    Status meet_in_block(const tile::Instruction& i, const TilePlace& place, const Expr& number,
                         const std::vector<int>& part, const std::vector<int>& in_warp,
                         const std::vector<int>& in_block, const std::function<Stmt(Stmt)>& around);
    Matrices matrices_of(const tile::Instruction& i) const;  // that a product can be of
    bool multiplies_matrices(const tile::Instruction& i) const { return matrices_of(i) != Matrices::None; }
    bool fits_four(const tile::Instruction& i) const;  // operands lie as those of four warps read them
    void find_products_of_bytes();
    bool is_turned_operand(int value) const;  // that matrix instructions read as it was before
    bool may_have_sums(int value) const;
    bool comes_from_threads(int value) const;              // the first operand of instructions of four warps
    const tile::Instruction* product_of(int value) const;  // that is its only reader, transposed or not
    bool is_operand_of_bytes(int value) const;             // of such a product, as bytes
    bool comes_by_columns(int value) const;                // for a product, from memory
    bool is_stored_turned(int value) const;                // an operand of those, columns first
    int shared_operand(int value, bool& transposed);
    void multiply_in_threads(const tile::Instruction& i, int slot, DType dtype);
    void multiply_by_four(const tile::Instruction& i, int slot);

    // Products.
    int packed(int value, DType dtype);
    TileProduct plan_product(int a, int b, DType dtype);
    DType sum_type_of(const tile::Instruction& dot) const;
    bool lies_along_depth(int b);
    int in_panels(int value, const TileProduct& p);
    int in_row_panels(int value, const TileProduct& p);
    int turned(int lines, int64_t width, const TileProduct& p);
    void put_in_row_panels(int value);
    Stmt multiply_registers(const TileProduct& p, const Expr& row, int64_t high, const Expr& block);
    Stmt multiply(TileProduct p, int64_t batches);

    // A carried value that grows by the same in each iteration, which is given here; or -1.
    int step_of_carried(const tile::Region& region, size_t which) const;
    Status store_carried(const std::vector<int>& arguments, const std::vector<int>& results,
                         const std::vector<int>& slots);
    void compute_waiting();  // what a branch or loop would compute anew
    Stmt each(const std::vector<int64_t>& shape, const std::function<Stmt(const TileIndices&)>& body);  // in order
    int all_memory(DType dtype);  // the slot of its elements anywhere
    Error need_addresses(const tile::Instruction& i);
    Error cannot(const tile::Instruction& i, std::string_view why) const;

    tile::ProgramData program_;
    const std::vector<tile::Argument>& arguments_;
    const int grid_rank_;
    const Machine& machine_;
    const bool apart_, by_address_, bounded_;
    const Matrices matrices_;
    const int64_t warps_, stages_;
    bool needs_other_products_ = false;
    int in_threads_ = 0;  // nesting depth in loops over threads
    std::map<std::vector<int64_t>, TileLayout> layouts_;
    std::map<std::string, TilePlace> places_;  // by the warp's variable
    std::map<int, const tile::Instruction*> made_by_;
    std::map<int, size_t> fastest_;  // dimension of a load
    std::map<const tile::Instruction*, size_t> stored_along_;
    std::set<std::vector<int64_t>> of_warps_;  // shapes whose products are not of instructions of four warps
    std::set<int> sums_;                       // buffers that matrix instructions add to
    std::set<int> of_bytes_;                   // products whose operands are bytes, which four warps multiply
    bool needs_addresses_ = false;
    tile::Place place_;  // of the instruction that is being lowered
    TileUses uses_;
    std::vector<int> remaining_;
    std::vector<LoweredTile> tiles_;
    std::vector<std::vector<int>> sources_;  // of values that are not in memory
    std::vector<int> region_of_;             // where a value is given
    std::vector<int> waiting_;               // values that are not in memory, and read it
    std::vector<int> pointers_;              // given so far
    int last_copied_ = -1;                   // by the last statement, or by one before
    std::map<int, int> row_panels_;          // slots of operands that lie so already
    struct Memo {
        TileIndices indices;
        Expr value = 0;
    };
    std::vector<std::optional<Memo>> memo_;

    Kernel kernel_;
    Expr nothing_ = 0;  // in a bounded program, unknown
    std::array<Expr, 3> ids_ = {0, 0, 0}, grid_ = {1, 1, 1};
    std::vector<Stmt> statements_;
    std::vector<int> allocated_;
    int region_ = 0, regions_ = 0, names_ = 0;
};

}  // namespace tessera::from_tile_detail
