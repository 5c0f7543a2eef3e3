#include "tandem/job/elastic.h"

#include <algorithm>
#include <chrono>
#include <compare>
#include <optional>

#include "tandem/comm/api/texts.h"
#include "tandem/comm/failure/damaged_link.h"
#include "tandem/core/error.h"
#include "tandem/core/whole_number.h"
#include "tandem/job/agreed_inputs.h"
#include "tandem/rendezvous/exchange.h"
#include "tandem/rendezvous/job_token.h"

namespace tandem::job {
namespace {

using nlohmann::ordered_json;

// All ranks of the view have just reported that they are ready; if one fails, its agent stops the
// view.
constexpr std::chrono::seconds kMeeting{30};
constexpr std::size_t kMostPlace = 4096;

std::string to_text(const Progress& progress) {
  ordered_json json;
  json["stage"] = static_cast<int>(progress.stage);
  json["trainer"] = progress.trainer;
  json["results"] = progress.results;
  return json.dump();
}

Progress progress_from(const elastic::Account& account) {
  Progress progress;
  if (account.progress.empty()) return progress;
  try {
    const ordered_json json = ordered_json::parse(account.progress);
    progress.stage = static_cast<Stage>(whole_number<int>(json.at("stage")));
    progress.trainer = json.at("trainer").get<std::string>();
    progress.results = json.at("results").get<Results>();
  } catch (const ordered_json::exception& error) {
    raise<CommError>("where the job is cannot be read: {}", error.what());
  }
  progress.records = account.records;
  return progress;
}

// Order of a job's progress. The later, the larger.
struct Place {
  int stage = 0;
  std::int64_t step = 0;
  int done_after_step = 0;
  auto operator<=>(const Place&) const = default;
};

Place place_of(const Progress& progress) {
  Place place{.stage = static_cast<int>(progress.stage)};
  if (progress.trainer.empty()) return place;
  try {
    const ordered_json trainer = ordered_json::parse(progress.trainer);
    const ordered_json state = ordered_json::parse(trainer.at("state").get<std::string>());
    const ordered_json resume = ordered_json::parse(trainer.at("resume").get<std::string>());
    place.step = whole_number<std::int64_t>(state.at("global_step")) +
                 static_cast<std::int64_t>(progress.records.size());
    place.done_after_step = 1 + (resume.value("evaluation_due", false) ? 0 : 1) +
                            (trainer.contains("final_metrics") ? 2 : 0);
  } catch (const ordered_json::exception& error) {
    raise<CommError>("where the job is cannot be read: {}", error.what());
  }
  return place;
}

// The later of two. Each belongs to the step whose weights it came with.
elastic::Account later(elastic::Account a, elastic::Account b) {
  return place_of(progress_from(b)) > place_of(progress_from(a)) ? std::move(b) : std::move(a);
}

// The progress that led to the weights of `step`. Only the weights show which of the agent's two
// records is the right one. The record of the newest step may still be in memory beside them.
elastic::Account account_of(const elastic::Briefing& briefing, std::uint64_t step) {
  elastic::Account found;
  for (const elastic::Account* one : {&briefing.account, &briefing.arrived}) {
    const auto counted = static_cast<std::uint64_t>(place_of(progress_from(*one)).step);
    if (counted == step || counted + 1 == step) found = later(std::move(found), *one);
  }
  return found;
}

}  // namespace

std::string to_text(const Decision& decision) {
  return ordered_json{
      {"output_dir", decision.output_dir}, {"resume", decision.resume}, {"shards", decision.shards}}
      .dump();
}

Decision decision_from(const std::string& text) {
  try {
    const ordered_json json = ordered_json::parse(text);
    return {.output_dir = json.at("output_dir").get<std::string>(),
            .resume = json.at("resume").get<std::string>(),
            .shards = whole_number<int>(json.at("shards"))};
  } catch (const ordered_json::exception& error) {
    raise<CommError>("the start of the job cannot be read: {}", error.what());
  }
}

void ViewKeeper::step_applied(std::uint64_t step, const std::vector<double>& record) {
  if (speaks_) seat_.applied(view_, step, record);
}

void ViewKeeper::progress(std::string text) {
  progress_.trainer = std::move(text);
  tell(/*got_on=*/!std::exchange(repeats_, false));
}

void ViewKeeper::add_result(std::string stage, const ordered_json& metrics) {
  of_this_stage_.emplace_back(std::move(stage), metrics);
}

void ViewKeeper::stage_is_over(Stage stage) {
  progress_.stage = static_cast<Stage>(static_cast<int>(stage) + 1);
  for (auto& result : std::exchange(of_this_stage_, {}))
    progress_.results.push_back(std::move(result));
  tell(/*got_on=*/true);
}

void ViewKeeper::tell(bool got_on) {
  if (speaks_) seat_.progress(view_, to_text(progress_), std::exchange(lines_, {}), got_on);
}

World join_view(elastic::Seat& seat, const elastic::Assignment& assignment, const World& alone) {
  World world{.identity = alone.identity, .communicator = nullptr};
  const comm::Options& options = alone.view_options;
  if (assignment.size == 1) {
    world.communicator = comm::Communicator::create(0, 1, {}, /*loopback_only=*/true, options);
    return world;
  }
  const bool one_node = assignment.briefing.one_node;
  rendezvous::MeetingPlace place;
  if (assignment.rank == 0) {
    place = one_node ? rendezvous::open_bare_place(/*loopback_only=*/true)
                     : rendezvous::open_meeting_place(alone.identity.interface, kMostPlace);
    if (one_node) place.text = rendezvous::place_at(place.text, "127.0.0.1");
    seat.tell_place(assignment.view, place.text);
  } else {
    auto text = seat.place(assignment.view);
    if (!text) raise<CommError>("the view was given up before its ranks had met");
    place.text = std::move(*text);
  }
  rendezvous::ExchangeOptions meeting;
  meeting.timeout = kMeeting;
  meeting.check = [&] {
    if (seat.is_stopped(assignment.view))
      raise<CommError>("the view was given up before its ranks had met");
  };
  const auto exchange = [&](const std::string& card) {
    return rendezvous::exchange_cards_at(std::move(place), assignment.rank, assignment.size, card,
                                         meeting);
  };
  world.communicator = comm::Communicator::create(assignment.rank, assignment.size, exchange,
                                                  one_node, options, alone.identity.interface);
  return world;
}

elastic::Seat::Ready ready_to_compute(std::uint64_t step, int shards, std::string kernels,
                                      const std::string& lines) {
  const rendezvous::ProofCode print = rendezvous::prove("", {lines});
  return {.step = step,
          .shards = shards,
          .computes = {.kernels = std::move(kernels),
                       .fingerprint = std::string(print.begin(), print.end()),
                       .inputs = shortened(lines)}};
}

LevelPlace level(elastic::Seat& seat, const elastic::Assignment& assignment,
                 const dist::ModelState& model, dist::GradientEngine& gradients,
                 comm::Communicator& communicator, dist::StateLearner* learner) {
  std::string own;
  if (assignment.briefing.keeps)
    own = elastic::to_text(account_of(assignment.briefing, model.step()));
  const auto arrives = [&](const std::string& arrived) {
    seat.arrives(assignment.view, arrived);
    own = arrived;
  };
  const dist::Levelled levelled =
      gradients.level({.account = own, .arrives = arrives, .learner = learner});
  elastic::Account latest;
  for (const std::string& text : comm::all_gather_texts(communicator, own))
    if (!text.empty()) latest = later(std::move(latest), elastic::account_from(text));
  return {progress_from(latest), levelled.moved};
}

void send_failure(elastic::Seat& seat, std::uint64_t view, const CommError& error) {
  std::optional<std::pair<int, int>> damaged;
  if (const auto* link = dynamic_cast<const comm::DamagedLink*>(&error))
    damaged.emplace(link->ends().from, link->ends().to);
  seat.failed(view, error.what(), damaged);
}

}  // namespace tandem::job
