// The callable printflock: print's arguments become one message, the message one write.
#include <pybind11/stl.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string_view>

#include "os/clock.hpp"
#include "os/cpython.hpp"
#include "os/error.hpp"
#include "os/to_python.hpp"
#include "printing/lock.hpp"

namespace py = pybind11;

namespace oddrank {
void bind_printing(py::module_& m);
}

namespace oddrank::printing {
namespace {

// Settings of printflock. All but `warned` change only under the GIL.
struct State {
  Table* table = nullptr;  // null until _core.printing_open()
  std::int64_t timeout_ms = 1000;
  std::string prefix;
  std::uint64_t mid_line = 0;  // output that this process left in the middle of a line
  std::atomic<bool> warned = false;
};

State& state() noexcept {
  static State the_state;
  return the_state;
}

// A standard stream whose text we may encode and write ourselves, with the same result as its own
// write().
struct Target {
  int fd = -1;  // of the plain file; -1: none, go through file.write()
  bool utf8 = false;
};

// Never freed: types and names that outlive every call.
struct Names {
  PyObject* sep = PyUnicode_InternFromString("sep");
  PyObject* end = PyUnicode_InternFromString("end");
  PyObject* file = PyUnicode_InternFromString("file");
  PyObject* flush = PyUnicode_InternFromString("flush");
  PyObject* write = PyUnicode_InternFromString("write");
  PyObject* fileno = PyUnicode_InternFromString("fileno");
  PyObject* errors = PyUnicode_InternFromString("errors");
  PyObject* encoding = PyUnicode_InternFromString("encoding");
  PyObject* standard_output = PyUnicode_InternFromString("stdout");
  PyObject* sys = PyModule_GetDict(PyImport_AddModule("sys"));  // both are borrowed
  PyObject* text_type = of_io("TextIOWrapper");
  PyObject* buffered_type = of_io("BufferedWriter");
  PyObject* random_type = of_io("BufferedRandom");
  PyObject* raw_type = of_io("FileIO");

  static PyObject* of_io(const char* name) {
    return py::object(py::module_::import("io").attr(name)).release().ptr();
  }
};

const Names& names() {
  static const Names* const the_names = new Names;
  return *the_names;
}

bool is_exactly(PyObject* object, PyObject* type) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == type;
}

struct Known {  // owns its two references
  PyObject* file = nullptr;
  PyObject* encoding = nullptr;  // reconfigure() makes a new one
  Target target;
};

// Attributes of the instance: Python itself sets 'mode'; a replaced write() would show here.
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
  if (is_exactly(buffer.ptr(), names().buffered_type)) raw = buffer.attr("raw");
  if (!is_exactly(raw.ptr(), names().raw_type) || !PyUnicode_Check(encoding.ptr())) return {};
  const auto name = py::cast<std::string>(encoding.attr("lower")().attr("replace")("_", "-"));
  const bool utf8 = name == "utf-8" || name == "utf8";
  // Others may keep state between writes (a byte order mark, shifts).
  if (!utf8 && name != "ascii" && name != "us-ascii" && name != "latin-1" && name != "iso8859-1")
    return {};
  return {py::cast<int>(raw.attr("fileno")()), utf8};
}

