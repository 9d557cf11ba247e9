// Judges iterations one by one: levels (series.hpp), stops, streaks, slow ranks, new starts. Pure:
// numbers in, suspects out. The same rows give the same suspects, whether the log is whole or still
// grows.
#pragma once

#include "metrics/row.hpp"
#include "metrics/sequence.hpp"
#include "metrics/series.hpp"

namespace oddrank::metrics {

// A measure of speed. One GPU's speed comes first: the others change with the number of GPUs.
struct Speed {
  std::string_view unit;
  double value = kUnknown;
};
// Returns the best measure that a row has. `gap`: seconds since the row before, or unknown.
Speed speed_of(const Row& row, double iterations, double gap);

// The time before a row that is beyond the usual one.
struct Pause {
  double seconds = 0;     // 0: as long as usual
  bool is_stall = false;  // it is not expected again
};

// A change of a level, or a fault with the same numbers.
struct Suspect : Change {
  // loss-spike, loss-rise (not shown by 3 rows), grad-growth, slower (throughput): as Change.
  // stall: seconds beyond the usual. nan-loss, nan-grad, zero-loss (level: the last one above 0),
  // skipped. disagree (value: another loss than `level`), straggler. restart (count: lost
  // iterations, seconds: lost time).
  std::string_view kind;
  double fired = kUnknown;  // iteration after which it could be said
  double share = kUnknown;  // share of a drop or a slow rank: 0.05 is 5 %
  double seconds = kUnknown;
  std::uint64_t line = 0;
  std::uint16_t file = 0;
  std::vector<int> ranks;
};

// Where the time of a training went, in seconds. The rest made progress that was kept.
struct Spent {
  double all = 0;
  double down = 0;    // from the last iteration before a restart to the next one
  double again = 0;   // iterations that were done again
  double stalls = 0;  // beyond an iteration's usual time, as the next three
  double pauses = 0;  // checkpoints, evaluations
  double start = 0;   // the first rows of a run
  double slow = 0;    // iterations below the best level, while that is a finding
};

struct Figures {
  std::uint64_t rows = 0;  // iterations that were printed
  std::uint64_t restarts = 0;
  std::array<std::uint64_t, 3> judged{};  // rows: losses, grad norms, throughputs
  std::array<std::uint64_t, 3> gone{};    // the last rows, if they lack it and others did not
  std::uint64_t left_out = 0;             // suspects beyond kMostSuspects
  double lost_iterations = 0;
  Spent spent;
  double first_time = kUnknown;
  Row last;                 // the newest number of each column; a loss that is NaN has none
  double pace = kUnknown;   // seconds of an iteration, of the last rows
  double pauses = 0;        // seconds of an iteration that pauses add
  double speed = kUnknown;  // speed of the last rows
  double speed_kept = 1;    // the least share of it that a restart left
  std::string_view speed_unit;
};

class Verdicts {
 public:
  static constexpr std::size_t kMostSuspects = 1000;
  Verdicts();
  Verdicts(Verdicts&&) = default;  // those open stay where they are

  void add(const Step& step);
  // The log has been silent for so many seconds. Adds a suspect once that is a stall.
  void silence(double seconds);
  const std::deque<Suspect>& suspects() const { return suspects_; }
  Figures figures() const;

 private:
  // A series, and its suspect while there is one.
  struct Watched {
    Series series;
    std::string_view kind;
    Suspect* open = nullptr;
    std::uint64_t last = 0;  // row that had such a number
    std::uint64_t most = 1;  // rows from one that had it to the next
    void reset() { series.reset(), open = nullptr; }
    void see(std::uint64_t row) {
      if (last > 0) most = std::max(most, row - last);
      last = row;
    }
    std::uint64_t gone(std::uint64_t row) const { return row - last > 2 * most ? row - last : 0; }
  };
  // A run of bad rows.
  struct Streak {
    std::string_view kind;
    double count = 0;
    double first = kUnknown;
    Suspect* open = nullptr;
  };
  // A row of the training's present state: tables and gauges show it, the judge does not use it.
  struct Entry {
    double iterations;
    double stated;  // seconds of an iteration, as the line says
    double gap;
    Pause pause;
    bool is_long;
    Speed speed;
  };
  struct Spell {
    double iterations = 0;
    double seconds = 0;
    double first = kUnknown;
  };

  Suspect* report(std::string_view kind, const Row& row);
  void judge(Watched& watched, double value, const Row& row, double first, bool briefly = true);
  bool count(Streak& streak, double bad, bool good, double needed, const Row& row);
  void judge_numbers(const Step& step);
  void judge_speed(const Step& step, double gap);
  Pause judge_pause(const Step& step, double gap);
  void judge_stragglers(const Row& row);
  void judge_restart(const Step& step, double gap);
  void spend(double seconds, const Pause& pause);
  void remember(const Row& row);
  bool is_round(const Step& step) const;
  double pause_limit(const Step& step) const;
  double pace_by_clock() const;

  Watched loss_;
  Watched grad_;
  Watched speed_;
  Streak nan_loss_{"nan-loss"};
  Streak nan_grad_{"nan-grad"};
  Streak zero_loss_{"zero-loss"};
  Streak skipped_{"skipped"};
  double starting_ = 0;  // seconds of first rows, whose usual time is not known yet
  double starting_rows_ = 0;
  std::deque<Suspect> suspects_;  // which never move
  Figures figures_;
  std::deque<Entry> recent_;
  std::deque<double> gaps_;  // seconds of an iteration
  Spell spell_;              // rows by the clock that wait for more
  bool was_paused_ = false;
  double usual_gap_ = kUnknown;
  double longest_plain_ = 0;     // pauses without a sign, of late
  double longest_signed_ = 0;    // pauses with one
  std::size_t since_pause_ = 0;  // rows since a checkpoint, an evaluation, or a row that may be one
  double interval_ = kUnknown;
  std::size_t run_rows_ = 0;  // since the last start
  std::string_view unit_;
  Speed before_;                // right before the last restart
  Watched known_ = speed_;      // as it was then
  double above_zero_ = 0;       // the last loss that was not 0
  bool zero_is_usual_ = false;  // this loss was 0 now and then
  bool had_grad_ = false;
  bool had_step_ = false;
  Suspect* disagreement_ = nullptr;
  std::deque<std::pair<int, double>> slow_;  // rank, share
  std::vector<int> named_;                   // slow ranks that have a suspect
  bool silent_ = false;
  Step last_step_;
};

}  // namespace oddrank::metrics
