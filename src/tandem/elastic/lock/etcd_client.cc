#include "tandem/elastic/lock/etcd_client.h"

#include <fmt/format.h>

#include <charconv>

#include "tandem/core/json.h"
#include "tandem/core/whole_number.h"
#include "tandem/text/base64.h"

namespace tandem::elastic {
namespace {

using nlohmann::json;

// Codes of gRPC in answers that are errors.
constexpr int kPermissionDenied = 7;
constexpr int kUnauthenticated = 16;
constexpr int kInvalidArgument = 3;

std::string encoded(std::string_view text) { return text::to_base64(text); }

std::string decoded(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? "" : text::from_base64(found->get<std::string>()).value_or("");
}

// Numbers of 64 bits are strings in JSON.
std::int64_t number(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  if (found->is_number()) return whole_number<std::int64_t>(*found);
  const auto digits = found->get<std::string>();
  std::int64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

json read(const std::string& answer) {
  json object = try_parse_json(answer);
  if (!object.is_object())
    raise<ConfigError>("etcd answers with no JSON object: '{}'", answer.substr(0, 100));
  return object;
}

// The key behind all that begin with `prefix`.
std::string end_of(std::string prefix) {
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

}  // namespace

// The token of a session is valid for some minutes.
void EtcdClient::authenticate(const std::string& url) {
  session_.clear();
  std::string failure;
  const json asked{{"name", options_.user}, {"password", options_.password}};
  if (const auto answer = call_one(url, "auth/authenticate", asked.dump(), failure))
    session_ = read(*answer).value("token", "");
  if (session_.empty())
    raise<EtcdSilent>("etcd at {} gives no session to {}: {}", url, options_.user, failure);
}

// Nothing: this member does not answer, for the reason in `failure`.
std::optional<std::string> EtcdClient::call_one(const std::string& url, std::string_view method,
                                                const std::string& body, std::string& failure) {
  hub::HttpRequest request;
  request.url = fmt::format("{}/v3/{}", url, method);
  request.post = body;
  request.headers = {"Content-Type: application/json"};
  if (!session_.empty()) request.headers.push_back("Authorization: " + session_);
  request.total_timeout = options_.request_limit;
  const hub::HttpAnswer answer = hub::perform(request, options_.http);
  const int status = answer.headers.status;
  if (!answer.problem.empty() || status >= 500) {
    failure = !answer.problem.empty() ? answer.problem : fmt::format("HTTP {}", status);
    return std::nullopt;
  }
  if (status == 200) return answer.body;
  const json error = try_parse_json(answer.body);
  const int code = error.is_object() ? static_cast<int>(number(error, "code")) : 0;
  if (code == kUnauthenticated && !options_.user.empty() && method != "auth/authenticate") {
    session_.clear();
    failure = "the session has ended";
    return std::nullopt;
  }
  const std::string reason =
      error.is_object() && error.contains("error") && error["error"].is_string()
          ? error["error"].get<std::string>()
          : fmt::format("HTTP {}", status);
  if (code == kPermissionDenied || code == kUnauthenticated || code == kInvalidArgument ||
      status == 404) {
    raise<ConfigError>(
        "etcd at {} refuses {}: {}; --rdzv-conf etcd=URL names etcd 3.4 or newer, "
        "ETCDCTL_USER=NAME:PASSWORD a user of etcd",
        url, method, reason);
  }
  failure = reason;
  return std::nullopt;
}

// The member that answered last is asked first.
std::string EtcdClient::call(std::string_view method, const std::string& body) {
  std::string failures;
  for (std::size_t i = 0; i < options_.urls.size(); ++i) {
    const std::string& url = options_.urls[member_ % options_.urls.size()];
    std::string failure;
    if (!options_.user.empty() && session_.empty()) authenticate(url);
    if (auto answer = call_one(url, method, body, failure)) return std::move(*answer);
    failures += fmt::format("{}{}: {}", failures.empty() ? "" : "; ", url, failure);
    ++member_;
  }
  throw EtcdSilent("etcd does not answer (" + failures + ")");
}

std::int64_t EtcdClient::grant(int seconds) {
  return number(read(call("lease/grant", json{{"TTL", std::to_string(seconds)}}.dump())), "ID");
}

bool EtcdClient::keep_alive(std::int64_t lease) {
  const json answer = read(call("lease/keepalive", json{{"ID", std::to_string(lease)}}.dump()));
  const auto result = answer.find("result");
  return result != answer.end() && number(*result, "TTL") > 0;
}

void EtcdClient::revoke(std::int64_t lease) {
  call("lease/revoke", json{{"ID", std::to_string(lease)}}.dump());
}

std::optional<std::string> EtcdClient::get(const std::string& key) {
  const json answer = read(call("kv/range", json{{"key", encoded(key)}}.dump()));
  if (!answer.contains("kvs") || answer["kvs"].empty()) return std::nullopt;
  return decoded(answer["kvs"][0], "value");
}

std::vector<std::string> EtcdClient::list(const std::string& prefix) {
  constexpr int kMost = 10000;
  const json answer = read(call("kv/range", json{{"key", encoded(prefix)},
                                                 {"range_end", encoded(end_of(prefix))},
                                                 {"limit", std::to_string(kMost)}}
                                                .dump()));
  std::vector<std::string> values;
  if (!answer.contains("kvs")) return values;
  for (const json& entry : answer["kvs"]) values.push_back(decoded(entry, "value"));
  return values;
}

void EtcdClient::put(const std::string& key, const std::string& value, std::int64_t lease) {
  call("kv/put",
       json{{"key", encoded(key)}, {"value", encoded(value)}, {"lease", std::to_string(lease)}}
           .dump());
}

bool EtcdClient::transact(const std::string& key, const std::string& comparison,
                          const std::string& change) {
  const std::string body = fmt::format(R"({{"compare":[{{"key":"{}",{}}}],"success":[{}]}})",
                                       encoded(key), comparison, change);
  return read(call("kv/txn", body)).value("succeeded", false);
}

bool EtcdClient::put_if(const std::string& key, const std::optional<std::string>& expected,
                        const std::string& value, std::int64_t lease) {
  const std::string comparison =
      expected ? fmt::format(R"("target":"VALUE","value":"{}")", encoded(*expected))
               : R"("target":"CREATE","create_revision":"0")";
  return transact(key, comparison,
                  fmt::format(R"({{"request_put":{{"key":"{}","value":"{}","lease":"{}"}}}})",
                              encoded(key), encoded(value), lease));
}

bool EtcdClient::erase_if(const std::string& key, const std::string& expected) {
  return transact(key, fmt::format(R"("target":"VALUE","value":"{}")", encoded(expected)),
                  fmt::format(R"({{"request_delete_range":{{"key":"{}"}}}})", encoded(key)));
}

}  // namespace tandem::elastic
