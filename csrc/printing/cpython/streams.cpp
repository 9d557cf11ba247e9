// Decides which file objects we may write natively: standard streams as Python made them.
#include <array>

#include "printing/cpython/printflock.hpp"

namespace py = pybind11;

namespace oddrank::printing {
namespace {

// Never freed: types and names that outlive every call.
struct Standard {
  PyObject* text_type;
  PyObject* buffered_type;
  PyObject* random_type;
  PyObject* raw_type;
  PyObject* encoding = PyUnicode_InternFromString("encoding");

  Standard() {
    const py::module_ io = py::module_::import("io");
    text_type = py::object(io.attr("TextIOWrapper")).release().ptr();
    buffered_type = py::object(io.attr("BufferedWriter")).release().ptr();
    random_type = py::object(io.attr("BufferedRandom")).release().ptr();
    raw_type = py::object(io.attr("FileIO")).release().ptr();
  }
};

const Standard& standard() {
  static const Standard* const the_standard = new Standard;
  return *the_standard;
}

bool is_exactly(PyObject* object, PyObject* type) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == type;
}

struct Known {  // owns its two references
  PyObject* file = nullptr;
  PyObject* encoding = nullptr;  // reconfigure() makes a new one
  Target target;
};

// Attributes of the instance: 'mode' is what Python itself sets; a replaced write() would show
// here.
bool untouched(PyObject* file) {
  const auto attributes = py::reinterpret_steal<py::dict>(PyObject_GenericGetDict(file, nullptr));
  if (!attributes) throw py::error_already_set();
  return attributes.empty() || (attributes.size() == 1 && attributes.contains("mode"));
}

Target examine(PyObject* file, const py::object& encoding) {
  // Their newline is "\n"; the newline of a file that somebody opened cannot be asked for.
  if (file != PySys_GetObject("__stdout__") && file != PySys_GetObject("__stderr__")) return {};
  const py::object buffer = py::handle(file).attr("buffer");
  py::object raw = buffer;
  if (is_exactly(buffer.ptr(), standard().buffered_type)) raw = buffer.attr("raw");
  if (!is_exactly(raw.ptr(), standard().raw_type) || !PyUnicode_Check(encoding.ptr())) return {};
  const auto name = py::cast<std::string>(encoding.attr("lower")().attr("replace")("_", "-"));
  const bool utf8 = name == "utf-8" || name == "utf8";
  // Others may keep state between writes (a byte order mark, shifts).
  if (!utf8 && name != "ascii" && name != "us-ascii" && name != "latin-1" && name != "iso8859-1")
    return {};
  return {py::cast<int>(raw.attr("fileno")()), utf8};
}

}  // namespace

Target find_target(PyObject* file) {
  static auto& known = *new std::array<Known, 2>;
  static std::size_t next = 0;
  if (!is_exactly(file, standard().text_type) || !untouched(file)) return {};
  auto encoding = py::reinterpret_steal<py::object>(PyObject_GetAttr(file, standard().encoding));
  if (!encoding) throw py::error_already_set();
  for (const Known& one : known)
    if (one.file == file && one.encoding == encoding.ptr()) return one.target;
  const Target target = examine(file, encoding);
  if (target.fd >= 0) {
    Known& slot = known[next++ % known.size()];
    const auto former_file = py::reinterpret_steal<py::object>(slot.file);
    const auto former_encoding = py::reinterpret_steal<py::object>(slot.encoding);
    slot = {py::handle(file).inc_ref().ptr(), encoding.release().ptr(), target};
  }
  return target;
}

bool flushes_cheaply(PyObject* file) {
  if (PyObject_IsInstance(file, standard().text_type) != 1) return false;
  const py::object buffer = py::getattr(file, "buffer", py::none());
  return is_exactly(buffer.ptr(), standard().buffered_type) ||
         is_exactly(buffer.ptr(), standard().random_type) ||
         is_exactly(buffer.ptr(), standard().raw_type);
}

}  // namespace oddrank::printing