// Examines each stream once, and later only checks that it is unchanged. `fd` is -1 also if the
// stream hides how it writes: a subclass, replaced methods, another file's newline.
Target find_target(PyObject* file) {
  static auto& known = *new std::array<Known, 2>;
  static std::size_t next = 0;
  if (!is_exactly(file, names().text_type) || !untouched(file)) return {};
  auto encoding = py::reinterpret_steal<py::object>(PyObject_GetAttr(file, names().encoding));
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

// Returns whether `file` is a text file over a plain file, whose flush() is one write(2).
bool flushes_cheaply(PyObject* file) {
  if (PyObject_IsInstance(file, names().text_type) != 1) return false;
  const py::object buffer = py::getattr(file, "buffer", py::none());
  return is_exactly(buffer.ptr(), names().buffered_type) ||
         is_exactly(buffer.ptr(), names().random_type) ||
         is_exactly(buffer.ptr(), names().raw_type);
}

constexpr std::size_t kSpareBytes = 1 << 18;

py::object owned(PyObject* object) {
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

Interrupt signals_of(WithoutGil& gil) {
  return {[](void* self) { return static_cast<WithoutGil*>(self)->run_signal_handlers(); }, &gil};
}

struct Options {
  PyObject* sep = nullptr;
  PyObject* end = nullptr;
  PyObject* file = nullptr;
  bool flush = false;
};

void set_option(Options& options, PyObject* name, PyObject* value) {
  const auto is = [name](PyObject* known) {
    return name == known || PyUnicode_Compare(name, known) == 0;
  };
  if (is(names().sep)) {
    options.sep = value;
  } else if (is(names().end)) {
    options.end = value;
  } else if (is(names().file)) {
    options.file = value;
  } else if (is(names().flush)) {
    const int truth = PyObject_IsTrue(value);
    if (truth < 0) throw py::error_already_set();
    options.flush = truth != 0;
  } else {
    PyErr_Format(PyExc_TypeError, "'%U' is an invalid keyword argument for printflock()", name);
    throw py::error_already_set();
  }
}

void check_string(PyObject*& value, const char* name) {
  if (value == Py_None) value = nullptr;
  if (value == nullptr || PyUnicode_Check(value)) return;
  PyErr_Format(PyExc_TypeError, "%s must be None or a string, not %.200s", name,
               Py_TYPE(value)->tp_name);
  throw py::error_already_set();
}

// A message being put together: UTF-8 that may hold lone surrogates, which are noted.
struct Message {
  std::string text;
  bool surrogates = false;

  void add(PyObject* object) {
    if (PyUnicode_CheckExact(object)) return add_string(object);
    add_string(owned(PyObject_Str(object)).ptr());  // may run anything, printflock included
  }

  void add_string(PyObject* string) {
    Py_ssize_t size = 0;
    if (const char* bytes = PyUnicode_AsUTF8AndSize(string, &size); bytes != nullptr) {
      text.append(bytes, static_cast<std::size_t>(size));
      return;
    }
    if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw py::error_already_set();
    PyErr_Clear();
    surrogates = true;
    const py::object bytes = owned(PyUnicode_AsEncodedString(string, "utf-8", "surrogatepass"));
    text.append(PyBytes_AS_STRING(bytes.ptr()),
                static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr())));
  }

  py::object decoded() const {
    return owned(
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogatepass"));
  }

  void add_prefix(std::uint64_t output) {
    State& mine = state();
    if (mine.prefix.empty() || text.empty()) return;
    text = prefix_lines(text, mine.prefix, mine.mid_line != output);
    if (text.back() != '\n')
      mine.mid_line = output;
    else if (mine.mid_line == output)
      mine.mid_line = 0;
  }
};

void warn_once(const Abandoned& abandoned, const Interrupt& interrupt) {
  State& mine = state();
  if (abandoned.pid == 0 || mine.warned.exchange(true)) return;
  const std::uint64_t key = output_key(STDERR_FILENO);
  Abandoned ignored;
  if (key != 0)
    static_cast<void>(write_message(*mine.table, STDERR_FILENO, key,
                                    abandoned_warning(abandoned, mine.timeout_ms), mine.timeout_ms,
                                    interrupt, ignored));
}

void raise_errno(int error) {
  errno = error;
  PyErr_SetFromErrno(PyExc_OSError);
  throw py::error_already_set();
}

void print_natively(PyObject* file, const Target& target, Message& message) {
  // The text of plain prints in the buffers comes first. A closed or detached file raises here.
  owned(PyObject_CallMethodNoArgs(file, names().flush));
  const std::uint64_t key = output_key(target.fd);
  if (key == 0) raise_errno(errno);
  message.add_prefix(key);
  std::string_view bytes = message.text;
  py::object encoded;
  if (message.surrogates || !target.utf8) {
    const auto encoding = py::cast<std::string>(py::handle(file).attr("encoding"));
    const auto errors = py::cast<std::string>(py::handle(file).attr(names().errors));
    encoded =
        owned(PyUnicode_AsEncodedString(message.decoded().ptr(), encoding.c_str(), errors.c_str()));
    bytes = {PyBytes_AS_STRING(encoded.ptr()),
             static_cast<std::size_t>(PyBytes_GET_SIZE(encoded.ptr()))};
  }
  if (bytes.empty()) return;
  State& mine = state();
  int error = 0;
  {
    WithoutGil gil;
    Abandoned abandoned;
    error = write_message(*mine.table, target.fd, key, bytes, mine.timeout_ms, signals_of(gil),
                          abandoned);
    warn_once(abandoned, signals_of(gil));
  }
  if (error == kInterrupted) throw py::error_already_set();
  if (error != 0) raise_errno(error);
}

// Returns the descriptor of a file object, -1 for io.StringIO, Jupyter's and captured streams.
int descriptor_of(PyObject* file) {
  const auto number =
      py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(file, names().fileno));
  const long fd = number && PyLong_Check(number.ptr()) ? PyLong_AsLong(number.ptr()) : -1;
  PyErr_Clear();
  return fd >= 0 && fd <= INT_MAX ? static_cast<int>(fd) : -1;
}

