// PMI-1: its lines, and a conversation with a server that a test plays.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "bootstrap/launchers/pmi1.h"
#include "bootstrap/launchers/published.h"

namespace hocket::internal {
namespace {

TEST(PmiLine, is_read_and_written) {
  const auto line = parse_pmi_line("cmd=get_result rc=0  msg=all went well value=a=b");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->command, "get_result");
  EXPECT_EQ(line->number("rc"), 0);
  EXPECT_EQ(line->get("value"), "a=b");
  EXPECT_FALSE(line->get("key"));
  EXPECT_FALSE(line->number("msg"));
  EXPECT_EQ(pmi_text({"put", {{"key", "k"}, {"value", "v"}}}), "cmd=put key=k value=v\n");
}

TEST(PmiLine, without_a_command_is_refused) {
  for (const char* text : {"", " ", "rc=0", "cmd=", "cmd", "hello cmd=x"}) {
    EXPECT_FALSE(parse_pmi_line(text)) << text;
  }
}

/// Plays a server that gives these answers, each after a line of the rank.
class Server {
 public:
  explicit Server(std::vector<std::string> answers) {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    rank_ = UniqueFd(pair[0]);
    thread_ = std::thread([this, end = pair[1], answers = std::move(answers)] {
      const UniqueFd server(end);
      for (const std::string& answer : answers) {
        char byte = 0;
        while (byte != '\n') {
          if (::read(server.get(), &byte, 1) != 1) return;
          heard_ += byte;
        }
        EXPECT_EQ(::write(server.get(), answer.data(), answer.size()),
                  static_cast<ssize_t>(answer.size()));
        if (answer.empty()) static_cast<void>(!::read(server.get(), &byte, 1));  // says no more
      }
    });
  }
  Status broadcast(int rank, std::string* text, std::int64_t deadline_ms = 60'000) {
    const std::string lines[] = {"PMI_FD=" + std::to_string(rank_.get()),
                                 "PMI_RANK=" + std::to_string(rank), "PMI_SIZE=2"};
    const char* const entries[] = {lines[0].c_str(), lines[1].c_str(), lines[2].c_str(), nullptr};
    const JoinWait wait(deadline_ms, nullptr);
    std::unique_ptr<Pmi1> pmi;
    HOCKET_RETURN_IF_ERROR(Pmi1::open(Environment(entries), Pmi1::Manners::whole, wait, &pmi));
    EXPECT_EQ(pmi->rank(), rank);
    EXPECT_EQ(pmi->ranks(), 2);
    HOCKET_RETURN_IF_ERROR(pmi->broadcast(wait, text));
    return pmi->close(wait);
  }
  std::string heard() {
    rank_.reset();
    thread_.join();
    return heard_;
  }

 private:
  UniqueFd rank_;
  std::string heard_;
  std::thread thread_;
};

const std::string init = "cmd=response_to_init rc=0\n";
const std::string name = "cmd=my_kvsname kvsname=kvs_1\n";

TEST(Pmi1, of_rank_0_publishes_and_that_of_another_rank_reads) {
  std::string text = "abc";
  Server first(
      {init, name, "cmd=put_result rc=0\n", "cmd=barrier_out rc=0\n", "cmd=finalize_ack rc=0\n"});
  EXPECT_TRUE(first.broadcast(0, &text).ok());
  EXPECT_NE(first.heard().find("cmd=put kvsname=kvs_1 key=hocket-rank-0 value=abc\n"),
            std::string::npos);
  text.clear();
  Server second({init, name, "cmd=barrier_out rc=0\n", "cmd=get_result rc=0 value=abc\n",
                 "cmd=finalize_ack rc=0\n"});
  EXPECT_TRUE(second.broadcast(1, &text).ok());
  EXPECT_EQ(text, "abc");
  second.heard();
}

TEST(Pmi1, that_fails_says_what_the_server_answered_and_what_else_to_do) {
  const struct {
    std::vector<std::string> answers;
    const char* said;
  } rows[] = {
      {{"cmd=response_to_init rc=-1\n"}, "rc=-1"},
      {{init, "cmd=unknown\n"}, "cmd=unknown"},
      {{"nonsense\n"}, "without cmd="},
      {{init}, "closed the connection"},
      {{std::string(10'000, 'x')}, "does not end"},
  };
  for (const auto& row : rows) {
    Server server(row.answers);
    std::string text;
    const Status status = server.broadcast(1, &text);
    EXPECT_NE(status.message().find(row.said), std::string::npos) << status.message();
    server.heard();
  }
}

TEST(Pmi1, waits_no_longer_than_the_join_deadline) {
  Server server({init, name, ""});
  std::string text;
  const Status status = server.broadcast(1, &text, 100);
  EXPECT_EQ(status.code(), Code::timeout);
  server.heard();
}

TEST(Published, texts_are_read_as_they_were_written) {
  UniqueId id;
  ASSERT_TRUE(make_unique_id(&id).ok());
  id.coordinator.ip = {10, 0, 0, 1};
  id.coordinator.port = 4000;
  for (const bool with_key : {true, false}) {
    const std::string text = published_text(id, with_key);
    EXPECT_LE(text.size(), longest_pmi_value);
    UniqueId read;
    bool found = !with_key;
    ASSERT_TRUE(parse_published(text, &read, &found).ok());
    EXPECT_EQ(found, with_key);
    EXPECT_EQ(read.coordinator, id.coordinator);
    EXPECT_EQ(read.job_id, id.job_id);
    EXPECT_EQ(read.key == id.key, with_key);
  }
}

TEST(Published, texts_that_are_damaged_are_refused) {
  UniqueId id;
  ASSERT_TRUE(make_unique_id(&id).ok());
  const std::string sound = published_text(id, true);
  UniqueId read;
  bool with_key = false;
  for (std::size_t at = 0; at < sound.size(); at += 7) {
    std::string text = sound;
    text[at] = text[at] == '0' ? '1' : '0';
    EXPECT_FALSE(parse_published(text, &read, &with_key).ok()) << at;
  }
  for (const std::string& text : {std::string(), sound + "0", sound.substr(1), "x" + sound}) {
    EXPECT_FALSE(parse_published(text, &read, &with_key).ok()) << text;
  }
}

}  // namespace
}  // namespace hocket::internal
