// A client for the part of etcd's API, version 3, that a job needs: its JSON gateway, a request at
// a time over libcurl.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/core/error.h"
#include "tandem/hub/http.h"

namespace tandem::elastic {

struct EtcdOptions {
  std::vector<std::string> urls;  // addresses of its members: "http://host:2379"
  std::string user, password;     // empty: none
  hub::HttpOptions http;          // certificates
  std::chrono::milliseconds request_limit{1000};
};

// It did not answer, or not in time: it may the next time.
class EtcdSilent : public CommError {
 public:
  using CommError::CommError;
};

// Every call throws EtcdSilent when no member answers within the limit, and ConfigError for what is
// wrong again the next time: a password, a permission, a server other than etcd. One thread.
class EtcdClient {
 public:
  explicit EtcdClient(EtcdOptions options) : options_(std::move(options)) {}

  // A lease of so many seconds.
  std::int64_t grant(int seconds);
  // False: the lease has run out.
  bool keep_alive(std::int64_t lease);
  void revoke(std::int64_t lease);
  // Value of a key.
  std::optional<std::string> get(const std::string& key);
  // Values of all keys that begin so.
  std::vector<std::string> list(const std::string& prefix);
  void put(const std::string& key, const std::string& value, std::int64_t lease);
  // Sets the key if it has the value `expected`, or where that is nothing if it is not there.
  bool put_if(const std::string& key, const std::optional<std::string>& expected,
              const std::string& value, std::int64_t lease);
  bool erase_if(const std::string& key, const std::string& expected);

 private:
  std::string call(std::string_view method, const std::string& body);
  std::optional<std::string> call_one(const std::string& url, std::string_view method,
                                      const std::string& body, std::string& failure);
  void authenticate(const std::string& url);
  bool transact(const std::string& key, const std::string& comparison, const std::string& change);

  EtcdOptions options_;
  std::size_t member_ = 0;  // that answered last
  std::string session_;     // session of a user
};

}  // namespace tandem::elastic
