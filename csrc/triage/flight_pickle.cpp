// The loop over a pickle's opcodes. Refuses all but plain data, and never runs code.
#include <bit>
#include <cstring>

#include "os/encoding.hpp"
#include "triage/values.hpp"

namespace oddrank {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Refused {
  unsigned char code;
  const char* name;
  const char* would;
};

// Opcodes that plain data does not need. A dump with one of them is hostile, or no dump.
constexpr Refused kRefused[] = {
    {'c', "GLOBAL", "import a name and load it"},
    {0x93, "STACK_GLOBAL", "import a name and load it"},
    {'i', "INST", "import a class and call it"},
    {'o', "OBJ", "call a class"},
    {'R', "REDUCE", "call a function"},
    {'b', "BUILD", "set the state of an object"},
    {0x81, "NEWOBJ", "make an object of any class"},
    {0x92, "NEWOBJ_EX", "make an object of any class"},
    {'P', "PERSID", "load an object by its id"},
    {'Q', "BINPERSID", "load an object by its id"},
    {0x82, "EXT1", "load a registered class"},
    {0x83, "EXT2", "load a registered class"},
    {0x84, "EXT4", "load a registered class"},
    {0x96, "BYTEARRAY8", "make a bytearray"},
    {0x97, "NEXT_BUFFER", "take a buffer from outside the file"},
    {0x98, "READONLY_BUFFER", "take a buffer from outside the file"},
    {0x8f, "EMPTY_SET", "make a set"},
    {0x90, "ADDITEMS", "fill a set"},
    {0x91, "FROZENSET", "make a frozen set"},
    {'0', "POP", "drop a value"},
    {'1', "POP_MARK", "drop values"},
    {'2', "DUP", "copy a value"},
};

std::string at_offset(std::size_t offset) { return " at byte " + std::to_string(offset); }

// A cursor over the bytes that checks every length before it is used.
class PickleBytes {
 public:
  explicit PickleBytes(std::string_view bytes)
      : begin_(bytes.data()), at_(begin_), end_(at_ + bytes.size()) {}

  std::size_t offset() const noexcept { return static_cast<std::size_t>(at_ - begin_); }

  unsigned char opcode() {
    if (at_ == end_) cut_off();
    return static_cast<unsigned char>(*at_++);
  }
  [[gnu::always_inline]] std::string_view take(std::uint64_t count) {
    if (count > static_cast<std::uint64_t>(end_ - at_)) cut_off();
    const std::string_view taken(at_, static_cast<std::size_t>(count));
    at_ += count;
    return taken;
  }
  // Returns a little-endian number.
  template <typename Number>
  [[gnu::always_inline]] Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  [[noreturn]] void cut_off() const {
    throw Error("it is cut off" + at_offset(static_cast<std::size_t>(end_ - begin_)));
  }

 private:
  const char* begin_;
  const char* at_;
  const char* end_;
};

Value text_value(std::string_view text) {
  if (text.size() > UINT32_MAX) throw Error("it holds a text of more than 4 GiB");
  return make_text(text);
}

// Returns a little-endian two's complement number of any length, which past 64 bits becomes the
// nearest that fits.
Value long_of(std::string_view bytes) {
  if (bytes.size() == sizeof(std::int64_t)) {  // a time
    std::int64_t time = 0;
    std::memcpy(&time, bytes.data(), sizeof time);
    return make_integer(time);
  }
  const bool negative = !bytes.empty() && static_cast<signed char>(bytes.back()) < 0;
  std::int64_t number = negative ? -1 : 0;
  std::memcpy(&number, bytes.data(), std::min(bytes.size(), sizeof number));
  const char sign = negative ? '\xff' : '\0';
  const bool cut = bytes.size() > 8 && ((number < 0) != negative ||
                                        bytes.find_first_not_of(sign, 8) != std::string_view::npos);
  return make_integer(!cut ? number : negative ? INT64_MIN : INT64_MAX);
}

Value big_endian_real(std::string_view bytes) {
  std::uint64_t bits = 0;
  for (const char byte : bytes) bits = bits << 8 | static_cast<unsigned char>(byte);
  return make_real(std::bit_cast<double>(bits));
}

[[noreturn]] void refuse(unsigned char code, std::size_t offset) {
  for (const Refused& each : kRefused) {
    if (each.code == code) {
      throw Error(std::string("refused: its opcode ") + each.name + at_offset(offset) + " would " +
                  each.would + "; a flight-recorder dump is plain data");
    }
  }
  std::string text = "refused: 0x";
  append_hex(code, text);
  throw Error(text + at_offset(offset) + " is no opcode of a pickle");
}

}  // namespace

