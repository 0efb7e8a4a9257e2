// Python module forebay.ops._native. ops/native.py is its only user; meanings are in ops/protocol.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "cpu.h"
#include "plan.h"
#include "roofline/roofline.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace forebay {

namespace {

template <class T, int Dims>
using In = nb::ndarray<const T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;
template <class T, int Dims>
using Out = nb::ndarray<T, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;

using Ints = In<std::int32_t, 1>;
using Floats = In<float, 1>;

int length(std::size_t n) {
  if (n > INT32_MAX) throw std::invalid_argument("an array of " + std::to_string(n) + " entries is too long");
  return static_cast<int>(n);
}

template <class Array>
void check_rows(const char* name, const Array& array, std::size_t rows) {
  if (array.shape(0) != rows)
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(array.shape(0)) + " entries, expected " +
                                std::to_string(rows));
}

StoredWeight stored(const std::string& name, const In<std::uint8_t, 2>& data, int columns) {
  const Format& format = find_format(name);
  if (columns < 1 || columns % format.block_size || data.shape(1) != format.row_bytes(columns))
    throw std::invalid_argument("a " + name + " row of " + std::to_string(data.shape(1)) + " bytes does not hold " +
                                std::to_string(columns) + " columns");
  return {format, data.data(), length(data.shape(0)), columns};
}

// StepBatch as its arrays.
struct StepArrays {
  Ints token, position, request, rows;
  std::vector<Ints> slots;
  std::vector<In<std::int32_t, 2>> tables;
  std::optional<Ints> hidden;
};

Step step_of(const StepArrays& a) {
  Step step{length(a.token.shape(0)),
            a.tables.empty() ? 0 : length(a.tables[0].shape(0)),
            length(a.rows.shape(0)),
            0,
            a.token.data(),
            a.position.data(),
            a.request.data(),
            {},
            {},
            a.rows.data()};
  if (a.hidden) {
    step.hidden_rows = length(a.hidden->shape(0));
    step.hidden = a.hidden->data();
  }
  check_rows("position", a.position, a.token.shape(0));
  check_rows("request", a.request, a.token.shape(0));
  if (a.tables.empty())  // a plan without a cache: requests are only names, and check_step judges how many
    for (int i = 0; i < step.tokens; ++i)
      step.requests = std::max(step.requests, std::min(a.request.data()[i], INT32_MAX - 1) + 1);
  for (const Ints& slots : a.slots) {
    check_rows("slots", slots, a.token.shape(0));
    step.slots.push_back(slots.data());
  }
  for (const auto& table : a.tables) {
    check_rows("block_tables", table, a.tables[0].shape(0));
    step.tables.push_back({table.data(), length(table.shape(1))});
  }
  return step;
}

// LogitEdits and SampleBatch as their arrays, and StepOutputs to fill.
struct EditArrays {
  Ints start, token, count;
  Floats bias, repetition, presence, frequency;
  In<std::uint32_t, 2> masks;
  Ints mask;
};
struct SampleArrays {
  Floats temperature, top_p, min_p;
  Ints top_k;
  In<std::uint64_t, 1> seed;
  Ints child, output_position, num_logprobs;
  std::optional<Floats> typical_p;
  std::optional<EditArrays> edits;
  std::optional<Ints> target;
};
struct OutputArrays {
  Out<std::int32_t, 1> token;
  Out<float, 1> logprob;
  Out<std::int32_t, 2> top_ids;
  Out<float, 2> top_logprobs;
  Out<bool, 1> ok;
  std::optional<Out<float, 2>> hidden;
};

