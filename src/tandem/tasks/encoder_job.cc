#include "tandem/tasks/encoder_job.h"

#include "tandem/data/read_rows.h"

namespace tandem::tasks {

EncoderTaskOptions task_options(const TaskSettings& settings,
                                std::optional<bool> pad_to_max_length) {
  return {.padding = padding_of(pad_to_max_length),
          .precision = settings.precision,
          .gradient_checkpointing = settings.gradient_checkpointing,
          .eval_batch_size = settings.eval_batch_size,
          .weight_format = settings.weight_format};
}

hub::DatasetFiles EncoderJob::find_data(const Stages& stages, const hub::ModelArguments& model,
                                        const Environment& environment,
                                        hub::DownloadObserver& downloads) const {
  return find_data_files(data_source(), stages, model, environment, downloads, file_extensions());
}

DataName EncoderJob::data_name(const Stages& stages) const {
  const DataSource& data = data_source();
  return {data.dataset_name, data.dataset_config_name, data_text(data, stages)};
}

std::span<const std::string_view> EncoderJob::file_extensions() const {
  return data::row_file_extensions();
}

const models::ModelConfig& EncoderJob::model_config() const {
  return encoder_task_->model().config();
}

std::string EncoderJob::architecture() const { return encoder_task_->model().architecture(); }

void EncoderJob::set_precision(nn::Precision precision) { encoder_task_->set_precision(precision); }

std::string EncoderJob::train_fingerprint() const { return encoder_task_->train_fingerprint(); }

std::string EncoderJob::evaluation_fingerprint(Split split) const {
  return encoder_task_->evaluation_fingerprint(split);
}

std::size_t EncoderJob::train_batch_rows(std::span<const std::uint32_t> features) const {
  return encoder_task_->train_batch_rows(features);
}

std::size_t EncoderJob::plan_training(std::size_t batch_size, std::size_t max_rows) {
  return encoder_task_->plan_training(batch_size, max_rows);
}

std::size_t EncoderJob::plan_evaluation() { return encoder_task_->plan_evaluation(); }

std::size_t EncoderJob::output_bytes() const {
  return encoder_task_->num_outputs() * sizeof(float);
}

}  // namespace tandem::tasks
