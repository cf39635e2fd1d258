#include <llvm/IR/MDBuilder.h>

#include "base/check.h"
#include "kernel/ir/tile_calls.h"
#include "llvm/emitter.h"

namespace tessera::codegen {

Emitter::Emitter(const Kernel& kernel, const Target& target, const CodegenOptions& options, llvm::Module& module)
    : kernel_(kernel), target_(target), options_(options), module_(module), builder_(module.getContext()) {}

Status Emitter::emit(const LaunchPlan& plan, const std::string& symbol) {
    plan_ = &plan;
    if (has_blocks()) return emit_blocks(plan, symbol);
    open_function(symbol);
    Value *begin = function_->getArg(2), *end = function_->getArg(3);
    find_streams(plan);
    Value* callers_mode = options_.flush_subnormals ? target_.code->flush_subnormals(builder_) : nullptr;
    if (plan.parallel) {
        emit_loop(begin, end, 1, false, [&](Value* i) {
            with_binding(plan.parallel->var, {i, 0, false, depth_, last_of(plan.parallel->extent)},
                         [&] { emit(plan.parallel->body); });
        });
    } else {
        emit_loop(begin, end, 1, false, [&](Value*) { emit(plan.stmt); });
    }
    end_streams();
    if (callers_mode) target_.code->restore_mode(builder_, callers_mode);
    builder_.CreateRetVoid();
    return status_;
}

void Emitter::open_function(const std::string& symbol) {
    llvm::LLVMContext& c = module_.getContext();
    llvm::Type* ptr = builder_.getPtrTy();
    auto* type = llvm::FunctionType::get(builder_.getVoidTy(), {ptr, ptr, i64(), i64(), ptr}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module_);
    function_->setDSOLocal(true);
    for (unsigned i : {0u, 1u}) {
        function_->addParamAttr(i, llvm::Attribute::NoAlias);
        function_->addParamAttr(i, llvm::Attribute::ReadOnly);
    }
    function_->addParamAttr(4, llvm::Attribute::NoAlias);
    function_->addParamAttr(4, llvm::Attribute::getWithAlignment(c, llvm::Align(64)));
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    function_->addFnAttr("target-cpu", target_.cpu);
    function_->addFnAttr("tune-cpu", target_.tune);
    function_->addFnAttr("target-features", target_.features);
    const std::string bits = std::to_string(target_.machine.vector_bytes * 8);
    function_->addFnAttr("min-legal-vector-width", bits);
    function_->addFnAttr("prefer-vector-width", bits);
    function_->addFnAttr("no-trapping-math", "true");

    entry_ = llvm::BasicBlock::Create(c, "entry", function_);
    auto* body = llvm::BasicBlock::Create(c, "body", function_);
    builder_.SetInsertPoint(entry_);
    builder_.SetInsertPoint(builder_.CreateBr(body));
    scratch_ = function_->getArg(4);
    auto* invariant = llvm::MDNode::get(c, {});
    for (size_t i = 0; i < kernel_.symbols.size(); ++i) {
        auto* at = builder_.CreateConstInBoundsGEP1_64(i64(), function_->getArg(1), i);
        auto* loaded = builder_.CreateAlignedLoad(i64(), at, llvm::Align(8), kernel_.symbols[i]);
        loaded->setMetadata(llvm::LLVMContext::MD_invariant_load, invariant);
        bindings_[kernel_.symbols[i]] = {loaded, 0, false, 0};
    }
    bind_buffers();
    builder_.SetInsertPoint(body);
}

void Emitter::describe_slots() {
    slots_.assign(kernel_.buffers.size(), {});
    for (size_t i = 0; i < slots_.size(); ++i) {
        const Buffer& b = kernel_.buffers[i];
        Slot& slot = slots_[i];
        slot.dtype = b.dtype;
        slot.shape = b.shape;
        slot.strides = b.strides;
        if (b.strides.empty()) {
            slot.strides.assign(b.shape.size(), Expr(1));
            for (size_t d = b.shape.size(); d-- > 1;) slot.strides[d - 1] = slot.strides[d] * b.shape[d];
        }
    }
}

void Emitter::bind_buffers() {
    auto* invariant = llvm::MDNode::get(module_.getContext(), {});
    describe_slots();
    for (size_t i = 0; i < kernel_.params; ++i) {
        auto* at = builder_.CreateConstInBoundsGEP1_64(builder_.getPtrTy(), function_->getArg(0), i);
        auto* loaded = builder_.CreateAlignedLoad(builder_.getPtrTy(), at, llvm::Align(8), kernel_.buffers[i].name);
        loaded->setMetadata(llvm::LLVMContext::MD_invariant_load, invariant);
        slots_[i].base = loaded;
    }
    describe_aliases();
}

void Emitter::describe_aliases() {
    llvm::LLVMContext& c = module_.getContext();
    llvm::MDBuilder md(c);
    llvm::MDNode* domain = md.createAnonymousAliasScopeDomain(kernel_.name);
    std::vector<bool> written(slots_.size(), false);
    visit(kernel_.body, [&](const Stmt& s) {
        if (const Store* st = s->as<Store>()) written[st->to.buffer] = true;
        if (const Call* call = s->as<Call>())
            for (const Access& a : call->writes) written[a.buffer] = true;
    });
    std::vector<llvm::MDNode*> scopes;
    for (const Buffer& b : kernel_.buffers) scopes.push_back(md.createAnonymousAliasScope(domain, b.name));
    for (size_t i = 0; i < slots_.size(); ++i) {
        std::vector<llvm::Metadata*> apart;
        for (size_t j = 0; j < slots_.size(); ++j) {
            if (i == j) continue;
            const bool both_params = i < kernel_.params && j < kernel_.params;
            if (both_params && (is_anywhere(kernel_.buffers[i]) || is_anywhere(kernel_.buffers[j]))) continue;
            if (both_params && !written[i] && !written[j]) continue;
            if (both_params && written[i] != written[j] &&
                may_share_memory(kernel_, written[i] ? j : i, written[i] ? i : j))
                continue;
            apart.push_back(scopes[j]);
        }
        slots_[i].scope = llvm::MDNode::get(c, {scopes[i]});
        slots_[i].noalias = llvm::MDNode::get(c, apart);
    }
}

llvm::Type* Emitter::scalar_type(DType dtype) const {
    if (dtype == DType::boolean) return builder_.getInt1Ty();
    if (dtype == DType::f64) return builder_.getDoubleTy();
    if (is_float(dtype)) return builder_.getFloatTy();
    return builder_.getIntNTy(dtype_bits(dtype));
}

llvm::Type* Emitter::memory_type(DType dtype) const {
    if (dtype == DType::f64) return builder_.getDoubleTy();
    if (dtype == DType::f32) return builder_.getFloatTy();
    if (dtype == DType::f16) return builder_.getHalfTy();
    return builder_.getIntNTy(static_cast<unsigned>(dtype_bytes(dtype) * 8));
}

llvm::Type* Emitter::like(Value* v, llvm::Type* scalar) const {
    if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType()))
        return llvm::FixedVectorType::get(scalar, vector->getNumElements());
    return scalar;
}