// Every index in range: rows of entries ascend, tokens are in the vocabulary, masks exist and are wide enough.
LogitEdits edits_of(const EditArrays& a, std::size_t rows, int vocab) {
  const std::size_t entries = a.token.shape(0), words = a.masks.shape(1);
  check_rows("start", a.start, rows + 1);
  check_rows("count", a.count, entries);
  check_rows("bias", a.bias, entries);
  check_rows("repetition", a.repetition, rows);
  check_rows("presence", a.presence, rows);
  check_rows("frequency", a.frequency, rows);
  check_rows("mask", a.mask, rows);
  const std::int32_t* start = a.start.data();
  bool fits = start[0] == 0 && static_cast<std::size_t>(start[rows]) == entries;
  for (std::size_t i = 0; i < rows; ++i) {
    fits = fits && start[i] <= start[i + 1] && a.mask.data()[i] < length(a.masks.shape(0));
    fits = fits && (a.mask.data()[i] < 0 || words * 32 >= static_cast<std::size_t>(vocab));
    fits = fits && a.repetition.data()[i] > 0.0f;
  }
  for (std::size_t i = 0; i < entries; ++i) fits = fits && a.token.data()[i] >= 0 && a.token.data()[i] < vocab;
  if (!fits) throw std::invalid_argument("edits of the logits are out of range");
  return {start,
          a.token.data(),
          a.count.data(),
          a.bias.data(),
          a.repetition.data(),
          a.presence.data(),
          a.frequency.data(),
          a.masks.data(),
          a.mask.data(),
          words};
}

SampleColumns columns_of(const SampleArrays& a, std::size_t rows, int vocab) {
  check_rows("temperature", a.temperature, rows);
  check_rows("top_p", a.top_p, rows);
  check_rows("min_p", a.min_p, rows);
  check_rows("top_k", a.top_k, rows);
  check_rows("seed", a.seed, rows);
  check_rows("child", a.child, rows);
  check_rows("output_position", a.output_position, rows);
  check_rows("num_logprobs", a.num_logprobs, rows);
  if (a.typical_p) check_rows("typical_p", *a.typical_p, rows);
  if (a.target) check_rows("target", *a.target, rows);
  for (std::size_t i = 0; i < rows; ++i) {
    const bool fits = (!a.typical_p || a.typical_p->data()[i] > 0.0f) && (!a.target || a.target->data()[i] < vocab) &&
                      a.temperature.data()[i] >= 0.0f && a.top_p.data()[i] > 0.0f && a.min_p.data()[i] >= 0.0f &&
                      a.top_k.data()[i] >= 0;
    if (!fits)
      throw std::invalid_argument("sampling parameters of logit row " + std::to_string(i) + " are out of range");
  }
  return {a.temperature.data(),
          a.top_p.data(),
          a.min_p.data(),
          a.top_k.data(),
          a.seed.data(),
          a.child.data(),
          a.output_position.data(),
          a.num_logprobs.data(),
          a.typical_p ? a.typical_p->data() : nullptr,
          a.edits ? edits_of(*a.edits, rows, vocab) : LogitEdits{},
          a.target ? a.target->data() : nullptr};
}

SampleOutputs outputs_of(const OutputArrays& a, std::size_t rows) {
  check_rows("token", a.token, rows);
  check_rows("logprob", a.logprob, rows);
  check_rows("top_ids", a.top_ids, rows);
  check_rows("top_logprobs", a.top_logprobs, rows);
  check_rows("ok", a.ok, rows);
  if (a.top_ids.shape(1) != a.top_logprobs.shape(1))
    throw std::invalid_argument("top_ids and top_logprobs differ in width");
  return {a.token.data(),        a.logprob.data(), a.top_ids.data(),
          a.top_logprobs.data(), a.ok.data(),      length(a.top_ids.shape(1))};
}

// Where the step's hidden rows go; null if it has none.
float* hidden_of(const OutputArrays& a, const Plan& plan, const Step& step) {
  if (!a.hidden && step.hidden_rows == 0) return nullptr;
  if (!a.hidden) throw std::invalid_argument("hidden_rows without an array for them");
  check_rows("hidden", *a.hidden, static_cast<std::size_t>(step.hidden_rows));
  if (a.hidden->shape(1) != static_cast<std::size_t>(plan.hidden_width()))
    throw std::invalid_argument("hidden must be as wide as what the forward pass marked");
  return a.hidden->data();
}

void run(Plan& plan, const StepArrays& arrays, const SampleArrays& sample, const OutputArrays& outputs) {
  const Step step = step_of(arrays);
  const SampleColumns columns = columns_of(sample, arrays.rows.shape(0), plan.vocab());
  const SampleOutputs out = outputs_of(outputs, arrays.rows.shape(0));
  float* hidden = hidden_of(outputs, plan, step);
  const nb::gil_scoped_release release;
  plan.run(step, columns, out, hidden);
}

