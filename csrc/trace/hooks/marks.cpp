// oddrank.step, mark and section, as plain CPython callables: pybind11 costs more than their work.
// They write into the ring of marks, and do nothing while the recorder is not armed.
#include <atomic>
#include <string_view>

#include "os/cpython.hpp"
#include "os/proc.hpp"
#include "trace/hooks/tracer.hpp"

namespace oddrank::trace::marks {
namespace {

constexpr std::uint64_t kLookEvery = 64;  // steps
constexpr std::size_t kLongest = sizeof(MarkSlot::text);

// Returns the UTF-8 of a str, cut between two characters to what a mark holds; null data with a
// Python error. A str without UTF-8 (stray bytes in a file name) gives "?": it must not end a job.
std::string_view mark_text(PyObject* text, const char* function) {
  if (PyUnicode_Check(text) == 0) {
    PyErr_Format(PyExc_TypeError, "%s() takes a str, not %.100s", function, Py_TYPE(text)->tp_name);
    return {};
  }
  const std::string_view bytes = utf8_of(text);
  if (bytes.data() == nullptr) return "?";
  std::size_t length = bytes.size();
  if (length > kLongest) {
    length = kLongest;
    while (length > 0 && (bytes[length] & 0xC0) == 0x80) --length;
  }
  return bytes.substr(0, length);
}

PyObject* none() noexcept { Py_RETURN_NONE; }

// Whether the script itself says where it is.
std::atomic<bool> told{false};
std::atomic<std::uint64_t> counted{0};

void note_step(std::uint64_t number) {
  Recorder* recorder = Tracer::current();
  if (recorder == nullptr) return;
  recorder->step(number, thread_id());
  if (number % kLookEvery == 0) {
    recorder->refresh_clock();
    hook::look();
  }
}

PyObject* step(PyObject* /*self*/, PyObject* number) {
  // Accepts tensors of one integer and numpy integers too.
  PyObject* index = PyNumber_Index(number);
  if (index == nullptr) return nullptr;
  const unsigned long long value = PyLong_AsUnsignedLongLong(index);
  Py_DECREF(index);
  const bool known = value != ~0ULL || PyErr_Occurred() == nullptr;
  PyErr_Clear();
  if (known) {
    told.store(true, std::memory_order_relaxed);
    note_step(value);
  }
  return none();
}

PyObject* count_step(PyObject* /*self*/, PyObject* /*unused*/) {
  if (!told.load(std::memory_order_relaxed)) {
    note_step(counted.fetch_add(1, std::memory_order_relaxed) + 1);
  }
  return none();
}

PyObject* mark(PyObject* /*self*/, PyObject* text) {
  const std::string_view bytes = mark_text(text, "mark");
  if (bytes.data() == nullptr) return nullptr;
  if (Recorder* recorder = Tracer::current()) {
    recorder->marks().add(MarkKind::kMark, 0, bytes, thread_id());
  }
  return none();
}

PyMethodDef step_method = {
    "step", &step, METH_O,
    "step(number, /)\n--\n\n"
    "Notes that training step `number` begins; reports show each rank's last one. Ignores negative "
    "numbers.\n\n"
    "Does nothing if the recorder is not armed. Raises TypeError if `number` is not an integer.\n\n"
    "Example: oddrank.step(number)"};
PyMethodDef count_step_method = {
    "count_step", &count_step, METH_NOARGS,
    "count_step()\n--\n\n"
    "Notes that one more training step is done, from 1 on, unless the script calls step()."};
PyMethodDef mark_method = {
    "mark", &mark, METH_O,
    "mark(text, /)\n--\n\n"
    "Notes `text` (its first 32 bytes of UTF-8) with the time, from any thread.\n\n"
    "Does nothing if the recorder is not armed. Raises TypeError if `text` is not a str.\n\n"
    "Example: oddrank.mark(\"batch 17\")"};

// A section. Entered again while it is open (recursion, threads), it stays one until its last exit.
// The GIL guards its fields.
struct Section {
  PyObject_HEAD PyObject* name;
  std::uint64_t number;   // set when it begins
  std::uint64_t entries;  // without their exits
};

std::atomic<std::uint64_t> sections{0};

PyObject* enter(PyObject* self, PyObject* /*unused*/) {
  auto* section = reinterpret_cast<Section*>(self);
  Py_INCREF(self);
  if (section->entries++ != 0) return self;
  section->number = sections.fetch_add(1, std::memory_order_relaxed) + 1;
  if (Recorder* recorder = Tracer::current()) {
    recorder->marks().begin_section(section->number, mark_text(section->name, "section"),
                                    thread_id());
  }
  return self;
}

PyObject* leave(PyObject* self, PyObject* const* /*args*/, Py_ssize_t /*count*/) {
  auto* section = reinterpret_cast<Section*>(self);
  if (section->entries == 0 || --section->entries != 0) Py_RETURN_FALSE;
  if (Recorder* recorder = Tracer::current()) {
    recorder->marks().end_section(section->number, mark_text(section->name, "section"),
                                  thread_id());
  }
  Py_RETURN_FALSE;
}

void destroy(PyObject* self) {
  Py_XDECREF(reinterpret_cast<Section*>(self)->name);
  PyObject_Free(self);
}

PyObject* make_section(PyObject* type, PyObject* const* args, std::size_t flags,
                       PyObject* keywords) {
  const bool named = keywords != nullptr && PyTuple_GET_SIZE(keywords) > 0;
  if (PyVectorcall_NARGS(flags) != 1 || named) {
    PyErr_SetString(PyExc_TypeError, "section() takes one argument, its name");
    return nullptr;
  }
  if (mark_text(args[0], "section").data() == nullptr) return nullptr;
  auto* section = PyObject_New(Section, reinterpret_cast<PyTypeObject*>(type));
  if (section == nullptr) return nullptr;
  Py_INCREF(args[0]);
  section->name = args[0];
  section->number = 0;
  section->entries = 0;
  return reinterpret_cast<PyObject*>(section);
}

PyMethodDef section_methods[] = {
    {"__enter__", &enter, METH_NOARGS, nullptr},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&leave)), METH_FASTCALL,
     nullptr},
    {nullptr, nullptr, 0, nullptr}};

