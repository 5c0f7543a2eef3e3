// The body of an answer that one thread makes while the server sends it.
#pragma once

#include <microhttpd.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::apps {

// The server's thread reads, another one writes. A connection rests while nothing is there to send.
class BodyStream {
 public:
  // wake: called after the connection was resumed.
  BodyStream(MHD_Connection* connection, std::function<void()> wake)
      : connection_(connection), wake_(std::move(wake)) {}
  BodyStream(const BodyStream&) = delete;
  BodyStream& operator=(const BodyStream&) = delete;

  void write(std::string_view piece);
  // After the last piece. whole: false: the client sees that the body is cut off.
  void finish(bool whole);
  bool finished() const;

  // libmicrohttpd's MHD_ContentReaderCallback; `self` is the stream.
  static ssize_t read(void* self, std::uint64_t position, char* buffer, std::size_t max);

 private:
  void resume();

  MHD_Connection* connection_;
  std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::string pending_;
  bool finished_ = false, whole_ = false;
  bool resting_ = false;
};

}  // namespace tandem::apps
