// Bindings of the collective recorder: plain tuples, so that torch's own pybind11 is never needed
// here.
#include "trace/torch/bind.hpp"

#include "trace/torch/collectives.hpp"

namespace oddrank {
namespace {

pybind11::list collective_tuples() {
  std::vector<trace::Collective> found;
  {
    const pybind11::gil_scoped_release release;
    found = trace::collectives();
  }
  pybind11::list tuples;
  for (const trace::Collective& c : found) {
    pybind11::object seq = pybind11::none();
    if (c.seq != trace::Collective::kNoSequence) seq = pybind11::int_(c.seq);
    tuples.append(pybind11::make_tuple(c.thread, c.group, seq, c.op, c.bytes));
  }
  return tuples;
}

}  // namespace

void bind_collectives(pybind11::module_& m) {
  using Release = pybind11::call_guard<pybind11::gil_scoped_release>;
  m.def("start_collectives", &trace::start_collectives, pybind11::arg("limit"), Release(),
        "Starts over with an empty list that keeps the newest `limit` collectives.");
  m.def("stop_collectives", &trace::stop_collectives, Release(),
        "Lets collectives pass unrecorded; what is recorded stays readable.");
  m.def("collectives", &collective_tuples, "The list of (thread, group, seq or None, op, bytes).");
  m.def("dropped_collectives", &trace::dropped_collectives, Release(),
        "How many collectives the list had no room for since the start.");
}

}  // namespace oddrank
