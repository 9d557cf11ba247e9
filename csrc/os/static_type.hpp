// The start of a hand-written Python type, with plain CPython.
#pragma once

#include <Python.h>

namespace oddrank {

// All fields are zero but the head. An unfinished initializer list, as CPython writes it, gives a
// warning for each of about 48 fields.
inline PyTypeObject blank_static_type() {
  struct {
    PyVarObject value;
  } head = {PyVarObject_HEAD_INIT(nullptr, 0)};
  PyTypeObject type{};
  type.ob_base = head.value;
  return type;
}

}  // namespace oddrank
