#include "thread_pool.h"

#include <cfenv>
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace forebay {

namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Default float control for a scope: nearest even, denormals kept (docs/ops.md, exact arithmetic).
class FloatControl {
 public:
  FloatControl() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
#if defined(__x86_64__)
    _mm_setcsr(0x1f80);
#endif
  }
  ~FloatControl() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
};

constexpr auto kSpin = std::chrono::microseconds(50);

}  // namespace

Part part_of(int count, int thread, int threads) {
  const auto edge = [&](int i) { return static_cast<int>(static_cast<long long>(count) * i / threads); };
  return {edge(thread), edge(thread + 1)};
}

void Signal::advance() {
  value_.fetch_add(1);  // sequentially consistent, as is wait_past: one of the two sees the other
  if (sleepers_.load() == 0) return;
  std::lock_guard<std::mutex> lock(mutex_);
  wake_.notify_all();
}

void Signal::wait_past(unsigned seen) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  for (int i = 1; value() == seen; ++i) {
    pause();
    if (i % 64 == 0 && std::chrono::steady_clock::now() > deadline) break;
  }
  if (value() != seen) return;
  std::unique_lock<std::mutex> lock(mutex_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, [&] { return value_.load() != seen; });
  sleepers_.fetch_sub(1);
}

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { serve(thread); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  started_.advance();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const std::function<void(int)>& work) {
  const FloatControl control;
  work_ = &work;
  started_.advance();
  work(0);
  barrier();
}

void ThreadPool::barrier() {
  if (threads_ == 1) return;
  const unsigned seen = passed_.value();
  if (arrived_.fetch_add(1) + 1 < threads_) return passed_.wait_past(seen);
  arrived_ = 0;
  passed_.advance();
}

void ThreadPool::serve(int thread) {
  const FloatControl control;
  for (unsigned seen = 0;; ++seen) {
    started_.wait_past(seen);
    if (stopping_) return;
    (*work_)(thread);
    barrier();
  }
}

}  // namespace forebay
