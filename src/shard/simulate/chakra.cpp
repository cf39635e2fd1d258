#include "shard/simulate/chakra.h"

#include <cmath>
#include <protozero/pbf_writer.hpp>
#include <protozero/varint.hpp>

namespace tessera::shard {
namespace {

constexpr const char* kSchemaVersion = "0.0.4";

// Fields and numbers of Chakra's et_def.proto.
enum NodeType : int32_t { kCompute = 4, kSend = 5, kReceive = 6, kCollective = 7 };
enum NodeField : protozero::pbf_tag_type { kId = 1, kName = 2, kType = 3, kDataDeps = 5, kDuration = 7, kAttr = 10 };
enum AttrField : protozero::pbf_tag_type {
    kAttrName = 1,
    kInt32 = 7,
    kInt64 = 9,
    kUint64 = 13,
    kBool = 27,
    kBools = 28
};

int64_t comm_type(CollectiveKind kind) {
    switch (kind) {
        case CollectiveKind::AllReduce: return 0;
        case CollectiveKind::AllGather: return 2;
        case CollectiveKind::AllToAll: return 6;
        case CollectiveKind::ReduceScatter: return 7;
        case CollectiveKind::SendReceive: return 6;  // a halo: an exchange with neighbours
    }
    return 0;
}

class ChakraWriter {
  public:
    explicit ChakraWriter(const TracedMesh& traced, int64_t rank) : traced_(traced), rank_(rank) {}

    std::string run() {
        std::string metadata;
        protozero::pbf_writer(metadata).add_string(1, kSchemaVersion);
        append(metadata);
        const int64_t stage = traced_.pipeline ? traced_.mesh.coordinate(rank_, *traced_.pipeline) : 0;
        for (const TracedPass& pass : traced_.stages[size_t(stage)]) add(pass);
        return std::move(file_);
    }

  private:
    using Id = uint64_t;

    void append(const std::string& message) {
        protozero::write_varint(std::back_inserter(file_), message.size());
        file_ += message;
    }

    // A node that follows `after`.
    template <typename F>
    Id node(const std::string& name, NodeType type, const std::vector<Id>& after, double seconds, const F& attributes) {
        std::string message;
        protozero::pbf_writer w(message);
        const Id id = next_++;
        w.add_uint64(kId, id);
        w.add_string(kName, name);
        w.add_enum(kType, type);
        w.add_packed_uint64(kDataDeps, after.begin(), after.end());
        if (seconds > 0) w.add_uint64(kDuration, uint64_t(std::llround(std::max(1.0, seconds * 1e6))));
        attribute(w, "is_cpu_op", [](protozero::pbf_writer& a) { a.add_bool(kBool, false); });
        attributes(w);
        append(message);
        return id;
    }
    template <typename F>
    static void attribute(protozero::pbf_writer& node, const char* name, const F& value) {
        protozero::pbf_writer a(node, kAttr);
        a.add_string(kAttrName, name);
        value(a);
    }
    static void int64(protozero::pbf_writer& node, const char* name, int64_t value) {
        attribute(node, name, [&](protozero::pbf_writer& a) { a.add_int64(kInt64, value); });
    }
    static void int32(protozero::pbf_writer& node, const char* name, int64_t value) {
        attribute(node, name, [&](protozero::pbf_writer& a) { a.add_int32(kInt32, int32_t(value)); });
    }

    void message(protozero::pbf_writer& w, int64_t from, int64_t to, const TracedPass::Message& m) const {
        int64(w, "comm_size", int64_t(m.bytes));
        int32(w, "comm_src", from);
        int32(w, "comm_dst", to);
        int32(w, "comm_tag", m.tag);
    }
    // The rank at this one's place on another stage.
    int64_t peer(int64_t stage) const {
        int64_t stride = 1;
        for (size_t a = traced_.mesh.axes().size(); --a > *traced_.pipeline;) stride *= traced_.mesh.size(a);
        return rank_ + (stage - traced_.mesh.coordinate(rank_, *traced_.pipeline)) * stride;
    }

    void add(const TracedPass& pass) {
        std::vector<Id> after;
        if (last_) after.push_back(*last_);
        if (const auto& r = pass.receives) {
            after.push_back(node("receive " + pass.name, kReceive, {}, 0,
                                 [&](protozero::pbf_writer& w) { message(w, peer(r->stage), rank_, *r); }));
        }
        if (pass.seconds > 0) {
            last_ = node(pass.name, kCompute, after, pass.seconds, [&](protozero::pbf_writer& w) {
                int64(w, "num_ops", int64_t(pass.flops));
                attribute(w, "tensor_size",
                          [&](protozero::pbf_writer& a) { a.add_uint64(kUint64, uint64_t(pass.bytes)); });
            });
            after = {*last_};
        }
        for (const TracedCollective& c : pass.collectives) {
            last_ = node(pass.name, kCollective, after, 0, [&](protozero::pbf_writer& w) {
                int64(w, "comm_type", comm_type(c.kind));
                int64(w, "comm_size", int64_t(c.bytes));
                attribute(w, "involved_dim", [&](protozero::pbf_writer& a) {
                    protozero::pbf_writer list(a, kBools);
                    std::vector<bool> dims;  // innermost first
                    for (size_t axis = traced_.mesh.axes().size(); axis-- > 0;)
                        dims.push_back(std::find(c.axes.begin(), c.axes.end(), axis) != c.axes.end());
                    list.add_packed_bool(1, dims.begin(), dims.end());
                });
            });
            after = {*last_};
        }
        if (const auto& s = pass.sends)
            node("send " + pass.name, kSend, after, 0,
                 [&](protozero::pbf_writer& w) { message(w, rank_, peer(s->stage), *s); });
    }

    const TracedMesh& traced_;
    const int64_t rank_;
    std::string file_;
    Id next_ = 0;
    std::optional<Id> last_;
};

}  // namespace

std::string chakra_trace(const TracedMesh& traced, int64_t rank) { return ChakraWriter(traced, rank).run(); }

}  // namespace tessera::shard
