// A server that behaves like the Hugging Face Hub (fake_hub.py), for as long as the object lives.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/process.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::testing {

class FakeHub {
 public:
  // Serves `folder`; fake_hub.py describes its contents. `python`: path from
  // find_program("python3").
  FakeHub(const std::string& python, const std::filesystem::path& folder) : folder_(folder) {
    server_ = std::make_unique<Process>(std::vector<std::string>{
        python, TANDEM_SOURCE_DIR "/tests/support/fake_hub.py", folder.native()});
    for (int i = 0; i < 2000 && !std::filesystem::exists(folder / "port"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!std::filesystem::exists(folder / "port"))
      throw std::runtime_error("fake_hub.py did not start: " + server_->err_so_far());
    endpoint_ = "http://127.0.0.1:" + read_file(folder / "port");
  }
  const std::string& endpoint() const { return endpoint_; }
  void stop() { server_.reset(); }

  // Requests so far, oldest first.
  std::vector<nlohmann::json> requests(const std::string& method = "") const {
    std::vector<nlohmann::json> rows;
    std::istringstream lines(read_file_if_exists(folder_ / "requests.log").value_or(""));
    for (std::string line; std::getline(lines, line);) {
      nlohmann::json row = nlohmann::json::parse(line);
      if (method.empty() || row.at("method") == method) rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  std::filesystem::path folder_;
  std::unique_ptr<Process> server_;
  std::string endpoint_;
};

}  // namespace tandem::testing
