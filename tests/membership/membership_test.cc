// One agent at a time, by hand: the order of a few messages that everything else rests on.
#include "tandem/elastic/protocol/membership.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"
#include "tandem/elastic/protocol/joining.h"

namespace tandem::membership {
namespace {

using testing::HasSubstr;

constexpr Time kStart{1000};
const Rules kRules;

MembershipOptions options(NodeId id, Bounds bounds) {
  MembershipOptions result;
  result.self = {id, "n" + std::to_string(id)};
  result.job = {"amx", {}, 4};
  result.who = {result.self.address, {"amx"}, {}, 4};
  result.bounds = bounds;
  result.last_step = 100;
  result.bootstrap_node = id == 1;
  if (id != 1) result.contacts = {"n1"};
  return result;
}

template <class T>
std::vector<T> orders_of(Membership& membership) {
  std::vector<T> result;
  for (const Order& order : membership.take_orders()) {
    if (const T* o = std::get_if<T>(&order)) result.push_back(*o);
  }
  return result;
}

// The messages of kind T among its orders.
template <class T>
std::vector<T> sent(Membership& membership) {
  std::vector<T> result;
  for (const Send& send : orders_of<Send>(membership)) {
    if (const T* message = std::get_if<T>(send.message.get())) result.push_back(*message);
  }
  return result;
}

const Peer kTwo{2, "n2"};
const Peer kThree{3, "n3"};

Answer answer(ViewNumber number, std::uint64_t step) {
  Answer result;
  result.number = result.promised = number;
  result.node_state = {step, 1, false};
  return result;
}

// Agent 1 in a view of three, at step 0.
Membership leader_of_three(Time quiet = Limits().quiet) {
  MembershipOptions own = options(1, {3, 3});
  own.limits.quiet = quiet;
  Membership membership(own, kRules, {0, 1, false}, kStart);
  const Ask ask{{"x", {"amx"}, {}, 4}, {0, 1, false}};
  membership.receive(kStart, kTwo, ask);
  membership.receive(kStart, kThree, ask);
  const std::vector<Propose> proposals = sent<Propose>(membership);
  EXPECT_EQ(proposals.size(), 2u);
  const ViewNumber number = proposals.at(0).number;
  membership.receive(kStart, kTwo, answer(number, 0));
  membership.receive(kStart, kThree, answer(number, 0));
  EXPECT_EQ(sent<Offer>(membership).size(), 2u);
  membership.receive(kStart, kTwo, Accept{number});
  EXPECT_EQ(membership.phase(), Membership::Phase::kOffering);
  EXPECT_THAT(membership.waiting_for(), HasSubstr("n3"));
  membership.receive(kStart, kThree, Accept{number});
  EXPECT_EQ(membership.phase(), Membership::Phase::kRunning);
  EXPECT_EQ(membership.view().members.size(), 3u);
  return membership;
}

TEST(Membership, FoundsAJobOfOneAtOnce) {
  Membership membership(options(1, {1, 4}), kRules, {0, 1, false}, kStart);
  membership.wake(kStart);
  const std::vector<RunView> runs = orders_of<RunView>(membership);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].view.members.size(), 1u);
  EXPECT_FALSE(runs[0].view.paused);
}

TEST(Membership, DoesNotFoundWhileAnAddressMayKnowOfAJob) {
  MembershipOptions with_contact = options(1, {1, 4});
  with_contact.contacts = {"n2"};
  Membership membership(with_contact, kRules, {0, 1, false}, kStart);
  membership.wake(kStart);
  EXPECT_TRUE(orders_of<RunView>(membership).empty());
  EXPECT_NE(membership.waiting_for(), "");
  membership.nobody_at(kStart, "n2");
  EXPECT_EQ(orders_of<RunView>(membership).size(), 1u);
}