Value* Emitter::splat(Value* v) {
    if (lanes_ == 1 || v->getType()->isVectorTy()) return v;
    return builder_.CreateVectorSplat(lanes_, v);
}

void Emitter::match(Value*& a, Value*& b) {
    if (a->getType()->isVectorTy() == b->getType()->isVectorTy()) return;
    a = splat(a);
    b = splat(b);
}

Value* Emitter::of(Value* like_this, double value) { return llvm::ConstantFP::get(like_this->getType(), value); }

Value* Emitter::of_int(llvm::Type* type, int64_t value) { return llvm::ConstantInt::get(type, value, true); }

Value* Emitter::dummy() {
    if (!dummy_) {
        dummy_ = stack_memory(builder_, i64(), "dummy");
        llvm::IRBuilder<> at_entry(entry_->getTerminator());
        at_entry.CreateStore(at_entry.getInt64(0), dummy_);
    }
    return dummy_;
}

Value* Emitter::zeros(int64_t bytes) {
    const std::string name = fmt::format("tessera_zeros_{}", bytes);
    if (llvm::GlobalVariable* found = module_.getNamedGlobal(name)) return found;
    auto* type = llvm::ArrayType::get(builder_.getInt8Ty(), static_cast<uint64_t>(bytes));
    auto* made = new llvm::GlobalVariable(module_, type, true, llvm::GlobalValue::PrivateLinkage,
                                          llvm::Constant::getNullValue(type), name);
    made->setAlignment(llvm::Align(64));
    return made;
}

}  // namespace tessera::codegen
