// Types and values between ONNX's messages and ours. Elements are shared, not copied, wherever their layout allows.
#pragma once

#include <functional>

#include "graph/attr.h"
#include "graph/tensor.h"
#include "graph/type.h"
#include "onnx/data_source.h"
#include "onnx/model.h"

namespace tessera {

// What a dimension named `param` is; by default symbol(param).
using DimNamer = std::function<Dim(const std::string& param)>;

// A dimension without a name, or named "?" or "None", becomes the symbol `<name>.d<i>`. E0209 for a kind we have not, E0213 for an element type.
Result<Type> type_from_onnx(const onnx::Type& type, const std::string& name, const DimNamer& namer = symbol);
onnx::Type type_to_onnx(const Type& type);

Result<Tensor> tensor_from_onnx(const onnx::Tensor& tensor, const onnx::DataSource& source = {});
Result<Tensor> tensor_from_onnx(const onnx::SparseTensor& tensor, const onnx::DataSource& source = {});
onnx::Tensor tensor_to_onnx(const Tensor& tensor, std::string name);

// Hints (AttrDef::hint), which ONNX keeps as a node's metadata "tessera.<name>": whole numbers with commas between.
inline const std::string kHintPrefix = "tessera.";
std::string hint_to_onnx(const Attr& attr);
std::optional<Attr> hint_from_onnx(AttrKind kind, const std::string& text);

Result<Datum> datum_from_onnx(const onnx::Sequence& sequence);
Result<Datum> datum_from_onnx(const onnx::Optional& optional);

}  // namespace tessera