void run_logits(Plan& plan, const StepArrays& arrays, const Out<float, 2>& out) {
  const Step step = step_of(arrays);
  check_rows("logits", out, arrays.rows.shape(0));
  if (out.shape(1) != static_cast<std::size_t>(plan.vocab()))
    throw std::invalid_argument("logits must be as wide as the vocabulary");
  const nb::gil_scoped_release release;
  plan.run_logits(step, out.data());
}

Plan::Trace trace(Plan& plan, const StepArrays& arrays) {
  const Step step = step_of(arrays);
  const nb::gil_scoped_release release;
  return plan.trace(step);
}

void sample(const std::string& isa, const In<float, 2>& logits, const SampleArrays& arrays,
            const OutputArrays& outputs) {
  const std::size_t rows = logits.shape(0);
  if (logits.shape(1) < 1) throw std::invalid_argument("logits must have at least one column");
  const int vocab = length(logits.shape(1));
  const SampleColumns columns = columns_of(arrays, rows, vocab);
  const SampleOutputs out = outputs_of(outputs, rows);
  Sampler sampler(kernels_for(isa), vocab);
  for (int row = 0; row < length(rows); ++row) sampler.run(logits.data(), row, columns, out);
}

void dequantize(const std::string& format, const In<std::uint8_t, 2>& data, const Out<float, 2>& out) {
  const StoredWeight weight = stored(format, data, length(out.shape(1)));
  check_rows("out", out, data.shape(0));
  for (std::size_t row = 0; row < data.shape(0); ++row)
    dequantize_row(weight.format, weight.data + row * data.shape(1), weight.columns, out.data() + row * out.shape(1));
}

using GroupTuple =
    std::tuple<std::vector<int>, int, int, std::string, int>;  // layers, kv_heads, head_dim, dtype, window

KVFormat kv_format(const std::string& dtype) {
  if (dtype == "f32") return KVFormat::f32;
  if (dtype == "f16") return KVFormat::f16;
  if (dtype == "int8") return KVFormat::i8;
  throw std::invalid_argument("the cache must be f32, f16 or int8, got '" + dtype + "'");
}

void construct(Plan* at, const std::string& isa, int threads, std::tuple<int, int, int, int, int> limits,
               int block_size, const std::vector<GroupTuple>& groups) {
  if (threads < 1) throw std::invalid_argument("threads must be at least 1, got " + std::to_string(threads));
  const auto [tokens, requests, logit_rows, model_len, blocks] = limits;
  if (tokens < 1 || requests < 1 || logit_rows < 1 || model_len < 1 || blocks < 1)
    throw std::invalid_argument("every plan limit must be at least 1");
  std::vector<KVGroup> specs;
  for (const auto& [layers, kv_heads, head_dim, dtype, window] : groups)
    specs.push_back({layers, kv_heads, head_dim, kv_format(dtype), window});
  new (at)
      Plan(kernels_for(isa), threads, {tokens, requests, logit_rows, model_len, blocks}, block_size, std::move(specs));
}

