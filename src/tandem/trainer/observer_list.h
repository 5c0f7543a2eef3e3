// Several observers as one.
#pragma once

#include <vector>

#include "tandem/trainer/observer.h"

namespace tandem::trainer {

// Notifies each observer in the order in which they were added. They must outlive the list.
class ObserverList final : public Observer {
 public:
  void add(Observer& observer) { observers_.push_back(&observer); }

  void log_so_far(const LogSoFar& past) override {
    for (Observer* observer : observers_) observer->log_so_far(past);
  }
  void train_begin(const TrainBegin& begin) override {
    for (Observer* observer : observers_) observer->train_begin(begin);
  }
  void step_end(const StepProgress& progress) override {
    for (Observer* observer : observers_) observer->step_end(progress);
  }
  void log(const nlohmann::ordered_json& entry) override {
    for (Observer* observer : observers_) observer->log(entry);
  }
  void train_end() override {
    for (Observer* observer : observers_) observer->train_end();
  }
  void evaluation_begin(std::string_view description, std::size_t num_features,
                        int batch_size) override {
    for (Observer* observer : observers_)
      observer->evaluation_begin(description, num_features, batch_size);
  }
  void evaluation_progress(std::size_t features_done, std::size_t num_features) override {
    for (Observer* observer : observers_)
      observer->evaluation_progress(features_done, num_features);
  }
  void evaluation_end() override {
    for (Observer* observer : observers_) observer->evaluation_end();
  }
  void saving(const std::filesystem::path& directory) override {
    for (Observer* observer : observers_) observer->saving(directory);
  }
  void note(std::string_view text) override {
    for (Observer* observer : observers_) observer->note(text);
  }
  void warning(std::string_view text) override {
    for (Observer* observer : observers_) observer->warning(text);
  }

 private:
  std::vector<Observer*> observers_;
};

}  // namespace tandem::trainer
