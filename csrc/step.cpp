#include "step.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace forebay {

namespace {

void check_count(const char* name, long long count, long long limit) {
  if (count > limit)
    throw std::invalid_argument("step has " + std::to_string(count) + " " + name + ", the plan allows " +
                                std::to_string(limit));
}

void check_column(const std::string& name, const std::int32_t* column, int count, int low, long long high) {
  for (int i = 0; i < count; ++i)
    if (column[i] < low || column[i] >= high)
      throw std::invalid_argument(name + "[" + std::to_string(i) + "] is " + std::to_string(column[i]) +
                                  ", must be in [" + std::to_string(low) + ", " + std::to_string(high) + ")");
}

std::vector<Run> find_runs(const Step& step) {
  std::vector<Run> runs;
  std::vector<char> seen(static_cast<std::size_t>(step.requests), 0);
  for (int row = 0; row < step.tokens; ++row) {
    if (row > 0 && step.request[row] == step.request[row - 1]) {
      if (step.position[row] != step.position[row - 1] + 1)
        throw std::invalid_argument("position[" + std::to_string(row) + "] is " + std::to_string(step.position[row]) +
                                    ", must follow the row before it of the same request by 1");
      runs.back().row_end = row + 1;
      continue;
    }
    char& mark = seen[static_cast<std::size_t>(step.request[row])];
    if (mark)
      throw std::invalid_argument("request[" + std::to_string(row) + "]: rows of request " +
                                  std::to_string(step.request[row]) + " are not adjacent");
    mark = 1;
    runs.push_back({row, row + 1, step.position[row], step.request[row]});
  }
  return runs;
}

// Every block that holds a key some row sees must be there.
void check_blocks(const Step& step, const Run& run, const KVGroup& group, std::size_t number, int block_size,
                  int num_blocks) {
  const Step::Table& table = step.tables[number];
  const int first = group.window ? std::max(0, run.position - group.window + 1) : 0;
  const int last = run.position + run.row_end - run.row_begin - 1;
  for (int b = first / block_size; b <= last / block_size; ++b) {
    const int block = b < table.columns
                          ? table.data[static_cast<std::size_t>(run.request) * static_cast<std::size_t>(table.columns) +
                                       static_cast<std::size_t>(b)]
                          : -1;
    if (block < 0 || block >= num_blocks)
      throw std::invalid_argument("block_tables[" + std::to_string(number) + "][" + std::to_string(run.request) + "][" +
                                  std::to_string(b) + "] is " + std::to_string(block) + ", must be in [0, " +
                                  std::to_string(num_blocks) + "): position " + std::to_string(last) + " reads it");
  }
}

}  // namespace

std::vector<Run> check_step(const Step& step, const PlanLimits& limits, const std::vector<KVGroup>& groups,
                            int block_size, int vocab) {
  check_count("tokens", step.tokens, limits.max_tokens);
  check_count("requests", step.requests, limits.max_requests);
  check_count("logit rows", step.logit_rows, limits.max_logit_rows);
  check_column("token", step.token, step.tokens, 0, vocab);
  check_column("position", step.position, step.tokens, 0, limits.max_model_len);
  check_column("request", step.request, step.tokens, 0, step.requests);
  check_column("logit_rows", step.rows, step.logit_rows, 0, step.tokens);
  for (int i = 1; i < step.logit_rows; ++i)
    if (step.rows[i] <= step.rows[i - 1])
      throw std::invalid_argument("logit_rows[" + std::to_string(i) + "] is " + std::to_string(step.rows[i]) +
                                  ", must be above the one before");
  check_column("hidden_rows", step.hidden, step.hidden_rows, 0, step.logit_rows);
  std::vector<Run> runs = find_runs(step);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const long long slots = static_cast<long long>(limits.num_blocks) * block_size;
    check_column("slots[" + std::to_string(g) + "]", step.slots[g], step.tokens, -1, slots);
    for (const Run& run : runs) check_blocks(step, run, groups[g], g, block_size, limits.num_blocks);
  }
  return runs;
}

}  // namespace forebay
