// Output for programs that read it line by line.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>

namespace tandem::apps {

// The reader of our output went away (`tandem inspect … | head`): not an error, but nothing is left
// to do.
struct OutputClosed {};

// Writes all bytes. `name` is for messages. Throws as LineOutput.
void write_whole(int descriptor, std::string_view bytes, const std::string& name);

// A stream onto a file descriptor that hands on every complete line at once, so that a reader sees
// each object as soon as it is made. Writing throws OutputClosed when the reader is gone and
// IoError that names the output for any other failure (disk full). SIGPIPE must be ignored. Not
// thread-safe. flush() writes an incomplete last line; the destructor does so too, silently.
class LineOutput : public std::ostream {
 public:
  explicit LineOutput(int descriptor, std::string name = "standard output");
  ~LineOutput() override;

 private:
  class Lines : public std::streambuf {
   public:
    Lines(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {}

   protected:
    int_type overflow(int_type character) override;
    std::streamsize xsputn(const char* text, std::streamsize size) override;
    int sync() override;

   private:
    int descriptor_;
    std::string name_;
    std::string pending_;
  };

  Lines lines_;
};

}  // namespace tandem::apps