TEST(Membership, BeginsWithTheGivenNumberOfWorkers) {
  Bounds bounds{1, 2};
  bounds.first_workers = 3;
  Membership membership(options(1, bounds), kRules, {0, 2, false}, kStart);
  membership.wake(kStart);
  EXPECT_TRUE(orders_of<RunView>(membership).empty());
  EXPECT_THAT(membership.waiting_for(), HasSubstr("3 workers to begin; 2 are ready"));
  membership.receive(kStart, kTwo, Ask{{"x", {"amx"}, {}, 4}, {0, 0, false}});
  EXPECT_TRUE(sent<Propose>(membership).empty());
  membership.receive(kStart, kTwo, Ask{{"x", {"amx"}, {}, 4}, {0, 1, false}});
  EXPECT_EQ(sent<Propose>(membership).size(), 1u);
}

TEST(Membership, InstallsWhenAllHaveAccepted) {
  Membership membership = leader_of_three();
  EXPECT_EQ(orders_of<RunView>(membership).size(), 1u);
}

// With an external lock: another may have it from now on, so nothing is computed until it is back.
TEST(Membership, ANodeThatLosesTheLockComputesNothing) {
  MembershipOptions locked = options(1, {1, 4});
  locked.external_lock = true;
  Membership membership(locked, kRules, {0, 1, false}, kStart);
  membership.wake(kStart);
  EXPECT_EQ(orders_of<TakeLock>(membership).size(), 1u);
  membership.lock(kStart, true);
  EXPECT_EQ(orders_of<RunView>(membership).size(), 1u);
  membership.lock(kStart, false);
  EXPECT_EQ(orders_of<StopWorkers>(membership).size(), 1u);
  EXPECT_THAT(membership.waiting_for(), HasSubstr("external lock"));
  membership.stopped(kStart, 3);
  EXPECT_TRUE(orders_of<RunView>(membership).empty());
  membership.lock(kStart, true);
  const std::vector<RunView> runs = orders_of<RunView>(membership);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].view.step, 3u);
}

// A certain loss: stop, ask, at once; no node waits for a limit.
TEST(Membership, ProposesAtOnceWhenALossIsCertain) {
  Membership membership = leader_of_three();
  membership.take_orders();
  membership.applied(kStart, membership.view().number, 1, false);
  membership.peer_dead(kStart, kThree.id);
  EXPECT_EQ(membership.phase(), Membership::Phase::kProposing);
  std::vector<Order> orders = membership.take_orders();
  ASSERT_EQ(orders.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<StopWorkers>(orders[1]));
  const auto& proposal = std::get<Propose>(*std::get<Send>(orders[0]).message);
  membership.receive(kStart, kTwo, answer(proposal.number, 2));
  EXPECT_TRUE(membership.take_orders().empty());  // until its own workers have stopped
  membership.stopped(kStart, 1);
  const std::vector<Offer> offers = sent<Offer>(membership);
  ASSERT_EQ(offers.size(), 1u);
  EXPECT_EQ(offers[0].view.step, 2u);  // rule R2: the highest
  EXPECT_EQ(offers[0].view.source, kTwo);
  EXPECT_EQ(offers[0].view.members.size(), 2u);
}

TEST(Membership, WaitsForASilentMemberUpToTheLimit) {
  Membership membership = leader_of_three();
  const Limits limits;
  membership.receive(kStart + limits.silent / 2, kTwo, Beat{membership.view().number, 0});
  membership.wake(kStart + limits.silent - Time(1));
  EXPECT_EQ(membership.phase(), Membership::Phase::kRunning);
  membership.wake(kStart + limits.silent + limits.beat);
  EXPECT_EQ(membership.phase(), Membership::Phase::kProposing);
}

// After an interruption of the network the agents reach each other later than their workers do.
TEST(Membership, WaitsLongerForASilentMemberThanItsWorkersDo) {
  const auto phase_of = [](bool workers_fail) {
    Membership membership = leader_of_three(Time(4000));
    const Limits limits;
    const Time later = kStart + limits.silent + limits.beat;
    membership.wake(later);
    EXPECT_EQ(membership.phase(), Membership::Phase::kRunning);
    if (workers_fail)
      membership.step_failed(later, membership.view().number, {}, {});
    else
      membership.wake(kStart + Time(4000) + limits.beat);
    return membership.phase();
  };
  EXPECT_EQ(phase_of(true), Membership::Phase::kProposing);
  EXPECT_EQ(phase_of(false), Membership::Phase::kProposing);
}

