// Random kernels of blocks and threads from a seed: launches whose threads fill shared memory, each elements of its own
// in one of many ways, meet at barriers, read what others wrote, and store their results. Free of races as they are
// made.
#pragma once

#include "kernel/random_kernel.h"

namespace tessera {

class RandomThreadsMaker : public RandomKernelMaker {
  public:
    using RandomKernelMaker::RandomKernelMaker;

  protected:
    Stmt nest(int out) override { return pick(8) == 0 ? RandomKernelMaker::nest(out) : launch(out); }

  private:
    std::vector<Axis> blocks_, threads_;
    std::vector<int> shared_;

    static Stmt barrier() { return make_stmt(Call{"barrier", {}, {}, {}}); }

    static Stmt bound(const std::vector<Axis>& axes, const std::string& of, Stmt body) {
        for (size_t i = axes.size(); i-- > 0;)
            body = for_loop({.var = axes[i].var,
                             .extent = axes[i].extent,
                             .kind = LoopKind::Bound,
                             .axis = of + "." + std::string(1, "xyz"[i]),
                             .body = std::move(body)});
        return body;
    }

    int64_t thread_count() const {
        int64_t count = 1;
        for (const Axis& t : threads_) count *= *t.extent.as_int();
        return count;
    }
    Expr flat(const std::vector<Axis>& threads) const {
        Expr number = 0;
        for (const Axis& t : threads) number = number * t.extent + t.var;
        return number;
    }

    static void also(std::optional<Expr>& guard, const Expr& condition) {
        guard = guard ? logical_and(*guard, condition) : condition;
    }

    // One dimension of the output over blocks, threads, both, or a loop of each thread.
    Expr spread(const Expr& size, std::vector<Axis>& serial, std::optional<Expr>& guard) {
        const bool small = size.as_int() && *size.as_int() <= 5;
        const uint64_t choice = pick(4);
        if (choice == 0 || (choice == 1 && !small)) {
            blocks_.push_back(new_axis(size));
            return blocks_.back().var;
        }
        if (choice == 1) {
            threads_.push_back(new_axis(size));
            return threads_.back().var;
        }
        if (choice == 2) {
            serial.push_back(new_axis(size));
            return serial.back().var;
        }
        const int64_t factor = 2 + static_cast<int64_t>(pick(3));
        blocks_.push_back(new_axis(ceil_div(size, factor)));
        threads_.push_back(new_axis(factor));
        Expr index = blocks_.back().var * factor + threads_.back().var;
        if (!size.as_int() || *size.as_int() % factor != 0) also(guard, lt(index, size));
        return index;
    }

    Stmt launch(int out) {
        const Buffer b = buffer(out);
        blocks_.clear();
        threads_.clear();
        shared_.clear();
        std::vector<Axis> serial;
        std::vector<Expr> indices;
        std::optional<Expr> guard;
        for (const Expr& size : b.shape) indices.push_back(spread(size, serial, guard));
        if (blocks_.empty()) {
            blocks_.push_back(new_axis(1 + static_cast<int64_t>(pick(2))));
            also(guard, eq(blocks_[0].var, 0));
        }
        if (threads_.empty()) {
            threads_.push_back(new_axis(2 + static_cast<int64_t>(pick(4))));
            also(guard, pick(2) ? eq(threads_[0].var, 1) : lt(threads_[0].var, 1));
        }
        const std::vector<int> readable = complete_;
        scope_ = blocks_;
        std::vector<Stmt> before = pick(3) == 0 ? std::vector<Stmt>{fill_apart()} : std::vector<Stmt>{};
        scope_.insert(scope_.end(), threads_.begin(), threads_.end());
        std::vector<Stmt> steps;
        for (uint64_t n = pick(4); n > 0; --n) steps.push_back(step());
        std::optional<int> sum;
        if (pick(3) == 0) steps.push_back(repeat(sum.emplace(add_buffer(name("a"), any_dtype(), {}, Scope::Local))));
        scope_.insert(scope_.end(), serial.begin(), serial.end());
        Stmt end = guarded(guard, store(out, indices, fitting(b.dtype, out).e));
        for (size_t i = serial.size(); i-- > 0;) end = loop(serial[i], LoopKind::Serial, end);
        steps.push_back(end);
        Stmt body = seq(std::move(steps));
        if (sum) body = alloc(*sum, body);
        before.push_back(bound(threads_, "thread", body));
        body = seq(std::move(before));
        for (int slot : shared_) body = alloc(slot, body);
        complete_ = readable;
        scope_.clear();
        return bound(blocks_, "block", body);
    }

