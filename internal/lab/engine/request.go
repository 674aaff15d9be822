package engine

import (
	"fmt"
	"sort"
)

// Hash is an engine's name of a block. It identifies the block and all blocks before it.
type Hash uint64

// Request is one sequence to be computed. The engine keeps its slices until
// the request has ended or was aborted, and reads them only.
type Request struct {
	ID     uint64 // the caller's; unique among requests that have not ended
	Prompt int    // prompt tokens, at least 1
	Output int    // tokens to be generated, at least 1

	// Blocks names the full blocks of the prompt and, behind them, of the
	// generated tokens. A name for every full block of the prompt is needed; blocks
	// behind the last name are given private names that no other request has. A
	// name of a block that is never full is ignored.
	Blocks []Hash
	// Tokens are the ids of prompt and answer, shown in stored events. Optional.
	Tokens []uint32

	Adapter  uint32 // adapter number, 0 for the base model
	Priority int64  // with Config.ByPriority: lower is sooner, equal ones as they came
	// Hold keeps the blocks of the finished request until Release. Remote marks a prompt whose
	// blocks are transferred from another engine at admission: only the part after the last full
	// block is computed. Fetched is the number of leading blocks that are transferred in the same
	// way.
	Hold, Remote bool
	Fetched      int

	Report bool // announce the hit prefix when first scheduled ("full" report mode)
	Tag    *Tag // handed through to stored events
}

// Tag is the data of a stored event in addition to the tokens.
type Tag struct {
	LoRA   string // adapter name, empty for none
	LoRAID int    // adapter id, 0 for none
	Salt   string // cache salt, empty for none
}

func (r *Request) check(c *Config) error {
	if r.Prompt < 1 || r.Output < 1 {
		return fmt.Errorf("%w: %d prompt and %d output tokens", ErrRequest, r.Prompt, r.Output)
	}
	if len(r.Blocks) < r.Prompt/c.BlockSize && !c.NoPrefixCache {
		return fmt.Errorf("%w: %d block names for %d prompt tokens", ErrRequest, len(r.Blocks), r.Prompt)
	}
	if r.Tokens != nil && len(r.Tokens) < r.Prompt+r.Output {
		return fmt.Errorf("%w: %d token ids for %d tokens", ErrRequest, len(r.Tokens), r.Prompt+r.Output)
	}
	if r.Prompt+r.Output > c.MaxModelLen {
		return fmt.Errorf("%w: %d + %d tokens, limit %d", ErrTooLong, r.Prompt, r.Output, c.MaxModelLen)
	}
	return nil
}

// seq is a request and its progress.
type seq struct {
	Request
	number     uint64  // in order of arrival
	total      int     // tokens of the prompt and generated so far
	computed   int     // tokens whose KV is computed or scheduled
	registered int     // leading blocks that are in the prefix cache
	blocks     []int32 // physical blocks
	chunk      int     // tokens scheduled in this step
	cached     int     // tokens found in the cache at first admission; -1 before
	preempted  int
}

// before reports whether s precedes o by priority.
func (s *seq) before(o *seq) bool {
	if s.Priority != o.Priority {
		return s.Priority < o.Priority
	}
	return s.number < o.number
}

func (s *seq) generated() int { return s.total - s.Prompt }

// decoding reports whether only the last token is left to compute.
func (s *seq) decoding() bool { return s.total > s.Prompt && s.total-s.computed == 1 }

func (s *seq) done() bool { return s.total >= s.Prompt+s.Output }

// hash returns the name of full block i.
func (s *seq) hash(i int) Hash {
	if i < len(s.Blocks) {
		return s.Blocks[i]
	}
	return Hash(mix(mix(s.ID+0x9e3779b97f4a7c15) ^ uint64(i)))
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// queue is a double-ended queue of sequences.
type queue struct {
	items []*seq
	head  int
}

func (q *queue) len() int        { return len(q.items) - q.head }
func (q *queue) at(i int) *seq   { return q.items[q.head+i] }
func (q *queue) all() []*seq     { return q.items[q.head:] }
func (q *queue) pushBack(s *seq) { q.items = append(q.items, s) }

func (q *queue) pushFront(s *seq) {
	if q.head == 0 {
		q.items = append(q.items, nil)
		copy(q.items[1:], q.items)
		q.items[0] = s
		return
	}
	q.head--
	q.items[q.head] = s
}

// insert adds s to a queue that is ordered by priority.
func (q *queue) insert(s *seq) {
	at := q.head + sort.Search(q.len(), func(i int) bool { return s.before(q.at(i)) })
	q.items = append(q.items, nil)
	copy(q.items[at+1:], q.items[at:])
	q.items[at] = s
}

func (q *queue) remove(i int) {
	at := q.head + i
	copy(q.items[q.head+1:at+1], q.items[q.head:at])
	q.items[q.head] = nil
	q.head++
	if q.head > 32 && q.head*2 > len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
}