// The workers may notice a silent host before its agent has been silent for long enough.
TEST(Membership, DecidesAsSoonAsTheMissingNodesAreSilent) {
  Membership membership = leader_of_three();
  const Limits limits;
  membership.receive(kStart + limits.beat, kThree, Beat{membership.view().number, 0});
  membership.take_orders();
  const Time failed = kStart + limits.silent;
  membership.step_failed(failed, membership.view().number, {}, {});
  const std::vector<Propose> proposals = sent<Propose>(membership);
  ASSERT_EQ(proposals.size(), 2u);
  membership.receive(failed, kTwo, answer(proposals[0].number, 0));
  membership.stopped(failed, 0);
  EXPECT_EQ(membership.next_wake(), kStart + limits.beat + limits.silent);
  membership.wake(membership.next_wake());
  const std::vector<Offer> offers = sent<Offer>(membership);
  ASSERT_EQ(offers.size(), 1u);
  EXPECT_EQ(offers[0].view.members.size(), 2u);
}

TEST(Membership, KeepsItsPromise) {
  Membership membership = leader_of_three();
  membership.take_orders();
  membership.receive(kStart, kTwo, Propose{{50, kTwo.id}, membership.view().number});
  EXPECT_TRUE(sent<Answer>(membership).empty());  // its workers have to stop
  membership.stopped(kStart, 0);
  EXPECT_EQ(sent<Answer>(membership).size(), 1u);
  membership.receive(kStart, kThree, Propose{{49, kThree.id}, membership.view().number});
  const std::vector<Answer> refusals = sent<Answer>(membership);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].promised, (ViewNumber{50, kTwo.id}));
}

TEST(Membership, DoesNotStopForNodesOutsideItsView) {
  Membership membership = leader_of_three();
  membership.take_orders();
  membership.receive(kStart, {9, "n9"}, Propose{{50, 9}, {0, 0}});
  EXPECT_EQ(membership.phase(), Membership::Phase::kRunning);
  EXPECT_EQ(sent<AskReply>(membership).size(), 1u);
}

TEST(Membership, RefusesOtherKernelsAndContinues) {
  Membership membership = leader_of_three();
  membership.take_orders();
  membership.receive(kStart, {9, "n9"}, Ask{{"n9", {"avx2"}, {}, 4}, {0, 1, false}});
  const std::vector<AskReply> answers = sent<AskReply>(membership);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].verdict, Verdict::kRefuse);
  EXPECT_THAT(answers[0].reason, HasSubstr("amx on the job's hosts"));
  EXPECT_THAT(answers[0].reason, HasSubstr("avx2"));
  EXPECT_EQ(membership.phase(), Membership::Phase::kRunning);
}

// A host with another command line, which shows at first only that it is another.
Ask other_inputs(std::string inputs) {
  Ask ask{{"n9", {"amx"}, {}, 4, std::move(inputs)}, {0, 1, false}};
  ask.who.files[0] = 1;
  return ask;
}

MembershipOptions with_inputs(MembershipOptions options) {
  options.job.inputs = options.who.inputs = "learning_rate=0.5\nseed=1\n";
  return options;
}

TEST(Membership, ReportsTheDifferentLinesAndRemembersRefusedNodes) {
  Membership bootstrap_node(with_inputs(options(1, {2, 4})), kRules, {0, 1, false}, kStart);
  bootstrap_node.receive(kStart, {9, "a9"}, other_inputs(""));
  EXPECT_EQ(sent<AskReply>(bootstrap_node).at(0).verdict, Verdict::kShow);
  EXPECT_TRUE(bootstrap_node.refused().empty());
  const Ask shown = other_inputs("learning_rate=0.1\nseed=1\n");
  for (int round = 0; round < 2; ++round) {
    bootstrap_node.receive(kStart, {9, "a9"}, shown);
    std::vector<Order> orders = bootstrap_node.take_orders();
    std::vector<Refused> refused;
    for (const Order& order : orders)
      if (const auto* one = std::get_if<Refused>(&order)) refused.push_back(*one);
    ASSERT_EQ(refused.size(), round == 0 ? 1u : 0u);  // logged once
  }
  const std::string& reason = bootstrap_node.refused().at("n9");
  EXPECT_THAT(reason, HasSubstr("learning_rate: 0.5 on the job's hosts, 0.1 on n9"));
  EXPECT_THAT(reason, testing::Not(HasSubstr("seed")));
  EXPECT_THAT(bootstrap_node.waiting_for(), HasSubstr("1 are here; n9 was refused"));
  Ask mended = shown;
  mended.who.files = {};
  bootstrap_node.receive(kStart, {10, "a9"}, mended);
  EXPECT_TRUE(bootstrap_node.refused().empty());
}