    std::string name(const char* letter) { return letter + std::to_string(names_++); }

    int add_shared(std::vector<Expr> shape) {
        shared_.push_back(add_buffer(name("s"), any_dtype(), std::move(shape), Scope::Shared));
        return shared_.back();
    }

    // Each thread stores elements of its own of a new buffer.
    struct Filled {
        int slot;
        Stmt stmt;
    };
    Filled fill(const std::vector<Axis>& threads) {
        const int64_t count = thread_count();
        const Expr number = flat(threads);
        auto stored = [&](std::vector<Expr> shape, std::vector<Expr> at) -> Filled {
            const int slot = add_shared(std::move(shape));
            return {slot, store(slot, std::move(at), fitting(buffer(slot).dtype, slot).e)};
        };
        std::vector<Expr> shape, at;
        switch (pick(5)) {
            case 0:
                for (const Axis& t : threads) {
                    shape.push_back(t.extent);
                    at.push_back(t.var);
                }
                return stored(shape, at);
            case 1: return stored({count}, {pick(2) ? number : count - 1 - number});
            case 2:
                for (int64_t part : {4, 3, 2})
                    if (count % part == 0)
                        return stored({count / part, part}, {floor_div(number, part), mod(number, part)});
                return stored({count}, {number});
            default: {
                const int64_t each = 2 + static_cast<int64_t>(pick(2));
                const Axis i = new_axis(each);
                scope_.push_back(i);
                Filled f = stored({each * count}, {pick(2) ? i.var * count + number : number * each + i.var});
                scope_.pop_back();
                f.stmt = loop(i, pick(2) ? LoopKind::Serial : LoopKind::Unrolled, f.stmt);
                return f;
            }
        }
    }

    // In loops over threads before the others, or once in the block.
    Stmt fill_apart() {
        std::vector<Axis> threads;
        for (const Axis& t : threads_) threads.push_back(new_axis(t.extent));
        const std::vector<Axis> around = scope_;
        scope_.insert(scope_.end(), threads.begin(), threads.end());
        Filled f = fill(threads);
        complete_.push_back(f.slot);
        scope_ = around;
        if (pick(3)) return bound(threads, "thread", f.stmt);
        for (size_t i = threads.size(); i-- > 0;) f.stmt = loop(threads[i], LoopKind::Serial, f.stmt);
        return f.stmt;
    }

    // Fill, meet, read: halves of the elements combined into the others, or the buffer filled a second time.
    Stmt step() {
        Filled f = fill(threads_);
        std::vector<Stmt> all{f.stmt, barrier()};
        const Buffer b = buffer(f.slot);
        if (b.shape.size() == 1 && pick(3) == 0) {
            const Expr number = flat(threads_);
            const int64_t half = thread_count() / 2;
            Expr other = load(f.slot, b.dtype, {number + half});
            all.push_back(
                if_then(lt(number, half), store(f.slot, {number}, other, pick(2) ? ReduceOp::Min : ReduceOp::Max)));
            all.push_back(barrier());
        }
        complete_.push_back(f.slot);
        if (pick(4) == 0) {
            Filled second = fill(threads_);
            complete_.push_back(second.slot);
            all.push_back(second.stmt);
            all.push_back(barrier());
        }
        return seq(std::move(all));
    }

    // Fill, meet, add up what others wrote, meet: several times.
    Stmt repeat(int sum) {
        const DType t = buffer(sum).dtype;
        const ReduceOp op = any_combine(t);
        const Axis k = new_axis(2 + static_cast<int64_t>(pick(2)));
        scope_.push_back(k);
        Filled f = fill(threads_);
        complete_.push_back(f.slot);
        Stmt add = store(sum, {}, reduced(t, op, sum).e, op);
        complete_.pop_back();
        scope_.pop_back();
        complete_.push_back(sum);
        const bool guarded_once = pick(4) == 0;
        Stmt wait = guarded_once ? if_then(lt(k.var, k.extent - 1), barrier()) : barrier();
        return seq({store(sum, {}, identity(op, t)), loop(k, LoopKind::Serial, seq({f.stmt, barrier(), add, wait}))});
    }
};

inline RandomKernel random_threads(uint64_t seed, RandomKernelOptions options = {}) {
    return RandomThreadsMaker(seed, options).make();
}

}  // namespace tessera
