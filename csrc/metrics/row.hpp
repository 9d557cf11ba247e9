// A row of numbers: one line of a training log. The columns are a table.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "os/encoding.hpp"

namespace oddrank::metrics {

// total: iterations of the whole training. epoch: which may count its iterations anew. time:
// seconds since 1970, or since the training began where lines name no date. step: seconds of an
// iteration. tokens, samples: consumed until now. batch: samples of an iteration. tflops: a GPU's.
// skipped, nan: iterations of this row. slow_share: how much faster the fastest rank is than the
// slowest: 0.1 is 10 %.
// clang-format off
enum Column : std::uint8_t {
  kIteration, kTotal, kEpoch, kTime, kStepSeconds, kLoss, kGradNorm, kLearningRate, kTokens, kSamples,
  kBatch, kTflops, kTokensPerSecond, kSamplesPerSecond, kMfu, kLossScale, kSkipped, kNan, kSequence,
  kSlowShare, kSlowRank, kColumns
};
// clang-format on

// As --csv and --pattern name them.
inline constexpr std::string_view kColumnText =
    "iteration total epoch time step_seconds loss grad_norm learning_rate tokens samples batch "
    "tflops tokens_per_second samples_per_second mfu loss_scale skipped nan sequence slow_share "
    "slow_rank";
inline constexpr auto kColumnNames = split<kColumns>(kColumnText);

inline constexpr auto kNowhere = std::string_view::npos;
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// Smaller times are seconds since the training began: no training takes three years.
inline constexpr double kLeastDate = 1e8, kMostDate = 1e11;

struct Row {
  // step: the numbers of an iteration. straggler: of the ranks, without an iteration. The others
  // only note the job's work between two iterations.
  enum class Kind : std::uint8_t { step, straggler, start, checkpoint, evaluation };

  std::array<double, kColumns> values;
  std::uint64_t line = 0;    // number in its file, from 1
  std::uint64_t writer = 0;  // number of the writer; 0: the line does not name it
  std::int32_t rank = -1;    // global rank; -1: not said
  std::uint16_t file = 0;
  Kind kind = Kind::step;
  // A loss that is NaN or infinite was printed so. Other unknown values were not printed.
  bool loss_is_nan = false;
  bool grad_is_nan = false;

  Row() { values.fill(kUnknown); }
  double operator[](Column column) const { return values[column]; }
  double& operator[](Column column) { return values[column]; }
  bool has(Column column) const { return values[column] == values[column]; }
};

}  // namespace oddrank::metrics
