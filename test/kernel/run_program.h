// Runs a Program as it is written: kernels by the interpreter, host steps by the evaluator. Slow, and checked
// throughout.
#pragma once

#include "graph/evaluate/bind_inputs.h"
#include "graph/evaluate/evaluate_node.h"
#include "kernel/from_graph/from_graph.h"
#include "kernel/from_graph/run_contents.h"

namespace tessera::test {

class ProgramRun {
  public:
    explicit ProgramRun(const Program& program, const InterpretOptions& how = {})
        : p_(program), how_(how), data_(program.buffers.size()) {}

    Result<std::vector<Datum>> run(const Inputs& inputs) {
        std::vector<Datum> bound = TRY(bind_inputs(*p_.graph, inputs));
        for (size_t i = 0; i < bound.size(); ++i) {
            binds(p_.graph->inputs()[i]->type(), type_of(bound[i]), symbols_);
            data_[size_t(p_.inputs[i])] = std::move(bound[i]);
        }
        for (size_t i = 0; i < p_.buffers.size(); ++i)
            if (p_.buffers[i].role == BufferRole::Constant) data_[i] = Datum(*p_.buffers[i].tensor);
        for (const KernelStep& step : p_.prepare) TRY(run(step));
        for (const Step& step : p_.steps) TRY(std::visit([&](const auto& s) { return run(s); }, step));
        std::vector<Datum> outputs;
        for (size_t i = 0; i < p_.outputs.size(); ++i) {
            Datum d = data_[size_t(p_.outputs[i])];
            const Type& type = p_.graph->outputs()[i]->type();
            if (type.is_tensor() && d.is_tensor() && d.tensor().dtype() != DType::string) {
                Sizes sizes = d.tensor().sizes();
                if (type.tensor().shape.ranked()) sizes = TRY(sizes_of(type.tensor().shape.dims()));
                d = Datum(d.tensor().reshaped(sizes));
            }
            outputs.push_back(std::move(d));
        }
        return outputs;
    }

  private:
    Result<Sizes> sizes_of(const std::vector<Expr>& shape) {
        Sizes sizes;
        for (const Expr& e : shape) {
            auto n = evaluate_int(e, symbols_);
            if (!n) return Error(Code::E0203, "size {} is not known", to_string(e));
            sizes.push_back(*n);
        }
        return sizes;
    }

    // The buffer that holds the memory of a buffer.
    int base(int b) const {
        while (p_.buffers[size_t(b)].alias >= 0) b = p_.buffers[size_t(b)].alias;
        return b;
    }

    Result<Tensor> tensor(int b) {
        const ProgramBuffer& buffer = p_.buffers[size_t(b)];
        Datum& d = data_[size_t(base(b))];
        Sizes sizes = TRY(sizes_of(buffer.shape));
        int64_t elements = TRY(element_count(sizes));
        const bool given = buffer.role == BufferRole::Constant || buffer.role == BufferRole::Input;
        if (!d.is_tensor() ||
            (!given && (d.tensor().dtype() != buffer.dtype || d.tensor().elements() != elements || elements == 0)))
            d = Datum(TRY(Tensor::zeros(buffer.dtype, sizes)));
        return d.tensor().reshaped(sizes);
    }

    Status run(const KernelStep& step) {
        const Kernel& kernel = p_.kernels[step.kernel];
        TRY(verify(kernel));
        SymbolValues symbols;
        for (size_t i = 0; i < kernel.symbols.size(); ++i) {
            auto n = evaluate_int(step.symbols[i], symbols_);
            if (!n) return Error(Code::E0203, "size {} is not known", to_string(step.symbols[i]));
            symbols[kernel.symbols[i]] = *n;
        }
        std::vector<Tensor> buffers;
        for (size_t i = 0; i < step.args.size(); ++i) {
            Tensor t = TRY(tensor(step.args[i]));
            buffers.push_back(Tensor::view(kernel.buffers[i].dtype, t.sizes(), t.data(), t.owner()));  // f8 as bytes
        }
        return interpret(kernel, buffers, symbols, how_);
    }

    NodeEvaluator::Find find() const {
        return [this](const Value* v) -> const Datum* {
            for (size_t i = 0; i < p_.buffers.size(); ++i)
                if (p_.buffers[i].value == v) return &data_[size_t(base(int(i)))];
            return nullptr;
        };
    }

    Status run(const FoundStep& step) {
        const int64_t found = TRY(tensor(step.count)).int_at(0);
        for (size_t i = 0; i < step.dims.size(); ++i) {
            if (step.dims[i] < 0) continue;
            const Dim& d = step.node->output(i)->type().tensor().shape[step.dims[i]];
            if (d.is(ExprKind::Var)) symbols_.try_emplace(d.node().name, found);
        }
        return {};
    }

    Status run(const CheckStep& step) {
        auto given = [&](const Value* v) -> const Datum* {
            for (size_t i = 0; i < step.inputs.size(); ++i)
                if (step.inputs[i] >= 0 && step.node->input(i) == v) return find()(v);
            return nullptr;
        };
        return evaluator_.check(*step.node, given, symbols_);
    }

    Status run(const InferStep& step) {
        for (size_t i : step.contents)
            define_contents(*step.node->input(i), find()(step.node->input(i))->tensor(), symbols_);
        std::vector<Type> types = TRY(evaluator_.infer(*step.node, find(), symbols_));
        for (size_t i = 0; i < types.size(); ++i) binds(step.node->output(i)->type(), types[i], symbols_);
        return {};
    }

    Status run(const ControlStep& step) { return run(HostStep{step.node, step.inputs, step.outputs}); }

    // A device's code is that of its node.
    Status run(const CopyStep& step) {
        data_[size_t(base(step.to))] = data_[size_t(base(step.from))];
        return {};
    }
    Status run(const DeviceStep& step) { return run(HostStep{step.node, step.inputs, step.outputs}); }

    Status run(const HostStep& step) {
        std::vector<Datum> results = TRY(evaluator_.run(*step.node, find()));
        for (size_t i = 0; i < step.outputs.size(); ++i) {
            if (step.outputs[i] < 0) continue;
            binds(step.node->output(i)->type(), type_of(results[i]), symbols_);
            data_[size_t(step.outputs[i])] = results[i];
        }
        return {};
    }

    const Program& p_;
    const InterpretOptions how_;
    std::vector<Datum> data_;
    SymbolValues symbols_;
    EvaluateOptions options_;
    NodeEvaluator evaluator_{options_};
};

inline Result<std::vector<Datum>> run_program(const Program& program, const Inputs& inputs,
                                              const InterpretOptions& how = {}) {
    return ProgramRun(program, how).run(inputs);
}

}  // namespace tessera::test