void bind_plan(nb::module_& m) {
  nb::class_<Plan>(m, "Plan")
      .def("__init__", &construct, "isa"_a, "threads"_a, "limits"_a, "block_size"_a, "groups"_a)
      .def("segment", &Plan::segment)
      .def(
          "embed",
          [](Plan& p, const std::string& f, const In<std::uint8_t, 2>& data, int columns) {
            return p.embed(stored(f, data, columns));
          },
          "format"_a, "data"_a.noconvert(), "columns"_a, nb::keep_alive<1, 3>())
      .def(
          "linear",
          [](Plan& p, int x, const std::string& f, const In<std::uint8_t, 2>& data, int columns,
             std::optional<Floats> bias) {
            const StoredWeight weight = stored(f, data, columns);
            if (bias) check_rows("bias", *bias, data.shape(0));
            const nb::gil_scoped_release release;
            return p.linear(x, weight, bias ? bias->data() : nullptr);
          },
          "x"_a, "format"_a, "data"_a, "columns"_a, "bias"_a.none())
      .def("rms_norm",
           [](Plan& p, int x, const Floats& w, float eps) { return p.rms_norm(x, w.data(), length(w.shape(0)), eps); })
      .def(
          "rope",
          [](Plan& p, int x, int head_dim, const In<float, 2>& cos, const In<float, 2>& sin) {
            check_rows("sin", sin, cos.shape(0));
            if (sin.shape(1) != cos.shape(1)) throw std::invalid_argument("rope: cos and sin differ in width");
            return p.rope(x, head_dim, cos.data(), sin.data(), length(cos.shape(0)), 2 * length(cos.shape(1)));
          },
          "x"_a, "head_dim"_a, "cos"_a.noconvert(), "sin"_a.noconvert(), nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>())
      .def("kv_write", &Plan::kv_write)
      .def("attention", &Plan::attention)
      .def("act_mul", &Plan::act_mul)
      .def("add", &Plan::add)
      .def("scale", &Plan::scale)
      .def("softcap", &Plan::softcap)
      .def("rows", &Plan::rows)
      .def("hidden", &Plan::hidden)
      .def("logits", &Plan::logits)
      .def("finish", &Plan::finish)
      .def_prop_ro("vocab", &Plan::vocab)
      .def_prop_ro("hidden_width", &Plan::hidden_width)
      .def("run", &run)
      .def("run_logits", &run_logits)
      .def("trace", &trace)
      .def("segments_done", &Plan::segments_done);
}

// Kernels that plans use and the op set does not show, called on their own: for tests.
QuantizedRows quantized_rows(const Out<std::uint8_t, 2>& bytes, int columns) {
  if (columns % kQuantGroup ||
      bytes.shape(1) != static_cast<std::size_t>(columns / kQuantGroup) * sizeof(QuantizedGroup))
    throw std::invalid_argument("rows of " + std::to_string(bytes.shape(1)) + " bytes do not hold " +
                                std::to_string(columns) + " quantized columns");
  return {reinterpret_cast<QuantizedGroup*>(bytes.data()), columns};
}

void quantize(const std::string& isa, const In<float, 2>& x, const Out<std::uint8_t, 2>& out) {
  check_rows("out", out, x.shape(0));
  kernels_for(isa).quantize(x.data(), 0, length(x.shape(0)), quantized_rows(out, length(x.shape(1))));
}

using Biased = std::tuple<std::string, In<std::uint8_t, 2>, std::optional<Floats>>;  // format, data, bias

PackedWeight packed(const Biased& w, int columns, ThreadPool& pool, Arena& arena) {
  const auto& [format, data, bias] = w;
  const StoredWeight weight = stored(format, data, columns);
  if (bias) check_rows("bias", *bias, data.shape(0));
  PackedWeight view = pack(weight.format, weight.data, weight.rows, weight.columns, pool, arena);
  view.bias = bias ? bias->data() : nullptr;
  return view;
}

void linear_gated(const std::string& isa, int threads, bool is_silu, const Biased& gate, const Biased& up,
                  const Out<std::uint8_t, 2>& x, const Out<std::uint8_t, 2>& out) {
  const int columns = length(x.shape(1) / sizeof(QuantizedGroup)) * kQuantGroup, rows = length(x.shape(0));
  ThreadPool pool(threads);
  Arena arena;
  const PackedWeight g = packed(gate, columns, pool, arena), u = packed(up, columns, pool, arena);
  check_rows("out", out, x.shape(0));
  if (g.rows != u.rows) throw std::invalid_argument("gate and up differ in rows");
  const QuantizedRows from = quantized_rows(x, columns), to = quantized_rows(out, g.rows);
  pool.run([&](int thread) {
    const Part part = part_of(g.rows / kPanelRows, thread, pool.size());
    kernels_for(isa).linear_gated(is_silu ? Activation::silu : Activation::gelu_tanh, g, u, from, rows, part.begin,
                                  part.end, to);
  });
}