// Gives the turn back even if Python code raises.
struct EndTurn {
  Turn& turn;
  ~EndTurn() { turn.end(true); }
};

void print_through_python(PyObject* file, bool flush, Message& message) {
  const py::object write = owned(PyObject_GetAttr(file, names().write));
  const int fd = descriptor_of(file);
  const bool flush_now = flush || (fd >= 0 && flushes_cheaply(file));
  // Without a descriptor it may still be a wrapper around stdout.
  const std::uint64_t key = output_key(fd >= 0 ? fd : STDOUT_FILENO);
  message.add_prefix(fd >= 0 ? key : reinterpret_cast<std::uintptr_t>(file));
  const auto put = [&] {
    owned(PyObject_CallOneArg(write.ptr(), message.decoded().ptr()));
    if (flush_now) owned(PyObject_CallMethodNoArgs(file, names().flush));
  };
  State& mine = state();
  if (key == 0 || Hold::has(output_of(*mine.table, key))) return put();
  const int output = fd >= 0 ? fd : STDOUT_FILENO;
  Turn turn(*mine.table, key, mine.timeout_ms);
  if (!turn.try_take()) {
    bool taken = false;
    {
      WithoutGil gil;
      taken = take(turn, output, signals_of(gil));
    }
    if (!taken) throw py::error_already_set();
  }
  {
    const EndTurn end{turn};
    const Hold hold(*mine.table, key, Hold::Kind::kPython);
    if (fd >= 0 && turn.after_cut() && needs_new_line(fd)) message.text.insert(0, 1, '\n');
    put();
  }
  WithoutGil gil;
  warn_once(turn.abandoned(), signals_of(gil));
}

// Kept between the calls of a thread, so that most messages allocate nothing.
thread_local std::string spare;

void print(PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  if (state().table == nullptr) throw Error("printing_open() comes before printflock()");
  Options options;
  if (keywords != nullptr)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i)
      set_option(options, PyTuple_GET_ITEM(keywords, i), args[count + i]);
  check_string(options.sep, "sep");
  check_string(options.end, "end");
  if (options.file == nullptr || options.file == Py_None) {
    options.file = PyDict_GetItemWithError(names().sys, names().standard_output);
    if (options.file == nullptr) {
      PyErr_SetString(PyExc_RuntimeError, "lost sys.stdout");
      throw py::error_already_set();
    }
    if (options.file == Py_None) return;
  }
  const auto file =
      py::reinterpret_borrow<py::object>(options.file);  // __str__ may replace sys.stdout
  Message message{std::move(spare)};
  message.text.clear();
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (i > 0) options.sep == nullptr ? void(message.text += ' ') : message.add(options.sep);
    message.add(args[i]);
  }
  options.end == nullptr ? void(message.text += '\n') : message.add(options.end);
  const Target target = find_target(file.ptr());
  if (target.fd >= 0)
    print_natively(file.ptr(), target, message);
  else
    print_through_python(file.ptr(), options.flush, message);
  if (message.text.capacity() <= kSpareBytes) spare = std::move(message.text);
}

PyObject* printflock(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  try {
    print(args, count, keywords);
    Py_RETURN_NONE;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// Returns the callable `printflock`: args, sep=, end=, file=, flush=.
PyObject* make_printflock() {
  static PyMethodDef definition = {
      "printflock", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&printflock)),
      METH_FASTCALL | METH_KEYWORDS,
      "printflock(*args, sep=' ', end='\\n', file=None, flush=False)\n--\n\n"
      "print() whose messages stay whole, however many processes and threads write to the same\n"
      "file, pipe or terminal. Same arguments, output and errors as print(). To a standard stream\n"
      "each message is written at once, as with flush=True."};
  const py::object module_name = py::str("oddrank");
  return PyCFunction_NewEx(&definition, nullptr, module_name.ptr());
}

}  // namespace
}  // namespace oddrank::printing

void oddrank::bind_printing(py::module_& m) {
  m.def(
      "printing_open",
      [](const std::vector<std::string>& folders, double timeout_s) {
        const printing::LockFile file = printing::open_lock_file(folders);
        printing::state().table = file.table;
        printing::state().timeout_ms = ns_of_seconds(timeout_s) / kMs;
        return tuple_of({file.path, file.refused});
      },
      "folders"_a, "timeout_s"_a,
      "Opens the lock file in the first folder that can be used. Returns (path, why earlier "
      "folders were refused). The path is empty if only this process and its forked children share "
      "a lock.");
  m.def(
      "printing_prefix", [](std::string prefix) { printing::state().prefix = std::move(prefix); },
      "prefix"_a, "Sets the text before each line ('' for none).");
  m.attr("printflock") = py::reinterpret_steal<py::object>(printing::make_printflock());
}
