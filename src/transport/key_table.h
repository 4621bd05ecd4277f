// A hash table from message key to nodes; a node has the members `key` and `next`. The table
// allocates only when it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "transport/transport.h"

namespace hocket::internal {

template <typename Node>
class KeyTable {
 public:
  std::size_t size() const { return size_; }

  Node* find(const MessageKey& key) const {
    if (apart_ != nullptr && apart_->key == key) return apart_;
    if (is_in_buckets()) return find_in_buckets(key);
    return nullptr;
  }

  /// The key must not be in the table.
  void insert(Node& node) {
    HOCKET_ASSERT(find(node.key) == nullptr, "a key names one node");
    if (apart_ == nullptr) {
      apart_ = &node;
    } else {
      if (size_ >= buckets_.size()) grow();
      push(node);
    }
    ++size_;
  }

  /// Removes and returns the node of that key; null: there is none.
  Node* take(const MessageKey& key) {
    if (apart_ != nullptr && apart_->key == key) {
      --size_;
      return std::exchange(apart_, nullptr);
    }
    return is_in_buckets() ? take_from_buckets(key) : nullptr;
  }

  /// Calls use(node) for every node.
  template <typename Use>
  void each(Use use) const {
    if (apart_ != nullptr) use(*apart_);
    for (const Node* head : buckets_) {
      for (const Node* node = head; node != nullptr; node = node->next) use(*node);
    }
  }

  /// Removes every node and calls use(node) for it.
  template <typename Use>
  void drain(Use use) {
    if (apart_ != nullptr) {
      --size_;
      use(*std::exchange(apart_, nullptr));
    }
    for (Node*& head : buckets_) {
      while (head != nullptr) {
        Node* const node = head;
        head = node->next;
        node->next = nullptr;
        --size_;
        use(*node);
      }
    }
  }

 private:
  bool is_in_buckets() const { return size_ > (apart_ != nullptr ? 1 : 0); }

  Node* find_in_buckets(const MessageKey& key) const {
    Node* node = buckets_[bucket_of(key)];
    while (node != nullptr && !(node->key == key)) node = node->next;
    return node;
  }

  Node* take_from_buckets(const MessageKey& key) {
    Node** link = &buckets_[bucket_of(key)];
    while (*link != nullptr && !((*link)->key == key)) link = &(*link)->next;
    Node* const node = *link;
    if (node == nullptr) return nullptr;
    *link = node->next;
    node->next = nullptr;
    --size_;
    return node;
  }

  std::size_t bucket_of(const MessageKey& key) const {
    std::uint64_t hash = key.sequence * 0x9e3779b97f4a7c15ULL;
    hash ^= (static_cast<std::uint64_t>(key.index) << 32 ^ key.tag ^ (key.p2p ? 1ULL << 63 : 0)) *
            0xc2b2ae3d27d4eb4fULL;
    return (hash ^ hash >> 32) & (buckets_.size() - 1);
  }

  void push(Node& node) {
    Node*& head = buckets_[bucket_of(node.key)];
    node.next = head;
    head = &node;
  }

  void grow() {
    std::vector<Node*> old(buckets_.empty() ? 16 : 2 * buckets_.size());
    old.swap(buckets_);
    for (Node* node : old) {
      while (node != nullptr) {
        Node* const next = node->next;
        push(*node);
        node = next;
      }
    }
  }

  /// A node that is in no bucket, so that a table of one node computes no hash.
  Node* apart_ = nullptr;
  std::vector<Node*> buckets_;  // a power of two
  std::size_t size_ = 0;
};

}  // namespace hocket::internal
