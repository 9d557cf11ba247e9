// The operations that backends record: a row each.
#include "triage/flight_tables.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace oddrank {
namespace {

using Sizes = OpRule::Sizes;

// Only what is the same on all ranks of a right program is compared: not outputs of which only the
// root has one, and not splits that each rank chooses.
constexpr std::array kRules{
    OpRule{"all_reduce", "all_reduce", Sizes::input},
    OpRule{"allreduce", "all_reduce", Sizes::input},
    OpRule{"allreduce_coalesced", "all_reduce_coalesced", Sizes::input},
    OpRule{"all_reduce_sparse", "all_reduce", Sizes::none},
    OpRule{"all_reduce_barrier", "barrier", Sizes::none, false},
    OpRule{"barrier", "barrier", Sizes::none, false},
    OpRule{"monitored_barrier", "monitored_barrier", Sizes::none, false},
    OpRule{"broadcast", "broadcast", Sizes::input, true, false},
    OpRule{"_broadcast_oop", "broadcast", Sizes::input, true, false},
    OpRule{"reduce", "reduce", Sizes::input, true, false},
    OpRule{"_reduce_oop", "reduce", Sizes::input, true, false},
    OpRule{"all_gather", "all_gather", Sizes::input},
    OpRule{"allgather", "all_gather", Sizes::input},
    OpRule{"_all_gather_base", "all_gather_into_tensor", Sizes::input},
    OpRule{"all_gather_single", "all_gather_into_tensor", Sizes::input},
    OpRule{"all_gather_v", "all_gather", Sizes::none},
    OpRule{"all_gather_into_tensor_coalesced", "all_gather_into_tensor_coalesced", Sizes::input},
    OpRule{"ALLGATHER_coalesced", "all_gather_into_tensor_coalesced", Sizes::none},
    OpRule{"reduce_scatter", "reduce_scatter", Sizes::input},
    OpRule{"_reduce_scatter_base", "reduce_scatter_tensor", Sizes::input},
    OpRule{"reduce_scatter_single", "reduce_scatter_tensor", Sizes::input},
    OpRule{"reduce_scatter_v", "reduce_scatter", Sizes::input},
    OpRule{"reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_coalesced", Sizes::input},
    OpRule{"REDUCE_SCATTER_coalesced", "reduce_scatter_tensor_coalesced", Sizes::none},
    OpRule{"gather", "gather", Sizes::input, true, false},
    OpRule{"gather_single", "gather", Sizes::input, true, false},
    OpRule{"scatter", "scatter", Sizes::output, true, false},
    OpRule{"all_to_all", "all_to_all", Sizes::none},
    OpRule{"all_to_all_single", "all_to_all_single", Sizes::none},
    OpRule{"all_to_all_v_single", "all_to_all_single", Sizes::none},
    OpRule{"alltoall_base", "all_to_all_single", Sizes::none},
    OpRule{"send", "send", Sizes::none, true, false},
    OpRule{"recv", "recv", Sizes::none, true, false},
    OpRule{"recv_any_source", "recv", Sizes::none, true, false},
    OpRule{"coalesced", "coalesced", Sizes::none, false, false},
};

constexpr std::array<std::pair<std::string_view, std::int64_t>, 24> kDtypes{{{"Byte", 1},
                                                                             {"Char", 1},
                                                                             {"Bool", 1},
                                                                             {"Short", 2},
                                                                             {"Int", 4},
                                                                             {"Long", 8},
                                                                             {"Half", 2},
                                                                             {"BFloat16", 2},
                                                                             {"Float", 4},
                                                                             {"Double", 8},
                                                                             {"ComplexHalf", 4},
                                                                             {"ComplexFloat", 8},
                                                                             {"ComplexDouble", 16},
                                                                             {"Float8_e5m2", 1},
                                                                             {"Float8_e4m3fn", 1},
                                                                             {"Float8_e5m2fnuz", 1},
                                                                             {"Float8_e4m3fnuz", 1},
                                                                             {"Float8_e8m0fnu", 1},
                                                                             {"UInt16", 2},
                                                                             {"UInt32", 4},
                                                                             {"UInt64", 8},
                                                                             {"QInt8", 1},
                                                                             {"QUInt8", 1},
                                                                             {"QInt32", 4}}};

}  // namespace

const OpRule* op_rule(std::string_view recorded) noexcept {
  const auto* const found = std::ranges::find(kRules, recorded, &OpRule::recorded);
  return found == kRules.end() ? nullptr : found;
}

std::int64_t dtype_bytes(std::string_view dtype) noexcept {
  const auto* const found =
      std::ranges::find(kDtypes, dtype, [](const auto& row) { return row.first; });
  return found == kDtypes.end() ? 0 : found->second;
}

}  // namespace oddrank
