// A row of numbers: one line of a training log. The columns are a table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace oddrank::metrics {

enum Column : std::uint8_t {
  kIteration,
  kTotal,        // iterations of the whole training
  kTime,         // seconds since 1970; where lines name no date: since the training began
  kStepSeconds,  // of one iteration
  kLoss,
  kGradNorm,
  kLearningRate,
  kTokens,   // consumed until now
  kSamples,  // consumed until now
  kBatch,    // samples of one iteration
  kTflops,   // a GPU's
  kTokensPerSecond,
  kSamplesPerSecond,
  kMfu,
  kLossScale,
  kSkipped,  // iterations of this row
  kNan,      // iterations of this row
  kSequence,
  kLossMin,  // over the ranks, as kLossMax and the next two
  kLossMax,
  kStepMin,
  kStepMax,
  kSlowShare,  // how much faster the fastest rank is than the slowest one: 0.1 is 10 %
  kSlowRank,
  kColumns,
};

inline constexpr std::array<std::string_view, kColumns> kColumnNames{"iteration",
                                                                     "total",
                                                                     "time",
                                                                     "step_seconds",
                                                                     "loss",
                                                                     "grad_norm",
                                                                     "learning_rate",
                                                                     "tokens",
                                                                     "samples",
                                                                     "batch",
                                                                     "tflops",
                                                                     "tokens_per_second",
                                                                     "samples_per_second",
                                                                     "mfu",
                                                                     "loss_scale",
                                                                     "skipped",
                                                                     "nan",
                                                                     "sequence",
                                                                     "loss_min",
                                                                     "loss_max",
                                                                     "step_min",
                                                                     "step_max",
                                                                     "slow_share",
                                                                     "slow_rank"};

inline constexpr auto kNowhere = std::string_view::npos;
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// Smaller times are seconds since the training began: no training takes three years.
inline constexpr double kLeastDate = 1e8;

struct Row {
  // step: the numbers of an iteration. straggler: of the ranks, without an iteration. The others
  // only say what the job did between two iterations.
  enum class Kind : std::uint8_t { step, straggler, start, checkpoint, evaluation };

  std::array<double, kColumns> values;
  std::uint64_t line = 0;    // of its file, from 1
  std::uint64_t writer = 0;  // tells writers apart; 0: the line does not name its writer
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
