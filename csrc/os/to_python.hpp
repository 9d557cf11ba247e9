// Makes Python objects from C++ values. pybind11's templates (py::make_tuple, dict["key"] = value)
// are compiled anew for each combination of types and take most of a binding's build time; these
// functions are compiled once.
#pragma once

#include <pybind11/pybind11.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "os/clock.hpp"

// Python gives a deadline as seconds from now on.
template <>
struct pybind11::detail::type_caster<oddrank::Deadline> {
  PYBIND11_TYPE_CASTER(oddrank::Deadline, const_name("float"));
  bool load(handle seconds, bool /*convert*/) {
    const double given = PyFloat_AsDouble(seconds.ptr());
    const bool failed = PyErr_Occurred() != nullptr;
    PyErr_Clear();
    value = oddrank::Deadline::after_seconds(given);
    return !failed;
  }
};

namespace oddrank {
namespace py = pybind11;
using namespace pybind11::literals;  // "name"_a

// Decodes UTF-8. Each invalid byte becomes U+FFFD: a broken name must not lose a report.
[[gnu::noinline]] inline pybind11::str text(std::string_view bytes) {
  PyObject* made =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (made == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(made);
}

// A value that becomes a Python object: None (an empty optional, a null string), bool, int, float,
// str (decoded as by text()) or the object itself. Borrows strings and objects: it must not outlive
// the expression that makes it.
class Value {
 public:
  Value() = default;  // None
  Value(bool value) : kind_(Kind::kBool) { as_.truth = value; }
  template <std::signed_integral T>
  Value(T value) : kind_(Kind::kSigned) {
    as_.integer = value;
  }
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Value(T value) : kind_(Kind::kUnsigned) { as_.natural = value; }
  Value(double value) : kind_(Kind::kDouble) { as_.real = value; }
  Value(std::string_view value) : kind_(Kind::kText) { as_.text = {value.data(), value.size()}; }
  Value(const std::string& value) : Value(std::string_view(value)) {}
  Value(const char* value) {
    if (value != nullptr) *this = std::string_view(value);
  }
  Value(const pybind11::handle& object) : kind_(Kind::kObject) { as_.object = object.ptr(); }
  template <class T>
  Value(const std::optional<T>& value) {
    if (value) *this = Value(*value);
  }

  // Returns a new reference.
  [[gnu::noinline]] PyObject* make() const {
    PyObject* made = nullptr;
    switch (kind_) {
      case Kind::kNone:
        Py_RETURN_NONE;
      case Kind::kBool:
        made = PyBool_FromLong(as_.truth ? 1 : 0);
        break;
      case Kind::kSigned:
        made = PyLong_FromLongLong(as_.integer);
        break;
      case Kind::kUnsigned:
        made = PyLong_FromUnsignedLongLong(as_.natural);
        break;
      case Kind::kDouble:
        made = PyFloat_FromDouble(as_.real);
        break;
      case Kind::kText:
        return text({as_.text.data, as_.text.size}).release().ptr();
      case Kind::kObject:
        Py_INCREF(as_.object);
        return as_.object;
    }
    if (made == nullptr) throw pybind11::error_already_set();
    return made;
  }

 private:
  enum class Kind : std::uint8_t { kNone, kBool, kSigned, kUnsigned, kDouble, kText, kObject };
  Kind kind_ = Kind::kNone;
  union {
    bool truth;
    long long integer;
    unsigned long long natural;
    double real;
    struct {
      const char* data;
      std::size_t size;
    } text;
    PyObject* object;
  } as_{};
};

// Returns None for a negative number, which stands for an unknown value.
inline Value known_or_none(std::int64_t value) { return value < 0 ? Value() : Value(value); }

// "key"_k = value
struct Field {
  const char* key;
  Value value;
};
struct Key {
  const char* name;
  Field operator=(Value value) const { return {name, value}; }
};
constexpr Key operator""_k(const char* name, std::size_t /*size*/) { return {name}; }

[[gnu::noinline]] inline pybind11::object object_of(Value value) {
  return pybind11::reinterpret_steal<pybind11::object>(value.make());
}

[[gnu::noinline]] inline pybind11::tuple tuple_of(std::initializer_list<Value> values) {
  pybind11::tuple made(values.size());
  Py_ssize_t at = 0;
  for (const Value& value : values) PyTuple_SET_ITEM(made.ptr(), at++, value.make());
  return made;
}

[[gnu::noinline]] inline void add(pybind11::dict& to, std::initializer_list<Field> fields) {
  for (const Field& field : fields) {
    const pybind11::object value = object_of(field.value);
    if (PyDict_SetItemString(to.ptr(), field.key, value.ptr()) != 0) {
      throw pybind11::error_already_set();
    }
  }
}

[[gnu::noinline]] inline pybind11::dict dict_of(std::initializer_list<Field> fields) {
  pybind11::dict made;
  add(made, fields);
  return made;
}

[[gnu::noinline]] inline void append(pybind11::list& to, Value value) {
  const pybind11::object made = object_of(value);
  if (PyList_Append(to.ptr(), made.ptr()) != 0) throw pybind11::error_already_set();
}

// Appends a tuple of these.
[[gnu::noinline]] inline void append(pybind11::list& to, std::initializer_list<Value> values) {
  append(to, tuple_of(values));
}

// Returns the list of translate(value) for each value.
template <class Range, class Translate = std::identity>
pybind11::list list_of(const Range& values, Translate translate = {}) {
  pybind11::list made;
  for (const auto& value : values) append(made, translate(value));
  return made;
}

}  // namespace oddrank
