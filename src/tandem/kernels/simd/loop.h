// Internal: loops over arrays in vectors, the ragged end included.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::kernels::simd {

// The place of one vector in the arrays of a loop.
template <class V>
struct Whole {
  std::size_t index;
  template <class T>
  [[gnu::always_inline]] V load(const T* p) const {
    return V::load(p + index);
  }
  // X: V, or a type of an instruction set that stores itself in another way.
  template <class X, class T>
  [[gnu::always_inline]] void store(X x, T* p) const {
    X::store(x, p + index);
  }
  // x itself: every lane counts.
  [[gnu::always_inline]] V keep(V x) const { return x; }
  [[gnu::always_inline]] V keep_or(V x, V) const { return x; }
};

// The last, shorter one: lanes at and beyond `count` load as zero and are not stored.
template <class V>
struct Ragged {
  std::size_t index;
  std::size_t count;
  template <class T>
  [[gnu::always_inline]] V load(const T* p) const {
    return V::load_partial(p + index, count);
  }
  template <class X, class T>
  [[gnu::always_inline]] void store(X x, T* p) const {
    X::store_partial(x, p + index, count);
  }
  // Zero in the lanes that do not count.
  [[gnu::always_inline]] V keep(V x) const { return keep_or(x, V::zero()); }
  // `other` in the lanes that do not count.
  [[gnu::always_inline]] V keep_or(V x, V other) const {
    return V::select(V::lanes_below(count), x, other);
  }
};

// The last one of arrays with room for a whole vector: lanes at and beyond `count` load as anything
// that lies there, and are stored. Partial stores take many operations without AVX-512.
template <class V>
struct Padded : Whole<V> {
  std::size_t count;
  // Zero in the lanes that do not count.
  [[gnu::always_inline]] V keep(V x) const {
    return V::select(V::lanes_below(count), x, V::zero());
  }
};

// Asks for what a loop will read, or write, some hundred instructions later. A loop with much
// arithmetic fills the window in which a processor looks ahead by itself, and would wait for each
// line. Harmless beyond the end of an array.
inline constexpr std::size_t kBytesAhead = 2048;
template <class At, class T>
[[gnu::always_inline]] inline void fetch_ahead(At at, const T* p) {
  __builtin_prefetch(p + at.index + kBytesAhead / sizeof(T), 0, 3);
}
template <class At, class T>
[[gnu::always_inline]] inline void claim_ahead(At at, const T* p) {
  __builtin_prefetch(p + at.index + kBytesAhead / sizeof(T), 1, 3);
}

// body(place) for all vectors of [begin, end).
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_vector(std::size_t begin, std::size_t end, Body body) {
  std::size_t i = begin;
  for (; i + V::kLanes <= end; i += V::kLanes) body(Whole<V>{i});
  if (i < end) body(Ragged<V>{i, end - i});
}

template <class V, class Body>
[[gnu::always_inline]] inline void for_each_vector(std::size_t count, Body body) {
  for_each_vector<V>(0, count, body);
}

// The same for arrays that may have room for whole vectors only.
template <class V, class Body>
[[gnu::always_inline]] inline void for_each_padded_vector(std::size_t count, bool has_room,
                                                          Body body) {
  std::size_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) body(Whole<V>{i});
  if (i == count) return;
  if (has_room) {
    body(Padded<V>{{i}, count - i});
  } else {
    body(Ragged<V>{i, count - i});
  }
}

}  // namespace tandem::kernels::simd
