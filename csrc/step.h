// One step's columns, borrowed from the caller, and the check that everything in them is in range.
#pragma once

#include <cstdint>
#include <vector>

#include "forebay/kernels.h"

namespace forebay {

struct PlanLimits {
  int max_tokens, max_requests, max_logit_rows, max_model_len, num_blocks;
};

// Layers that share a block table. window 0 = full attention.
struct KVGroup {
  std::vector<int> layers;
  int kv_heads, head_dim;
  KVFormat format;
  int window;
};

// See StepBatch in ops/protocol.py.
struct Step {
  struct Table {
    const std::int32_t* data;
    int columns;
  };  // (requests, columns)

  int tokens, requests, logit_rows, hidden_rows = 0;
  const std::int32_t *token, *position, *request;
  std::vector<const std::int32_t*> slots;  // per group (tokens,)
  std::vector<Table> tables;               // per group
  const std::int32_t* rows;                // (logit_rows,)
  const std::int32_t* hidden = nullptr;    // (hidden_rows,)
};

// Consecutive rows of one request.
struct Run {
  int row_begin, row_end, position, request;
};

// The step's runs. Throws std::invalid_argument that names the first column, row and value out of range.
std::vector<Run> check_step(const Step& step, const PlanLimits& limits, const std::vector<KVGroup>& groups,
                            int block_size, int vocab);

}  // namespace forebay
