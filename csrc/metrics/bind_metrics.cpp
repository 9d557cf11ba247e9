// Bindings of csrc/metrics: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include <cmath>

#include "metrics/job.hpp"
#include "os/cpython.hpp"
#include "os/to_python.hpp"

namespace oddrank {
namespace {

Value number_or_none(double value) { return std::isfinite(value) ? Value(value) : Value(); }

Value date_or_none(double seconds) {
  return number_or_none(seconds < metrics::kLeastDate ? metrics::kUnknown : seconds);
}

py::dict to_dict(const metrics::Suspect& suspect) {
  return dict_of(
      {"kind"_k = suspect.kind, "shape"_k = suspect.shape,
       "first"_k = number_or_none(suspect.first), "fired"_k = number_or_none(suspect.fired),
       "until"_k = number_or_none(suspect.until), "at"_k = number_or_none(suspect.at),
       "value"_k = number_or_none(suspect.value), "level"_k = number_or_none(suspect.level),
       "share"_k = number_or_none(suspect.share), "seconds"_k = number_or_none(suspect.seconds),
       "count"_k = suspect.count, "known"_k = suspect.known, "line"_k = suspect.line,
       "file"_k = suspect.file, "ranks"_k = py::cast(suspect.ranks)});
}

py::dict to_dict(const metrics::Figures& figures) {
  const metrics::Spent& spent = figures.spent;
  py::dict made = dict_of(
      {"rows"_k = figures.rows, "restarts"_k = figures.restarts,
       "judged"_k = py::cast(figures.judged), "gone"_k = py::cast(figures.gone),
       "left_out"_k = figures.left_out, "lost_iterations"_k = figures.lost_iterations,
       "lost_seconds"_k = spent.down + spent.again, "down_seconds"_k = spent.down,
       "first_time"_k = date_or_none(figures.first_time), "pace"_k = number_or_none(figures.pace),
       "pauses"_k = figures.pauses, "speed"_k = number_or_none(figures.speed),
       "speed_kept"_k = figures.speed_kept, "speed_unit"_k = figures.speed_unit});
  add(made, {"spent"_k = dict_of({"all"_k = spent.all, "restarts"_k = spent.down,
                                  "iterations done again"_k = spent.again,
                                  "stalls"_k = spent.stalls, "pauses"_k = spent.pauses,
                                  "start-up"_k = spent.start, "slow iterations"_k = spent.slow})});
  py::dict last;
  for (std::size_t column = 0; column < metrics::kColumns; ++column) {
    last[text(metrics::kColumnNames[column])] =
        object_of(number_or_none(figures.last.values[column]));
  }
  add(last, {"time"_k = date_or_none(figures.last[metrics::kTime])});
  add(made, {"last"_k = last, "loss_is_nan"_k = figures.last.loss_is_nan,
             "grad_is_nan"_k = figures.last.grad_is_nan});
  return made;
}

}  // namespace

void bind_metrics(py::module_& m) {
  using metrics::Job;
  py::class_<Job>(m, "Metrics")
      .def(py::init([](const std::vector<std::int64_t>& references_ns, bool csv,
                       const std::string& pattern) {
             return Job(references_ns, {Job::Limits{}.rows, csv, pattern});
           }),
           "references_ns"_a, "csv"_a = false, "pattern"_a = "")
      .def("feed",
           [](Job& job, std::size_t file, const py::bytes& bytes) {
             const std::string_view text = bytes;
             const WithoutGil unlocked;
             job.feed(file, text);
           })
      .def("end", &Job::end, py::call_guard<WithoutGil>())
      .def("pause", &Job::pause, py::call_guard<WithoutGil>())
      .def("replace", &Job::replace, py::call_guard<WithoutGil>())
      .def("wanted", &Job::wanted)
      .def("flush", &Job::flush, py::call_guard<WithoutGil>())
      .def("silence", &Job::silence)
      .def("suspects",
           [](const Job& job) {
             return list_of(job.verdicts().suspects(),
                            [](const auto& suspect) { return to_dict(suspect); });
           })
      .def("figures", [](const Job& job) { return to_dict(job.verdicts().figures()); })
      .def("lines", &Job::lines)
      .def("csv", [](Job& job) { return py::bytes(job.take_csv()); })
      .def("points", [](const Job& job) {
        return list_of(job.points(), [](const auto& p) {
          return tuple_of({p[0], p[1], p[2], p[3], p[4], p[5] > 0});
        });
      });
}

}  // namespace oddrank
