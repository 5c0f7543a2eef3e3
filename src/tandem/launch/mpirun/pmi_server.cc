#include "tandem/launch/mpirun/pmi_server.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::launch {
namespace {

constexpr std::string_view kMappingKey = "PMI_process_mapping";

std::string field(const std::map<std::string, std::string, std::less<>>& fields,
                  std::string_view name) {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : found->second;
}

}  // namespace

PmiServer::PmiServer(PmiRules rules)
    : rules_(std::move(rules)), entries_(static_cast<std::size_t>(rules_.size)) {
  TANDEM_CHECK(rules_.size > 0 && rules_.program_of.size() == entries_.size());
  if (!rules_.mapping.empty()) values_.emplace(kMappingKey, rules_.mapping);
}

// "cmd=… name=value …", separated by blanks; a word without '=' is ignored.
std::vector<PmiServer::Reply> PmiServer::take(int rank, std::string_view line) {
  RankEntry& sender = entry(rank);
  if (!sender.broken.empty()) return {};
  Fields fields;
  for (std::string_view rest = line; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    fields.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  const std::string command = field(fields, "cmd");
  if (command.empty() || line.size() > kMaxLine) {
    sender.broken = fmt::format("it sent '{}', expected PMI's cmd=…", line.substr(0, 60));
    return {};
  }
  return obey(rank, command, fields, line);
}

std::vector<PmiServer::Reply> PmiServer::obey(int rank, const std::string& command,
                                              const Fields& fields, std::string_view line) {
  RankEntry& sender = entry(rank);
  const auto answer = [&](std::string text) { return std::vector<Reply>{{rank, std::move(text)}}; };
  if (command == "init") {
    sender.began = true;
    const bool known = field(fields, "pmi_version") == "1";
    return answer(
        fmt::format("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={}", known ? 0 : -1));
  }
  if (command == "get_maxes") {
    return answer(fmt::format("cmd=maxes kvsname_max={} keylen_max={} vallen_max={}", kMaxName,
                              kMaxKey, kMaxValue));
  }
  if (command == "get_appnum")
    return answer(
        fmt::format("cmd=appnum appnum={}", rules_.program_of[static_cast<std::size_t>(rank)]));
  if (command == "get_my_kvsname")
    return answer(fmt::format("cmd=my_kvsname kvsname={}", rules_.space));
  if (command == "get_universe_size")
    return answer(fmt::format("cmd=universe_size size={}", rules_.universe_size));
  if (command == "put") return answer(put(fields));
  if (command == "get") return answer(get(fields));
  if (command == "barrier_in") return enter_barrier(rank);
  if (command == "finalize") {
    sender.finalized = true;
    return answer("cmd=finalize_ack");
  }
  if (command == "abort") {
    take_abort(rank, fields);
    return {};
  }
  // mcmd=spawn and names of services: the program gets a refusal instead of no answer.
  const bool publishes = command.ends_with("_name");
  if (publishes)
    return answer(fmt::format("cmd={}_result rc=-1 info=not_supported msg=not_supported",
                              command.substr(0, command.find('_'))));
  sender.broken =
      fmt::format("it asked '{}', which this PMI server does not know", line.substr(0, 60));
  return {};
}

std::string PmiServer::put(const Fields& fields) {
  const std::string key = field(fields, "key");
  const std::string value = field(fields, "value");
  const auto refuse = [](std::string_view why) {
    return fmt::format("cmd=put_result rc=-1 msg={}", why);
  };
  if (field(fields, "kvsname") != rules_.space) return refuse("unknown_kvsname");
  if (key.empty() || key.size() >= kMaxKey) return refuse("bad_key");
  if (value.size() >= kMaxValue) return refuse("value_too_long");
  if (values_.contains(key)) return refuse("duplicate_key" + key);
  if (bytes_ + key.size() + value.size() > kMaxBytes) return refuse("no_room");
  bytes_ += key.size() + value.size();
  values_.emplace(key, value);
  return "cmd=put_result rc=0 msg=success";
}

std::string PmiServer::get(const Fields& fields) const {
  const std::string key = field(fields, "key");
  const auto found = values_.find(key);
  if (field(fields, "kvsname") != rules_.space || found == values_.end())
    return fmt::format("cmd=get_result rc=-1 msg=key_{}_not_found value=unknown",
                       key.substr(0, kMaxKey));
  return fmt::format("cmd=get_result rc=0 msg=success value={}", found->second);
}

std::vector<PmiServer::Reply> PmiServer::enter_barrier(int rank) {
  if (std::exchange(entry(rank).in_barrier, true)) {
    entry(rank).broken = "it came to a barrier in which it is";
    return {};
  }
  if (++num_in_barrier_ < rules_.size) return {};
  num_in_barrier_ = 0;
  std::vector<Reply> replies;
  for (int other = 0; other < rules_.size; ++other) {
    entry(other).in_barrier = false;
    replies.push_back({other, "cmd=barrier_out"});
  }
  return replies;
}

void PmiServer::take_abort(int rank, const Fields& fields) {
  if (aborted_) return;
  Abort abort;
  abort.rank = rank;
  const std::string code = field(fields, "exitcode");
  int value = 1;
  std::from_chars(code.data(), code.data() + code.size(), value);
  abort.exit_code = (value & 0xff) == 0 ? 1 : value & 0xff;
  abort.reason = field(fields, "error_msg");
  aborted_ = std::move(abort);
}

void PmiServer::left(int rank) { entry(rank).left = true; }

std::optional<PmiServer::Stuck> PmiServer::stuck() const {
  if (num_in_barrier_ == 0) return std::nullopt;
  std::optional<int> waiting;
  std::optional<int> ended;
  for (int rank = 0; rank < rules_.size; ++rank) {
    if (entry(rank).in_barrier && !entry(rank).left && !waiting) waiting = rank;
    if (entry(rank).left && !entry(rank).in_barrier && !ended) ended = rank;
  }
  if (!waiting || !ended) return std::nullopt;
  return Stuck{*waiting, *ended};
}

}  // namespace tandem::launch