TEST(Membership, ShowsItsInputsOnRequest) {
  Membership membership(with_inputs(options(2, {1, 4})), kRules, {0, 1, false}, kStart);
  membership.wake(kStart);
  EXPECT_EQ(sent<Ask>(membership).at(0).who.inputs, "");
  membership.receive(kStart, {1, "n1"}, AskReply{Verdict::kShow, "", 0, std::nullopt});
  EXPECT_EQ(sent<Ask>(membership).at(0).who.inputs, "learning_rate=0.5\nseed=1\n");
}

// It may itself be the one that differs.
TEST(Membership, RefusesNoNodeBeforeItIsInTheJob) {
  Membership membership(with_inputs(options(2, {1, 4})), kRules, {0, 1, false}, kStart);
  membership.receive(kStart, {9, "a9"}, other_inputs("learning_rate=0.1\n"));
  EXPECT_EQ(sent<AskReply>(membership).at(0).verdict, Verdict::kWait);
  EXPECT_TRUE(membership.refused().empty());
}

TEST(Rules, OtherKernelsAreNamedByTheirOperationsAlone) {
  const JobIdentity job{.kernels = "gemm=vector,layer_norm=vector,reduce=vector"};
  const Credentials who{.name = "n9",
                        .kernels = {"gemm=vector,layer_norm=reference,reduce=vector"}};
  const std::string reason = kRules.refusal(job, who);
  EXPECT_THAT(reason, HasSubstr(":\n  layer_norm: vector on the job's hosts, reference on n9"));
  EXPECT_THAT(reason, testing::Not(testing::AnyOf(HasSubstr("gemm"), HasSubstr("reduce"))));
}

// Text from others is shown on a terminal in the end, and has bounds.
TEST(Rules, AHostileReasonIsBoundedAndPrintable) {
  std::string lines = "seed=\x1b[2J\r\n";
  while (lines.size() < 30000) lines += fmt::format("k{}=v\n", lines.size());
  lines += "z=" + std::string(2000, 'x');
  Ask ask = other_inputs(lines);
  ask.who.name = std::string("n\x1b") + "9\n";
  const std::string reason = kRules.refusal(with_inputs(options(1, {2, 4})).job, ask.who);
  EXPECT_THAT(reason, HasSubstr("n?9?"));
  EXPECT_EQ(reason.find_first_of("\x1b\r"), std::string::npos);
  EXPECT_LT(reason.size(), 9000u);
  ask.who.inputs = "a=" + std::string(32000, 'x');
  EXPECT_LT(kRules.refusal(with_inputs(options(1, {2, 4})).job, ask.who).size(), 9000u);
}

TEST(Membership, EndsWithTheReasonWhenItIsRefused) {
  Membership membership(options(2, {1, 4}), kRules, {0, 1, false}, kStart);
  membership.receive(kStart, {1, "n1"}, AskReply{Verdict::kRefuse, "other files", 0, std::nullopt});
  const std::vector<End> ends = orders_of<End>(membership);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].code, 1);
  EXPECT_THAT(ends[0].message, HasSubstr("other files"));
}

// A job of two that is at `step`, as its leader describes it to agent 3, which holds nothing.
Membership newcomer(std::uint64_t step, View& view) {
  MembershipOptions own = options(3, {1, 4});
  Membership membership(own, kRules, {0, 0, false}, kStart);
  view.number = {7, 1};
  view.members = {{{1, "n1"}, 1, step}, {kTwo, 1, step}};
  membership.receive(kStart, {1, "n1"}, AskReply{Verdict::kLearn, "", step, view});
  return membership;
}

