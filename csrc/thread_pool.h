// A persistent pool. The caller of run() is thread 0; the others spin briefly for work, then sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace forebay {

struct Part {
  int begin, end;
};

// The contiguous share of `count` items of one thread; shares differ by at most one item.
Part part_of(int count, int thread, int threads);

// A number that threads wait for: spin about 50 us, then sleep.
class Signal {
 public:
  unsigned value() const { return value_.load(std::memory_order_acquire); }
  void advance();
  void wait_past(unsigned seen);  // until value() != seen

 private:
  std::atomic<unsigned> value_{0};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
};

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // at least 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return threads_; }

  // Calls work(thread) on every thread and returns when all are done. Float control is the default on all of them
  // (round to nearest, denormals kept), whatever the caller had set. `work` must not throw.
  void run(const std::function<void(int)>& work);

  // Within work: returns when every thread has arrived.
  void barrier();

 private:
  void serve(int thread);

  const int threads_;
  std::atomic<int> arrived_{0};
  Signal passed_, started_;
  std::atomic<bool> stopping_{false};
  const std::function<void(int)>* work_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace forebay
