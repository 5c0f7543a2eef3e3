// Standard output for programs that read it line by line.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>

namespace tandem::apps {

// The reader of our output went away (`tandem inspect … | head`): not an error, but nothing is left
// to do.
struct OutputClosed {};

// A stream onto a file descriptor that hands on every complete line at once, so that a reader sees
// each object as soon as it is made. Writing throws OutputClosed when the reader is gone and
// IoError for any other failure (disk full). SIGPIPE must be ignored. Not thread-safe. flush()
// writes an incomplete last line; the destructor does so too, silently.
class LineOutput : public std::ostream {
 public:
  explicit LineOutput(int descriptor);
  ~LineOutput() override;

 private:
  class Lines : public std::streambuf {
   public:
    explicit Lines(int descriptor) : descriptor_(descriptor) {}

   protected:
    int_type overflow(int_type character) override;
    std::streamsize xsputn(const char* text, std::streamsize size) override;
    int sync() override;

   private:
    int descriptor_;
    std::string pending_;
  };

  Lines lines_;
};

}  // namespace tandem::apps
