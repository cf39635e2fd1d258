#include "graph/onnx_since.h"

#include <map>
#include <sstream>
#include <unordered_map>

namespace tessera {
namespace {

struct Group {
    const char* domain;
    int opset;
    const char* names;
};

// What came with each version. test/python holds this against the onnx package.
constexpr Group kGroups[] = {
    {"", 7, "Acos Asin Atan Cos Multinomial Sin Tan"},
    {"", 8, "Expand Scan"},
    {"", 9,
     "Acosh Asinh Atanh Compress ConstantOfShape Cosh Erf EyeLike IsNaN MaxUnpool "
     "MeanVarianceNormalization NonZero OneHot Scatter Shrink Sign Sinh TfIdfVectorizer Where"},
    {"", 10,
     "ConvInteger DequantizeLinear IsInf MatMulInteger Mod NonMaxSuppression QLinearConv "
     "QLinearMatMul QuantizeLinear Resize ReverseSequence RoiAlign StringNormalizer "
     "ThresholdedRelu"},
    {"", 11,
     "BitShift ConcatFromSequence CumSum Det DynamicQuantizeLinear GatherElements GatherND Range "
     "Round ScatterElements ScatterND SequenceAt SequenceConstruct SequenceEmpty SequenceErase "
     "SequenceInsert SequenceLength SplitToSequence Unique"},
    {"", 12, "Celu Einsum GreaterOrEqual LessOrEqual NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"},
    {"", 14, "HardSwish Trilu"},
    {"", 15, "Bernoulli CastLike Optional OptionalGetElement OptionalHasElement"},
    {"", 16, "GridSample"},
    {"", 17,
     "BlackmanWindow DFT HammingWindow HannWindow LayerNormalization MelWeightMatrix STFT "
     "SequenceMap"},
    {"", 18, "BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im GroupNormalization Mish"},
    {"", 19, "DeformConv"},
    {"", 20, "AffineGrid Gelu ImageDecoder RegexFullMatch StringConcat StringSplit"},
    {"", 23, "Attention RMSNormalization RotaryEmbedding"},
    {"", 24, "Swish TensorScatter"},
    {"", 26, "BitCast CumProd"},
    {"", 27, "CausalConvWithState LinearAttention"},
    {"", 28, "SwiGLU"},
    {"ai.onnx.ml", 5, "TreeEnsemble"},
};

}  // namespace

int onnx_since(const std::string& domain, const std::string& name) {
    static const auto kTable = [] {
        std::unordered_map<std::string, int> table;
        for (const Group& group : kGroups) {
            std::istringstream names(group.names);
            for (std::string word; names >> word;) table[group.domain + (":" + word)] = group.opset;
        }
        return table;
    }();
    auto it = kTable.find(domain + ":" + name);
    return it == kTable.end() ? 1 : it->second;
}

int newest_opset(const std::string& domain) {
    static const std::map<std::string, int> kNewest = {
        {"", 28}, {"ai.onnx.ml", 5}, {"ai.onnx.preview", 1}, {"ai.onnx.preview.training", 1}};
    auto it = kNewest.find(domain);
    return it == kNewest.end() ? 1 : it->second;
}

int ir_version_of(int opset) {
    static constexpr int kFirst[][2] = {{28, 14}, {25, 13}, {24, 12}, {23, 11}, {21, 10},
                                        {19, 9},  {15, 8},  {12, 7},  {11, 6},  {10, 5}};
    for (auto [from, ir] : kFirst)
        if (opset >= from) return ir;
    return 4;  // the first in which an initialiser need not be an input
}

}  // namespace tessera
