// Packs and unpacks messages; what does not fit is refused as a whole.
#include "control/messages.hpp"

#include "control/wire.hpp"

namespace oddrank::control {

const char* name_of(Life life) noexcept {
  switch (life) {
    case Life::kRunning:
      return "running";
    case Life::kStopped:
      return "stopped";
    case Life::kZombie:
      return "zombie";
    case Life::kDead:
      return "dead";
    case Life::kUninterruptible:
      return "uninterruptible";
  }
  return "running";
}

std::string Hello::pack() const {
  return Packer()
      .u32(kWireVersion)
      .text(token)
      .i32(rank)
      .i32(world)
      .i32(local_rank)
      .i32(local_world)
      .i32(node)
      .i32(pid)
      .u64(start_time)
      .u32(remaining_ms)
      .text(host)
      .take();
}

std::optional<Hello> Hello::unpack(std::string_view payload) {
  Unpacker in(payload);
  if (in.u32() != kWireVersion) return std::nullopt;
  Hello hello;
  hello.token = in.text(256);
  hello.rank = in.i32();
  hello.world = in.i32();
  hello.local_rank = in.i32();
  hello.local_world = in.i32();
  hello.node = in.i32();
  hello.pid = in.i32();
  hello.start_time = in.u64();
  hello.remaining_ms = in.u32();
  hello.host = in.text(256);
  if (!in.ok()) return std::nullopt;
  return hello;
}

std::string State::pack() const {
  return Packer()
      .u8(static_cast<std::uint8_t>(life))
      .i32(signal)
      .i32(exit_code)
      .text(wchan)
      .text(stage)
      .text(step)
      .u32(stage_number)
      .u64(progress)
      .u8(waiting)
      .u8(published)
      .i32(terminated)
      .i32(terminated_by)
      .u8(orphaned)
      .u8(resolver_slow)
      .i64(fault_age_ns)
      .u32(report)
      .take();
}

std::optional<State> State::unpack(std::string_view payload) {
  Unpacker in(payload);
  State state;
  const std::uint8_t life = in.u8();
  if (life > static_cast<std::uint8_t>(Life::kUninterruptible)) return std::nullopt;
  state.life = static_cast<Life>(life);
  state.signal = in.i32();
  state.exit_code = in.i32();
  state.wchan = in.text(256);
  state.stage = in.text(256);
  state.step = in.text(256);
  state.stage_number = in.u32();
  state.progress = in.u64();
  state.waiting = in.u8() != 0;
  state.published = in.u8() != 0;
  state.terminated = in.i32();
  state.terminated_by = in.i32();
  state.orphaned = in.u8() != 0;
  state.resolver_slow = in.u8() != 0;
  state.fault_age_ns = in.i64();
  state.report = in.u32();
  if (!in.ok()) return std::nullopt;
  return state;
}

std::string Go::pack() const {
  return Packer().u32(stage_number).text(stage).text(parameters).take();
}

std::optional<Go> Go::unpack(std::string_view payload) {
  Unpacker in(payload);
  Go go;
  go.stage_number = in.u32();
  go.stage = in.text(256);
  go.parameters = in.text(kSmallFrame);
  if (!in.ok()) return std::nullopt;
  return go;
}

std::string Welcome::pack() const { return Packer().u32(heartbeat_ms).u32(silence_ms).take(); }

std::optional<Welcome> Welcome::unpack(std::string_view payload) {
  Unpacker in(payload);
  Welcome welcome;
  welcome.heartbeat_ms = in.u32();
  welcome.silence_ms = in.u32();
  if (!in.ok() || welcome.heartbeat_ms == 0 || welcome.silence_ms < welcome.heartbeat_ms) {
    return std::nullopt;
  }
  return welcome;
}

std::string Roster::pack() const {
  Packer out;
  out.text(root_host).u32(static_cast<std::uint32_t>(processes.size()));
  for (const Process& process : processes) {
    out.i32(process.rank).i32(process.pid).u64(process.start_time);
  }
  return out.take();
}

std::optional<Roster> Roster::unpack(std::string_view payload) {
  Unpacker in(payload);
  Roster roster;
  roster.root_host = in.text(256);
  const std::uint32_t count = in.u32();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    Process process;
    process.rank = in.i32();
    process.pid = in.i32();
    process.start_time = in.u64();
    roster.processes.push_back(process);
  }
  if (!in.ok()) return std::nullopt;
  return roster;
}

std::string ClockQuestion::pack() const {
  return Packer().u32(number).i64(deadline_ns).u8(shortcut ? 1 : 0).take();
}

std::optional<ClockQuestion> ClockQuestion::unpack(std::string_view payload) {
  Unpacker in(payload);
  ClockQuestion question;
  question.number = in.u32();
  question.deadline_ns = in.i64();
  question.shortcut = in.u8() != 0;
  if (!in.ok()) return std::nullopt;
  return question;
}

std::string ClockReading::pack() const { return Packer().u32(number).i64(ns).text(clock).take(); }

std::optional<ClockReading> ClockReading::unpack(std::string_view payload) {
  Unpacker in(payload);
  ClockReading reading;
  reading.number = in.u32();
  reading.ns = in.i64();
  reading.clock = in.text(256);
  if (!in.ok() || reading.ns < 0 || reading.ns > INT64_MAX / 4) return std::nullopt;
  return reading;
}

std::string ClockAnswer::pack() const {
  return Packer().u32(number).i64(offset_ns).i64(error_ns).text(trouble).take();
}

std::optional<ClockAnswer> ClockAnswer::unpack(std::string_view payload) {
  Unpacker in(payload);
  ClockAnswer answer;
  answer.number = in.u32();
  answer.offset_ns = in.i64();
  answer.error_ns = in.i64();
  answer.trouble = in.text();
  if (!in.ok()) return std::nullopt;
  return answer;
}

}  // namespace oddrank::control
