// Bindings of csrc/metrics: translate types, release the GIL; no logic.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "metrics/job.hpp"
#include "os/cpython.hpp"
#include "os/to_python.hpp"

namespace oddrank {
namespace py = pybind11;

namespace {

// The bytes of an object that has them in one piece, held while this lives. Raises BufferError for
// another object, such as a memoryview with steps.
class Bytes {
 public:
  explicit Bytes(const py::object& object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) {
      throw py::error_already_set();
    }
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { PyBuffer_Release(&buffer_); }
  std::string_view view() const {
    return {static_cast<const char*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
  }

 private:
  Py_buffer buffer_{};
};

Value number_or_none(double value) { return std::isfinite(value) ? Value(value) : Value(); }

Value date_or_none(double seconds) {
  return number_or_none(seconds < metrics::kLeastDate ? metrics::kUnknown : seconds);
}

py::dict to_dict(const metrics::Suspect& suspect) {
  return dict_of({{"kind", metrics::name_of(suspect.kind)},
                  {"shape", suspect.shape},
                  {"first", number_or_none(suspect.first)},
                  {"fired", number_or_none(suspect.fired)},
                  {"until", number_or_none(suspect.until)},
                  {"at", number_or_none(suspect.at)},
                  {"value", number_or_none(suspect.value)},
                  {"level", number_or_none(suspect.level)},
                  {"share", number_or_none(suspect.share)},
                  {"seconds", number_or_none(suspect.seconds)},
                  {"count", suspect.count},
                  {"known", suspect.known},
                  {"line", suspect.line},
                  {"file", suspect.file},
                  {"ranks", py::cast(suspect.ranks)}});
}

py::dict to_dict(const metrics::Figures& figures) {
  const metrics::Spent& spent = figures.spent;
  py::dict made = dict_of({{"rows", figures.rows},
                           {"restarts", figures.restarts},
                           {"judged", py::cast(figures.judged)},
                           {"left_out", figures.left_out},
                           {"lost_iterations", figures.lost_iterations},
                           {"lost_seconds", spent.down + spent.again},
                           {"down_seconds", spent.down},
                           {"first_time", date_or_none(figures.first_time)},
                           {"pace", number_or_none(figures.pace)},
                           {"pauses", figures.pauses},
                           {"speed", number_or_none(figures.speed)},
                           {"speed_unit", figures.speed_unit}});
  add(made, {{"spent", dict_of({{"all", spent.all},
                                {"restarts", spent.down},
                                {"iterations done again", spent.again},
                                {"stalls", spent.stalls},
                                {"pauses", spent.pauses},
                                {"start-up", spent.start},
                                {"slow iterations", spent.slow}})}});
  py::dict last;
  for (std::size_t column = 0; column < metrics::kColumns; ++column) {
    last[text(metrics::kColumnNames[column])] =
        object_of(number_or_none(figures.last.values[column]));
  }
  add(last, {{"time", date_or_none(figures.last[metrics::kTime])}});
  add(made, {{"last", last},
             {"loss_is_nan", figures.last.loss_is_nan},
             {"grad_is_nan", figures.last.grad_is_nan}});
  return made;
}

}  // namespace

void bind_metrics(py::module_& m) {
  using metrics::Job;
  py::class_<Job>(m, "Metrics", "The numbers of a training's logs, judged as they are read.")
      .def(py::init([](const std::vector<std::int64_t>& references_ns, std::size_t rows, bool csv,
                       const std::string& pattern) {
             return Job(references_ns, {rows, csv, pattern});
           }),
           py::arg("references_ns"), py::arg("rows") = Job::Limits{}.rows, py::arg("csv") = false,
           py::arg("pattern") = "")
      .def("feed",
           [](Job& job, std::size_t file, const py::object& bytes) {
             const Bytes held(bytes);
             const WithoutGil unlocked;
             job.feed(file, held.view());
           })
      .def("end", &Job::end, py::call_guard<WithoutGil>())
      .def("pause", &Job::pause, py::call_guard<WithoutGil>())
      .def("replace", &Job::replace, py::call_guard<WithoutGil>())
      .def("wanted", &Job::wanted)
      .def("flush", &Job::flush, py::call_guard<WithoutGil>())
      .def("silence", &Job::silence)
      .def("suspects",
           [](const Job& job) {
             py::list made;
             for (const metrics::Suspect& suspect : job.verdicts().suspects()) {
               append(made, to_dict(suspect));
             }
             return made;
           })
      .def("figures", [](const Job& job) { return to_dict(job.verdicts().figures()); })
      .def("lines", &Job::lines)
      .def("csv", [](Job& job) { return py::bytes(job.take_csv()); })
      .def("points", [](const Job& job) {
        const std::vector<Job::Point>& points = job.points();
        py::list made;
        for (const Job::Point& p : points) {
          append(made, {p[0], p[1], p[2], p[3], p[4], p[5] > 0});
        }
        return made;
      });
}

}  // namespace oddrank
