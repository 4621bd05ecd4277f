// What libhocket asks the shared heap (libhocket_heap.so), if the process has it: which memory it
// has, so that the local peers can map it. The heap calls nothing of libhocket.
#pragma once

#include <cstddef>

extern "C" {

struct hocket_heap_segment {
  void* base;
  std::size_t bytes;
  int fd;  // a memfd, sealed against shrinking, that is mapped at base from its first byte on
};

/// Copies at most `most` segments, without the first `first` ones, and returns how many. Segments
/// stay for the life of the process, in this order. In a forked child the segments of its parent
/// are left out.
std::size_t hocket_heap_segments(hocket_heap_segment* out, std::size_t first, std::size_t most);

/// To be called before pages of a segment are replaced by private memory of the process: from then
/// on the heap does not take the file for the content of the memory.
void hocket_heap_has_private_pages();
}
