// oddrank._torch: what needs libtorch, built for one minor version of it. A list of its parts and
// nothing else.
#include <pybind11/pybind11.h>

#include "modules/module.hpp"

namespace oddrank {
void bind_collectives(pybind11::module_& m);  // trace/torch/bind_torch.cpp
}

PYBIND11_MODULE(_torch, m) {
  m.doc() =
      "oddrank's part for torch: the collective recorder. Use the functions of "
      "`oddrank.trace.collectives` instead.";
  oddrank::begin_module(m);
  m.attr("build_info")["torch"] = ODDRANK_TORCH_VERSION;
  m.attr("build_info")["proven"] = ODDRANK_TORCH_PROVEN;
  oddrank::bind_collectives(m);
}