Value read_pickle(std::string_view all, Builder& builder) {
  PickleBytes bytes(all);
  for (;;) {
    const std::size_t offset = bytes.offset();
    const unsigned char code = bytes.opcode();
    switch (code) {
      case 'h':  // BINGET
        builder.memo_get(bytes.number<std::uint8_t>());
        break;
      case 'q':  // BINPUT
        builder.memo_put(bytes.number<std::uint8_t>());
        break;
      case 'K':  // BININT1
        builder.push(make_integer(bytes.number<std::uint8_t>()));
        break;
      case '(':  // MARK
        builder.mark();
        break;
      case ']':  // EMPTY_LIST
      case ')':  // EMPTY_TUPLE
        builder.push_list();
        break;
      case '}':  // EMPTY_DICT
        builder.push_dict();
        break;
      case 'e':  // APPENDS
        builder.append_marked();
        break;
      case 'u':  // SETITEMS
        builder.set_marked();
        break;
      case 'j':  // LONG_BINGET
        builder.memo_get(bytes.number<std::uint32_t>());
        break;
      case 'r':  // LONG_BINPUT
        builder.memo_put(bytes.number<std::uint32_t>());
        break;
      case 0x94:  // MEMOIZE
        builder.memo_append();
        break;
      case 'J':  // BININT
        builder.push(make_integer(bytes.number<std::int32_t>()));
        break;
      case 'M':  // BININT2
        builder.push(make_integer(bytes.number<std::uint16_t>()));
        break;
      case 0x8a:  // LONG1
        builder.push(long_of(bytes.take(bytes.number<std::uint8_t>())));
        break;
      case 'X':  // BINUNICODE
      case 'T':  // BINSTRING
      case 'B':  // BINBYTES
        builder.push(text_value(bytes.take(bytes.number<std::uint32_t>())));
        break;
      case 0x8c:  // SHORT_BINUNICODE
      case 'U':   // SHORT_BINSTRING
      case 'C':   // SHORT_BINBYTES
        builder.push(text_value(bytes.take(bytes.number<std::uint8_t>())));
        break;
      case 'N':  // NONE
        builder.push(Value());
        break;
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        builder.push(make_boolean(code == 0x88));
        break;
      case 'G':  // BINFLOAT
        builder.push(big_endian_real(bytes.take(8)));
        break;
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        builder.list_of_top(code - 0x84U);
        break;
      case 't':  // TUPLE
        builder.list_of_marked();
        break;
      case 'a':  // APPEND
        builder.append_one();
        break;
      case 's':  // SETITEM
        builder.set_one();
        break;
      case 0x8b: {  // LONG4
        const auto count = bytes.number<std::int32_t>();
        if (count < 0) throw Error("it is damaged: a negative length" + at_offset(offset));
        builder.push(long_of(bytes.take(static_cast<std::uint64_t>(count))));
        break;
      }
      case 0x8d:  // BINUNICODE8
      case 0x8e:  // BINBYTES8
        builder.push(text_value(bytes.take(bytes.number<std::uint64_t>())));
        break;
      case 0x80: {  // PROTO
        const auto protocol = bytes.number<std::uint8_t>();
        if (protocol > 5) {
          throw Error("refused: pickle protocol " + std::to_string(protocol) +
                      " is unknown (2 to 5 are read)");
        }
        break;
      }
      case 0x95:  // FRAME: only a hint for readers of streams
        bytes.take(8);
        break;
      case '.':  // STOP
        return builder.finish();
      default:
        refuse(code, offset);
    }
  }
}

}  // namespace oddrank
