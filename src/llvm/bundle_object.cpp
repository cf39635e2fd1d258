#include "llvm/bundle_object.h"

#include "base/check.h"
#include "llvm/compile_module.h"

namespace tessera {
namespace {

using namespace codegen;
using From = BundlePointer::From;

class EntryEmitter {
  public:
    EntryEmitter(const BundleEntry& entry, const std::vector<PlannedKernel>& kernels, const Target& target,
                 llvm::Module& module)
        : entry_(entry), kernels_(kernels), target_(target), module_(module), b_(module.getContext()) {}

    void emit() {
        for (llvm::Function& f : module_)
            if (!f.isDeclaration()) f.setLinkage(llvm::Function::InternalLinkage);
        emit_piece();
        llvm::Function* run = emit_run();
        emit_serial(run);
        define("_id", b_.getInt64Ty(), {});
        b_.CreateRet(b_.getInt64(entry_.id));
    }

  private:
    llvm::Type* ptr() { return b_.getPtrTy(); }
    llvm::Type* i64() { return b_.getInt64Ty(); }
    llvm::FunctionType* body_type() {
        return llvm::FunctionType::get(b_.getVoidTy(), {ptr(), i64(), i64(), b_.getInt32Ty()}, false);
    }
    llvm::FunctionType* launch_type() {
        return llvm::FunctionType::get(b_.getVoidTy(), {ptr(), ptr(), i64(), i64(), ptr()}, false);
    }
    // What one piece of a parallel launch needs: function, args, symbols, scratch, bytes of it for each thread.
    llvm::StructType* task_type() {
        return llvm::StructType::get(module_.getContext(), {ptr(), ptr(), ptr(), ptr(), i64()});
    }

    llvm::Function* define(const std::string& suffix, llvm::Type* result, std::vector<llvm::Type*> params) {
        auto* type = llvm::FunctionType::get(result, params, false);
        auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, entry_.name + suffix, module_);
        f->addFnAttr(llvm::Attribute::NoUnwind);
        f->addFnAttr("target-cpu", target_.cpu);
        f->addFnAttr("tune-cpu", target_.tune);
        f->addFnAttr("target-features", target_.features);
        b_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", f));
        return f;
    }

    llvm::BasicBlock* block(const char* name) {
        return llvm::BasicBlock::Create(module_.getContext(), name, b_.GetInsertBlock()->getParent());
    }

    void emit_piece() {
        piece_ = define("_piece", b_.getVoidTy(), {ptr(), i64(), i64(), b_.getInt32Ty()});
        piece_->setLinkage(llvm::Function::InternalLinkage);
        auto field = [&](unsigned i) {
            return b_.CreateLoad(task_type()->getElementType(i), b_.CreateStructGEP(task_type(), piece_->getArg(0), i));
        };
        llvm::Value* offset = b_.CreateMul(b_.CreateSExt(piece_->getArg(3), i64()), field(4));
        b_.CreateCall(launch_type(), field(0),
                      {field(1), field(2), piece_->getArg(1), piece_->getArg(2), moved(field(3), offset)});
        b_.CreateRetVoid();
    }

    llvm::Value* moved(llvm::Value* pointer, llvm::Value* bytes) {
        return b_.CreateGEP(b_.getInt8Ty(), pointer, bytes);
    }

    llvm::Function* emit_run() {
        llvm::Function* f = define("_run_parallel", b_.getInt32Ty(), {ptr(), ptr(), ptr(), ptr(), ptr(), ptr()});
        size_t args = 1, symbols = 1;
        for (const auto& action : entry_.actions)
            if (auto* call = std::get_if<BundleCall>(&action)) {
                args = std::max(args, call->args.size());
                symbols = std::max(symbols, call->symbols.size());
            }
        args_type_ = llvm::ArrayType::get(ptr(), args);
        symbols_type_ = llvm::ArrayType::get(i64(), symbols);
        args_ = b_.CreateAlloca(args_type_);
        symbols_ = b_.CreateAlloca(symbols_type_);
        task_ = b_.CreateAlloca(task_type());
        parallel_for_ = f->getArg(4);
        context_ = f->getArg(5);
        if (!entry_.inputs.empty()) need(f->getArg(0));
        if (!entry_.outputs.empty()) need(f->getArg(1));
        if (entry_.weights) need(f->getArg(2));
        need(f->getArg(3));
        weights_ = f->getArg(2);
        llvm::Type* word = b_.getIntPtrTy(module_.getDataLayout());
        llvm::Value* address = b_.CreateAdd(b_.CreatePtrToInt(f->getArg(3), word), llvm::ConstantInt::get(word, 63));
        arena_ = b_.CreateIntToPtr(b_.CreateAnd(address, llvm::ConstantInt::getSigned(word, -64)), ptr());
        inputs_ = given(f->getArg(0), entry_.inputs);
        outputs_ = given(f->getArg(1), entry_.outputs);
        scratch_ = moved(arena_, b_.getInt64(entry_.scratch_at));
        for (const auto& action : entry_.actions) std::visit([&](const auto& a) { emit(a); }, action);
        b_.CreateRet(b_.getInt32(0));
        return f;
    }

    void emit_serial(llvm::Function* run) {
        llvm::Function* f = define("_run", b_.getInt32Ty(), {ptr(), ptr(), ptr(), ptr()});
        auto* null = llvm::ConstantPointerNull::get(b_.getPtrTy());
        b_.CreateRet(b_.CreateCall(run, {f->getArg(0), f->getArg(1), f->getArg(2), f->getArg(3), null, null}));
    }

