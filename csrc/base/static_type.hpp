// How a Python type begins that is written by hand, with plain CPython.
#pragma once

#include <Python.h>

namespace oddrank {

// Everything zero but the head. CPython's way, an initializer list that is left unfinished, is one
// warning for each of some 48 fields.
inline PyTypeObject blank_static_type() {
  struct {
    PyVarObject value;
  } head = {PyVarObject_HEAD_INIT(nullptr, 0)};
  PyTypeObject type{};
  type.ob_base = head.value;
  return type;
}

}  // namespace oddrank