// Returns a new reference; nullptr with a Python error.
PyObject* section_type() {
  static PyTypeObject type = [] {
    PyTypeObject made = blank_static_type();
    made.tp_name = "oddrank.section";
    made.tp_basicsize = sizeof(Section);
    made.tp_dealloc = &destroy;
    made.tp_flags = Py_TPFLAGS_DEFAULT;
    made.tp_doc =
        "section(name, /)\n--\n\n"
        "`with section(\"data\"):` notes begin and end with their times; reports show each rank's "
        "open sections.\n\n"
        "Keeps the first 32 bytes of the name's UTF-8. Does nothing if the recorder is not armed. "
        "Raises TypeError if `name` is not a str.";
    made.tp_methods = section_methods;
    made.tp_vectorcall = &make_section;
    return made;
  }();
  if (PyType_Ready(&type) != 0) return nullptr;
  auto* object = reinterpret_cast<PyObject*>(&type);
  Py_INCREF(object);
  return object;
}

}  // namespace
}  // namespace oddrank::trace::marks

namespace oddrank {

int bind_trace_marks(PyObject* module) {
  // torch.compile writes down where each function of its settings is imported from.
  PyObject* from = PyUnicode_FromString("oddrank");
  if (from == nullptr) return -1;
  const auto add = [module](const char* name, PyObject* made) {
    const bool added = made != nullptr && PyModule_AddObjectRef(module, name, made) == 0;
    Py_XDECREF(made);
    return added;
  };
  const bool added =
      add("step", PyCFunction_NewEx(&trace::marks::step_method, nullptr, from)) &&
      add("count_step", PyCFunction_NewEx(&trace::marks::count_step_method, nullptr, from)) &&
      add("mark", PyCFunction_NewEx(&trace::marks::mark_method, nullptr, from)) &&
      add("section", trace::marks::section_type());
  Py_DECREF(from);
  return added ? 0 : -1;
}

}  // namespace oddrank