// out holds the residual before, and residual + (x w^T + bias) after.
void linear_add(const std::string& isa, const Biased& w, const In<float, 2>& x, const Out<float, 2>& out) {
  ThreadPool pool(1);
  const int rows = length(x.shape(0)), columns = length(x.shape(1));
  Arena arena;
  const PackedWeight weight = packed(w, columns, pool, arena);
  check_rows("out", out, x.shape(0));
  if (out.shape(1) != static_cast<std::size_t>(weight.rows)) throw std::invalid_argument("out has another width");
  const int panels = (weight.rows + kPanelRows - 1) / kPanelRows;
  const Kernels& kernels = kernels_for(isa);
  if (weight.storage <= Storage::bf16)
    return kernels.linear_float(weight, x.data(), rows, 0, panels, out.data(), out.data());
  AlignedBuffer groups(static_cast<std::size_t>(rows) * (columns / kQuantGroup) * sizeof(QuantizedGroup));
  const QuantizedRows q = {reinterpret_cast<QuantizedGroup*>(groups.data()), columns};
  kernels.quantize(x.data(), 0, rows, q);
  kernels.linear_quantized(weight, q, rows, 0, panels, out.data(), out.data());
}

std::uint32_t read_all(const std::string& isa, const In<std::uint8_t, 1>& data) {
  return kernels_for(isa).read_all(data.data(), data.shape(0));
}

void bind_roofline(nb::module_& m) {
  const auto construct_roofline = [](Roofline* at, const std::string& isa, int threads) {
    if (threads < 1) throw std::invalid_argument("threads must be at least 1, got " + std::to_string(threads));
    new (at) Roofline(kernels_for(isa), threads);
  };
  nb::class_<Roofline>(m, "Roofline")
      .def("__init__", construct_roofline)
      .def("read", &Roofline::read, nb::call_guard<nb::gil_scoped_release>())
      .def("peak", &Roofline::peak, nb::call_guard<nb::gil_scoped_release>());
  m.def("read_all", &read_all);
}

}  // namespace

}  // namespace forebay

NB_MODULE(_native, m) {
  using namespace forebay;
  nb::class_<StepArrays>(m, "Step").def(
      "__init__",
      [](StepArrays* at, Ints token, Ints position, Ints request, std::vector<Ints> slots,
         std::vector<In<std::int32_t, 2>> tables, Ints rows, std::optional<Ints> hidden) {
        new (at) StepArrays{token, position, request, rows, std::move(slots), std::move(tables), hidden};
      },
      "token"_a, "position"_a, "request"_a, "slots"_a, "block_tables"_a, "logit_rows"_a, "hidden_rows"_a.none());
  nb::class_<EditArrays>(m, "Edits")
      .def("__init__", [](EditArrays* at, Ints start, Ints token, Ints count, Floats bias, Floats repetition,
                          Floats presence, Floats frequency, In<std::uint32_t, 2> masks, Ints mask) {
        new (at) EditArrays{start, token, count, bias, repetition, presence, frequency, masks, mask};
      });
  nb::class_<SampleArrays>(m, "Sample")
      .def(
          "__init__",
          [](SampleArrays* at, Floats temperature, Floats top_p, Floats min_p, Ints top_k, In<std::uint64_t, 1> seed,
             Ints child, Ints output_position, Ints num_logprobs, std::optional<Floats> typical_p,
             std::optional<EditArrays> edits, std::optional<Ints> target) {
            new (at) SampleArrays{temperature,     top_p,        min_p,     top_k, seed,  child,
                                  output_position, num_logprobs, typical_p, edits, target};
          },
          "temperature"_a, "top_p"_a, "min_p"_a, "top_k"_a, "seed"_a, "child"_a, "output_position"_a, "num_logprobs"_a,
          "typical_p"_a.none(), "edits"_a.none(), "target"_a.none());
  nb::class_<OutputArrays>(m, "Outputs")
      .def(
          "__init__",
          [](OutputArrays* at, Out<std::int32_t, 1> token, Out<float, 1> logprob, Out<std::int32_t, 2> top_ids,
             Out<float, 2> top_logprobs, Out<bool, 1> ok, std::optional<Out<float, 2>> hidden) {
            new (at) OutputArrays{token, logprob, top_ids, top_logprobs, ok, hidden};
          },
          "token"_a, "logprob"_a, "top_ids"_a, "top_logprobs"_a, "ok"_a, "hidden"_a.none());
  bind_plan(m);
  bind_roofline(m);
  m.def("supported_isas", &supported_isas);
  m.def("sample", &sample);
  m.def("dequantize", &dequantize);
  m.def("quantize", &quantize);
  m.def("linear_add", &linear_add);
  m.def("linear_gated", &linear_gated);
}