TEST(Membership, ANodeThatIsBehindMayLearn) {
  View view;
  Membership membership = newcomer(9, view);
  const std::vector<Learn> orders = orders_of<Learn>(membership);
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].view, view);
  EXPECT_EQ(orders[0].step, 9u);
}

TEST(Joining, KeepsWorkersBackUntilTheStateIsThere) {
  View view;
  const Membership membership = newcomer(9, view);
  Joining joining(Time(1000));
  EXPECT_FALSE(joining.begin(kStart, 4, view)) << "no worker is ready";
  EXPECT_TRUE(joining.keeps_back(kStart, membership));
  EXPECT_EQ(joining.begin(kStart, 4, view), (Peer{1, "n1"}));
  EXPECT_FALSE(joining.begin(kStart, 4, view)) << "it is under way";
  EXPECT_TRUE(joining.under_way() && joining.keeps_back(kStart, membership));
  joining.end();
  EXPECT_FALSE(joining.under_way() || joining.keeps_back(kStart, membership));
}

TEST(Joining, AsksOneAfterAnotherAndComesInTheEnd) {
  View view;
  const Membership membership = newcomer(9, view);
  Joining joining(Time(1000));
  ASSERT_TRUE(joining.keeps_back(kStart, membership));
  EXPECT_EQ(joining.begin(kStart, 4, view), (Peer{1, "n1"}));
  joining.failed(kStart);
  ASSERT_FALSE(joining.is_over());
  EXPECT_EQ(joining.begin(kStart, 4, view), kTwo);
  joining.worker_lost();
  ASSERT_TRUE(joining.keeps_back(kStart, membership)) << "its successor begins again";
  EXPECT_EQ(joining.begin(kStart, 4, view), (Peer{1, "n1"}));
  joining.failed(kStart);
  EXPECT_TRUE(joining.is_over());
  EXPECT_FALSE(joining.keeps_back(kStart, membership));
}

TEST(Joining, TheWaitForAMessageOrATransferIsBounded) {
  View view;
  const Membership membership = newcomer(9, view);
  Joining unheard(Time(1000)), slow(Time(1000));
  ASSERT_TRUE(unheard.keeps_back(kStart, membership) && slow.keeps_back(kStart, membership));
  EXPECT_FALSE(unheard.wake(kStart + Time(1999), membership));
  EXPECT_TRUE(unheard.wake(kStart + Time(2001), membership));
  ASSERT_TRUE(slow.begin(kStart, 4, view));
  EXPECT_FALSE(slow.wake(kStart + Time(999), membership));
  EXPECT_TRUE(slow.wake(kStart + Time(1001), membership));
  EXPECT_FALSE(slow.keeps_back(kStart + Time(1001), membership));
}

TEST(Joining, AsksAnotherOneWhenTheSenderIsInNoView) {
  View view;
  Membership membership = newcomer(9, view);
  Joining joining(Time(1000));
  ASSERT_TRUE(joining.keeps_back(kStart, membership));
  ASSERT_EQ(joining.begin(kStart, 4, view), (Peer{1, "n1"}));
  view.number.counter = 8;
  view.members.erase(view.members.begin());
  membership.receive(kStart, kTwo, AskReply{Verdict::kLearn, "", 9, view});
  EXPECT_TRUE(joining.wake(kStart, membership));
  EXPECT_FALSE(joining.is_over());
  EXPECT_EQ(joining.begin(kStart, 4, view), kTwo);
}

TEST(Joining, HoldsBackNoNodeThatIsNeededOrHasNoRoom) {
  View view;
  const Membership not_started(options(3, {1, 4}), kRules, {0, 0, false}, kStart);
  EXPECT_FALSE(Joining(Time(1000)).keeps_back(kStart, not_started)) << "there is no job yet";
  MembershipOptions full = options(3, {1, 2});
  Membership spare(full, kRules, {0, 0, false}, kStart);
  newcomer(9, view);
  spare.receive(kStart, {1, "n1"}, AskReply{Verdict::kSpare, "", 9, view});
  EXPECT_FALSE(Joining(Time(1000)).keeps_back(kStart, spare));
  Membership needed(options(3, {3, 4}), kRules, {0, 0, false}, kStart);
  view.paused = true;
  needed.receive(kStart, {1, "n1"}, AskReply{Verdict::kLearn, "", 9, view});
  EXPECT_FALSE(Joining(Time(1000)).keeps_back(kStart, needed)) << "the job waits for it";
}

