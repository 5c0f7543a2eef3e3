#include "apps/serve/body_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tandem::apps {

void BodyStream::write(std::string_view piece) {
  const std::lock_guard lock(mutex_);
  pending_ += piece;
  resume();
}

void BodyStream::finish(bool whole) {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  whole_ = whole;
  resume();
}

bool BodyStream::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

// With the lock, so that the connection neither rests nor ends in between.
void BodyStream::resume() {
  if (!std::exchange(resting_, false)) return;
  MHD_resume_connection(connection_);
  wake_();
}

ssize_t BodyStream::read(void* self, std::uint64_t, char* buffer, std::size_t max) {
  BodyStream& stream = *static_cast<BodyStream*>(self);
  const std::lock_guard lock(stream.mutex_);
  const std::size_t size = std::min(max, stream.pending_.size());
  if (size > 0) {
    std::memcpy(buffer, stream.pending_.data(), size);
    stream.pending_.erase(0, size);
    return static_cast<ssize_t>(size);
  }
  if (stream.finished_)
    return stream.whole_ ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
  stream.resting_ = true;
  MHD_suspend_connection(stream.connection_);
  return 0;
}

}  // namespace tandem::apps
