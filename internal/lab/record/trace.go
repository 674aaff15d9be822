package record

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/internal/lab/trace"
	"github.com/grapevine-epp/grapevine/internal/server/recording"
)

const (
	// A model's bytes per token are fixed after this many counted tokens. Until then, up to
	// maxWaitingLines lines are buffered.
	enoughTokens    = 1 << 14
	maxWaitingLines = 2048
	usualRatio      = 4
)

// traceLine is one request in the public block-hash format, with additional fields that readers of
// that format ignore.
type traceLine struct {
	Timestamp int64    `json:"timestamp"` // milliseconds since the start
	Session   string   `json:"session_id,omitempty"`
	Tenant    string   `json:"tenant,omitempty"`
	Priority  int      `json:"priority,omitempty"`
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	HashIDs   []uint64 `json:"hash_ids"`
	Model     string   `json:"model,omitempty"`
	Endpoint  string   `json:"endpoint"`
	Status    int      `json:"status"`
	TTFT      float64  `json:"ttft_ms,omitempty"`
	Took      float64  `json:"took_ms"`
	Cached    *int     `json:"cached_tokens,omitempty"`
}

// tracer writes a trace and counts its contents.
type tracer struct {
	out     *bufio.Writer
	ratio   float64 // bytes per token as configured; 0: per model
	models  map[string]*modelTrace
	since   int64 // start of the trace in Unix milliseconds
	written int
	dropped atomic.Uint64
	failed  int // ended with an error
	unknown int // successful answers of unknown length

	estimated int // prompts without a token count from the engine
	tokens    int
	blocks    int
}

// modelTrace is the state of one model.
type modelTrace struct {
	ratio         float64                     // bytes per token; 0: not yet fixed
	bytes, tokens int                         // of prompts with a token count
	guessed       struct{ bytes, tokens int } // of all other prompts
	waiting       []recording.Line
}

func newTracer(out io.Writer, ratio float64) *tracer {
	return &tracer{out: bufio.NewWriter(out), ratio: ratio, models: map[string]*modelTrace{}}
}

// add accepts a line. The line is written once the ratio of its model is fixed.
func (t *tracer) add(l recording.Line) error {
	m := t.models[l.Model]
	if m == nil {
		m = &modelTrace{ratio: t.ratio}
		t.models[l.Model] = m
	}
	if m.ratio > 0 {
		return t.write(l, m.ratio)
	}
	if l.Counted {
		m.bytes += l.PromptBytes
		m.tokens += l.Input
	} else {
		m.guessed.bytes += l.PromptBytes
		m.guessed.tokens += l.Input
	}
	m.waiting = append(m.waiting, l)
	if m.tokens >= enoughTokens || len(m.waiting) >= maxWaitingLines {
		return t.settle(m)
	}
	return nil
}

// settle fixes the ratio of a model and writes the held lines. Without any counted prompt it uses
// the ratio of the replicas' estimates, so ids match the recorded lengths.
func (t *tracer) settle(m *modelTrace) error {
	if m.ratio == 0 {
		m.ratio = usualRatio
		switch g := m.guessed; {
		case m.tokens > 0 && m.bytes > 0:
			m.ratio = float64(m.bytes) / float64(m.tokens)
		case g.tokens > 0 && g.bytes > 0:
			m.ratio = float64(g.bytes) / float64(g.tokens)
		}
	}
	var errs []error
	for _, l := range m.waiting {
		errs = append(errs, t.write(l, m.ratio))
	}
	m.waiting = nil
	return errors.Join(errs...)
}

func (t *tracer) close() error {
	var errs []error
	for _, m := range t.models {
		errs = append(errs, t.settle(m))
	}
	return errors.Join(append(errs, t.out.Flush())...)
}

func (t *tracer) write(l recording.Line, ratio float64) error {
	if t.ratio > 0 && !l.Counted && l.PromptBytes > 0 {
		l.Input = max(int(float64(l.PromptBytes)/t.ratio), 1)
	}
	if !l.Counted {
		t.estimated++
	}
	ids := hashIDs(&l, ratio)
	t.written++
	t.tokens += l.Input
	t.blocks += len(ids)
	switch {
	case l.Status >= 400:
		t.failed++
	case l.Output == 0:
		t.unknown++
	}
	b, err := json.Marshal(traceLine{
		max(l.Timestamp-t.since, 0), l.Session, l.Tenant, l.Priority, l.Input, l.Output, ids, l.Model, l.Endpoint, l.Status, l.TTFT, l.Took, l.Cached,
	})
	if err != nil {
		return err
	}
	_, err = t.out.Write(append(b, '\n'))
	return err
}

// hashIDs derives an id for each block of tokens from the chunk in which the block ends. Prompts of
// a model with a common prefix share their first ids. Blocks beyond the hashed bytes get unique
// ids.
func hashIDs(l *recording.Line, ratio float64) []uint64 {
	const block = trace.DefaultBlockSize
	ids := make([]uint64, 0, (l.Input+block-1)/block)
	chunks := l.ChunkIDs
	for len(ids) < cap(ids) {
		end := int(float64((len(ids)+1)*block) * ratio / float64(max(l.ChunkBytes, 1)))
		if end > len(chunks) {
			break
		}
		ids = append(ids, chunks[max(end, 1)-1])
	}
	var last uint64
	if len(chunks) > 0 {
		last = chunks[len(chunks)-1]
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], last)
	for len(ids) < cap(ids) {
		binary.LittleEndian.PutUint64(b[8:], uint64(len(ids)))
		ids = append(ids, xxhash.Sum64(b[:])>>11)
	}
	return ids
}

func (t *tracer) summary() string {
	s := fmt.Sprintf("%d requests, %d prompt tokens, %d hash ids", t.written, t.tokens, t.blocks)
	for _, name := range slices.Sorted(maps.Keys(t.models)) {
		s += fmt.Sprintf("; %s has %.2f bytes for each token", name, t.models[name].ratio)
	}
	if n := t.dropped.Load(); n > 0 {
		s += fmt.Sprintf("; %d requests were dropped: this reader was too slow", n)
	}
	if t.failed > 0 {
		s += fmt.Sprintf("; %d requests failed", t.failed)
	}
	if t.estimated > 0 {
		s += fmt.Sprintf("; the length of %d prompts is estimated", t.estimated)
	}
	if t.unknown > 0 {
		s += fmt.Sprintf("; the length of %d answers was not seen and is 0 (see --bodies)", t.unknown)
	}
	return s
}