    void end_if(llvm::Value* condition, int result) {
        llvm::BasicBlock *ends = block("ends"), *goes_on = block("goes_on");
        b_.CreateCondBr(condition, ends, goes_on);
        b_.SetInsertPoint(ends);
        b_.CreateRet(b_.getInt32(uint32_t(result)));
        b_.SetInsertPoint(goes_on);
    }
    void need(llvm::Value* pointer) { end_if(b_.CreateIsNull(pointer), 1); }

    std::vector<llvm::Value*> given(llvm::Value* list, const std::vector<bool>& needed) {
        std::vector<llvm::Value*> out;
        for (size_t i = 0; i < needed.size(); ++i) {
            out.push_back(b_.CreateLoad(ptr(), b_.CreateConstGEP1_64(ptr(), list, i)));
            if (needed[i]) need(out.back());
        }
        return out;
    }

    llvm::Value* value_of(const BundlePointer& p) {
        llvm::Value* base = nullptr;
        switch (p.from) {
            case From::Nothing: return llvm::ConstantPointerNull::get(b_.getPtrTy());
            case From::Input: base = inputs_[p.index]; break;
            case From::Output: base = outputs_[p.index]; break;
            case From::Weights: base = weights_; break;
            case From::Arena: base = arena_; break;
        }
        return moved(base, b_.getInt64(uint64_t(p.offset)));
    }

    void emit(const BundleCall& call) {
        if (call.extent <= 0) return;
        for (size_t i = 0; i < call.args.size(); ++i)
            b_.CreateStore(value_of(call.args[i]), b_.CreateConstGEP2_64(args_type_, args_, 0, i));
        for (size_t i = 0; i < call.symbols.size(); ++i)
            b_.CreateStore(b_.getInt64(uint64_t(call.symbols[i])),
                           b_.CreateConstGEP2_64(symbols_type_, symbols_, 0, i));
        llvm::Function* launch = module_.getFunction(kernels_[call.kernel].symbols[call.launch]);
        CHECK(launch, "a launch of {} was not emitted", kernels_[call.kernel].kernel->name);
        llvm::Value* extent = b_.getInt64(uint64_t(call.extent));
        llvm::BasicBlock* after = nullptr;
        if (call.parallel && call.extent > 1) {
            llvm::BasicBlock *together = block("together"), *alone = block("alone");
            after = block("after");
            b_.CreateCondBr(b_.CreateIsNull(parallel_for_), alone, together);
            b_.SetInsertPoint(together);
            llvm::Value* fields[] = {launch, args_, symbols_, scratch_, b_.getInt64(uint64_t(call.scratch_bytes))};
            for (unsigned i = 0; i < std::size(fields); ++i)
                b_.CreateStore(fields[i], b_.CreateStructGEP(task_type(), task_, i));
            auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr(), i64(), ptr(), ptr()}, false);
            b_.CreateCall(type, parallel_for_, {context_, extent, piece_, task_});
            b_.CreateBr(after);
            b_.SetInsertPoint(alone);
        }
        b_.CreateCall(launch, {args_, symbols_, b_.getInt64(0), extent, scratch_});
        if (!after) return;
        b_.CreateBr(after);
        b_.SetInsertPoint(after);
    }

    void emit(const BundleCheck& check) {
        if (check.first >= check.count) return;
        llvm::Value* base = value_of(check.indices);
        llvm::BasicBlock *before = b_.GetInsertBlock(), *loop = block("check"), *next = block("next"),
                         *done = block("ok");
        b_.CreateBr(loop);
        b_.SetInsertPoint(loop);
        llvm::PHINode* i = b_.CreatePHI(i64(), 2);
        i->addIncoming(b_.getInt64(uint64_t(check.first)), before);
        llvm::Type* type = check.wide ? i64() : b_.getInt32Ty();
        llvm::Value* index = b_.CreateSExt(b_.CreateLoad(type, b_.CreateGEP(type, base, i)), i64());
        end_if(b_.CreateOr(b_.CreateICmpSLT(index, b_.getInt64(uint64_t(check.low))),
                           b_.CreateICmpSGE(index, b_.getInt64(uint64_t(check.high)))),
               2);
        b_.CreateBr(next);
        b_.SetInsertPoint(next);
        llvm::Value* following = b_.CreateAdd(i, b_.getInt64(uint64_t(check.step)));
        i->addIncoming(following, next);
        b_.CreateCondBr(b_.CreateICmpSLT(following, b_.getInt64(uint64_t(check.count))), loop, done);
        b_.SetInsertPoint(done);
    }

    void emit(const BundleCopy& copy) {
        const llvm::MaybeAlign any(1);
        if (copy.bytes > 0) b_.CreateMemCpy(value_of(copy.to), any, value_of(copy.from), any, uint64_t(copy.bytes));
    }

    const BundleEntry& entry_;
    const std::vector<PlannedKernel>& kernels_;
    const Target& target_;
    llvm::Module& module_;
    llvm::IRBuilder<> b_;
    llvm::Function* piece_ = nullptr;
    llvm::Type *args_type_ = nullptr, *symbols_type_ = nullptr;
    llvm::Value *args_ = nullptr, *symbols_ = nullptr, *task_ = nullptr, *parallel_for_ = nullptr, *context_ = nullptr;
    llvm::Value *weights_ = nullptr, *arena_ = nullptr, *scratch_ = nullptr;
    std::vector<llvm::Value*> inputs_, outputs_;
};

}  // namespace

Result<std::string> emit_bundle_object(const std::vector<Kernel>& kernels, const BundleEntry& entry,
                                       const CodegenOptions& options) {
    const Target target = TRY(find_target(options.target));
    const std::vector<PlannedKernel> planned = TRY(plan_kernels(kernels));
    return compile_module(planned, target, options, Form::Object,
                          [&](llvm::Module& module) { EntryEmitter(entry, planned, target, module).emit(); });
}

}  // namespace tessera
