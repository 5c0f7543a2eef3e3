#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/arguments/arguments_test_support.h"
#include "support/test_support.h"
#include "tandem/core/file.h"

namespace tandem::apps {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using trainer::DdpBackend;
using trainer::IntervalStrategy;

TEST(RunQaArguments, DefaultsAreThoseOfHuggingFace) {
  const ParsedRunQa parsed = parse(kMinimum);
  EXPECT_THAT(parsed.notes, IsEmpty());
  const Json values = job_request(parsed, {}).values;
  const Json expected = {{"output_dir", "trainer_output"},
                         {"per_device_train_batch_size", 8},
                         {"learning_rate", 5e-5},
                         {"adam_beta2", 0.999},
                         {"adam_epsilon", 1e-8},
                         {"max_grad_norm", 1.0},
                         {"num_train_epochs", 3.0},
                         {"max_steps", -1},
                         {"warmup_steps", 0},
                         {"lr_scheduler_type", "linear"},
                         {"eval_strategy", "no"},
                         {"eval_steps", nullptr},
                         {"logging_steps", 500},
                         {"save_strategy", "steps"},
                         {"save_steps", 500},
                         {"seed", 42},
                         {"optim", "adamw_torch"},
                         {"ddp_backend", "ccl"},
                         {"ddp_timeout", 1800},
                         {"max_seq_length", 384},
                         {"doc_stride", 128},
                         {"n_best_size", 20},
                         {"max_answer_length", 30},
                         {"pad_to_max_length", nullptr},
                         {"model_revision", "main"},
                         {"gradient_dtype", "float32"}};
  for (const auto& [name, value] : expected.items()) EXPECT_EQ(values.at(name), value) << name;
}

TEST(RunQaArguments, NamesOfTransformers523) {
  EXPECT_TRUE(parse_more("--activation_checkpointing").arguments.training.gradient_checkpointing);
  EXPECT_FALSE(
      parse_more("--activation_checkpointing false").arguments.training.gradient_checkpointing);
  EXPECT_THAT(parse_more("--activation_checkpointing_kwargs {\"every_n_layers\":2} "
                         "--dataloader_multiprocessing_context spawn --dataloader_in_order false")
                  .notes,
              ::testing::SizeIs(3));
}

TEST(RunQaArguments, AnUnknownFlagMayBeAPartOfAnother) {
  const auto warning_of = [](const std::string& line) -> std::string {
    try {
      parse_more(line);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(warning_of("--batch_size 4"),
              HasSubstr("--batch_size (did you mean --per_device_train_batch_size or "
                        "--per_device_eval_batch_size?)"));
  EXPECT_THAT(warning_of("--epochs 4"), HasSubstr("--epochs (did you mean --num_train_epochs?)"));
}

TEST(RunQaArguments, GuidesCommandOfTheSecondGeneration) {
  const ParsedRunQa parsed = parse(
      "--model_name_or_path bert-large-uncased --dataset_name squad --do_train --do_eval "
      "--per_device_train_batch_size 12 "
      "--learning_rate 3e-5 --num_train_epochs 2 --max_seq_length 384 --doc_stride 128 "
      "--output_dir /tmp/debug_squad/ "
      "--no_cuda --ddp_backend ccl --use_ipex --bf16");
  EXPECT_EQ(parsed.arguments.model.model_name_or_path, "bert-large-uncased");
  EXPECT_EQ(parsed.arguments.data.dataset_name, "squad");
  EXPECT_TRUE(parsed.arguments.training.do_train && parsed.arguments.training.do_eval &&
              parsed.arguments.training.bf16);
  EXPECT_EQ(parsed.arguments.training.per_device_train_batch_size, 12);
  EXPECT_EQ(parsed.arguments.training.learning_rate, 3e-5);
  EXPECT_EQ(parsed.arguments.training.num_train_epochs, 2.0);
  EXPECT_EQ(parsed.arguments.training.output_dir, "/tmp/debug_squad/");
  EXPECT_EQ(parsed.notes.size(), 2u);
  EXPECT_THAT(parsed.notes, Contains(HasSubstr("--no_cuda has no effect")));
  EXPECT_THAT(
      parsed.notes,
      Contains(HasSubstr("--use_ipex has no effect: the built-in kernels are always used")));
}

TEST(RunQaArguments, GuidesCommandsOfOtherGenerations) {
  // 4.21: --xpu_backend; 4.23: CPU guide with JIT; 4.46: --use_cpu and --jit_mode_eval; 5.x: no
  // backend at all.
  for (const char* line :
       {"--model_name_or_path bert-large-uncased --dataset_name squad --do_train --do_eval "
        "--per_device_train_batch_size 12 "
        "--learning_rate 3e-5 --num_train_epochs 2 --max_seq_length 384 --doc_stride 128 "
        "--output_dir /tmp/debug_squad/ "
        "--no_cuda --xpu_backend ccl",
        "--model_name_or_path csarron/bert-base-uncased-squad-v1 --dataset_name squad --do_eval "
        "--max_seq_length 384 "
        "--doc_stride 128 --output_dir /tmp/ --no_cuda --jit_mode_eval --use_ipex",
        "--model_name_or_path google-bert/bert-base-uncased --dataset_name squad --do_train "
        "--do_eval "
        "--per_device_train_batch_size 12 --learning_rate 3e-5 --num_train_epochs 2 "
        "--max_seq_length 384 --doc_stride 128 "
        "--output_dir /tmp/debug_squad/ --use_ipex --bf16 --use_cpu",
        "--model_name_or_path google-bert/bert-large-uncased --dataset_name squad --do_train "
        "--do_eval "
        "--per_device_train_batch_size 12 --learning_rate 3e-5 --num_train_epochs 2 "
        "--max_seq_length 384 --doc_stride 128 "
        "--output_dir /tmp/pvc-mount/output --overwrite_output_dir --use_cpu --bf16 --ddp_backend "
        "ccl --save_strategy epoch",
        "--model-name-or-path m --train-file t.json --validation-file v.json --do-train --do-eval "
        "--bf16 True "
        "--evaluation_strategy epoch --report_to none --local-rank=0"}) {
    EXPECT_NO_THROW(parse(line)) << line;
  }
  EXPECT_EQ(parse_more("--xpu_backend ccl").arguments.training.ddp_backend, DdpBackend::kCcl);
  EXPECT_THAT(parse_more("--xpu_backend ccl").notes,
              ElementsAre("--xpu_backend is the old name of --ddp_backend"));
}

TEST(RunQaArguments, BackendsOfOtherHardwareAreRefusedWithTheAlternative) {
  EXPECT_EQ(parse_more("--ddp_backend mpi").arguments.training.ddp_backend, DdpBackend::kMpi);
  EXPECT_EQ(parse_more("--ddp_backend gloo").arguments.training.ddp_backend, DdpBackend::kGloo);
  EXPECT_THAT(failure_more("--ddp_backend nccl").message,
              HasSubstr("is not supported: that library is for other hardware; use ccl"));
  EXPECT_EQ(failure_more("--ddp_backend ucc").exit_code, 2);
}

TEST(RunQaArguments, AllRefusalsAreReportedAtOnce) {
  const Failure failed = failure_more("--fp16 --deepspeed ds.json --optim lion_8bit");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.message,
              AllOf(HasSubstr("3 flags cannot be used"), HasSubstr("--fp16 true is not supported"),
                    HasSubstr("use --bf16"), HasSubstr("--deepspeed ds.json"),
                    HasSubstr("--optim lion_8bit")));
}

// Values that transformers saves for a run without these flags, and values that launchers pass on
// when nothing is set.
TEST(RunQaArguments, RefusedFlagsThatAskForNothing) {
  for (const char* flag : {"fsdp", "fsdp_config", "deepspeed", "parallelism_config"})
    EXPECT_NO_THROW(parse_more(fmt::format("--{}=", flag))) << flag;
  const auto parse_file = [](const std::string& members) {
    testing::TemporaryFolder folder;
    write_file(folder / "job.json",
               R"({"model_name_or_path": "m", "validation_file": "v.json", )" + members + "}");
    return parse_run_qa(std::vector<std::string>{"job.json"}, folder.path(), kEnvironment);
  };
  for (const char* nothing :
       {R"("fsdp": "")", R"("fsdp": [])", R"("fsdp": [""])", R"("fsdp": false)",
        R"("fsdp_config": {})", R"("deepspeed": null)",
        R"("fsdp_config": {"min_num_params": 0, "xla": false, "transformer_layer": [""]})"}) {
    EXPECT_NO_THROW(parse_file(nothing)) << nothing;
  }
  for (const char* something :
       {R"("fsdp": "full_shard")", R"("fsdp": true)", R"("fsdp_config": {"min_num_params": 1})",
        R"("deepspeed": {"zero_optimization": {"stage": 2}})",
        R"("parallelism_config": {"tp_size": 2})"}) {
    try {
      parse_file(something);
      ADD_FAILURE() << something;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.exit_code(), 1);
      EXPECT_THAT(error.what(), HasSubstr("every rank holds the whole model")) << something;
    }
  }
}

TEST(RunQaArguments, ALimitOfNoCheckpointsIsNone) {
  const auto limit = [](const std::string& line) {
    return parse_more(line).arguments.training.save_total_limit;
  };
  EXPECT_EQ(limit("--save_total_limit 2"), 2);
  EXPECT_EQ(limit("--save_total_limit 0"), std::nullopt);
  EXPECT_EQ(limit("--save_total_limit -1"), std::nullopt);
}

// Off only above warning, and the value of the flag wins.
TEST(RunQaArguments, ProgressBarsFollowTheLogLevel) {
  const auto disabled = [](const std::string& line) {
    return parse_more(line).arguments.training.disable_tqdm;
  };
  EXPECT_EQ(disabled(""), false);
  EXPECT_EQ(disabled("--log_level info"), false);
  EXPECT_EQ(disabled("--log_level warning"), false);
  EXPECT_EQ(disabled("--log_level error"), true);
  EXPECT_EQ(disabled("--log_level critical"), true);
  EXPECT_EQ(disabled("--log_level critical --disable_tqdm false"), false);
  EXPECT_EQ(disabled("--disable_tqdm true"), true);
}

TEST(RunQaArguments, OptimizerSynonymsAndChoices) {
  EXPECT_EQ(parse_more("--optim adamw_torch_fused").arguments.training.optim,
            trainer::OptimizerName::kAdamwTorch);
  EXPECT_EQ(failure_more("--optim adam").exit_code, 2);
  EXPECT_EQ(parse_more("--adafactor").arguments.training.optim, trainer::OptimizerName::kAdafactor);
  EXPECT_EQ(parse_more("--evaluate_during_training").arguments.training.eval_strategy,
            IntervalStrategy::kSteps);
  EXPECT_THAT(parse_more("--optim sgd --optim_args momentum=0.9").notes,
              ElementsAre(HasSubstr("sgd uses them")));
  EXPECT_THAT(failure_more("--optim sgd --optim_args beta=1").message,
              HasSubstr("sgd has no setting 'beta'; it has momentum"));
  EXPECT_THAT(failure_more("--lr_scheduler_type cosine --lr_scheduler_kwargs {\"a\":1}").message,
              HasSubstr("cosine does not know 'a'"));
  EXPECT_EQ(
      parse_more("--lr_scheduler_type constant_with_warmup").arguments.training.lr_scheduler_type,
      trainer::LrSchedulerType::kConstantWithWarmup);
}

// The rate follows F1, which is better when greater; torch's own default is the other way round.
TEST(RunQaArguments, ReduceLrOnPlateauNeedsEvaluations) {
  EXPECT_THAT(failure_more("--lr_scheduler_type reduce_lr_on_plateau").message,
              HasSubstr("needs evaluation during training"));
  const ParsedRunQa parsed =
      parse_more("--lr_scheduler_type reduce_lr_on_plateau --eval_strategy epoch");
  EXPECT_EQ(parsed.arguments.training.metric_for_best_model, "f1");
  EXPECT_THAT(parsed.notes,
              ElementsAre(HasSubstr("compares f1"), HasSubstr("a greater f1 is better")));
}

// The name of transformers 5 and the truth value before it.
TEST(RunQaArguments, OrderOfTheSamples) {
  using trainer::SamplingStrategy;
  const auto order = [](const std::string& line) {
    return parse_more(line).arguments.training.train_sampling_strategy;
  };
  EXPECT_EQ(order(""), SamplingStrategy::kRandom);
  EXPECT_EQ(order("--train_sampling_strategy random"), SamplingStrategy::kRandom);
  EXPECT_EQ(order("--train_sampling_strategy sequential"), SamplingStrategy::kSequential);
  EXPECT_EQ(order("--train_sampling_strategy group_by_length"), SamplingStrategy::kGroupByLength);
  EXPECT_EQ(order("--group_by_length"), SamplingStrategy::kGroupByLength);
  EXPECT_EQ(order("--train_sampling_strategy sequential --group_by_length false"),
            SamplingStrategy::kSequential);
  EXPECT_EQ(failure_more("--train_sampling_strategy shuffled").exit_code, 2);
}

TEST(RunQaArguments, Bf16EvaluationWithoutTraining) {
  EXPECT_TRUE(parse_more("--bf16_full_eval").arguments.training.bf16);
  const ParsedRunQa training = parse_more("--do_train --train_file t.json --bf16_full_eval");
  EXPECT_FALSE(training.arguments.training.bf16);
  EXPECT_THAT(training.notes, ElementsAre(HasSubstr("evaluation computes as training does")));
}

TEST(RunQaArguments, TokensAreCountedByNameOrTruthValue) {
  using trainer::TokenCount;
  const auto count = [](const std::string& line) {
    return parse_more(line).arguments.training.include_num_input_tokens_seen;
  };
  EXPECT_EQ(count(""), TokenCount::kNo);
  EXPECT_EQ(count("--include_num_input_tokens_seen"), TokenCount::kAll);
  EXPECT_EQ(count("--include_num_input_tokens_seen TRUE"), TokenCount::kAll);
  EXPECT_EQ(count("--include_num_input_tokens_seen false"), TokenCount::kNo);
  EXPECT_EQ(count("--include_num_input_tokens_seen non_padding"), TokenCount::kNonPadding);
}

TEST(RunQaArguments, PaddingHasThreeStates) {
  EXPECT_EQ(parse(kMinimum).arguments.data.pad_to_max_length, std::nullopt);
  EXPECT_EQ(parse_more("--pad_to_max_length").arguments.data.pad_to_max_length, true);
  EXPECT_EQ(parse_more("--pad_to_max_length True").arguments.data.pad_to_max_length, true);
  EXPECT_EQ(parse_more("--pad_to_max_length=false").arguments.data.pad_to_max_length, false);
  EXPECT_EQ(parse_more("--no_pad_to_max_length").arguments.data.pad_to_max_length, false);
}

TEST(RunQaArguments, RequiredFlags) {
  EXPECT_EQ(failure("--validation_file v.json").message,
            "required and not given: --model_name_or_path");
  EXPECT_EQ(failure("--validation_file v.json").exit_code, 2);
  EXPECT_EQ(failure("--model_name_or_path= --validation_file v.json").exit_code, 2);
}

TEST(RunQaArguments, DataIsChecked) {
  EXPECT_THAT(failure("--model_name_or_path m").message, HasSubstr("no data: give --dataset_name"));
  EXPECT_THAT(failure_more("--do_train").message, HasSubstr("--do_train needs --train_file"));
  EXPECT_THAT(failure("--model_name_or_path m --train_file t.json --do_eval").message,
              HasSubstr("--do_eval needs --validation_file"));
  EXPECT_THAT(failure("--model_name_or_path m --train_file t.txt").message,
              HasSubstr("--train_file t.txt: expected a file that ends in .json, .jsonl, .csv, "
                        ".arrow, .parquet"));
  EXPECT_THAT(failure_more("--doc_stride 384").message,
              HasSubstr("--doc_stride 384 must be smaller than --max_seq_length 384"));
}

TEST(RunQaArguments, EvaluationFollowsHuggingFacesRules) {
  const auto steps = parse_more("--eval_strategy steps --logging_steps 50").arguments.training;
  EXPECT_TRUE(steps.do_eval);
  EXPECT_EQ(steps.eval_steps, 50);
  EXPECT_EQ(parse_more("--eval_strategy steps --eval_steps 0.1").arguments.training.eval_steps,
            0.1);
  EXPECT_EQ(parse_more("--eval_strategy epoch").arguments.training.eval_steps, std::nullopt);
  EXPECT_THAT(failure_more("--eval_strategy steps --eval_steps 2.5").message,
              HasSubstr("--eval_steps 2.5: must be a whole number"));
  EXPECT_THAT(failure_more("--logging_steps 0").message,
              HasSubstr("needs --logging_steps above 0"));
  EXPECT_THAT(failure_more("--logging_strategy no --logging_steps 0 --eval_strategy steps").message,
              HasSubstr("needs --eval_steps"));
}

// Hugging Face's script takes these values too; --max_steps 0 trains one step there.
TEST(RunQaArguments, NegativeValuesSwitchOff) {
  const auto training = parse_more(
                            "--max_steps -5 --max_grad_norm -1 --save_steps -1 "
                            "--eval_delay -1 --num_train_epochs 0")
                            .arguments.training;
  EXPECT_EQ(training.max_steps, -5);
  EXPECT_EQ(training.max_grad_norm, -1);
  EXPECT_EQ(training.save_steps, -1);
  EXPECT_EQ(training.eval_delay, -1);
  EXPECT_EQ(training.num_train_epochs, 0);
  EXPECT_NO_THROW(
      parse_more("--max_steps -100 --max_grad_norm 0 --save_steps 0 --eval_delay -2.5"));
  EXPECT_THAT(failure_more("--do_train --max_steps 0").message,
              HasSubstr("--max_steps: found 0, expected a number of steps, or a negative number to "
                        "train by --num_train_epochs"));
}

TEST(RunQaArguments, EmptyValuesAreNamed) {
  EXPECT_THAT(failure_more("--report_to=").message,
              HasSubstr("--report_to: found an empty value, expected tensorboard, all or none"));
  EXPECT_THAT(failure_more("--output_dir=").message,
              HasSubstr("--output_dir: found an empty value, expected a directory"));
}

TEST(RunQaArguments, BestModel) {
  const ParsedRunQa parsed =
      parse_more("--load_best_model_at_end --eval_strategy epoch --save_strategy epoch");
  EXPECT_EQ(parsed.arguments.training.metric_for_best_model, "f1");
  EXPECT_EQ(parsed.arguments.training.greater_is_better, true);
  EXPECT_THAT(parsed.notes, ElementsAre(HasSubstr("compares f1")));
  EXPECT_EQ(parse_more("--save_strategy best --eval_strategy epoch")
                .arguments.training.metric_for_best_model,
            "f1");
  EXPECT_THAT(failure_more("--save_strategy best").message,
              HasSubstr("--save_strategy best needs evaluation during training"));
  EXPECT_THAT(failure_more("--load_best_model_at_end").message,
              HasSubstr("same --eval_strategy and --save_strategy, found no and steps"));
  const std::string best = "--load_best_model_at_end --eval_strategy steps ";
  EXPECT_THAT(failure_more(best + "--eval_steps 200").message,
              HasSubstr("multiple of --eval_steps, found 500 and 200"));
  EXPECT_THAT(failure_more(best + "--eval_steps 0.1").message,
              HasSubstr("both as counts or both as shares, found 500 and 0.1"));
  EXPECT_NO_THROW(parse_more(best + "--eval_steps 0.1 --save_steps 0.3"));
  EXPECT_NO_THROW(parse_more(best + "--eval_steps 250"));
  EXPECT_NO_THROW(parse_more(best + "--metric_for_best_model eval_exact_match"));
  EXPECT_THAT(failure_more(best + "--metric_for_best_model loss").message,
              HasSubstr("run_qa's evaluation has no loss"));
  EXPECT_THAT(failure_more(best + "--metric_for_best_model exact").message,
              HasSubstr("choose one of exact_match, f1"));
  EXPECT_NO_THROW(parse_more(best + "--version_2_with_negative --metric_for_best_model HasAns_f1"));
}

TEST(RunQaArguments, WarmupBelowOneIsAShare) {
  const auto share = parse_more("--warmup_steps 0.1").arguments.training;
  EXPECT_EQ(share.warmup_steps, 0);
  EXPECT_EQ(share.warmup_ratio, 0.1);
  EXPECT_EQ(parse_more("--warmup_steps 100").arguments.training.warmup_steps, 100);
  EXPECT_THAT(failure_more("--warmup_steps 1.5").message,
              HasSubstr("neither a whole number nor a share"));
}

TEST(RunQaArguments, AcceleratorConfig) {
  EXPECT_TRUE(
      parse_more("--accelerator_config {\"split_batches\":true}").arguments.training.split_batches);
  EXPECT_TRUE(parse_more("--split_batches true").arguments.training.split_batches);
  EXPECT_TRUE(parse_more("").arguments.training.even_batches);
  EXPECT_THAT(failure_more("--accelerator_config {\"use_seedable_sampler\":false}").message,
              HasSubstr("use_seedable_sampler false is not supported"));
  const ParsedRunQa uneven = parse_more("--accelerator_config {\"even_batches\":false}");
  EXPECT_FALSE(uneven.arguments.training.even_batches);
  EXPECT_THAT(uneven.notes, IsEmpty());
  // Ranks compare this text, and training_args.json keeps it.
  EXPECT_THAT(job_request(uneven, {}).lines(),
              HasSubstr("accelerator_config={\"even_batches\":false,\"split_batches\":false}\n"));
}

TEST(RunQaArguments, Reporting) {
  EXPECT_THAT(parse_more("--report_to none").notes, IsEmpty());
  EXPECT_THAT(parse_more("--report_to none").arguments.training.report_to, IsEmpty());
  const ParsedRunQa parsed = parse_more("--report_to tensorboard --logging_dir /logs");
  EXPECT_THAT(parsed.notes, IsEmpty());
  EXPECT_THAT(parsed.arguments.training.report_to, ElementsAre("tensorboard"));
  EXPECT_EQ(parsed.arguments.training.logging_dir, "/logs");
  EXPECT_THAT(parse_more("--report_to all").arguments.training.report_to,
              ElementsAre("tensorboard"));
  EXPECT_THAT(parse_more("--report_to tensorboard tensorboard").arguments.training.report_to,
              ElementsAre("tensorboard"));
}

// The integrations that transformers 5 knows, and names that it does not.
TEST(RunQaArguments, OtherIntegrationsAreRefused) {
  for (const char* name :
       {"azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte", "kubeflow",
        "mlflow", "neptune", "swanlab", "trackio", "wandb"}) {
    for (const char* before : {"", "tensorboard "}) {
      EXPECT_THAT(failure_more(fmt::format("--report_to {}{}", before, name)).message,
                  AllOf(HasSubstr(fmt::format("--report_to {}: found an integration that needs "
                                              "Python, expected tensorboard, all or none",
                                              name)),
                        HasSubstr("report.html")));
    }
  }
  for (const char* name : {"WandB", "tensorboardx", "console", "None", "TensorBoard"}) {
    EXPECT_THAT(failure_more(fmt::format("--report_to {}", name)).message,
                HasSubstr("found no integration of this name"));
  }
  EXPECT_THAT(failure_more("--report_to none tensorboard").message,
              HasSubstr("found none among 2 values, expected it alone"));
  EXPECT_THAT(failure_more("--report_to tensorboard all").message,
              HasSubstr("found all among 2 values, expected it alone"));
}

TEST(RunQaArguments, PathsExpandHome) {
  EXPECT_EQ(parse_more("--output_dir ~/out").arguments.training.output_dir, "/home/ada/out");
  EXPECT_EQ(parse_more("--output_dir a~b").arguments.training.output_dir, "a~b");
}

TEST(RunQaArguments, JsonFileAndArgsFile) {
  testing::TemporaryFolder folder;
  write_file(
      folder / "job.json",
      R"({"model_name_or_path": "m", "validation_file": "v.json", "seed": 7, "bf16": true})");
  const ParsedRunQa json =
      parse_run_qa(std::vector<std::string>{"job.json"}, folder.path(), kEnvironment);
  EXPECT_EQ(json.arguments.training.seed, 7);
  EXPECT_TRUE(json.arguments.training.bf16);

  write_file(folder / "run_qa.args", "--seed 1 --bf16\n--model_name_or_path m\n");
  const ParsedRunQa args =
      parse_run_qa(split("--validation_file v.json --seed 2"), folder.path(), kEnvironment);
  EXPECT_EQ(args.arguments.training.seed, 2);
  EXPECT_TRUE(args.arguments.training.bf16);
  EXPECT_THAT(args.notes, ElementsAre(HasSubstr("run_qa.args come before")));
}

TEST(RunQaArguments, SecretsAreNeverShown) {
  const ParsedRunQa parsed = parse_more("--token hf_secret --hub_token hf_other --seed 3");
  EXPECT_EQ(parsed.arguments.model.token, "hf_secret");
  EXPECT_THAT(job_request(parsed, {}).lines(), AllOf(HasSubstr("token=\"<TOKEN>\"\n"),
                                                     HasSubstr("seed=3\n"), Not(HasSubstr("hf_"))));
  EXPECT_THAT(job_request(parsed, {}).training_args_json(), Not(HasSubstr("hf_")));
  for (const std::string& note : parsed.notes) EXPECT_THAT(note, Not(HasSubstr("hf_")));
  EXPECT_THAT(failure_more("--token hf_secret --nope=hf_x").message, Not(HasSubstr("hf_")));
}

TEST(RunQaArguments, SerialisedArgumentsReadBackAsTheSame) {
  const std::string text =
      job_request(parse_more("--seed 3 --eval_strategy steps --pad_to_max_length false "
                             "--max_train_samples 10 --lr_scheduler_type constant "
                             "--accelerator_config {\"even_batches\":false}"),
                  {})
          .training_args_json();
  testing::TemporaryFolder folder;
  write_file(folder / "again.json", text);
  const ParsedRunQa again =
      parse_run_qa(std::vector<std::string>{"again.json"}, folder.path(), kEnvironment);
  EXPECT_EQ(job_request(again, {}).training_args_json(), text);
}

TEST(RunQaArguments, QuantizationNamesWhatItNeeds) {
  const auto parsed = parse(
      "--model_name_or_path m --apply_quantization --quantization_approach static --do_train "
      "--do_eval --train_file t.json --validation_file v.json --verify_loading --bf16");
  EXPECT_TRUE(parsed.arguments.quantization.verify_loading);
  EXPECT_EQ(parsed.arguments.quantization.num_calibration_samples, 100);
  EXPECT_EQ(parsed.arguments.quantization.tolerance_criterion, 0.05);
  EXPECT_FALSE(parsed.arguments.trains());
  EXPECT_FALSE(parsed.arguments.training.bf16);
  EXPECT_THAT(parsed.notes, ElementsAre(HasSubstr("--bf16 has no effect")));

  const std::string both = "--apply_quantization --do_train --do_eval --train_file t.json ";
  EXPECT_TRUE(parse_more(both + "--train_before_quantization --bf16").arguments.training.bf16);
  EXPECT_TRUE(parse_more(both + "--train_before_quantization").arguments.trains());
  EXPECT_TRUE(parse_more("--do_train --train_file t.json").arguments.trains());
  EXPECT_EQ(
      parse_more("--do_eval --apply_quantization").arguments.quantization.quantization_approach,
      quant::Approach::kDynamic);  // needs no training file

  EXPECT_THAT(failure_more("--apply_quantization").message, HasSubstr("needs --do_eval"));
  EXPECT_THAT(failure_more("--apply_quantization --quantization_approach static --do_eval").message,
              HasSubstr("needs --do_train"));
  EXPECT_THAT(failure_more("--apply_quantization --train_before_quantization --do_eval").message,
              HasSubstr("needs --do_train"));
  EXPECT_THAT(failure_more("--apply_quantization --do_eval --metric eval_loss").message,
              AllOf(HasSubstr("--metric eval_loss"), HasSubstr("f1")));
  EXPECT_THAT(failure_more("--quantization_approach aware_training").message,
              HasSubstr("quantization-aware training is not there"));
  EXPECT_THAT(failure_more("--apply_quantization --do_eval --save_safetensors false").message,
              HasSubstr("safetensors only"));
  EXPECT_THAT(parse_more("--quantization_approach static --tolerance_criterion 0.01 "
                         "--verify_loading --train_before_quantization --max_trials 4")
                  .notes,
              ElementsAre(HasSubstr("--quantization_approach belongs to --apply_quantization"),
                          HasSubstr("--tolerance_criterion belongs to"),
                          HasSubstr("--verify_loading belongs to"),
                          HasSubstr("--train_before_quantization belongs to")));
  EXPECT_THAT(parse_more("--apply_quantization --do_eval --num_calibration_samples 7").notes,
              ElementsAre(HasSubstr("dynamic measures no ranges")));
}

}  // namespace
}  // namespace tandem::apps