TEST(Membership, EndsTheJobForABug) {
  Membership membership = leader_of_three();
  membership.take_orders();
  membership.fail(kStart, 70, "a check failed");
  EXPECT_EQ(sent<Ended>(membership).size(), 2u);
  EXPECT_EQ(membership.phase(), Membership::Phase::kEnded);
  EXPECT_EQ(membership.next_wake(), kNever);
}

TEST(Membership, RefusesImpossibleOptions) {
  EXPECT_THROW(Membership(options(0, {1, 1}), kRules, {}, kStart), InvalidArgument);
  EXPECT_THROW(Membership(options(1, {2, 1}), kRules, {}, kStart), InvalidArgument);
}

// ---- the rules ----

View view_of(std::initializer_list<NodeId> nodes) {
  View view;
  view.number = {1, *nodes.begin()};
  for (const NodeId node : nodes) view.members.push_back({{node, "n"}, 1, 0});
  return view;
}

TEST(Rules, MoreThanHalfOrHalfWithTheFirst) {
  const View four = view_of({1, 2, 3, 4});
  EXPECT_TRUE(kRules.may_follow(four, {2, 3, 4}, {}));
  EXPECT_TRUE(kRules.may_follow(four, {1, 4}, {}));
  EXPECT_FALSE(kRules.may_follow(four, {2, 3}, {}));
  EXPECT_FALSE(kRules.may_follow(four, {1}, {}));
  // A node known to be dead has no vote, even the first one.
  EXPECT_TRUE(kRules.may_follow(four, {2, 3}, {1}));
  EXPECT_TRUE(kRules.may_follow(four, {4}, {1, 2, 3}));
  EXPECT_TRUE(kRules.may_follow(four, {2}, {1, 4}));
  EXPECT_FALSE(kRules.may_follow(four, {3}, {1, 4}));
}

TEST(Rules, TwoThatDoNotReachEachOtherAreNotInOneView) {
  Answers answers;
  for (const NodeId node : {1, 2, 3}) answers[node] = {{node, "n"}, answer({2, 1}, 5)};
  answers[3].answer.unreachable = {2};
  const View next = next_view(kRules, view_of({1, 2, 3}), answers, {1, 3});
  EXPECT_TRUE(next.has(1));
  EXPECT_TRUE(next.has(2));
  EXPECT_FALSE(next.has(3));
}

// A view takes nodes with workers; nodes that are behind get the state in the view.
TEST(Rules, AViewBeginsAtTheHighestStep) {
  Answers answers;
  answers[1] = {{1, "n"}, answer({2, 1}, 0)};
  answers[2] = {{2, "n"}, answer({2, 1}, 4)};
  answers[3] = {{3, "n"}, answer({2, 1}, 5)};
  answers[2].answer.node_state.workers = 0;
  const View next = next_view(kRules, view_of({1, 2, 3}), answers, {3, 3});
  EXPECT_EQ(next.step, 5u);
  EXPECT_EQ(next.source.id, 3u);
  EXPECT_TRUE(next.has(1));
  EXPECT_FALSE(next.has(2));
  EXPECT_TRUE(next.paused);
}

TEST(Rules, TheSameFailureTwice) {
  const std::vector<Fault> once{{1, 1, 7, "signal 11"}, {1, 1, 7, "signal 11"}};
  EXPECT_EQ(kRules.repeated(once), nullptr);
  const std::vector<Fault> twice{{1, 1, 7, "signal 11"}, {2, 1, 7, "signal 11"}};
  EXPECT_NE(kRules.repeated(twice), nullptr);
  const std::vector<Fault> different{{1, 1, 7, "signal 11"}, {2, 1, 7, "exit code 3"}};
  EXPECT_EQ(kRules.repeated(different), nullptr);
}

}  // namespace
}  // namespace tandem::membership
